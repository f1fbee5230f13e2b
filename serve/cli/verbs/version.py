"""`pith --version`: what is installed, and the commit where it is known."""

from importlib.metadata import PackageNotFoundError, distribution

import typer

from serve.metrics.installed import checkout_commit, recorded_commit

NAME = "pith"


def print_version(wanted: bool) -> None:
    """Print the line and end the command, where the option was given."""
    if wanted:
        typer.echo(version_line())
        raise typer.Exit


def installed_version() -> str:
    """Such as `0.1.0`; `not installed` where pith runs from files alone."""
    try:
        return distribution(NAME).version
    except PackageNotFoundError:
        return "not installed"


def version_line() -> str:
    """Such as `pith 0.1.0 (commit 0123456789ab)`."""
    try:
        found = distribution(NAME)
    except PackageNotFoundError:
        return f"{NAME} (not installed{_in_brackets(checkout_commit())})"
    commit = checkout_commit() or recorded_commit(found.read_text("direct_url.json"))
    return f"{NAME} {found.version}" + (f" (commit {commit})" if commit else "")


def _in_brackets(commit: str | None) -> str:
    return f", commit {commit}" if commit else ""
