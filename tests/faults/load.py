"""Bounded clients that keep asking until they are told to stop, with requests drawn from a seed."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field, replace

from tests.faults.client import Answer, Ask, Kind, Manner, send
from tests.faults.engine import LONG_WORDS
from tests.faults.prices import (
    COMPRESSION_PRICE,
    COUNTED_COMPRESSION_PRICE,
    PRICES,
    PROMPT_COMPRESSION_PRICE,
)

CLIENTS = 10
MOST_PER_CLIENT = 60
# Between two requests of a client: after an answer, and after a refusal.
PAUSE_S, LONG_PAUSE_S = (0.0, 0.02), (0.03, 0.15)
REQUEST_TIMEOUT_S = 60.0
MODELS = tuple(PRICES)
WORDS = ("over", "the", "lazy", "dog", "and", "back", "again")
KINDS: tuple[Kind, ...] = ("chat", "chat", "chat", "squeezed", "squeezed", "compress", "batch")
# Dear enough for a compression of its prompts to pay.
SQUEEZED_MODEL = "beta"
# Those of a chat that comes again, and was compressed before.
SHARED_LETTERS = "Ann"
MANNERS: tuple[Manner, ...] = ("slow body", "slow reader", "stops reading")
MOST_CHOICES = 4


@dataclass
class Load:
    """The requests of one run, and what became of them."""

    port: int
    key: str
    stream: bool
    rng: random.Random
    # The share of clients that leave at a random byte.
    leavers: float = 0.0
    longest_tokens: int = 24
    models: tuple[str, ...] = MODELS
    id_prefix: str = "r"
    most: int = MOST_PER_CLIENT
    # Keys of further workspaces: half of the clients belong to these.
    other_keys: tuple[str, ...] = ()
    # Compressions and batches too, chats of several choices, and clients that dawdle.
    is_mixed: bool = False
    dawdlers: float = 0.1
    # By which model the prompts of all chats are compressed, unless they are mixed.
    squeezed_by: str | None = None
    answers: list[Answer] = field(default_factory=list)
    _asked: int = 0
    _stopping: bool = False
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._client(number)) for number in range(CLIENTS)]

    async def completed_more(self, count: int, *, deadline_s: float) -> None:
        """Wait until `count` more requests completed than now. Raises `TimeoutError`."""
        wanted = self.completed + count
        async with asyncio.timeout(deadline_s):
            while self.completed < wanted and not all(task.done() for task in self._tasks):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    @property
    def completed(self) -> int:
        return sum(answer.completed for answer in self.answers)

    async def stop(self) -> None:
        """Let the running requests end, and send no more."""
        self._stopping = True
        await asyncio.gather(*self._tasks)

    async def _client(self, number: int) -> None:
        # Half of the clients are the first workspace's.
        keys = (self.key, *self.other_keys, *(self.key for _ in self.other_keys))
        for _ in range(self.most):
            if self._stopping:
                return
            ask = self._next(keys[number % len(keys)])
            answer = await send(ask, self.port, timeout_s=REQUEST_TIMEOUT_S)
            self.answers.append(answer)
            went_well = answer.completed or answer.left
            await asyncio.sleep(self.rng.uniform(*(PAUSE_S if went_well else LONG_PAUSE_S)))

    def _next(self, key: str) -> Ask:
        self._asked += 1
        rng = self.rng
        request_id = f"{self.id_prefix}{self._asked}"
        sent, read = self._leaving()
        ask = Ask(
            request_id=request_id,
            key=key,
            model=rng.choice(self.models),
            max_tokens=rng.randint(1, self.longest_tokens),
            stream=self.stream,
            prompt=" ".join([request_id, *WORDS[: rng.randrange(len(WORDS))]]),
            leaves_at_sent=sent,
            leaves_at_read=read,
        )
        if self.squeezed_by is not None:
            letters_of = rng.choice((request_id, SHARED_LETTERS))
            return replace(ask, kind="squeezed", letters_of=letters_of, squeezed_by=self.squeezed_by)
        return self._mixed(ask) if self.is_mixed else ask

    def _leaving(self) -> tuple[int | None, int | None]:
        rng = self.rng
        if rng.random() >= self.leavers:
            return None, None
        # Most leave while they read; a stream is longer than a JSON reply.
        if rng.random() < 0.15:
            return rng.randrange(1, 400), None
        return None, rng.randrange(0, 5000 if self.stream else 1200)

    def _mixed(self, ask: Ask) -> Ask:
        """The same request, or one of another kind, of several choices, or of a client with bad manners."""
        rng = self.rng
        kind = rng.choice(KINDS)
        manner: Manner = rng.choice(MANNERS) if rng.random() < self.dawdlers else "plain"
        if kind == "squeezed":
            letters_of = rng.choice((ask.request_id, SHARED_LETTERS))
            by = rng.choice((None, PROMPT_COMPRESSION_PRICE.model, COUNTED_COMPRESSION_PRICE.model))
            squeezed = replace(ask, kind=kind, model=SQUEEZED_MODEL, letters_of=letters_of, squeezed_by=by)
            return replace(squeezed, manner="plain" if manner == "stops reading" else manner)
        if kind != "chat":
            model = COMPRESSION_PRICE.model
            return replace(ask, kind=kind, manner=manner, model=model, n=rng.randint(1, MOST_CHOICES))
        if manner == "stops reading":
            # Longer than what the kernel keeps for a client that takes nothing.
            return replace(ask, manner=manner, prompt=f"{ask.prompt} {LONG_WORDS}", n=MOST_CHOICES)
        return replace(ask, manner=manner, n=rng.choice((1, 1, 1, rng.randint(2, MOST_CHOICES))))
