"""The commit of the code that runs, where it is known, and versions of packages."""

import json
import subprocess
from importlib.metadata import PackageNotFoundError, distribution

from serve.config.paths import ROOT

COMMIT_CHARS = 12
GIT_S = 5.0


def installed_commit() -> str | None:
    """The commit of the checkout, or of the repository that pith was installed from."""
    try:
        recorded = distribution("pith").read_text("direct_url.json")
    except PackageNotFoundError:
        recorded = None
    return checkout_commit() or recorded_commit(recorded)


def version_of(*distributions: str) -> str | None:
    """The version of the first of these that is installed."""
    for name in distributions:
        try:
            return distribution(name).version
        except PackageNotFoundError:
            continue
    return None


def checkout_commit() -> str | None:
    """The commit of the checkout that this code runs in, if it does and git is there."""
    if not (ROOT / ".git").exists():
        return None
    command = ["git", "-C", str(ROOT), "rev-parse", f"--short={COMMIT_CHARS}", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def recorded_commit(direct_url: str | None) -> str | None:
    """The commit that was installed from a repository, by the installer's record (PEP 610)."""
    try:
        commit = json.loads(direct_url or "{}")["vcs_info"]["commit_id"]
    except (ValueError, KeyError, TypeError):
        return None
    return str(commit)[:COMMIT_CHARS]
