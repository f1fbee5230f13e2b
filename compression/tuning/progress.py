"""How fitting reports its progress, whatever shows it."""

from typing import Any, Protocol


class Bars(Protocol):
    """The part of `rich.progress.Progress` that fitting uses."""

    def add_task(self, description: str, *, total: float | None) -> Any: ...

    def advance(self, task_id: Any) -> None: ...


class NoBars:
    """Shows nothing."""

    def add_task(self, description: str, *, total: float | None) -> int:
        del description, total
        return 0

    def advance(self, task_id: Any) -> None:
        del task_id
