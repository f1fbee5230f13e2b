"""The tokens that an engine counted for a request, and the hash by which its usage event commits to them."""

import hashlib
import json
import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class PromptSource:
    """SHA-256, in hex, of `tokenizer.json` and of the chat template as text; None where there is none."""

    tokenizer_sha256: str | None = None
    template_sha256: str | None = None


UNKNOWN_SOURCE = PromptSource()


@dataclass(frozen=True, slots=True)
class TokenIds:
    """Those of each prompt, and of each reply: all choices of the first prompt, then of the next."""

    prompts: Sequence[Sequence[int]]
    replies: Sequence[Sequence[int]]
    source: PromptSource = UNKNOWN_SOURCE

    def sha256(self) -> str:
        return joined_sha256(map(ids_sha256, self.prompts), map(ids_sha256, self.replies), self.source)

    def fields(self) -> dict[str, Any]:
        """For a reply's JSON, and for `token_ids_of`."""
        return {
            "prompts": [list(ids) for ids in self.prompts],
            "replies": [list(ids) for ids in self.replies],
            "tokenizer_sha256": self.source.tokenizer_sha256,
            "template_sha256": self.source.template_sha256,
            "tokens_sha256": self.sha256(),
        }


def token_ids_of(fields: Any) -> TokenIds:
    """Raises `KeyError`, `TypeError` or `ValueError` for what `TokenIds.fields` cannot have written."""
    prompts, replies = (tuple(map(tuple, fields[name])) for name in ("prompts", "replies"))
    return TokenIds(prompts, replies, PromptSource(fields["tokenizer_sha256"], fields["template_sha256"]))


def ids_sha256(ids: Sequence[int]) -> str:
    """Of token ids as four bytes each, the least first. Raises `OverflowError` for one that does not fit."""
    return hashlib.sha256(_bytes(ids)).hexdigest()


def joined_sha256(prompts: Iterable[str], replies: Iterable[str], source: PromptSource) -> str:
    """Of the hashes of all parts, as JSON with sorted names."""
    parts = {
        "prompts": list(prompts),
        "replies": list(replies),
        "template": source.template_sha256,
        "tokenizer": source.tokenizer_sha256,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _bytes(ids: Sequence[int]) -> bytes:
    packed = array("I", ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


@dataclass(slots=True)
class GrowingReply:
    """One choice's tokens as they become known, each hashed once."""

    ids: "array[int]" = field(default_factory=lambda: array("I"))
    # How many were handed out.
    given: int = 0
    _hash: Any = field(default_factory=hashlib.sha256)

    def give(self, ids: Sequence[int]) -> None:
        """The next tokens were handed out."""
        self._add(ids[len(self.ids) - self.given :])
        self.given += len(ids)

    def see(self, ids: Sequence[int]) -> None:
        """All tokens so far."""
        self._add(ids[len(self.ids) :])

    def _add(self, new: Sequence[int]) -> None:
        if new:
            self.ids.extend(new)
            self._hash.update(_bytes(new))

    def sha256(self) -> str:
        """Of what is known so far."""
        return str(self._hash.copy().hexdigest())
