"""Shell completion: ids of models, workspaces, projects and keys, each with one plain line about it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer._click.shell_completion import add_completion_class
from typer._completion_classes import FishComplete, ZshComplete, completion_init
from typer._completion_shared import COMPLETION_SCRIPT_ZSH, _completion_scripts

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
    """Names and ids in a ledger's file; another database is not asked while somebody types."""
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


LONGEST = 70
_DEFINED = "compdef %(complete_func)s %(prog_name)s"
# zsh loads typer's file at the first press of the key, and completes nothing then.
_AT_ONCE = f"""{_DEFINED}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  %(complete_func)s "$@"
fi"""
ZSH = COMPLETION_SCRIPT_ZSH.replace(_DEFINED, _AT_ONCE).strip()


def offer_completions(prog_name: str) -> None:
    """Let the command answer a shell, where it is a shell that asks, and set up zsh so that it asks at once."""
    _completion_scripts["zsh"] = ZSH
    if f"_{prog_name.upper()}_COMPLETE" in os.environ:
        completion_init()
        add_completion_class(PlainZsh, "zsh")
        add_completion_class(PlainFish, "fish")


class PlainFish(FishComplete):
    def format_completion(self, item: Any) -> str:
        return f"{item.value}\t{one_line(item.help)}" if item.help else str(item.value)


class PlainZsh(ZshComplete):
    source_template = ZSH

    def format_completion(self, item: Any) -> str:
        quoted = [
            part.replace('"', '""')
            .replace("'", "''")
            .replace("$", r"\$")
            .replace("`", r"\`")
            .replace(":", r"\\:")
            for part in (str(item.value), one_line(item.help or ""))
            if part
        ]
        return ":".join(f'"{part}"' for part in quoted)


def one_line(text: str) -> str:
    """At most `LONGEST` characters of it."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
