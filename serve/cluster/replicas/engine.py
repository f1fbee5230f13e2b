"""Models in replicas that Ray Serve runs: watched replies of engines, and calls of compressors and retrieval models."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ray.exceptions import RayError, TaskCancelledError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RayServeException
from ray.serve.handle import DeploymentHandle, DeploymentResponse

from compression.pipeline.compression_model import (
    NO_TERMS,
    CompressionFault,
    CompressionRequest,
    CompressionResult,
    JobTerms,
)
from compression.pipeline.errors import CompressorFailed, CompressorOverloaded, CompressorUnavailable
from models.embedding_backends import Computed, RetrievalJob
from models.engine import EngineChunk, EngineFault, EngineRequest, PromptBound, ScoredReply
from models.errors import EngineDied, EngineFailed, EngineTimedOut, EngineUnavailable
from models.surviving import surviving
from serve.catalog.offered import UNAVAILABLE
from serve.cluster.replicas.applications import BOUND_KEY
from serve.cluster.replicas.pool import ReplicaClient, ReplicaGone, Replicas, ReplyBroken
from serve.cluster.replicas.port import is_last
from serve.cluster.replicas.spare_scores import scored_reply
from serve.cluster.replicas.status import ReplicaStatus
from serve.config.chat_models import ReplicaSettings
from serve.config.server_settings import ServerSettings
from serve.fairness.places import QueueFull

if TYPE_CHECKING:
    from serve.metrics.background import Waits

Failure = Callable[[str], Exception]


@dataclass(frozen=True, slots=True)
class Failures:
    """Errors of a call that no replica has answered, made of the reason: none came in time, as many wait as may, or the
    replica died."""

    late: Failure
    full: Failure
    died: Failure


async def answer_of(response: DeploymentResponse, model_id: str, within_s: float, failures: Failures) -> Any:
    """A replica's answer to a call of its handle. Raises one of `failures`, or the fault that it answers."""
    try:
        async with asyncio.timeout(within_s):
            answer = await response
    except TimeoutError:
        response.cancel()
        raise failures.late(f"{model_id}: no answer within {within_s:g} s") from None
    except asyncio.CancelledError:
        response.cancel()
        raise
    except (BackPressureError, DeploymentUnavailableError) as error:
        raise failures.full(refusal(model_id, error)) from error
    except (TaskCancelledError, RayError, RayServeException) as error:
        raise failures.died(f"{model_id}: the model died while it worked on this") from error
    if isinstance(answer, CompressionFault | EngineFault):
        raise answer.error()
    return answer


def refusal(model_id: str, error: Exception) -> str:
    """Words for a request that no replica can take: the caller learns that the model is away, and not why."""
    if isinstance(error, DeploymentUnavailableError):
        return f"{model_id} {UNAVAILABLE}"
    return f"{model_id}: no replica can take the request"


class RayCompressor:
    """One compression model's replicas, which `app` names. `longest_s` bounds a request, the start of a replica
    included: for a replica that gives no answer at all, since each ends its own work in time."""

    def __init__(self, model_id: str, app: str, handle: DeploymentHandle, *, longest_s: float) -> None:
        self._handle = handle.options(method_name="compress")
        self._counting = handle.options(method_name="count_tokens")
        self._longest_s = longest_s
        self._model_id = model_id
        self._failures = Failures(CompressorUnavailable, CompressorOverloaded, CompressorFailed)
        self.ready = ReplicaStatus(app).is_running

    async def compress(self, request: CompressionRequest, terms: JobTerms = NO_TERMS) -> CompressionResult:
        result = await answer_of(
            self._handle.remote(request, terms), self._model_id, self._longest_s, self._failures
        )
        assert isinstance(result, CompressionResult)
        return result

    async def count_tokens(self, text: str, terms: JobTerms = NO_TERMS) -> int:
        return int(
            await answer_of(
                self._counting.remote(text, terms), self._model_id, self._longest_s, self._failures
            )
        )


class RayRetriever:
    """One model's replicas, which `app` names. The replica ends work that takes longer than `deadline_s`; `longest_s`
    bounds a request, the start of a replica included, where no answer comes at all."""

    def __init__(
        self,
        model_id: str,
        app: str,
        handle: DeploymentHandle,
        *,
        deadline_s: float,
        longest_s: float,
        retry_after_s: int,
    ) -> None:
        self._handle = handle.options(method_name="retrieve")
        self._deadline_s = deadline_s
        self._longest_s = longest_s
        late = partial(EngineTimedOut, retry_after_s=retry_after_s)
        full = partial(EngineUnavailable, retry_after_s=retry_after_s)
        self._model_id = model_id
        self._failures = Failures(late, full, EngineFailed)
        self.ready = ReplicaStatus(app).is_running

    async def compute(self, job: RetrievalJob, *, payer: str) -> Computed:
        terms = JobTerms(payer=payer, deadline_s=self._deadline_s)
        answer = await answer_of(
            self._handle.remote(job, terms), self._model_id, self._longest_s, self._failures
        )
        assert isinstance(answer, Computed)
        return answer


