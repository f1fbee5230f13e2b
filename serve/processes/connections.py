"""Connections of one port: a bound on all, one on each client's, and which of them are shed for new ones."""

from collections.abc import Callable
from enum import IntEnum
from time import monotonic

# A client that reads slowly, or whose network hesitates, does not read for a moment.
UNREAD_S = 1.0
# Connections over a bound that may wait for their refusal; the next ones are closed without a word.
MAX_WAITING_REFUSALS = 256


class Rest(IntEnum):
    """Why a connection can be done without. What comes first here is shed first, the longest at rest before others."""

    # Nothing whole has been asked on it yet.
    NEW = 0
    # All that was asked is answered.
    IDLE = 1
    # Its client does not read its reply.
    UNREAD = 2


class Place:
    """The place of one connection. `refused` names the bound that left none for it."""

    __slots__ = ("client", "counts", "is_taken", "refused", "rest", "shed", "since")

    def __init__(self, client: str | None, shed: Callable[[Rest], None]) -> None:
        self.client = client
        self.shed = shed
        self.refused: str | None = None
        # Those that it is taken under.
        self.counts: tuple[_Count, ...] = ()
        self.is_taken = False
        self.rest: Rest | None = None
        self.since = 0.0


class _Count:
    """The places that are taken under one bound, and which of them rest, the longest first."""

    __slots__ = ("most", "resting", "taken")

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        self.resting: tuple[dict[Place, None], ...] = tuple({} for _ in Rest)

    def to_shed(self) -> Place | None:
        for rest in Rest:
            place = next(iter(self.resting[rest]), None)
            if place is not None and (rest is not Rest.UNREAD or monotonic() >= place.since + UNREAD_S):
                return place
        return None


class Connections:
    """Whoever only holds a connection loses it to who comes next, so that nobody is locked out by silence; a client
    over its own bound loses one of its own. With all at work, the next one is refused."""

    ALL, CLIENT = "all", "client"

    def __init__(self, *, most: int, most_per_client: int) -> None:
        self.most = most
        self.most_per_client = most_per_client
        self._all = _Count(most)
        self._of: dict[str, _Count] = {}
        self._refused = 0

    def open(self, client: str | None, shed: Callable[[Rest], None]) -> Place:
        """Take a connection in, to be given back with `close`. `shed` ends it. Without a `client`, it counts for the
        bound on all only."""
        place = Place(client, shed)
        if client is not None and not self._makes_room(self._of.get(client)):
            place.refused = self.CLIENT
        elif not self._makes_room(self._all):
            place.refused = self.ALL
        else:
            place.is_taken = True
            place.counts = self._counts(client)
            for count in place.counts:
                count.taken += 1
            self.rests(place, Rest.NEW)
        self._refused += not place.is_taken
        return place

    @property
    def may_be_told(self) -> bool:
        """True if a refused connection may stay open until its refusal is sent."""
        return self._refused <= MAX_WAITING_REFUSALS

    def rests(self, place: Place, rest: Rest) -> None:
        """From now on it may be shed."""
        self.works(place)
        if place.is_taken:
            place.rest = rest
            if rest is Rest.UNREAD:
                place.since = monotonic()
            for count in place.counts:
                count.resting[rest][place] = None

    def works(self, place: Place) -> None:
        """From now on it may not be shed."""
        rest = place.rest
        if rest is not None:
            for count in place.counts:
                del count.resting[rest][place]
            place.rest = None

    def close(self, place: Place) -> None:
        """Give the place back; once given back, it changes nothing."""
        self.works(place)
        if place.refused is not None:
            self._refused -= 1
            place.refused = None
        if not place.is_taken:
            return
        place.is_taken = False
        for count in place.counts:
            count.taken -= 1
        if place.client is not None and not self._of[place.client].taken:
            del self._of[place.client]

    def _counts(self, client: str | None) -> tuple[_Count, ...]:
        if client is None:
            return (self._all,)
        return self._all, self._of.setdefault(client, _Count(self.most_per_client))

    def _makes_room(self, count: _Count | None) -> bool:
        if count is None or count.taken < count.most:
            return True
        place = count.to_shed()
        if place is None:
            return False
        rest = place.rest
        assert rest is not None
        self.close(place)
        place.shed(rest)
        return True
