"""Paths of configuration files and of checkpoints on this machine, and `ConfigError`. Light to import."""

from pathlib import Path

# The folder of pith's packages: a checkout, or the site-packages that a wheel was installed to.
ROOT = Path(__file__).resolve().parents[2]
IS_INSTALLED = any(ROOT.glob("pith-*.dist-info"))
SHIPPED = ROOT / "configs"
# What `pith init` writes. An installed pith keeps no state beside its code, so its default is in the working folder.
CONFIG_NAME = "pith.yaml"
DEFAULT_CONFIG = Path(CONFIG_NAME) if IS_INSTALLED else SHIPPED / "embedded.yaml"
EMBEDDED = "embedded:"
EMBEDDED_CHAT = ROOT / "models/embedded/checkpoints"
# All but the weights of those that are fetched.
FETCHED_CHAT = ROOT / "models/embedded/fetched"


class ConfigError(ValueError):
    """The configuration cannot be used; the message names the file, the key's path and the reason."""


def anchor_of(path: Path) -> Path:
    """The folder that a configuration file's relative paths start from: its own, or for a file in the checkout
    (such as those of `configs/`) the checkout. A link counts where it is, not where it leads."""
    folder = path.absolute().parent
    return ROOT if not IS_INSTALLED and folder.resolve().is_relative_to(ROOT) else folder


def require_own(path: Path) -> None:
    """Raises `ConfigError` for a file that came with an installed pith: its ledger would lie among the code, and go
    with it."""
    if IS_INSTALLED and path.absolute().parent.resolve().is_relative_to(SHIPPED):
        raise ConfigError(f"{path}: comes with pith; `pith init FOLDER` writes one of your own")


def text_of(path: Path) -> str:
    """The text of a configuration file. Raises `ConfigError`."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: there is no such file; `pith init FOLDER` writes one to edit") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise ConfigError(f"{path}: cannot be read: {reason}") from error


def folder_of(checkpoint: str) -> Path | None:
    """None for one that is on the hub."""
    if checkpoint.startswith(EMBEDDED):
        name = checkpoint.removeprefix(EMBEDDED)
        return FETCHED_CHAT / name if (FETCHED_CHAT / name).is_dir() else EMBEDDED_CHAT / name
    if checkpoint.startswith((".", "/", "~")):
        return Path(checkpoint).expanduser()
    return None
