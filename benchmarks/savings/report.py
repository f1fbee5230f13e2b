"""The report, and the page of the docs that it fills."""

from __future__ import annotations

from benchmarks.load.machine import Facts
from benchmarks.load.report import Report, facts_list
from benchmarks.savings import tables
from benchmarks.savings.measured import Measured
from benchmarks.savings.picture import picture
from benchmarks.savings.targets import targets


def blocks(measured: Measured) -> dict[str, list[str]]:
    """Every table by its name on the page; those that have nothing are left out."""
    rows = tables.compared(measured)
    found = {"targets": targets(measured, rows)}
    if rows:
        found |= {"sessions": tables.session_shares(rows), "amounts": tables.session_amounts(rows)}
    if measured.questions:
        found["questions"] = tables.questions(measured)
    if any(name.startswith("sessions") for name in measured.kept):
        found["values"] = tables.values(measured)
    if rows or measured.questions:
        found["blocks"] = tables.blocks(measured)
    if measured.idle:
        found["idle"] = tables.idle(measured)
    found["runs"] = [line for facts in measured.runs for line in [*facts_list(facts), ""]]
    return found


def report(measured: Measured, facts: Facts) -> Report:
    found = blocks(measured)
    lines = [line for name, each in found.items() if name != "runs" for line in (f"## {name}", "", *each, "")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found.get("sessions", [])[2:]]
    pictures = {"savings": picture(rows)} if rows else {}
    return Report("savings", "What compression inside chat saves", facts, lines, {}, pictures)
