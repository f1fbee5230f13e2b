"""The small network over the features, in numpy: two layers, and between them a look at what surrounds each unit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from compression.features.layout import Floats, Group, Layout

NEAR = (2, 6, 16, 40)
BOUND = 6.0
_UNITS_AT_ONCE = 1024


def gelu(x: Floats) -> Floats:
    """The tanh form, which torch calls `approximate="tanh"`. Overwrites `x`."""
    inner = x * x
    inner *= np.float32(0.044715)
    inner += 1
    inner *= x
    inner *= np.float32(0.7978845608)
    np.tanh(inner, out=inner)
    inner += 1
    x *= 0.5
    x *= inner
    return x


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

    def logits(self, *features: Floats, layout: Layout) -> Floats:
        """(units,): above zero where a unit is rather wanted than not. `features` are (units, features), in as many
        tables as they were made in.
        """
        networks, width = self.first.shape[0], self.first.shape[2]
        height = len(features[0])
        hidden = np.empty((networks * width, height), np.float32)
        for some in _slices(height):
            hidden[:, some] = self._hidden(np.concatenate([table[some].T for table in features]))
        hidden = hidden.reshape(networks, width, -1)
        around = surroundings(self.channels.transpose(0, 2, 1) @ hidden, layout)
        total = np.empty(height, np.float32)
        for some in _slices(height):
            total[some] = self._sum(hidden[:, :, some], around[:, :, some])
        return np.asarray(total / networks, np.float32)

    def _hidden(self, rows: Floats) -> Floats:
        """The first layer of all networks: (networks x width, units). Overwrites `rows`."""
        rows -= self.mean[:, None]
        rows /= self.spread[:, None]
        np.clip(rows, -BOUND, BOUND, out=rows)
        first = self.first.transpose(0, 2, 1).reshape(-1, len(rows))
        hidden: Floats = first @ rows
        hidden += self.first_bias.reshape(-1, 1)
        return gelu(hidden)

    def _sum(self, hidden: Floats, around: Floats) -> Floats:
        """The second layer and the logits of all networks, added up: (units,)."""
        inner = self.second.transpose(0, 2, 1) @ np.concatenate([hidden, around], axis=1)
        inner += self.second_bias[:, :, None]
        inner = gelu(inner)
        logits = self.direct[:, None] @ hidden + self.last[:, None] @ inner + self.bias[:, None, None]
        total: Floats = logits.sum(axis=(0, 1))
        return total


def _slices(count: int) -> Iterator[slice]:
    """So many units at a time: what is made of them stays in the processor's cache."""
    for start in range(0, count, _UNITS_AT_ONCE):
        yield slice(start, min(count, start + _UNITS_AT_ONCE))


def surroundings(channels: Floats, layout: Layout) -> Floats:
    """Each channel of the unit, the best in its paragraph, document and context, and means over its neighbours.

    `channels` are (networks, channels, units); what comes has as many times the channels.
    """
    return np.concatenate(
        [
            channels,
            _best_of_group(channels, layout.paragraphs),
            _best_of_group(channels, layout.documents),
            channels.max(axis=-1, keepdims=True, initial=-np.inf) - channels,
            *layout.smooth_rows(channels, *NEAR),
        ],
        axis=1,
    )


def _best_of_group(channels: Floats, group: Group) -> Floats:
    if not len(group.first):
        return channels
    best: Floats = np.maximum.reduceat(channels, group.first, axis=-1).take(group.of, axis=-1)
    return best


class BadWeights(ValueError):
    """A file of weights that this version cannot read."""


def read_arrays(path: Path, what: str, version: int, command: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The arrays and the features. `what` is what they are for, `command` makes them.

    Raises `FileNotFoundError`, and `BadWeights` for a file of another version.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no weights of {what} at {path}; make them: {command}")
    try:
        with np.load(path, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found}
        about = json.loads(bytes(arrays.pop("about")).decode())
    except (KeyError, ValueError) as error:
        raise BadWeights(f"{path}: {type(error).__name__}: {error}") from error
    if about["format"] != version:
        raise BadWeights(f"{path}: format {about['format']}, where this version reads {version}")
    return arrays, tuple(about["features"])


def beginning_with(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Those whose names begin so, without that beginning."""
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
