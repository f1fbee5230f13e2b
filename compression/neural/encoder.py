"""Scores units by a bi-encoder or a cross-encoder in sentence-transformers format, run natively.

Formats: a bi-encoder has `modules.json` (Transformer, Pooling, Dense, Normalize), `1_Pooling/config.json`,
`sentence_bert_config.json` and, where it wants them, `prompts` in `config_sentence_transformers.json`; a cross-encoder
is an `AutoModelForSequenceClassification` with one or two labels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from compression.neural.batching import (
    DEFAULT_WINDOWS,
    CheckpointRefused,
    Floats,
    Job,
    Network,
    QueryTooLong,
    Window,
    Windows,
    run_job,
)
from compression.neural.checkpoints import TextTokenizer, find_checkpoint, read_json
from compression.neural.networks import (
    CrossEncoderNetwork,
    Dense,
    EncoderNetwork,
    Placement,
    Pooling,
    TorchNetwork,
)
from compression.pipeline.spec import ModelSpec
from compression.source.units import Segmentation

_HAS_WORD = re.compile(r"\w")


class Encoder:
    """Compares texts with a query. A text too long for one window is compared in pieces, and its best piece counts."""

    def __init__(
        self,
        network: Network,
        tokenizer: TextTokenizer,
        *,
        kind: Literal["bi", "cross"],
        window: int,
        token_budget: int,
        prompts: tuple[str, str] = ("", ""),
        lower: bool = False,
    ) -> None:
        self.network = network
        self.tokenizer = tokenizer
        self.kind = kind
        self._window = window
        self._token_budget = token_budget
        self._query_prompt, self._text_prompt = prompts
        self._lower = lower

    @classmethod
    def load(cls, checkpoint: str, placement: Placement, *, windows: Windows = DEFAULT_WINDOWS) -> Encoder:
        """A folder or a hub name. Raises CheckpointRefused."""
        folder = find_checkpoint(checkpoint)
        tokenizer = TextTokenizer.load(folder)
        said = read_json(folder / "sentence_bert_config.json")
        network: TorchNetwork
        if (folder / "modules.json").is_file() and not _is_cross_encoder(folder):
            pooling, dense = _modules(folder)
            network, kind = EncoderNetwork.load(folder, placement, tokenizer.pad_id, pooling, dense), "bi"
        else:
            network, kind = CrossEncoderNetwork.load(folder, placement, tokenizer.pad_id), "cross"
        return cls(
            network,
            tokenizer,
            kind="bi" if kind == "bi" else "cross",
            window=network.window_of(checkpoint, windows.size, said.get("max_seq_length")),
            token_budget=windows.token_budget,
            prompts=_prompts(folder),
            lower=bool(said.get("do_lower_case")),
        )

    @classmethod
    def of(cls, spec: ModelSpec) -> Encoder:
        """As a server's model has it. Raises CheckpointRefused."""
        return cls.load(spec.checkpoint or "", Placement.of(spec), windows=Windows.of(spec))

    def compare_job(self, query: str, texts: Sequence[str]) -> Job[list[float]]:
        """Nearness of each text to the query: a cosine in [-1, 1], or for a cross-encoder a probability."""
        return self._cosines(query, texts) if self.kind == "bi" else self._relevances(query, texts)

    def compare(self, query: str, texts: Sequence[str]) -> list[float]:
        """`compare_job`, run here and now."""
        return run_job(self.network, self.compare_job(query, texts), self._token_budget)

    def score_job(self, query: str, text: Segmentation) -> Job[list[float]]:
        """A score in [0, 1] for each unit, seen with the title of its document. A unit without a word scores 0."""
        chosen = [at for at in range(len(text.units)) if _HAS_WORD.search(text.text(at))]
        job = self.compare_job(query, [titled(text, at) for at in chosen])
        squeeze: Callable[[float], float] = (lambda x: (x + 1) / 2) if self.kind == "bi" else (lambda x: x)

        def finish(outputs: Sequence[Floats]) -> list[float]:
            scores = [0.0] * len(text.units)
            for at, found in zip(chosen, job.finish(outputs), strict=True):
                scores[at] = min(max(squeeze(found), 0.0), 1.0)
            return scores

        return Job(job.windows, finish)

    def score(self, query: str, text: Segmentation) -> list[float]:
        return run_job(self.network, self.score_job(query, text), self._token_budget)

    def _cosines(self, query: str, texts: Sequence[str]) -> Job[list[float]]:
        asked = self._pieces([query], self._query_prompt, self._window - self.tokenizer.single.length)[0]
        pieces = self._pieces(texts, self._text_prompt, self._window - self.tokenizer.single.length)
        windows = [self.tokenizer.window(piece) for of_text in [asked, *pieces] for piece in of_text]

        def finish(outputs: Sequence[Floats]) -> list[float]:
            wanted = np.mean(outputs[: len(asked)], axis=0)
            wanted = wanted / max(float(np.linalg.norm(wanted)), 1e-9)
            found = np.stack(outputs[len(asked) :]) @ wanted if pieces else np.zeros(0, np.float32)
            return _best(found, [len(of_text) for of_text in pieces])

        return Job(tuple(windows), finish)

    def _relevances(self, query: str, texts: Sequence[str]) -> Job[list[float]]:
        asked = self.ids([self._query_prompt + query])[0]
        limit = self._window // 2
        if len(asked) > limit:
            raise QueryTooLong(len(asked), limit)
        pieces = self._pieces(
            texts, self._text_prompt, self._window - self.tokenizer.pair.length - len(asked)
        )
        windows: list[Window] = [
            self.tokenizer.pair_window(asked, piece) for of_text in pieces for piece in of_text
        ]

        def finish(outputs: Sequence[Floats]) -> list[float]:
            return _best(np.array([output[0] for output in outputs]), [len(of_text) for of_text in pieces])

        return Job(tuple(windows), finish)

    def _pieces(self, texts: Sequence[str], prompt: str, room: int) -> list[list[tuple[int, ...]]]:
        """The ids of each text, in as many pieces as its length needs, at least one."""
        return [
            [ids[at : at + room] for at in range(0, max(len(ids), 1), room)]
            for ids in self.ids([prompt + text for text in texts])
        ]

    def ids(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """The tokens of each text, without special ones."""
        lowered = [text.lower() for text in texts] if self._lower else texts
        return [tokens.ids for tokens in self.tokenizer.many_tokens(lowered)]


def titled(text: Segmentation, unit: int) -> str:
    """The unit's text after its document's title, which says what it is about."""
    title = text.documents[text.units[unit].document].title if text.documents else None
    return text.text(unit) if title in (None, unit) else f"{text.text(title or 0)}. {text.text(unit)}"


def _best(scores: NDArray[Any], counts: Sequence[int]) -> list[float]:
    ends = np.cumsum(counts)
    return [float(scores[end - count : end].max()) for end, count in zip(ends, counts, strict=True)]


def _is_cross_encoder(folder: Path) -> bool:
    architectures = read_json(folder / "config.json").get("architectures") or []
    return any(str(name).endswith("ForSequenceClassification") for name in architectures)


def _modules(folder: Path) -> tuple[Pooling, list[Dense]]:
    pooling, dense = None, []
    for module in read_json(folder / "modules.json").get("items", []):
        kind = str(module.get("type")).rsplit(".", 1)[-1]
        if kind == "Pooling":
            pooling = Pooling.read(folder / str(module["path"]))
        elif kind == "Dense":
            dense.append(Dense.read(folder / str(module["path"])))
        elif kind not in ("Transformer", "Normalize"):
            raise CheckpointRefused(
                str(folder), f"modules.json: {kind} is not Transformer, Pooling, Dense or Normalize"
            )
    if pooling is None:
        raise CheckpointRefused(str(folder), "modules.json: no Pooling")
    return pooling, dense


def _prompts(folder: Path) -> tuple[str, str]:
    """Before a query and before a text; E5 and BGE models are much worse without theirs."""
    said = read_json(folder / "config_sentence_transformers.json").get("prompts") or {}
    return str(said.get("query", "")), str(said.get("document", said.get("passage", "")))
