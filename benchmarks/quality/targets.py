"""The project's targets, by family, size and measure, in percent."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.evaluation.suites.families import name_of_family

Targets = dict[float, Mapping[str, float]]


def _by(names: tuple[str, ...], sizes: Mapping[float, tuple[float, ...]]) -> Targets:
    return {size: dict(zip(names, values, strict=True)) for size, values in sizes.items()}


HOPS = ("answer", "all evidence")
ALL = ("all evidence",)
TARGETS: Mapping[str, Targets] = {
    "nq": _by(("answer",), {0.5: (99,), 0.25: (98,), 0.1: (94,), 0.05: (92,)}),
    "qmsum": _by(("evidence",), {0.33: (68,), 0.2: (57,), 0.1: (43,)}),
    "xquad": _by(("answer",), {0.1: (96,)}),
    "kv": _by(("pair", "parses"), {0.5: (100, 100), 0.25: (100, 100), 0.1: (100, 100)}),
    "hotpot": _by(HOPS, {0.5: (98, 96), 0.25: (93, 87), 0.1: (76, 54)}),
    "wiki2": _by(HOPS, {0.5: (97, 97), 0.25: (88, 86), 0.1: (62, 42)}),
    "musique": _by(HOPS, {0.5: (93, 91), 0.25: (80, 73), 0.1: (58, 46)}),
    "dialogues": _by(("turns",), {0.25: (93,), 0.1: (85,), 0.05: (78,)}),
    "logs": _by(("kinds",), {0.3: (99,), 0.1: (97,), 0.05: (92,)}),
    "agents": _by(
        ("values", "all values", "valid"), {0.5: (96, 92, 100), 0.3: (85, 78, 100), 0.15: (70, 62, 100)}
    ),
    "coding": _by(
        ("values", "all values", "valid"), {0.5: (96, 92, 100), 0.3: (85, 78, 100), 0.15: (70, 62, 100)}
    ),
    "findings": _by(ALL, {0.25: (92,), 0.1: (78,), 0.05: (60,)}),
    "code": _by(ALL, {0.25: (90,), 0.1: (75,), 0.05: (60,)}),
    "tracebacks": _by(ALL, {0.25: (100,), 0.1: (100,), 0.05: (100,)}),
    "ci": _by(ALL, {0.25: (96,), 0.1: (80,), 0.05: (60,)}),
    "webhooks": _by(ALL, {0.25: (100,), 0.1: (100,), 0.05: (97,)}),
    "tables": _by(ALL, {0.5: (88,), 0.3: (85,), 0.1: (60,)}),
    "filings": _by(ALL, {0.5: (97,), 0.3: (96,), 0.1: (92,)}),
    "records": _by(ALL, {0.25: (100,), 0.1: (100,), 0.05: (97,)}),
    "support": _by(ALL, {0.5: (100,), 0.3: (100,), 0.1: (97,)}),
    "policies": _by(ALL, {0.3: (75,), 0.1: (45,), 0.05: (30,)}),
    "pages": _by(("evidence", "all evidence"), {0.5: (98, 85), 0.3: (98, 82), 0.1: (96, 80)})
    | _by(("evidence",), {0.03: (95,)}),
    "page": _by(ALL, {0.25: (100,), 0.1: (100,), 0.05: (100,)}),
    "languages": _by(ALL, {0.3: (100,), 0.1: (98,), 0.05: (92,)}),
    "tau": _by(
        ("values", "all values", "valid"), {0.5: (99, 97, 100), 0.3: (97, 90, 100), 0.15: (88, 68, 100)}
    ),
}
XQUAD_ZH: Targets = {0.1: {"answer": 97}}
LOSSES_WARNED, KEPT_WARNED, CALIBRATION_ERROR = 70, 15, 0.05
# The mean ratio that `keep: 0.95` may come to.
PROMISED_RATIO = {"nq": 0.3, "hotpot": 0.5, "dialogues": 0.35}


def target_of(suite: str, size: float | None, measure: str) -> float | None:
    """None where none was set; suites without titles have none of their own."""
    if size is None or suite.endswith("_bare"):
        return None
    found = XQUAD_ZH if suite == "xquad_zh" else TARGETS.get(name_of_family(suite), {})
    return found.get(size, {}).get(measure)
