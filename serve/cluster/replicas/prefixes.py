"""Which replica has a prompt's beginning in its prefix cache, as far as one can tell from what was sent where."""

import zlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from models.engine import EngineRequest

# About the tokens of two of vLLM's blocks; it caches whole blocks only.
BLOCK_CHARS = 128
BLOCKS = 256
REMEMBERED = 100_000


@dataclass(frozen=True, slots=True)
class Beginnings:
    """A prompt's beginnings: a key for each, a block longer each time, and the first one's text.

    There is no key for a prompt shorter than a block. Workspaces never share a key, as they never share the cache;
    nor do a model and its adapters.
    """

    keys: Sequence[int]
    first: bytes


def beginnings(request: EngineRequest) -> Beginnings:
    text = "".join(f"{message.get('role')}:{message.get('content')};" for message in request.messages)
    text += "".join(f"{prompt};" for prompt in request.prompts[:1])
    found: list[int] = []
    so_far = hash((request.cache_salt, request.model_id))
    for start in range(0, min(len(text) - BLOCK_CHARS + 1, BLOCKS * BLOCK_CHARS), BLOCK_CHARS):
        so_far = hash((so_far, text[start : start + BLOCK_CHARS]))
        found.append(so_far)
    return Beginnings(found, (request.cache_salt + text[:BLOCK_CHARS]).encode())


class SentPrefixes:
    """Remembers which replicas were sent which beginnings, the last `REMEMBERED` of them."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._replicas: OrderedDict[int, set[str]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._replicas)

    def note(self, keys: Sequence[int], replica: str) -> None:
        """`replica` was sent a prompt with these beginnings."""
        # The longest first, so that the shorter, which more prompts share, are forgotten last.
        for key in reversed(keys):
            self._replicas.setdefault(key, set()).add(replica)
            self._replicas.move_to_end(key)
        while len(self._replicas) > self._remembered:
            self._replicas.popitem(last=False)

    def match(self, keys: Sequence[int], replicas: Iterable[str]) -> dict[str, int]:
        """For each replica, how many blocks of the prompt it was sent before."""
        lengths = dict.fromkeys(replicas, 0)
        alive = set(lengths)
        for length, key in enumerate(keys, 1):
            alive &= self._replicas.get(key, set())
            if not alive:
                break
            lengths.update(dict.fromkeys(alive, length))
        return lengths

    def forget(self, gone: Iterable[str]) -> None:
        """These replicas have ended, and their caches with them."""
        names = set(gone)
        for key in [key for key, holders in self._replicas.items() if holders & names]:
            self._replicas[key] -= names
            if not self._replicas[key]:
                del self._replicas[key]


def pick(prompt: Beginnings, lengths: dict[str, int], loads: dict[str, int], *, slack: int) -> str:
    """The replica that has most of the prompt, unless it has over `slack` requests more than the least busy one.

    `lengths` and `loads` have the same keys: blocks in the cache, and requests in flight. Where both are equal, the
    prompt's beginning decides, by rendezvous hashing: ingress processes that never speak to one another agree.
    """
    most = min(loads.values()) + slack
    candidates = [name for name, load in loads.items() if load <= most]
    return max(
        candidates, key=lambda name: (lengths[name], -loads[name], zlib.crc32(prompt.first + name.encode()))
    )
