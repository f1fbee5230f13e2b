"""An encoder's scores, cached in files: slow to compute, and valid when the lexical scorer is retrained."""

import hashlib
import os
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path

from compression.neural.encoder import Encoder, titled
from compression.neural.models import blended
from compression.pipeline.spec import ModelSpec
from compression.scorers.lexical import LexicalScorer
from compression.source.units import Segmentation

_SAVED_EVERY = 10


class RememberingEncoder:
    """`Encoder.score`, but each unit is compared with a query only once. One file a process; all are read at the start.

    `folder` must hold only files that this command wrote, since they are pickles.
    """

    def __init__(self, encoder: Encoder, folder: Path) -> None:
        self._encoder, self._folder = encoder, folder
        self._known: dict[bytes, float] = {}
        self._new: dict[bytes, float] = {}
        self._asked = 0
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(folder.glob("*.pickle")):
            self._known |= pickle.loads(path.read_bytes())

    def score(self, query: str, text: Segmentation) -> list[float]:
        chosen = [at for at in range(len(text.units)) if any(char.isalnum() for char in text.text(at))]
        texts = [titled(text, at) for at in chosen]
        keys = [
            hashlib.sha256(f"{query}\0{piece}".encode("utf-8", "surrogatepass")).digest()[:16]
            for piece in texts
        ]
        missing = {key: piece for key, piece in zip(keys, texts, strict=True) if key not in self._known}
        found = self._encoder.compare(query, list(missing.values())) if missing else []
        self._remember(dict(zip(missing, found, strict=True)))
        scores = [0.0] * len(text.units)
        for at, key in zip(chosen, keys, strict=True):
            scores[at] = min(max((self._known[key] + 1) / 2, 0.0), 1.0)
        return scores

    def _remember(self, found: dict[bytes, float]) -> None:
        self._known |= found
        self._new |= found
        self._asked += 1
        if self._new and self._asked % _SAVED_EVERY == 0:
            (self._folder / f"{os.getpid()}.pickle").write_bytes(pickle.dumps(self._new))


def remembered_scoring(spec: ModelSpec, folder: Path) -> Callable[[str, Segmentation], Sequence[float]]:
    """What `build_scoring` gives for a bi-encoder."""
    encoder = RememberingEncoder(Encoder.of(spec), folder)
    lexical, blend = LexicalScorer.load(), spec.blend_used
    assert blend is not None

    def score(query: str, text: Segmentation) -> list[float]:
        return blended(encoder.score(query, text), lexical, blend, query, text)

    return score
