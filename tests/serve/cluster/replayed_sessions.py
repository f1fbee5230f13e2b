"""A simulation of replicas with prefix caches and of ingress processes that choose among them, as agents' sessions are
replayed: without Ray, sockets or time. Whatever is drawn by lot has a seed.

The caches are as vLLM's, exact; pith's parts are the real ones, and hear from one another some requests late.
`python -m tests.serve.cluster.replayed_sessions` prints hit rates as parts of what one cache of the same size finds.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from models.engine import EngineRequest, TokenUsage
from serve.cluster.replicas.cached_beginnings import BLOCK_BYTES, CacheContents, Changes, beginnings
from serve.cluster.replicas.known_caches import KnownCaches

CHARS_PER_TOKEN, BLOCK_TOKENS = 4, 16
BLOCK_CHARS = CHARS_PER_TOKEN * BLOCK_TOKENS
SLACK = 8
# From one request to the next.
STEP_S = 0.05
Messages = tuple[dict[str, str], ...]


@dataclass(slots=True)
class Cache:
    """A prefix cache of `blocks`; what was used last goes last, and of a prompt its end first."""

    blocks: int
    kept: OrderedDict[int, None] = field(default_factory=OrderedDict)

    def found(self, keys: Sequence[int]) -> int:
        return next((at for at, key in enumerate(keys) if key not in self.kept), len(keys))

    def read(self, text: str) -> TokenUsage:
        keys = block_keys(text)
        found = self.found(keys)
        for key in reversed(keys):
            self.kept[key] = None
            self.kept.move_to_end(key)
        while len(self.kept) > self.blocks:
            self.kept.popitem(last=False)
        return TokenUsage(len(text) // CHARS_PER_TOKEN, 1, found * BLOCK_TOKENS)


def block_keys(text: str) -> list[int]:
    keys, so_far = [], 0
    for end in range(BLOCK_CHARS, len(text), BLOCK_CHARS):
        so_far = hash((so_far, text[end - BLOCK_CHARS : end]))
        keys.append(so_far)
    return keys


@dataclass(slots=True)
class Hits:
    """Of prompt tokens; `requests` by replica."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    requests: Counter[str] = field(default_factory=Counter)

    def count(self, usage: TokenUsage, replica: str) -> None:
        self.prompt_tokens += usage.prompt_tokens
        self.cached_tokens += usage.cached_tokens
        self.requests[replica] += 1

    @property
    def rate(self) -> float:
        return self.cached_tokens / self.prompt_tokens


class Process:
    """One ingress process: what it has heard of the replicas' caches, and its requests in flight."""

    def __init__(self, replicas: Sequence[str], in_flight: int) -> None:
        self.caches = KnownCaches()
        self.caches.run(replicas, 0.0)
        self._loads = dict.fromkeys(replicas, 0)
        self._running: deque[str] = deque()
        self._in_flight = in_flight

    def send(self, keys: list[int], now_s: float) -> str:
        if len(self._running) == self._in_flight:
            self._loads[self._running.popleft()] -= 1
        replica = self.caches.pick(keys, self._loads, slack=SLACK, now_s=now_s)
        self.caches[replica].send(keys, now_s)
        self._loads[replica] += 1
        self._running.append(replica)
        return replica


@dataclass(slots=True)
class Late:
    """What a replica tells of its cache, on its way to all processes: they have it so many steps later."""

    replica: str
    told: Changes
    steps: int
    on_its_way: deque[tuple[list[int], list[int]]] = field(default_factory=deque)

    def step(self, processes: Sequence[Process], now_s: float) -> None:
        self.on_its_way.append(self.told.take())
        if len(self.on_its_way) > self.steps:
            added, dropped = self.on_its_way.popleft()
            for process in processes:
                process.caches[self.replica].change(added, dropped, now_s)


