"""Checks of what compression changed: a sample of replies is scored again, after the whole prompt, in the background.

A reply that has ended and is settled waits here, in memory alone, until its engine has time that nobody wants. What
does not fit, or has no turn within some minutes, is dropped and counted. Nothing here fails, delays or bills a chat.
"""

import asyncio
import logging
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pydantic_core import to_json

from billing.caller import Caller
from billing.errors import BillingError
from billing.preservation.checks import PreservationCheck, PreservationStore
from billing.preservation.sizes import SizedFor
from models.engine import Engine, EngineRequest, ScoredReply, TokenUsage
from models.errors import EngineError, EngineRejected
from serve.metrics.background import NotScored, PreservationMetrics
from serve.prompt_compression.blocks import Block, looks_like_json
from serve.prompt_compression.compressed_chat import CompressedChat
from serve.prompt_compression.whole_chats import WholeChats, could_be_compressed

# Tokens of a reply that are scored, from its first.
MOST_REPLY = 512
# Of one HTTP process: replies that wait, of one project, and what they may have together, as JSON.
MOST_WAITING, MOST_OF_A_PROJECT, MOST_BYTES = 64, 16, 64 * 2**20
# From the end of the reply. What waits has its text in memory.
LONGEST_WAIT_S = 600.0
# A token is counted as no less likely than that: e^-50 is nothing, and the logarithm of nothing has no mean.
LEAST_LOG_PROB = -50.0
# The weight of the newest in the share of a project's samples that are scored; the least that it is taken for, so that
# a project whose chats are all whole by now is not left so for good; and of how many projects it is known.
NEWEST, LEAST_SHARE, MOST_PROJECTS = 0.05, 0.05, 4096
logger = logging.getLogger("pith.prompt_compression")


