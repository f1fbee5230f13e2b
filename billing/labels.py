"""The person and the tags that a request names: whom and what its charge is counted for, beside its project."""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from billing.caller import Caller
from billing.errors import BillingError

TAGS_HEADER = "X-Pith-Tags"
MOST_TAGS = 8
TAG = r"[A-Za-z0-9._-]{1,32}"
_TAG = re.compile(TAG)
TAG_WORDS = "1 to 32 letters, digits, dots, hyphens and underscores"


class InvalidLabel(BillingError, ValueError):
    """A person or a tag cannot be read; `field` says where."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class TagNotAllowed(InvalidLabel):
    """The project allows other tags alone."""


class PersonRequired(BillingError):
    """The project's requests have to name a person."""

    def __init__(self) -> None:
        super().__init__(
            "this project's requests have to name the person whom they are for, in safety_identifier or user; in "
            "Anthropic's messages, in metadata.user_id"
        )


def is_tag(text: str) -> bool:
    return _TAG.fullmatch(text) is not None


def listed_tags(text: str) -> list[str]:
    """Of a text with commas between them."""
    return [tag.strip() for tag in text.split(",") if tag.strip()]


def person_key(pepper: bytes, workspace_id: str) -> bytes:
    """The key under which the persons of a workspace are hashed."""
    return hmac.digest(pepper, f"pith-person-v1:{workspace_id}".encode(), hashlib.sha256)


def require_person(caller: Caller) -> None:
    """Raises `PersonRequired`."""
    if caller.person_required and caller.person is None:
        raise PersonRequired


def labelled(caller: Caller, body: Any, *, is_message: bool = False, header: str | None = None) -> Caller:
    """The caller of a request with this body, of whatever shape, and this `TAGS_HEADER`. In Anthropic's messages the
    person is the metadata's `user_id`. Raises `InvalidLabel`."""
    asked: Mapping[str, Any] = body if isinstance(body, dict) else {}
    given = asked.get("metadata")
    metadata: Mapping[str, Any] = given if isinstance(given, dict) else {}
    named = {name: asked.get(name) for name in ("safety_identifier", "user")}
    if is_message:
        named["metadata.user_id"] = metadata.get("user_id")
    # Most requests name nobody and nothing.
    persons = [_person(caller, field, value) for field, value in named.items() if value not in (None, "")]
    tags = {*_tags("metadata.tags", metadata.get("tags")), *_tags(TAGS_HEADER, header)}
    if not persons and not tags:
        return caller
    _check_tags(caller, tags, TAGS_HEADER if header else "metadata.tags")
    return replace(caller, person=persons[0] if persons else None, tags=tuple(sorted(tags)))


def _person(caller: Caller, field: str, value: Any) -> str:
    """What is kept of a person: no more than tells one from another."""
    if not isinstance(value, str):
        raise InvalidLabel(field, "must be a string")
    named = value.encode("utf-8", "surrogatepass")
    return f"psn_{hmac.new(caller.person_key, named, hashlib.sha256).hexdigest()[:16]}"


def _tags(field: str, given: Any) -> Iterable[str]:
    if given is None:
        return ()
    found = listed_tags(given) if isinstance(given, str) else given
    if not isinstance(found, list) or not all(isinstance(tag, str) and is_tag(tag) for tag in found):
        raise InvalidLabel(field, f"must be tags, each of {TAG_WORDS}: a list, or a text with commas between")
    return found


def _check_tags(caller: Caller, tags: set[str], field: str) -> None:
    if len(tags) > MOST_TAGS:
        raise InvalidLabel(field, f"must be at most {MOST_TAGS} tags, not {len(tags)}")
    refused = tags.difference(caller.allowed_tags) if caller.allowed_tags is not None else set()
    if refused:
        raise TagNotAllowed(field, f"this project does not allow the tag {min(refused)}")