class RayEngine:
    """The `models.engine.Engine` of one catalog model, whose application at Ray Serve is `app`, and of the adapters
    that its replicas serve."""

    def __init__(
        self,
        app: str,
        handle: DeploymentHandle,
        client: ReplicaClient,
        *,
        replicas: ReplicaSettings,
        server: ServerSettings,
        waits: Waits = nullcontext,
        bound_at: str = BOUND_KEY,
    ) -> None:
        self._bound_at = bound_at
        self._replicas = Replicas(handle, client, max_queued=replicas.max_queued_requests, waits=waits)
        self._client = client
        self._counting = handle.options(method_name="count_tokens")
        self._server = server
        self.ready = ReplicaStatus(app).is_running
        self._bound: PromptBound | None = None

    def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        """Yield a replica's chunks, and those of others that go on where it died (`models.surviving`)."""
        server = self._server
        return surviving(self._generate, request, times=server.survivals, wait_s=server.survival_wait_s)

    async def _generate(
        self, request: EngineRequest, wait_s: float | None = None
    ) -> AsyncGenerator[EngineChunk, None]:
        """Yield one replica's chunks; it must begin in `wait_s`, or in the time that all may wait. A replica sends a
        sign of life at least every half second."""
        items = self._items(request)
        watch: _Watch | None = None
        try:
            while True:
                start_wait_s = self._server.start_wait_s if wait_s is None else wait_s
                async with asyncio.timeout(self._server.stall_s if watch else start_wait_s):
                    item = await anext(items, None)
                if item is None:
                    raise EngineFailed(f"{request.model_id}: the reply was cut short")
                if isinstance(item, EngineFault):
                    raise item.error()
                yield item
                if item.finished:
                    return
                watch = watch or _Watch(
                    time.monotonic(), self._server.progress_s, self._server.longest_request_s
                )
                # Of many prompts each is read in its turn, and an echo alone generates nothing.
                watch.see(item.usage.total_tokens, time.monotonic())
        except TimeoutError:
            raise self._timeout_error(request, taken=watch is not None) from None
        except _Overdue as overdue:
            raise EngineFailed(f"{request.model_id}: {overdue}") from None
        except (BackPressureError, DeploymentUnavailableError, QueueFull) as error:
            raise self._refused(refusal(request.model_id, error)) from error
        except (ReplyBroken, TaskCancelledError, RayError, RayServeException) as error:
            raise EngineDied(
                f"{request.model_id}: the engine died while it worked on this request"
            ) from error
        finally:
            await items.aclose()

    async def _items(self, request: EngineRequest) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        """What the first replica that can be reached answers."""
        while True:
            async with self._replicas.lease(request) as lease:
                try:
                    async with aclosing(self._client.generate(lease.address, request)) as items:
                        async for item in items:
                            if isinstance(item, EngineChunk):
                                lease.used_tokens = item.usage.total_tokens
                            elif item.kind == "died":
                                self._replicas.avoid(lease)
                            yield item
                    return
                except ReplyBroken:
                    self._replicas.avoid(lease)
                    raise
                except ReplicaGone:
                    # It has died, and Ray has not noticed yet.
                    self._replicas.lost(lease)

    async def close(self) -> None:
        """Ask no replica any more what it has cached."""
        await self._replicas.close()

    def prompt_bound(self) -> PromptBound | None:
        """The bound that the first replica to run has said; all of a model's have its tokenizer and its template."""
        if self._bound is None:
            said = next(iter(self._replicas.said(self._bound_at)), None)
            self._bound = PromptBound(**said) if said is not None else None
        return self._bound

    async def count_tokens(self, request: EngineRequest, *, beyond_context: bool = False) -> int:
        """The prompt's tokens, as a replica counts them; one that is started for it gets the time to start."""
        failures = Failures(
            late=lambda _: self._timeout_error(request, taken=False),
            full=self._refused,
            died=lambda _: EngineFailed(f"{request.model_id}: the engine died while it counted the prompt"),
        )
        response = self._counting.remote(request, beyond_context=beyond_context)
        return int(await answer_of(response, request.model_id, self._server.start_wait_s, failures))

    async def score(self, request: EngineRequest, reply: Sequence[int]) -> ScoredReply:
        """By any replica of the model. It takes no place, and Ray knows nothing of it: no replica is started for it,
        and none is kept."""
        running = self._replicas.addresses()
        if not running:
            raise self._refused(f"{request.model_id}: no replica can take the request")
        address, item = random.choice(running), None
        items = self._client.generate(address, replace(request, score=tuple(reply)))
        try:
            while item is None or not is_last(item):
                async with asyncio.timeout(self._server.stall_s):
                    item = await anext(items)
        except (TimeoutError, ReplicaGone, ReplyBroken) as error:
            raise EngineFailed(f"{request.model_id}: the replica that scored a reply is gone") from error
        finally:
            await items.aclose()
        if isinstance(item, EngineFault):
            raise item.error()
        return scored_reply(item.data)

    def _refused(self, why: str) -> EngineUnavailable:
        return EngineUnavailable(why, retry_after_s=self._server.retry_after_s)

    def _timeout_error(self, request: EngineRequest, *, taken: bool) -> EngineFailed | EngineUnavailable:
        if taken:
            return EngineFailed(f"{request.model_id}: the engine sent nothing for {self._server.stall_s:g} s")
        return EngineUnavailable(
            f"{request.model_id}: no replica took the request within {self._server.start_wait_s:g} s; it may still be "
            "starting",
            retry_after_s=self._server.retry_after_s,
        )


class _Overdue(Exception):
    """The engine lives and does not get on with this request."""


class _Watch:
    """Notices a request that makes no progress, or goes on for longer than any may; times in seconds."""

    def __init__(self, now: float, progress_s: float, longest_s: float) -> None:
        self._began = self._progress_at = now
        self._tokens = 0
        self._progress_s = progress_s
        self._longest_s = longest_s

    def see(self, tokens: int, now: float) -> None:
        """Take in a sign of life, with what was read and generated so far. Raises `_Overdue`."""
        if tokens > self._tokens:
            self._tokens, self._progress_at = tokens, now
        if now - self._progress_at > self._progress_s:
            raise _Overdue(f"no token from the engine for {self._progress_s:g} s")
        if now - self._began > self._longest_s:
            raise _Overdue(f"not done after {self._longest_s:g} s")
