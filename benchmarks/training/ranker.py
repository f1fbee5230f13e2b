"""Trains the network of `features.network` with torch; the arrays that it gives are what the numpy form reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import track
from torch import Tensor, nn

from benchmarks.training.examples import Example
from compression.features.network import BOUND, NEAR

HIDDEN = 32
CHANNELS = 4
MEETING_SHARE = 0.7
# XQuAD asks several questions of a paragraph in three languages, and KV is easily learned.
WEIGHTS = {"nq": 1.0, "qmsum": 1.0, "xquad": 0.5, "kv": 0.3}


@dataclass(frozen=True)
class Batch:
    """Examples one after the other. `example`, `document` and `paragraph` number the runs over the whole batch."""

    features: Tensor
    wanted: Tensor
    tokens: Tensor
    example: Tensor
    document: Tensor
    paragraph: Tensor
    is_spread: Tensor
    weight: Tensor

    @classmethod
    def of(cls, examples: Sequence[Example]) -> Batch:
        def runs(parts: Sequence[NDArray[np.int32]]) -> Tensor:
            offsets = np.cumsum([0, *(int(part[-1]) + 1 for part in parts)])[:-1]
            return torch.from_numpy(
                np.concatenate([part + offset for part, offset in zip(parts, offsets, strict=True)])
            ).long()

        return cls(
            torch.from_numpy(np.concatenate([e.features for e in examples])).float(),
            torch.from_numpy(np.concatenate([e.wanted for e in examples])).float(),
            torch.from_numpy(np.concatenate([e.tokens for e in examples])).float(),
            runs([np.zeros(len(e.tokens), np.int32) for e in examples]),
            runs([e.documents for e in examples]),
            runs([e.paragraphs for e in examples]),
            torch.tensor([e.suite.startswith("qmsum") for e in examples]),
            torch.tensor([WEIGHTS[e.suite.split("_")[0]] for e in examples]),
        )


def largest(values: Tensor, run: Tensor) -> Tensor:
    """The maximum over each run, given back to each of its members."""
    shape = (int(run[-1]) + 1, *values.shape[1:])
    index = run.view(-1, *[1] * (values.dim() - 1)).expand_as(values)
    return torch.full(shape, -torch.inf).scatter_reduce(0, index, values, "amax")[run]


def smooth(values: Tensor, document: Tensor, reach: int) -> Tensor:
    """`Layout.smooth`, over a batch."""
    at = torch.arange(len(values))
    size = torch.bincount(document)
    last = torch.cumsum(size, 0)
    first = last - size
    for width in ((reach + 1) // 2, reach - (reach + 1) // 2):
        if width:
            low = torch.maximum(first[document], at - width)
            high = torch.minimum(last[document], at + width + 1)
            running = torch.cat(
                [torch.zeros(1, values.shape[1], dtype=torch.float64), values.double().cumsum(0)]
            )
            values = ((running[high] - running[low]) / (high - low).unsqueeze(1)).float()
    return values


class Ranker(nn.Module):
    """The network in torch; `arrays` names its weights as the numpy form does."""

    def __init__(self, mean: Tensor, spread: Tensor, dropout: float, hidden: int = HIDDEN) -> None:
        super().__init__()
        around = CHANNELS * (4 + len(NEAR))
        self.mean, self.spread = nn.Parameter(mean, False), nn.Parameter(spread, False)
        self.first = nn.Linear(len(mean), hidden)
        self.channels = nn.Linear(hidden, CHANNELS, bias=False)
        self.second = nn.Linear(hidden + around, hidden)
        self.direct = nn.Linear(hidden, 1, bias=False)
        self.last = nn.Linear(hidden, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: Batch) -> Tensor:
        ready = ((batch.features - self.mean) / self.spread).clamp(-BOUND, BOUND)
        hidden = self.dropout(nn.functional.gelu(self.first(ready), approximate="tanh"))
        channels = self.channels(hidden)
        around = [
            channels,
            largest(channels, batch.paragraph),
            largest(channels, batch.document),
            largest(channels, batch.example) - channels,
            *(smooth(channels, batch.document, reach) for reach in NEAR),
        ]
        inner = self.dropout(
            nn.functional.gelu(self.second(torch.cat([hidden, *around], 1)), approximate="tanh")
        )
        logits: Tensor = (self.direct(hidden) + self.last(inner)).squeeze(-1)
        return logits

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        named = {
            "mean": self.mean, "spread": self.spread, "first": self.first.weight.T, "first_bias": self.first.bias,
            "channels": self.channels.weight.T, "second": self.second.weight.T, "second_bias": self.second.bias,
            "direct": self.direct.weight[0], "last": self.last.weight[0], "bias": self.last.bias[0],
        }  # fmt: skip
        return {name: value.detach().numpy().astype(np.float32) for name, value in named.items()}


def log_total(logits: Tensor, run: Tensor, mask: Tensor) -> Tensor:
    """log-sum-exp over each run of the masked logits."""
    hidden = logits.masked_fill(~mask, -1e9)
    top = largest(hidden, run).detach()
    count = int(run[-1]) + 1
    total = torch.zeros(count).index_add(0, run, (hidden - top).exp() * mask)
    peak = torch.full((count,), -torch.inf).scatter_reduce(0, run, hidden.detach(), "amax")
    return total.clamp_min(1e-30).log() + peak


def loss_of(logits: Tensor, batch: Batch, calibration: float) -> Tensor:
    """Some answer must come first; evidence must come by its share of tokens; and zero must divide wanted from not.

    The first is the log-sum of the wanted units' softmax over all units. The last is a small cross-entropy.
    """
    count = len(batch.weight)
    wanted = batch.wanted > 0
    every = torch.ones_like(wanted)
    has = torch.zeros(count).index_add(0, batch.example, batch.wanted) > 0
    found = log_total(logits, batch.example, every) - log_total(logits, batch.example, wanted)
    mass = logits + batch.tokens.clamp_min(1).log()
    share = batch.wanted * batch.tokens
    share = share / torch.zeros(count).index_add(0, batch.example, share).clamp_min(1)[batch.example]
    spread = log_total(mass, batch.example, every) - torch.zeros(count).index_add(
        0, batch.example, share * mass
    )
    ranked = torch.where(batch.is_spread, spread, found)
    size = torch.bincount(batch.example).float()
    entropy = nn.functional.binary_cross_entropy_with_logits(logits, batch.wanted, reduction="none")
    entropy = torch.zeros(count).index_add(0, batch.example, entropy) / size.sqrt()
    return (batch.weight * (torch.where(has, ranked, 0.0) + calibration * entropy)).mean()


def epoch_of(examples: Sequence[Example], rng: np.random.Generator) -> list[int]:
    """Every example once, of meetings a part: they are long, and the questions to one are many."""
    is_meeting = np.array([example.suite.startswith("qmsum") for example in examples])
    chosen = np.flatnonzero(~is_meeting | (rng.random(len(examples)) < MEETING_SHARE))
    return [int(number) for number in rng.permutation(chosen)]


def train(
    examples: Sequence[Example], *, seed: int, epochs: int, rate: float = 3e-3, decay: float = 0.2,
    dropout: float = 0.1, batch_size: int = 32, calibration: float = 0.05,
) -> dict[str, NDArray[np.float32]]:  # fmt: skip
    """One network. The same seed and examples give the same weights on one machine."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    sample = np.concatenate([e.features[:: max(1, len(e.features) // 60)] for e in examples]).astype(
        np.float32
    )
    model = Ranker(torch.from_numpy(sample.mean(0)), torch.from_numpy(sample.std(0).clip(0.03)), dropout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
    order: list[int] = []
    steps = epochs * -(-len(epoch_of(examples, rng)) // batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=0.1)
    for _ in track(range(steps), f"network, seed {seed}"):
        if not order:
            order = epoch_of(examples, rng)
        batch = Batch.of([examples[order.pop()] for _ in range(min(batch_size, len(order)))])
        loss = loss_of(model(batch), batch, calibration)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        schedule.step()
    return model.arrays()


def stack(networks: Sequence[dict[str, NDArray[np.float32]]]) -> dict[str, NDArray[np.float32]]:
    """Networks trained on the same examples as one; what they share is kept once."""
    shared = {"mean", "spread"}
    return {
        name: networks[0][name] if name in shared else np.stack([network[name] for network in networks])
        for name in networks[0]
    }
