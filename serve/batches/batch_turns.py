"""Whose line is run next: projects take turns, and within a project its batches do."""

from collections import deque
from collections.abc import Collection, Sequence


class Turns:
    """A project with a hundred batches has as many turns as one with a single batch."""

    def __init__(self) -> None:
        # By project, the one whose turn is next first; so are its batches.
        self._batches: dict[str, deque[str]] = {}

    def see(self, running: Sequence[tuple[str, str]]) -> None:
        """These batches, each with its project, are run now. Those that were there keep their turns."""
        found: dict[str, list[str]] = {}
        for batch_id, project_id in running:
            found.setdefault(project_id, []).append(batch_id)
        projects = [*(project for project in self._batches if project in found), *found]
        self._batches = {project: self._merged(project, found[project]) for project in projects}

    def _merged(self, project_id: str, batch_ids: Sequence[str]) -> deque[str]:
        there, known = dict.fromkeys(batch_ids), self._batches.get(project_id, deque())
        kept = dict.fromkeys(batch_id for batch_id in known if batch_id in there)
        return deque(kept | there)

    def next(self, empty: Collection[str]) -> str | None:
        """The batch whose turn it is, `empty` ones left out; None where there is none."""
        for project_id, batches in self._batches.items():
            for _ in range(len(batches)):
                batch_id = batches[0]
                batches.rotate(-1)
                if batch_id not in empty:
                    self._batches[project_id] = self._batches.pop(project_id)
                    return batch_id
        return None
