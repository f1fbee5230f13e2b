"""Makes the table of token embeddings: the teacher's view of each word piece in fewer dimensions, then tuned so that
means of pieces lie to one another as the teacher's sentences do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import track
from torch import Tensor, nn

from benchmarks.training.corpus import Text
from compression.features.layout import Floats
from compression.features.meaning import (
    UNKNOWN,
    PieceSplitter,
    TokenEmbeddings,
    normalised,
    quantise,
)
from compression.features.words import fold, split

WIDTH = 128
# BERT's vocabulary: special and unused pieces, single characters, then words from the most frequent down.
FIRST_CHARACTER = 999
FIRST_WORD = 1996
SMOOTHING = 3e-3
CHARACTER_WEIGHT = 0.3
HEAVIEST = 1.5
NEIGHBOURS = 48
TEMPERATURE = 0.05
# What keeps pieces near where they started.
STAY = 1e-5


def principal(vectors: Floats, width: int) -> Floats:
    """The vectors in the directions in which they differ most, of length one."""
    centred = vectors - vectors.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)
    return normalised(centred @ directions[:, ::-1][:, :width])


def rarity(size: int) -> Floats:
    """Smooth inverse frequency (Arora and others, 2017) by Zipf's law over the vocabulary's order."""
    rank = np.maximum(1, np.arange(size) - FIRST_WORD + 1).astype(np.float64)
    share = 1 / (rank + 1)
    weights = SMOOTHING / (SMOOTHING + share / share.sum())
    weights[:FIRST_CHARACTER] = CHARACTER_WEIGHT
    return np.asarray(weights, np.float32)


@dataclass(frozen=True)
class Sentence:
    """Word pieces of a sentence; those of one word share its weight."""

    pieces: NDArray[np.int64]
    shares: Floats

    @classmethod
    def of(cls, text: str, splitter: PieceSplitter) -> Sentence:
        words = [splitter.split(fold(word)) for word in split(text)[0]] or [(UNKNOWN,)]
        shares = [1 / len(word) for word in words for _ in word]
        return cls(np.array([piece for word in words for piece in word]), np.array(shares, np.float32))


class Table(nn.Module):
    """The vectors and logarithms of weights that are tuned. Gradients are sparse: a step meets few pieces."""

    def __init__(self, vectors: Floats, weights: Floats) -> None:
        super().__init__()
        self.start = torch.from_numpy(vectors)
        self.vectors = nn.Embedding.from_pretrained(self.start.clone(), freeze=False, sparse=True)
        logs = torch.from_numpy(weights).log().unsqueeze(1)
        self.logs = nn.Embedding.from_pretrained(logs, freeze=False, sparse=True)

    def forward(self, sentences: Sequence[Sentence]) -> tuple[Tensor, Tensor]:
        """Sentences as (sentences, width), each of length one; and how far the pieces are from where they started."""
        pieces = torch.from_numpy(np.concatenate([sentence.pieces for sentence in sentences]))
        shares = torch.from_numpy(np.concatenate([sentence.shares for sentence in sentences])).unsqueeze(1)
        of = torch.from_numpy(np.repeat(np.arange(len(sentences)), [len(s.pieces) for s in sentences]))
        distinct, number = pieces.unique(return_inverse=True)
        vectors = self.vectors(distinct)
        weighted = nn.functional.normalize(vectors, dim=1) * self.logs(distinct).exp()
        total = torch.zeros(len(sentences), vectors.shape[1]).index_add(0, of, weighted[number] * shares)
        return nn.functional.normalize(total, dim=1), (vectors - self.start[distinct]).square().sum()


def tune(
    vectors: Floats,
    weights: Floats,
    sentences: Sequence[Sentence],
    wanted: Floats,
    *,
    seed: int,
    steps: int,
    rate: float = 2e-3,
) -> tuple[Floats, Floats]:
    """Vectors and weights under which cosines of means are as the teacher's cosines: `wanted`, (sentences, width).

    Each step takes a few sentences with some of their nearest, since far ones say little, and some at random.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    teacher = torch.from_numpy(wanted)
    count = min(NEIGHBOURS, len(teacher))
    near = torch.cat([(part @ teacher.T).topk(count, 1).indices for part in teacher.split(1024)]).numpy()
    table = Table(vectors, weights)
    groups = [
        {"params": list(table.vectors.parameters()), "lr": rate},
        {"params": list(table.logs.parameters()), "lr": rate * 5},
    ]
    optimizer = torch.optim.SparseAdam(groups)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, [rate, rate * 5], total_steps=steps, pct_start=0.1, cycle_momentum=False
    )
    for _ in track(range(steps), "embeddings"):
        anchors = rng.integers(0, len(teacher), 14)
        beside = [rng.choice(near[anchor], min(16, count), replace=False) for anchor in anchors]
        chosen = np.unique(np.concatenate([anchors, *beside, rng.integers(0, len(teacher), 100)]))
        found, moved = table([sentences[number] for number in chosen])
        loss = disagreement(found @ found.T, teacher[chosen] @ teacher[chosen].T) + STAY * moved
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    tuned = table.logs.weight.detach().exp().squeeze(1).numpy()
    heaviest = float(np.quantile(tuned, 0.99))
    weights = (tuned / heaviest).clip(0, HEAVIEST).astype(np.float32)
    return normalised(table.vectors.weight.detach().numpy()), weights


def disagreement(found: Tensor, wanted: Tensor) -> Tensor:
    """Squared differences of cosines, and the divergence of each sentence's softmax over the others."""
    itself = torch.eye(len(found), dtype=torch.bool)
    squared = (found - wanted)[~itself].square().mean()
    one = (found / TEMPERATURE).masked_fill(itself, -1e4).log_softmax(1)
    other = (wanted / TEMPERATURE).masked_fill(itself, -1e4).log_softmax(1)
    return 5 * squared + (other.exp() * (other - one)).sum(1).mean()


def distil(
    vocabulary: list[str], pieces: Floats, texts: Sequence[str], sentences: Floats, *, seed: int, steps: int
) -> TokenEmbeddings:
    """`pieces` and `sentences` are the teacher's vectors of the vocabulary and of the texts."""
    splitter = PieceSplitter({piece: number for number, piece in enumerate(vocabulary)})
    ready = [Sentence.of(text, splitter) for text in texts]
    vectors, weights = tune(
        principal(pieces, WIDTH), rarity(len(vocabulary)), ready, sentences, seed=seed, steps=steps
    )
    rows, scales = quantise(vectors)
    # As they will be read from the file, so that training sees what serving sees.
    half = weights.astype(np.float16).astype(np.float32)
    return TokenEmbeddings.build(vocabulary, rows, scales.astype(np.float16).astype(np.float32), half)


def distil_for_training(
    vocabulary: list[str], pieces: Floats, texts: Sequence[Text], sentences: Floats, *, seed: int, steps: int
) -> tuple[TokenEmbeddings, TokenEmbeddings]:
    """For the training cases of either half, a table tuned on the other half alone.

    A table is better on texts that it was tuned on; a network trained on those would trust it more than it deserves.
    """
    halves = np.array([text.half for text in texts])
    one, other = (
        distil(
            vocabulary, pieces, [text.text for text in texts if text.half != half], sentences[halves != half],
            seed=seed, steps=steps,
        )
        for half in (0, 1)
    )  # fmt: skip
    return one, other
