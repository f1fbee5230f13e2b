"""Finds checkpoints and loads their tokenizers; code that comes with a checkpoint is never run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from compression.neural.batching import CheckpointRefused, Window

# No *.py and no pickles: code and pickled weights do not even reach the disk.
WANTED_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")


def find_checkpoint(reference: str, revision: str | None = None) -> Path:
    """The folder of that path, or the hub's snapshot of that name and commit. Raises CheckpointRefused."""
    folder = Path(reference).expanduser()
    if not folder.is_dir():
        try:
            files = list(WANTED_FILES)
            folder = Path(snapshot_download(reference, revision=revision, allow_patterns=files))
        except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
            name = f"{reference}@{revision}" if revision else reference
            raise CheckpointRefused(
                name, f"no such folder, and the hub did not provide it: {error}"
            ) from error
    if not (folder / "config.json").is_file():
        raise CheckpointRefused(reference, "holds no config.json")
    if not any(folder.glob("*.safetensors")):
        raise CheckpointRefused(
            reference, "holds no safetensors; other formats can run code and are not read"
        )
    return folder


def read_json(path: Path) -> dict[str, Any]:
    """An object from a checkpoint's file; empty where there is none."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointRefused(str(path.parent), f"{path.name} is not JSON: {error}") from error
    return found if isinstance(found, dict) else {"items": found}


@dataclass(frozen=True, slots=True)
class Tokens:
    """A text as the checkpoint's tokenizer has it; offsets count code points of the text."""

    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Template:
    """Special tokens around and between, as the tokenizer's own post-processor sets them, and its segment ids."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    types: tuple[int, int]

    @property
    def length(self) -> int:
        return len(self.before) + len(self.between) + len(self.after)


class TextTokenizer:
    """A checkpoint's tokenizer without truncation or padding, and its templates for one text and for a pair."""

    def __init__(
        self, backend: Tokenizer, special: dict[str, str], first: int | None, last: int | None
    ) -> None:
        backend.no_truncation()
        backend.no_padding()
        self.backend = backend
        self.special = special
        self.single = self._template(backend.encode("a"), first, last)
        self.pair = self._template(backend.encode("a", "a"), first, last)

    @classmethod
    def load(cls, folder: Path) -> TextTokenizer:
        """Raises CheckpointRefused where only code from the checkpoint could load it."""
        try:
            found = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
        except (OSError, ValueError, ImportError) as error:
            raise CheckpointRefused(str(folder), f"its tokenizer does not load: {error}") from error
        if not found.is_fast:
            raise CheckpointRefused(str(folder), "its tokenizer gives no offsets (it has no tokenizer.json)")
        special = {k: v for k, v in found.special_tokens_map.items() if isinstance(v, str)}
        first = found.cls_token_id if found.cls_token_id is not None else found.bos_token_id
        last = found.sep_token_id if found.sep_token_id is not None else found.eos_token_id
        return cls(found.backend_tokenizer, special, first, last)

    @property
    def pad_id(self) -> int:
        token = self.special.get("pad_token")
        found = None if token is None else self.backend.token_to_id(token)
        return 0 if found is None else found

    def tokens(self, text: str) -> Tokens:
        found = self.backend.encode(text, add_special_tokens=False)
        return Tokens(tuple(found.ids), tuple(found.tokens), tuple(found.offsets))

    def many_tokens(self, texts: Sequence[str]) -> list[Tokens]:
        found = self.backend.encode_batch(list(texts), add_special_tokens=False)
        return [Tokens(tuple(one.ids), tuple(one.tokens), tuple(one.offsets)) for one in found]

    def window(self, ids: Sequence[int]) -> Window:
        """One text between its special tokens."""
        shape = self.single
        return Window((*shape.before, *ids, *shape.after), None)

    def pair_window(self, first: Sequence[int], second: Sequence[int]) -> Window:
        """Two texts between their special tokens, with segment ids."""
        shape = self.pair
        left = len(shape.before) + len(first) + len(shape.between)
        right = len(second) + len(shape.after)
        # In BERT the separator between belongs to the first text; where segments are alike it makes no difference.
        types = (shape.types[0],) * left + (shape.types[1],) * right
        return Window((*shape.before, *first, *shape.between, *second, *shape.after), types)

    @staticmethod
    def _template(encoded: Any, first: int | None, last: int | None) -> Template:
        sides: list[int | None] = encoded.sequence_ids
        runs: list[list[int]] = [[], [], []]
        at = 0
        for side, token in zip(sides, encoded.ids, strict=True):
            if side is None:
                runs[at].append(token)
            else:
                at = side + 1
        pair = max(side or 0 for side in sides) == 1
        before, between, after = runs if pair else (runs[0], [], runs[1])
        if not (before or between or after) and first is not None and last is not None:
            # Tokenizers without a post-processor (some ModernBERT ones) still name the tokens to put around.
            before, between, after = [first], [last] if pair else [], [last]
        types = dict(zip((s for s in sides), encoded.type_ids, strict=True))
        return Template(tuple(before), tuple(between), tuple(after), (types.get(0, 0), types.get(1, 0)))