def tell_exactly(
    processes: Sequence[Process], caches: Mapping[str, Cache], keys: list[int], text: str
) -> None:
    """All processes know what all caches have of this prompt, at once."""
    blocks = block_keys(text)
    for name, cache in caches.items():
        cached = keys[: cache.found(blocks) * BLOCK_CHARS // BLOCK_BYTES]
        for process in processes:
            process.caches[name].told = set(cached)
            process.caches[name].on_the_way.clear()


def routed(
    prompts: Sequence[Messages],
    *,
    blocks: int,
    replicas: int = 4,
    processes: int = 2,
    steps_late: int = 2,
    exact: bool = False,
) -> Hits:
    """The hits of so many replicas, which share the blocks. `exact`: nobody measures, and everybody knows."""
    rng = random.Random(0)
    names = [f"replica-{number}" for number in range(replicas)]
    caches = {name: Cache(blocks // replicas) for name in names}
    contents = {name: CacheContents(blocks // replicas * BLOCK_TOKENS) for name in names}
    ingress = [Process(names, in_flight=4) for _ in range(processes)]
    hits = Hits()
    with ExitStack() as until:
        late = [Late(name, until.enter_context(contents[name].listener()), steps_late) for name in names]
        for step, messages in enumerate(prompts):
            keys = beginnings(EngineRequest("id", "model", messages, 1, True, "salt"))
            if exact:
                tell_exactly(ingress, caches, keys, text_of(messages))
            replica = rng.choice(ingress).send(keys, step * STEP_S)
            usage = caches[replica].read(text_of(messages))
            contents[replica].read(keys, usage)
            hits.count(usage, replica)
            for each in late:
                each.step(ingress, step * STEP_S)
    return hits


def in_one_cache(prompts: Sequence[Messages], *, blocks: int) -> Hits:
    cache, hits = Cache(blocks), Hits()
    for messages in prompts:
        hits.count(cache.read(text_of(messages)), "all")
    return hits


def text_of(messages: Messages) -> str:
    return "".join(f"{message['role']}:{message['content']};" for message in messages)


def sessions(number: int, *, applications: int, seed: int) -> list[Messages]:
    """Agents' sessions of 3 to 15 turns; those of an application share its instructions."""
    rng = random.Random(seed)
    instructions = [_words(rng, 6000) for _ in range(applications)]
    found = []
    for session in range(number):
        messages = [{"role": "system", "content": instructions[session % applications]}]
        for turn in range(rng.randint(3, 15)):
            asked = _words(rng, rng.randint(100, 1500) if turn else rng.randint(50, 300))
            messages.append({"role": "user", "content": asked})
            messages.append({"role": "assistant", "content": _words(rng, rng.randint(50, 500))})
        found.append(tuple(messages))
    return found


def _words(rng: random.Random, characters: int) -> str:
    return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz     ", k=characters))


def replayed(found: Sequence[Messages], *, live: int, seed: int) -> list[Messages]:
    """The prompts of all turns, of so many sessions at once, in an order drawn by lot."""
    rng = random.Random(seed)
    waiting = deque(found)
    under_way: list[tuple[Messages, int]] = []
    prompts = []
    while waiting or under_way:
        while waiting and len(under_way) < live:
            under_way.append((waiting.popleft(), 2))
        session, upto = under_way.pop(rng.randrange(len(under_way)))
        prompts.append(session[:upto])
        if upto + 2 < len(session):
            under_way.append((session, upto + 2))
    return prompts


def blocks_of(found: Sequence[Messages], *, live: int) -> int:
    """Blocks of so many whole sessions."""
    return live * sum(len(text_of(session)) for session in found) // len(found) // BLOCK_CHARS


def main() -> None:
    print("agents, caches: 1, 2, 4 processes; exact, 2 processes; 4 that are told nothing")
    for applications in (1, 5, 120):
        found = sessions(120, applications=applications, seed=1)
        prompts, whole = replayed(found, live=24, seed=2), blocks_of(found, live=24)
        for blocks in (whole, whole // 2):
            most = in_one_cache(prompts, blocks=blocks).rate
            rates = [
                *(routed(prompts, blocks=blocks, processes=processes).rate for processes in (1, 2, 4)),
                routed(prompts, blocks=blocks, exact=True).rate,
                routed(prompts, blocks=blocks, processes=4, steps_late=len(prompts)).rate,
            ]
            share = f"{blocks / whole:.1f}"
            print(applications, share, *(f"{rate / most:.3f}" for rate in rates))


if __name__ == "__main__":
    main()
