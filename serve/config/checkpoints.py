"""Where a checkpoint lies on this machine, if it does: in a folder, or among those that come with pith."""

from pathlib import Path

EMBEDDED = "embedded:"
EMBEDDED_CHAT = Path(__file__).parents[2] / "models/embedded/checkpoints"


def folder_of(checkpoint: str) -> Path | None:
    """None for one that is on the hub."""
    if checkpoint.startswith(EMBEDDED):
        return EMBEDDED_CHAT / checkpoint.removeprefix(EMBEDDED)
    if checkpoint.startswith((".", "/", "~")):
        return Path(checkpoint).expanduser()
    return None
