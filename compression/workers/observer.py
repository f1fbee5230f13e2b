"""What a pool reports to metrics."""

from typing import Literal, Protocol, get_args

# Why a worker was replaced: its job's time was over, its client left, its job was not as small as its size, or it died.
Replaced = Literal["deadline", "cancelled", "overlong", "died"]
REASONS: tuple[Replaced, ...] = get_args(Replaced)


class PoolObserver(Protocol):
    def jobs(self, *, waiting: int, running: int) -> None: ...

    def replaced(self, reason: Replaced) -> None: ...

    def deadline_passed(self) -> None: ...


class Unobserved:
    """Counts nothing."""

    def jobs(self, *, waiting: int, running: int) -> None:
        return

    def replaced(self, reason: Replaced) -> None:
        return

    def deadline_passed(self) -> None:
        return
