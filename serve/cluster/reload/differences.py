"""The keys in which two configurations differ, by the path that a reader of the file would give them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from serve.config.settings import Settings

# Of these the values are not shown: a password or a token may stand in them.
UNSHOWN = frozenset(
    {"environment", "database_url", "rate_limit_storage", "collection_hook", "options", "tracing"}
)
HIDDEN = "(not shown)"
LISTS_OF_MODELS = ("models", "compression.models", "retrieval_models")
LONGEST_VALUE = 80


@dataclass(frozen=True, slots=True)
class Change:
    """One key with its values as text; "" is none: it was not there, or is not any more."""

    key: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.key}: {self.before or 'none'} → {self.after or 'none'}"


def differences(old: Settings, new: Settings) -> tuple[Change, ...]:
    """In the order of the file. A model that is added or removed is one difference, as is the order of models."""
    before, after = _flat(old), _flat(new)
    keys = dict.fromkeys([*before, *after])
    return tuple(
        Change(key, _text(key, before.get(key)), _text(key, after.get(key), is_new=True))
        for key in keys
        if before.get(key) != after.get(key) and not _is_in_another_model(key, before, after)
    )


def _flat(settings: Settings) -> dict[str, Any]:
    return dict(_leaves("", settings.model_dump()))


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if path in LISTS_OF_MODELS:
        yield path, [model["id"] for model in value]
        for model in value:
            yield from _leaves(f"{path}.{model['id']}", model)
    elif isinstance(value, Mapping) and path.rpartition(".")[2] not in UNSHOWN - {"tracing"}:
        for name, inner in value.items():
            yield from _leaves(f"{path}.{name}" if path else name, inner)
    else:
        yield path, value


def _is_in_another_model(key: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether the key is of a model that only one of them has: the list of models says that."""
    for models in LISTS_OF_MODELS:
        for model_id in set(before[models]) ^ set(after[models]):
            if key.startswith(f"{models}.{model_id}.") and not any(
                other.startswith(f"{model_id}.") and key.startswith(f"{models}.{other}.")
                for other in (*before[models], *after[models])
            ):
                return True
    return False


def _text(key: str, value: Any, *, is_new: bool = False) -> str:
    if value is None:
        return ""
    if not UNSHOWN.isdisjoint(key.split(".")):
        return f"{'another' if is_new else 'one'} {HIDDEN}"
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"
