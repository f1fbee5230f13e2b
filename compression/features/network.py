"""The small network over the features, in numpy: two layers, and between them a look at what surrounds each unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from compression.features.layout import Layout
from compression.features.runs import Floats

NEAR = (2, 6, 16, 40)
BOUND = 6.0


def gelu(x: Floats) -> Floats:
    """The tanh form, which torch calls `approximate="tanh"`."""
    out: Floats = 0.5 * x * (1 + np.tanh(np.float32(0.7978845608) * (x + np.float32(0.044715) * x * x * x)))
    return out


@dataclass(frozen=True)
class Network:
    """Weights of some networks of the same shape, whose logits are averaged; the first axis counts them."""

    mean: Floats
    spread: Floats
    first: Floats
    first_bias: Floats
    channels: Floats
    second: Floats
    second_bias: Floats
    direct: Floats
    last: Floats
    bias: Floats

    @classmethod
    def of(cls, arrays: Mapping[str, Floats]) -> Network:
        return cls(**{field.name: np.asarray(arrays[field.name], np.float32) for field in fields(cls)})

    def logits(self, features: Floats, layout: Layout) -> Floats:
        """(units,): above zero where a unit is rather wanted than not."""
        ready = np.clip((features - self.mean) / self.spread, -BOUND, BOUND)
        total = np.zeros(len(features), np.float32)
        for number in range(len(self.first)):
            hidden = gelu(ready @ self.first[number] + self.first_bias[number])
            around = surroundings(hidden @ self.channels[number], layout)
            inner = gelu(
                np.concatenate([hidden, around], axis=1) @ self.second[number] + self.second_bias[number]
            )
            total = total + hidden @ self.direct[number] + inner @ self.last[number] + self.bias[number]
        return np.asarray(total / len(self.first), np.float32)


def surroundings(channels: Floats, layout: Layout) -> Floats:
    """Each channel of the unit, the best in its paragraph, document and context, and means over its neighbours."""
    best = channels.max(axis=0, keepdims=True) if len(channels) else channels
    return np.concatenate(
        [
            channels,
            layout.paragraphs.largest(channels)[layout.paragraphs.of],
            layout.documents.largest(channels)[layout.documents.of],
            best - channels,
            *(layout.smooth(channels, reach) for reach in NEAR),
        ],
        axis=1,
    )
