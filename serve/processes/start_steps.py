"""What a process that takes long to start is doing: told in a file of the run's folder, for the operator who waits."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import quote

STEPS_FOLDER = "steps"
Tell = Callable[[str], None]


def teller(run_folder: Path | None, name: str) -> Tell:
    """What `name` calls at each step with a few words; without a folder (on another machine) nobody reads them."""
    return (
        partial(_write, run_folder / STEPS_FOLDER / quote(name, safe="")) if run_folder else lambda step: None
    )


def told(run_folder: Path | None, name: str) -> str:
    """The step that `name` is at, or "" where it has told none."""
    if run_folder is None:
        return ""
    try:
        return (run_folder / STEPS_FOLDER / quote(name, safe="")).read_text()
    except OSError:
        return ""


def _write(path: Path, step: str) -> None:
    # Without room for it the start goes on.
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_text(step)
