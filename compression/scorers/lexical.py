"""Scorers by words, without torch: the embedded default and BM25.

The default puts features of words and meaning into small trained networks, in numpy, on weights of our own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from compression.features.layout import Floats
from compression.features.matching import echoes, words_held
from compression.features.matrix import Context, extract, prepare
from compression.features.meaning import TokenEmbeddings
from compression.features.network import BadWeights, Network, beginning_with, read_arrays
from compression.second_look.records import by_record
from compression.second_look.rounds import SecondLook, demoted, read_inputs
from compression.second_look.tables import by_row
from compression.source.text import content_terms, terms_in
from compression.source.units import Segmentation


class Scorer(Protocol):
    """Says how much each unit matters to a query."""

    def score(self, query: str, text: Segmentation) -> Sequence[float]:
        """One score a unit, in [0, 1], comparable over the whole source. Deterministic."""
        ...


@dataclass(frozen=True)
class Glance:
    """A text and what the first look makes of it: `features` are (units, features), `logits` one a unit.

    `muted` units only repeat the query.
    """

    query: str
    context: Context
    muted: NDArray[np.bool_]
    names: list[str]
    features: Floats
    logits: Floats


WEIGHTS = Path(__file__).parents[1] / "weights" / "lexical.npz"
FORMAT = 1
COMMAND = "python -m benchmarks.training"
# Beyond it exp overflows, and the score is 0 or 1 anyway.
_STEEPEST = 60.0
# The logit of what only repeats the query: kept where there is room, but never in place of evidence.
_ECHO = np.float32(-2.0)


def read_weights(path: Path = WEIGHTS) -> tuple[TokenEmbeddings, Network, tuple[str, ...]]:
    """The embeddings, the network of the first look and the names of its features. Raises `FileNotFoundError` and
    `BadWeights`."""
    arrays, features = read_arrays(path, "the lexical scorer", FORMAT, COMMAND)
    try:
        vocabulary = bytes(arrays["vocabulary"]).decode().split("\n")
        embeddings = TokenEmbeddings.build(vocabulary, arrays["rows"], arrays["scales"], arrays["weights"])
        return embeddings, Network.of(beginning_with("net.", arrays)), features
    except (KeyError, ValueError) as error:
        raise BadWeights(f"{path}: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class LexicalScorer:
    """Scores units by a trained network over features of words, their parts and their static embeddings.

    `score` gives the network's probability that a unit holds what the query asks for; scores of one context are to be
    compared with one another. Without a query every unit scores 0.
    """

    embeddings: TokenEmbeddings
    network: Network
    names: tuple[str, ...]
    second: SecondLook

    @classmethod
    def load(cls, path: Path | None = None) -> LexicalScorer:
        """The weights that come with pith, or another file made by `python -m benchmarks.training`."""
        return cls(*read_weights(WEIGHTS if path is None else path), SecondLook.load())

    def score(self, query: str, text: Segmentation) -> Sequence[float]:
        """One score a unit, in [0, 1]. Deterministic."""
        if not text.units:
            return []
        if not query.strip():
            return [0.0] * len(text.units)
        glance = self.glance(query, text)
        return chances(self.look_again(glance, glance.logits))

    def glance(self, query: str, text: Segmentation) -> Glance:
        """The first look: features and what the network makes of them. The text has a unit.

        Raises `BadWeights` where the weights are of other features than this version's.
        """
        muted = echoes(query, text)
        context = prepare(text, self.embeddings, muted)
        names, features = extract(query, context, self.embeddings)
        if tuple(names) != self.names:
            raise BadWeights(f"the weights were trained on other features; make new ones: {COMMAND}")
        return Glance(
            query, context, muted, names, features, self.network.logits(features, layout=context.layout)
        )

    def look_again(self, glance: Glance, logits: Floats) -> Floats:
        """The second look, over the logits of the first or of any other scorer: (units,)."""
        seen = read_inputs(glance.query, glance.context, (glance.names, glance.features), self.embeddings)
        lowest = np.float32(logits.min())
        again = self.second.logits(seen, np.where(glance.muted, lowest, logits))
        text = glance.context.segmentation
        has = words_held(glance.context.words, seen.query)
        again = by_record(again, text, has, seen.query.terms, seen.prior)
        again = by_row(again, text, has, seen.query, seen.prior)
        return np.where(glance.muted, _ECHO, demoted(again, text, seen.copy_of, seen.is_asked))


def chances(logits: Floats) -> list[float]:
    """Logits as numbers from 0 to 1."""
    exact = np.clip(np.asarray(logits, np.float64), -_STEEPEST, _STEEPEST)
    scores: list[float] = (1.0 / (1.0 + np.exp(-exact))).tolist()
    return scores


# Of BM25.
_K1 = 1.2
_B = 0.75


class BM25Scorer:
    """BM25 over units, each read together with the title of its document: the scorer that needs no training.

    Robertson and Zaragoza, 2009. A score is the share of what a perfect match could reach, below 1.
    """

    def __init__(self, *, with_title: bool = True) -> None:
        self._with_title = with_title

    def score(self, query: str, text: Segmentation) -> Sequence[float]:
        wanted = Counter(content_terms(query) or terms_in(query))
        counts, lengths = self._read(wanted, text)
        frequency: Counter[str] = Counter()
        for found in counts:
            frequency.update(found.keys())
        idf = {
            term: math.log(1 + (len(counts) - frequency[term] + 0.5) / (frequency[term] + 0.5))
            for term in wanted
        }
        best = sum(idf[term] * times for term, times in wanted.items()) * (_K1 + 1)
        if best <= 0:
            return [0.0] * len(counts)
        average = max(1.0, sum(lengths) / len(lengths))
        scores = []
        for found, length in zip(counts, lengths, strict=True):
            norm = _K1 * (1 - _B + _B * length / average)
            gained = sum(
                idf[term] * wanted[term] * times * (_K1 + 1) / (times + norm) for term, times in found.items()
            )
            scores.append(gained / best)
        return scores

    def _read(self, wanted: Counter[str], text: Segmentation) -> tuple[list[dict[str, int]], list[int]]:
        """How often each unit, with its title, has each wanted term; and how many terms it has."""
        titles = {document.title: number for number, document in enumerate(text.documents)}
        own = [terms_in(unit) for unit in text.texts()]
        counts: list[dict[str, int]] = []
        lengths: list[int] = []
        for unit, found in enumerate(own):
            title = text.documents[text.units[unit].document].title if self._with_title else None
            read = found if title is None or unit in titles else found + own[title]
            wanted_here = [term for term in read if term in wanted]
            counts.append(Counter(wanted_here) if wanted_here else {})
            lengths.append(len(read))
        return counts, lengths
