"""Adapters that were added to a server while it ran: a file in its state folder, read over the configuration.

They are entries of `models`. Who added which, and when, is in the audit log; what they cost, in the price lists.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from billing.store.durable_files import sync
from serve.config.chat_models import ModelSettings, check_folders, has_room, with_their_bases
from serve.config.paths import ConfigError
from serve.config.settings import Settings

FILE, FOLDER = "adapters.json", "adapters"
Entry = Mapping[str, Any]


def added_to(state_dir: Path) -> list[Entry]:
    """The entries that are kept for a server, oldest first. Raises `ConfigError`."""
    file = state_dir / FILE
    try:
        return list(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error


def with_added(settings: Settings) -> Settings:
    """The same with the adapters that were added. Raises `ConfigError`, where a base is gone or a name is taken."""
    try:
        return with_entries(settings, added_to(settings.state_dir))
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{settings.state_dir / FILE}: {error}") from error


def with_entries(settings: Settings, entries: Sequence[Entry]) -> Settings:
    """The same with these among its models. Raises `ValueError`."""
    if not entries:
        return settings
    taken = {model.id for model in settings.models} | {model.id for model in settings.compression.models}
    taken |= {model.id for model in settings.retrieval_models}
    added: list[ModelSettings] = []
    for entry in entries:
        added.append(_checked(entry))
        if added[-1].id in taken:
            raise ValueError(f"model id {added[-1].id!r} is listed twice")
        taken.add(added[-1].id)
    return settings.model_copy(update={"models": with_their_bases([*settings.models, *added])})


def _checked(entry: Entry) -> ModelSettings:
    try:
        return ModelSettings.model_validate(entry)
    except ValidationError as error:
        issue = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, issue['loc']))}: {issue['msg']}") from None


def require_takes(settings: Settings, model_id: str) -> None:
    """That the engines of this adapter's base can load it while they run. Raises `ValueError` with what is wrong."""
    adapter = next(model for model in settings.models if model.id == model_id)
    if not has_room(adapter):
        assert adapter.adapter is not None
        base = adapter.adapter.of
        raise ValueError(
            f"{base} was started without room for adapters: set engine.max_loras of {base} (and max_lora_rank) and "
            "pith reload, which starts its engines again"
        )
    check_folders([adapter])


def folder_within(state_dir: Path, source: str) -> Path:
    """The folder of this name among the server's adapters. Raises `ValueError` for one that is elsewhere."""
    root = (state_dir / FOLDER).resolve()
    folder = (root / source).resolve()
    if root not in folder.parents:
        raise ValueError(f"source: must be a folder within {root}, not {source!r}")
    return folder


@contextmanager
def kept(state_dir: Path, entries: Sequence[Entry]) -> Iterator[None]:
    """Keep these from now on, and what there was where the block fails."""
    before = added_to(state_dir)
    _write(state_dir / FILE, entries)
    try:
        yield
    except BaseException:
        _write(state_dir / FILE, before)
        raise


def _write(file: Path, entries: Sequence[Entry]) -> None:
    fresh = file.with_suffix(".new")
    with fresh.open("w", encoding="utf-8") as writing:
        json.dump(list(entries), writing, indent=1)
        writing.flush()
        os.fsync(writing.fileno())
    fresh.replace(file)
    sync(file.parent)
