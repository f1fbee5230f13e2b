"""The server's own secret, with which stored keys are hashed: without it a stolen database opens nothing."""

import hashlib
import os
import secrets
from pathlib import Path

from billing.store.private_files import make_file_private

PEPPER = "pepper"
PEPPER_BYTES = 32


def read_pepper(state_dir: Path) -> bytes:
    """The secret in `STATE_DIR/pepper` (mode 0600), made on first use; two first uses at once agree on one."""
    path = state_dir / PEPPER
    state_dir.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        fresh = path.with_name(f"pepper.{os.getpid()}.{secrets.token_hex(4)}")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(PEPPER_BYTES))
        try:
            os.link(fresh, path)
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    make_file_private(path)
    pepper = path.read_bytes()
    if len(pepper) != PEPPER_BYTES:
        raise ValueError(f"{path}: holds {len(pepper)} bytes, not {PEPPER_BYTES}; restore it from a backup")
    return pepper


def digest_of_pepper(state_dir: Path) -> str | None:
    """By which machines compare theirs; None where there is none."""
    path = state_dir / PEPPER
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def require_pepper(state_dir: Path, digest: str) -> None:
    """Raises `ValueError` on a machine of a cluster that has another secret, or none: it would know no key. None is
    made there."""
    found = digest_of_pepper(state_dir)
    if found != digest:
        missing = "is not there" if found is None else "is another one"
        raise ValueError(
            f"{state_dir / PEPPER} {missing}: copy that of the machine that started pith to this node (mode 0600)"
        )
