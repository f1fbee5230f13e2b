"""Trains the networks of the second look: one loss for every kind of evidence, and rounds that read one another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import track
from torch import Tensor, nn

from benchmarks.training.ranker import Ranker, stack
from benchmarks.training.second_look.samples import Sample
from benchmarks.training.validation import layout_of
from compression.features.layout import Floats
from compression.features.network import Network
from compression.second_look.rounds import relations

# By how a suite's name begins. XQuAD asks several questions of a paragraph in three languages; KV is easily learned.
WEIGHTS = {
    "nq": 1.5,
    "xquad": 0.5,
    "kv": 0.3,
    "dialogue": 0.7,
    "paper": 0.6,
    "chat": 0.8,
    "ticket": 0.7,
    "logs": 0.7,
    "trace": 1.2,
    "updates": 0.5,
}
# How much a unit's length counts: a long one that nobody wants takes more of the budget, and so does a long one that
# somebody does, where a short one says the same.
LENGTH = 0.5
HIDDEN = 64
FOLDS = 4
TYPICAL_TOKENS = 20.0
Arrays = dict[str, NDArray[np.float32]]


def weight_of(suite: str) -> float:
    return WEIGHTS.get(suite.split("_")[0], 1.0)


@dataclass(frozen=True)
class Batch:
    """Samples one after the other. `members` are units of groups, `group` says of which, `sample` of which sample."""

    features: Tensor
    tokens: Tensor
    example: Tensor
    document: Tensor
    paragraph: Tensor
    members: Tensor
    group: Tensor
    sample: Tensor
    weight: Tensor
    is_wanted: Tensor

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Batch:
        offsets = np.cumsum([0, *(len(each.tokens) for each in samples)])
        groups = [
            (number, group + offsets[number]) for number, each in enumerate(samples) for group in each.groups
        ]
        wanted = np.zeros(int(offsets[-1]), bool)
        for _, group in groups:
            wanted[group] = True
        empty = np.zeros(0, np.int64)
        return cls(
            torch.from_numpy(np.concatenate([each.features for each in samples])).float(),
            torch.from_numpy(np.concatenate([each.tokens for each in samples])).float(),
            torch.from_numpy(np.repeat(np.arange(len(samples)), np.diff(offsets))),
            _runs([each.documents for each in samples]),
            _runs([each.paragraphs for each in samples]),
            torch.from_numpy(np.concatenate([group for _, group in groups] or [empty])),
            torch.from_numpy(np.repeat(np.arange(len(groups)), [len(group) for _, group in groups])),
            torch.tensor([number for number, _ in groups], dtype=torch.long),
            torch.tensor([weight_of(samples[n].suite) / len(samples[n].groups) ** 0.5 for n, _ in groups]),
            torch.from_numpy(wanted).float(),
        )


def _runs(parts: Sequence[NDArray[np.int32]]) -> Tensor:
    """Numbers of runs within each sample as numbers over the whole batch."""
    offsets = np.cumsum([0, *(int(part[-1]) + 1 for part in parts)])[:-1]
    return torch.from_numpy(
        np.concatenate([part.astype(np.int64) + offset for part, offset in zip(parts, offsets, strict=True)])
    )


def log_sums(values: Tensor, run: Tensor, count: int) -> Tensor:
    """log-sum-exp by run; very small where a run is empty."""
    top = torch.full((count,), -1e9).scatter_reduce(0, run, values.detach(), "amax")
    total = torch.zeros(count).index_add(0, run, (values - top[run]).exp())
    return (total + 1e-30).log() + top


def loss_of(logits: Tensor, batch: Batch, calibration: float) -> Tensor:
    """Each group is to beat all that nobody wants, by its best unit; a small cross-entropy makes zero mean something.

    A group never competes with another: all evidence has to survive.
    """
    count = int(batch.example[-1]) + 1
    cost = LENGTH * (batch.tokens.clamp_min(1) / TYPICAL_TOKENS).log()
    unwanted = batch.is_wanted == 0
    against = log_sums((logits + cost)[unwanted], batch.example[unwanted], count)
    found = log_sums(logits[batch.members] - cost[batch.members], batch.group, len(batch.sample))
    lost = torch.logaddexp(against[batch.sample], found) - found
    size = torch.bincount(batch.example).float()
    entropy = nn.functional.binary_cross_entropy_with_logits(logits, batch.is_wanted, reduction="none")
    entropy = torch.zeros(count).index_add(0, batch.example, entropy) / size.sqrt()
    return (lost * batch.weight).sum() / count + calibration * entropy.mean()


def train(
    samples: Sequence[Sample], *, seed: int, epochs: int, rate: float = 3e-3, decay: float = 0.2, dropout: float = 0.1,
    batch_size: int = 32, calibration: float = 0.05,
) -> Arrays:  # fmt: skip
    """One network. The same seed and samples give the same weights."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    sample = np.concatenate([each.features[:: max(1, len(each.features) // 40)] for each in samples])
    sample = sample.astype(np.float32)
    model = Ranker(
        torch.from_numpy(sample.mean(0)), torch.from_numpy(sample.std(0).clip(0.03)), dropout, HIDDEN
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
    steps = epochs * -(-len(samples) // batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=0.1)
    order: list[int] = []
    for _ in track(range(steps), f"network, seed {seed}"):
        if len(order) < batch_size:
            order = [int(number) for number in rng.permutation(len(samples))]
        batch = Batch.of([samples[order.pop()] for _ in range(batch_size)])
        loss = loss_of(model(batch), batch, calibration)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        schedule.step()
    return model.arrays()


def predict(network: Network, samples: Sequence[Sample]) -> list[Floats]:
    return [network.logits(each.features.astype(np.float32), layout=layout_of(each)) for each in samples]


def crossed(samples: Sequence[Sample], fold_of: Callable[[Sample], int], epochs: int) -> list[Floats]:
    """Logits for each sample of a network that was trained on the samples of other folds."""
    found: dict[int, Floats] = {}
    for fold in range(FOLDS):
        mine = [each for each in samples if fold_of(each) == fold]
        others = [each for each in samples if fold_of(each) != fold]
        network = Network.of(stack([train(others, seed=fold, epochs=epochs)]))
        found.update(zip(map(id, mine), predict(network, mine), strict=True))
    return [found[id(each)] for each in samples]


def add_relations(samples: Sequence[Sample], logits: Sequence[Floats]) -> None:
    """Give every sample the features that depend on these logits."""
    for each, scored in zip(samples, logits, strict=True):
        related = relations(each.seen, scored)[1].astype(np.float16)
        each.features = np.concatenate([each.features, related], axis=1)
