"""What a shell completes by the configuration and the ledger's file: ids of models, workspaces, projects, keys.

Nothing is checked here and nothing fails: a file that cannot be read completes to nothing.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from serve.config.paths import DEFAULT_CONFIG, anchor_of

SQLITE = "sqlite:///"
DEFAULT_LEDGER = f"{SQLITE}var/pith.db"
Completions = Iterator[tuple[str, str]]


def chat_models(ctx: typer.Context, incomplete: str) -> Completions:
    return _beginning(incomplete, _models(_document(ctx).get("models"), kind="chat"))


def compression_models(ctx: typer.Context, incomplete: str) -> Completions:
    section = _document(ctx).get("compression")
    return _beginning(incomplete, _models(section.get("models") if isinstance(section, dict) else None))


def workspaces(ctx: typer.Context, incomplete: str) -> Completions:
    return _beginning(incomplete, _accounts(ctx, "workspace"))


def projects(ctx: typer.Context, incomplete: str) -> Completions:
    return _beginning(incomplete, _accounts(ctx, "project"))


def keys(ctx: typer.Context, incomplete: str) -> Completions:
    return _beginning(incomplete, _accounts(ctx, "key"))


def _beginning(incomplete: str, found: list[tuple[str, str]]) -> Completions:
    return ((name, about) for name, about in found if name.startswith(incomplete))


def _models(entries: Any, *, kind: str | None = None) -> list[tuple[str, str]]:
    """Ids and names; with `kind`, of the entries that are of it, as those are that name none."""
    if not isinstance(entries, list):
        return []
    models = [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    chosen = [model for model in models if kind is None or model.get("kind", kind) == kind]
    return [(model["id"], str(model.get("name", ""))) for model in chosen]


def _accounts(ctx: typer.Context, named: Any) -> list[tuple[str, str]]:
    """Of a ledger in a file; another database is not asked while somebody types."""
    from billing.accounts.names import names_in

    billing = _document(ctx).get("billing")
    url = billing.get("database_url", DEFAULT_LEDGER) if isinstance(billing, dict) else DEFAULT_LEDGER
    if not isinstance(url, str) or not url.startswith(SQLITE):
        return []
    return names_in(anchor_of(_config(ctx)) / url.removeprefix(SQLITE), named)


def _config(ctx: typer.Context) -> Path:
    """The `--config` of the line so far, or the default."""
    return Path(ctx.params.get("config") or DEFAULT_CONFIG)


def _document(ctx: typer.Context) -> dict[str, Any]:
    import yaml

    # The C parser is a tenth of the time.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        document = yaml.load(_config(ctx).read_bytes(), loader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return {}
    return document if isinstance(document, dict) else {}
