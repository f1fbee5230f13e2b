"""Picture of what ingress replicas reach, beside what a model says of more cores: `tests.ingress_scale` measures it,
and docs/scaling.md has its tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from benchmarks.load import plots
from benchmarks.load.page import tables

Curve = list[tuple[float, float]]


def picture(
    measured: Mapping[str, Curve], modelled: Mapping[str, Mapping[int, Curve]], cores: float
) -> plots.Picture:
    """By ledger: requests/s by replicas, on `cores`; and on other numbers of cores by the model."""
    panels = [
        plots.Panel(
            ledger, "ingress replicas", "requests/s", {"measured": points, **_apart(modelled[ledger])}
        )
        for ledger, points in measured.items()
    ]
    gains = " and ".join(f"{_gain(points):.1f} ({ledger})" for ledger, points in measured.items())
    return plots.Picture(
        f"On {cores:g} cores, ingress replicas bring up to {gains} times what one does", panels
    )


def _gain(points: Curve) -> float:
    return max(rate for _, rate in points) / points[0][1]


def _apart(curves: Mapping[int, Curve]) -> dict[str, Curve]:
    """Numbers of cores of which the model says the same share a line, since one would hide the other."""
    same = defaultdict[tuple[tuple[float, float], ...], list[int]](list)
    for cores, curve in curves.items():
        same[tuple(curve)].append(cores)
    return {f"model, {' or '.join(map(str, cores))} cores": list(curve) for curve, cores in same.items()}


def from_page(page: Path) -> plots.Picture:
    """Of scaling.md. With one replica the model says what was measured: it is made of that."""
    [(_, rows)] = tables(page, "ledger", "replicas", "requests/s")
    measured = defaultdict[str, Curve](list)
    for ledger, replicas, rate, *_ in rows:
        measured[ledger].append((float(replicas), _number(rate)))
    [(head, rows)] = tables(page, "requests/s, modelled")
    modelled = {
        ledger: {int(cores.split()[0]): [points[0]] for cores in head[1:]}
        for ledger, points in measured.items()
    }
    for name, *cells in rows:
        ledger, replicas = name.removesuffix(" replicas").split(", ")
        for cores, cell in zip(head[1:], cells, strict=True):
            modelled[ledger][int(cores.split()[0])].append((float(replicas), _number(cell.split()[0])))
    return picture(measured, modelled, 2)


def _number(cell: str) -> float:
    return float(cell.replace(",", ""))
