"""Where a model's weights are: on the hub, in a folder, or among those that come with pith."""

from pathlib import Path

from serve.cluster.progress import Says
from serve.config.chat_models import ModelSettings

FIRST_START_CHECKPOINTS = "embedded:"


class StartError(Exception):
    """The server cannot start; the message says why in one line."""


def checkpoint_of(model: ModelSettings, state_dir: Path, progress: Says) -> str:
    """The hub name or the folder that the engine loads. Raises `StartError` for a folder that is not there."""
    if model.checkpoint.startswith(FIRST_START_CHECKPOINTS):
        from models.embedded.install import ensure_checkpoints

        progress.begin("laying out the embedded checkpoints")
        name = model.checkpoint.removeprefix(FIRST_START_CHECKPOINTS)
        folders = ensure_checkpoints(state_dir / "checkpoints")
        if name not in folders:
            raise StartError(
                f"{model.id}: no embedded checkpoint is named {name!r}; there are {', '.join(folders)}"
            )
        return str(folders[name].resolve())
    if model.checkpoint.startswith((".", "/", "~")):
        folder = Path(model.checkpoint).expanduser().resolve()
        if not (folder / "config.json").is_file():
            raise StartError(f"{model.id}: {folder} is not a checkpoint folder (it has no config.json)")
        return str(folder)
    return model.checkpoint
