"""Which limits this process has refused requests for since upkeep last looked: in memory, and bounded."""

from dataclasses import dataclass

from billing.errors import Span

MOST = 10_000


@dataclass(frozen=True, slots=True)
class RefusedLimit:
    """A spend limit that a request did not fit under. `key_id` is empty for a limit of the workspace."""

    workspace_id: str
    key_id: str
    span: Span
    limit_nano_usd: int


class Refusals:
    """Noting one costs a request that is refused anyway an entry in a set. What a process that dies had noted is noted
    again at the next refusal."""

    def __init__(self) -> None:
        self._noted: set[RefusedLimit] = set()

    def note(self, refused: RefusedLimit) -> None:
        if len(self._noted) < MOST:
            self._noted.add(refused)

    def take(self, most: int = MOST) -> list[RefusedLimit]:
        """So many of those that were noted, which are forgotten here."""
        return [self._noted.pop() for _ in range(min(most, len(self._noted)))]
