"""The replicas' caches as one ingress knows them, and the choice of a replica by them."""

import zlib
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

Replica = TypeVar("Replica", bound=Hashable)
# Blocks that are sent to a replica and not told by it yet: some hundred prompts'.
ON_THE_WAY = 2**13
# Half of the blocks that a replica has read are forgotten in this time.
HALF_LIFE_S = 60.0
# So much of a block that a replica has read more than another one counts against it. Where all of it did, conversations
# would be moved as soon as caches are full; `tests/serve/cluster/test_replayed_sessions.py` has what comes of it.
READ_SHARE = 0.25


@dataclass(slots=True)
class KnownCache:
    """One replica's: the beginnings that it has told, and those that were sent there since. `read`: the blocks that it
    has read lately, as of `as_of_s`."""

    told: set[int] = field(default_factory=set)
    on_the_way: OrderedDict[int, None] = field(default_factory=OrderedDict)
    read: float = 0.0
    as_of_s: float = 0.0

    def __contains__(self, key: int) -> bool:
        return key in self.told or key in self.on_the_way

    def blocks_of(self, keys: Sequence[int]) -> int:
        """The blocks of a prompt that are cached. Where a longer beginning is, the shorter ones are."""
        return bisect_left(keys, True, key=lambda key: key not in self)

    def add_read(self, blocks: int, now_s: float) -> None:
        self.read, self.as_of_s = self.read_by(now_s) + blocks, now_s

    def read_by(self, now_s: float) -> float:
        return float(self.read * 0.5 ** ((now_s - self.as_of_s) / HALF_LIFE_S))

    def send(self, keys: Sequence[int], now_s: float) -> None:
        """A prompt with these beginnings goes there."""
        new = keys[self.blocks_of(keys) :]
        # The longest first, so that it is the first to be forgotten.
        self.on_the_way.update(dict.fromkeys(reversed(new)))
        while len(self.on_the_way) > ON_THE_WAY:
            self.on_the_way.popitem(last=False)
        self.add_read(len(new), now_s)

    def change(self, added: Sequence[int], dropped: Iterable[int], now_s: float) -> None:
        """The replica has told what has changed, whoever sent it its requests."""
        by_others = sum(key not in self.on_the_way for key in added)
        self.told.update(added)
        self.told.difference_update(dropped)
        for key in (*added, *dropped):
            self.on_the_way.pop(key, None)
        self.add_read(by_others, now_s)


class KnownCaches:
    """The caches of one model's replicas that run. `now_s` is any clock's."""

    def __init__(self) -> None:
        self._caches: dict[Hashable, KnownCache] = {}

    def __getitem__(self, replica: Hashable) -> KnownCache:
        return self._caches[replica]

    def run(self, replicas: Collection[Hashable], now_s: float) -> None:
        """These replicas run, and no others: a cache ends with its replica."""
        least = min((cache.read_by(now_s) for cache in self._caches.values()), default=0.0)
        # A new one takes its share of what is new, and not all that comes until it has read as much as the others.
        self._caches = {
            replica: self._caches.get(replica) or KnownCache(read=least, as_of_s=now_s)
            for replica in replicas
        }

    def send(self, replica: Hashable, keys: Sequence[int], now_s: float) -> None:
        """A prompt with these beginnings goes to a replica, which may have ended by now."""
        if (cache := self._caches.get(replica)) is not None:
            cache.send(keys, now_s)

    def pick(self, keys: Sequence[int], loads: Mapping[Replica, int], *, slack: int, now_s: float) -> Replica:
        """The replica that has the least to read for this prompt, where what each has read lately counts too; none that
        has over `slack` requests in flight (`loads`) more than the least busy one.

        So a conversation goes where it is cached. What many begin with comes to be cached on another replica as soon
        as the one that has it has read much more for its sake than that other one would have to. Where all is equal
        the prompt's beginning decides, by rendezvous hashing: processes that have heard nothing yet agree.
        """
        most = min(loads.values()) + slack
        candidates = [replica for replica, load in loads.items() if load <= most]

        def cost(replica: Replica) -> tuple[float, int, int]:
            cache = self._caches[replica]
            blocks = READ_SHARE * cache.read_by(now_s) - cache.blocks_of(keys) if keys else 0.0
            return blocks, loads[replica], _rank(keys, replica)

        return min(candidates, key=cost)


def _rank(keys: Sequence[int], replica: Hashable) -> int:
    return zlib.crc32(str(replica).encode(), keys[0] if keys else 0)
