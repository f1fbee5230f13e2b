"""Repositories of the hub that a configuration names without a commit."""

import re
from pathlib import Path

from serve.config.settings import Settings

COMMIT = re.compile(r"[0-9a-f]{40}")


def unpinned_revisions(settings: Settings) -> list[str]:
    """One line for each repository that is taken as it is on the day, with the key that would pin it."""
    wanted: list[tuple[str, str | None, str | None]] = [
        (f"models.{model.id}.revision", model.checkpoint, model.revision) for model in settings.engine_models
    ]
    wanted += [
        (f"models.{model.id}.adapter.revision", model.adapter.source, model.adapter.revision)
        for model in settings.models
        if model.adapter is not None
    ]
    wanted += [
        (f"models.{other.id}.revision", other.checkpoint, other.revision)
        for other in settings.retrieval_models
    ]
    for model in settings.compression.models:
        key = f"compression.models.{model.id}"
        wanted.append((f"{key}.revision", model.checkpoint, model.revision))
        wanted.append((f"{key}.tokenizer_revision", model.tokenizer, model.tokenizer_revision))
    return [
        f"revision not pinned: {repository} is taken as the hub has it; name a commit in {key}"
        for key, repository, revision in wanted
        if repository and is_on_the_hub(repository) and not COMMIT.fullmatch(revision or "")
    ]


def is_on_the_hub(reference: str) -> bool:
    """Neither what comes with pith nor what is on this machine."""
    is_a_path = reference.startswith((".", "/", "~")) or Path(reference).exists()
    return not reference.startswith("embedded:") and not is_a_path
