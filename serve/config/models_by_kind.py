"""The entries of `models` in a configuration file, sorted by their kind before they are checked."""

from collections.abc import Mapping, Sequence
from typing import Any

from serve.config.retrieval_models import RETRIEVAL_KINDS


def sorted_by_kind(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same with the embedding and rerank models in `retrieval_models`, a key that no file has itself."""
    chat, others = _apart(document)
    if not others:
        return document
    given = document["models"]
    return {
        **document,
        "models": [given[at] for at in chat],
        "retrieval_models": [given[at] for at in others],
    }


def place_in_file(loc: Sequence[int | str], document: Mapping[str, Any]) -> Sequence[int | str]:
    """Where in the file something stands that was found at `loc` after sorting."""
    if len(loc) < 2 or loc[0] not in ("models", "retrieval_models") or not isinstance(loc[1], int):
        return loc
    chat, others = _apart(document)
    return ("models", (chat if loc[0] == "models" else others)[loc[1]], *loc[2:])


def _apart(document: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """Which entries of `models` are chat models, as far as can be told yet, and which are of another kind."""
    models = document.get("models")
    chat: list[int] = []
    others: list[int] = []
    for at, entry in enumerate(models if isinstance(models, list) else []):
        is_other = isinstance(entry, dict) and entry.get("kind") in RETRIEVAL_KINDS
        (others if is_other else chat).append(at)
    return chat, others
