"""Servers of both versions in simulation: each start of a server takes the other version's parts."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tests.simulation.server import Parts
from tests.two_versions.beside import module_before


@cache
def parts_of_both(code: Path) -> Parts:
    """Of this version, and of the one in this folder."""

    def of(module: str, name: str) -> object:
        return getattr(module_before(code, module), name)

    upkeep = "billing.background.upkeep"
    before = Parts(
        ledger=of("billing.ledger.ledger", "Ledger"),  # type: ignore[arg-type]
        sequencer=of("billing.transparency.sequencer", "Sequencer"),  # type: ignore[arg-type]
        spool=of("billing.ledger.spool", "Spool"),  # type: ignore[arg-type]
        collector=of("billing.collections.collector", "Collector"),  # type: ignore[arg-type]
        upkeep=module_before(code, upkeep),
    )
    return Parts(before=before)
