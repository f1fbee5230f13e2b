"""Where the default configuration is, and what a configuration's relative paths are relative to."""

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
DEFAULT_CONFIG = CHECKOUT / "configs/embedded.yaml"


def anchor_of(path: Path) -> Path:
    """What the relative paths of a configuration file are relative to: the file's folder, or for a file in the checkout
    (such as those of `configs/`) the checkout. A link counts where it is, not where it leads."""
    folder = path.absolute().parent
    return CHECKOUT if folder.resolve().is_relative_to(CHECKOUT) else folder