def kind_of(block: Block) -> str:
    """What a report is by: a tool's result in JSON, another one, or a text of somebody else."""
    if not block.is_tool_result:
        return "text"
    return "tool_json" if looks_like_json(block.text) else "tool_text"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledReply:
    """A sampled chat that has ended well: the request that its engine was `sent`, the `messages` of the whole prompt,
    and the token ids of the reply."""

    messages: Sequence[Mapping[str, Any]]
    sent: EngineRequest
    reply: tuple[int, ...]
    usage: TokenUsage
    caller: Caller
    event_id: str
    request_id: str
    compressed: CompressedChat

    def check(self, settled_at: datetime) -> PreservationCheck:
        """What is known without scores."""
        settings = self.compressed.prompt.settings
        kinds = {kind_of(each.block) for each in self.compressed.result.compressed}
        return PreservationCheck(
            event_id=self.event_id,
            request_id=self.request_id,
            workspace_id=self.caller.workspace_id,
            project_id=self.caller.project_id,
            model_id=self.sent.model_id,
            compression_model_id=settings.model_id,
            settled_at=settled_at,
            kinds="+".join(sorted(kinds)),
            target_ratio=settings.target_ratio,
            keep=settings.keep,
            original_tokens=0,
            sent_tokens=self.usage.prompt_tokens,
            scored_tokens=0,
            agreeing_tokens=0,
            nats_per_token=0.0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """To be scored by `until`, by the event loop's clock; `size` is that of both requests, as JSON."""

    whole: EngineRequest
    sent: EngineRequest
    reply: tuple[int, ...]
    check: PreservationCheck
    until: float
    size: int
    # For whose size it is a sample.
    sized: SizedFor | None


class NotComparable(Exception):
    """The scores are not of the reply that was given; `reason` is counted."""

    def __init__(self, reason: NotScored) -> None:
        super().__init__(reason)
        self.reason = reason


def compared(check: PreservationCheck, whole: ScoredReply, sent: ScoredReply) -> PreservationCheck:
    """The check with what the scores say. Raises `NotComparable`."""
    if sent.prompt_tokens != check.sent_tokens:
        # Rendered again it is another prompt: a template that tells the time, for example.
        raise NotComparable("prompt_differs")
    scored = min(len(whole.log_probs), len(sent.log_probs))
    if not scored:
        raise NotComparable("too_long")
    shifts = [
        max(LEAST_LOG_PROB, after_sent) - max(LEAST_LOG_PROB, after_whole)
        for after_sent, after_whole in zip(sent.log_probs[:scored], whole.log_probs[:scored], strict=True)
    ]
    both = zip(sent.likeliest[:scored], whole.likeliest[:scored], strict=True)
    return replace(
        check,
        original_tokens=whole.prompt_tokens,
        scored_tokens=scored,
        agreeing_tokens=sum(one == other for one, other in both),
        nats_per_token=sum(shifts) / scored,
    )


class Waiting:
    """Replies of one model that wait, in turns of their projects."""

    def __init__(self) -> None:
        self._by_project: OrderedDict[str, deque[Job]] = OrderedDict()

    def of(self, project_id: str) -> int:
        return len(self._by_project.get(project_id, ()))

    def add(self, job: Job) -> None:
        self._by_project.setdefault(job.check.project_id, deque()).append(job)

    def next(self) -> Job | None:
        """Taken out: the first of the project that was not served for longest."""
        if not self._by_project:
            return None
        project_id, jobs = self._by_project.popitem(last=False)
        job = jobs.popleft()
        if jobs:
            self._by_project[project_id] = jobs
        return job


@dataclass(slots=True, kw_only=True)
class Verifier:
    """Of one HTTP process. To be used in its event loop."""

    engines: Mapping[str, Engine]
    store: PreservationStore
    metrics: PreservationMetrics
    whole: WholeChats
    is_on: bool = True
    draw: Callable[[], float] = random.random
    clock: Callable[[], datetime]
    _lines: dict[str, Waiting] = field(default_factory=dict, init=False)
    _workers: dict[str, asyncio.Task[None]] = field(default_factory=dict, init=False)
    # By project, of its newest samples about, the share that was scored: no other project's traffic counts in it.
    _scored_share: OrderedDict[str, float] = field(default_factory=OrderedDict, init=False)
    _waiting: int = field(default=0, init=False)
    _bytes: int = field(default=0, init=False)
    _is_closed: bool = field(default=False, init=False)

    def kept_of(self, compressed: CompressedChat) -> int:
        """Tokens of its reply that a chat is to keep: those of a sampled one whose prompt was really compressed."""
        if not self.is_on or not compressed.result.compressed:
            return 0
        share = compressed.prompt.settings.verify
        return MOST_REPLY if share > 0 and self.draw() < share else 0

    def left_whole(self, compressed: CompressedChat) -> None:
        """Count a chat that was sent whole as its size, as often as it had been scored otherwise: else sizes would
        seem to change little whenever engines have no time to score. Never raises."""
        prompt = compressed.prompt
        if not self.is_on or prompt.sized is None or prompt.left_whole != "within":
            return
        try:
            share = prompt.settings.verify * max(
                LEAST_SHARE, self._scored_share.get(prompt.sized.project_id, 1.0)
            )
            if self.draw() < share and could_be_compressed(prompt):
                self.whole.add(prompt.sized)
        except Exception:
            logger.exception("a chat that was left whole was not counted")

    def take(self, settled: SettledReply) -> None:
        """Never raises, and waits for nothing."""
        try:
            self._take(settled)
        except Exception:
            logger.exception("a reply was not taken to be scored")
            self._drop(settled.sent.model_id, "failed", settled.compressed.prompt.sized)

    def _take(self, settled: SettledReply) -> None:
        sent = settled.sent
        line = self._lines.setdefault(sent.model_id, Waiting())
        reason = self._refusal(settled, line)
        whole = replace(sent, messages=tuple(settled.messages))
        size = 0 if reason else len(to_json(whole)) + len(to_json(sent.messages))
        if reason is None and self._bytes + size > MOST_BYTES:
            reason = "queue_full"
        sized = settled.compressed.prompt.sized
        if reason is not None:
            self._drop(sent.model_id, reason, sized)
            return
        check, until = settled.check(self.clock()), asyncio.get_running_loop().time() + LONGEST_WAIT_S
        line.add(
            Job(whole=whole, sent=sent, reply=settled.reply, check=check, until=until, size=size, sized=sized)
        )
        self._waiting += 1
        self._bytes += size
        if sent.model_id not in self._workers:
            self._workers[sent.model_id] = asyncio.create_task(self._work(sent.model_id))

    def _refusal(self, settled: SettledReply, line: Waiting) -> NotScored | None:
        if settled.sent.sequences > 1:
            return "several_choices"
        if not settled.reply:
            return "no_reply"
        is_full = self._waiting >= MOST_WAITING or line.of(settled.caller.project_id) >= MOST_OF_A_PROJECT
        return "queue_full" if is_full or self._is_closed else None

    async def close(self) -> None:
        """Drop what waits, and what is being scored."""
        self._is_closed = True
        workers = [*self._workers.values()]
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        for model_id, line in self._lines.items():
            while line.next() is not None:
                self.metrics.drop(model_id, "stopped")

    async def _work(self, model_id: str) -> None:
        """Until none of the model's wait. One at a time: its engine has no more time for more."""
        try:
            while (job := self._lines[model_id].next()) is not None:
                try:
                    await self._verify(job)
                finally:
                    self._waiting -= 1
                    self._bytes -= job.size
        finally:
            del self._workers[model_id]

    async def _verify(self, job: Job) -> None:
        try:
            async with asyncio.timeout_at(job.until):
                check, engine_s = await self._scored(job)
                await self.store.record(check, job.sized, self.clock())
        except asyncio.CancelledError:
            self._drop(job.check.model_id, "stopped", job.sized)
            raise
        except TimeoutError:
            self._drop(job.check.model_id, "late", job.sized)
        except NotComparable as error:
            self._drop(job.check.model_id, error.reason, job.sized)
        except EngineRejected as error:
            self._drop(job.check.model_id, "too_long" if error.is_too_long else "refused", job.sized)
        except EngineError as error:
            logger.info("%s: a reply was not scored: %s", job.check.model_id, error)
            self._drop(job.check.model_id, "unavailable", job.sized)
        except BillingError as error:
            logger.warning("a check of a compressed chat was not written: %s", error)
            self._drop(job.check.model_id, "not_recorded", job.sized)
        except Exception:
            logger.exception("a reply was not scored")
            self._drop(job.check.model_id, "failed", job.sized)
        else:
            self.metrics.score(check, engine_s)
            self._note(job.sized, was_scored=True)

    def _drop(self, model_id: str, reason: NotScored, sized: SizedFor | None) -> None:
        self.metrics.drop(model_id, reason)
        self._note(sized, was_scored=False)

    def _note(self, sized: SizedFor | None, *, was_scored: bool) -> None:
        if sized is None:
            return
        share = self._scored_share.pop(sized.project_id, 1.0)
        self._scored_share[sized.project_id] = share + NEWEST * (was_scored - share)
        if len(self._scored_share) > MOST_PROJECTS:
            self._scored_share.popitem(last=False)

    async def _scored(self, job: Job) -> tuple[PreservationCheck, float]:
        engine = self.engines[job.check.model_id]
        whole = await engine.score(job.whole, job.reply)
        sent = await engine.score(job.sent, job.reply)
        return compared(job.check, whole, sent), whole.engine_s + sent.engine_s
