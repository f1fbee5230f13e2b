"""The page of the docs that the benchmark writes: what was measured, between two marks, and the plots beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.load import plots
from benchmarks.load.report import Report

BEGIN, END = "<!-- measured: written by benchmarks.quality -->", "<!-- end of what was measured -->"


class NoPlace(ValueError):
    """The page has no place for what was measured."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} has no line {BEGIN!r} with a line {END!r} below it")


def check(path: Path) -> None:
    """Raises `NoPlace`, and `FileNotFoundError`: before anything is measured."""
    _parts(path)


def _parts(path: Path) -> tuple[str, str]:
    """What stands before and after the measured part."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(f"{BEGIN}\n")
    _, end, after = rest.partition(f"{END}\n")
    if not begin or not end:
        raise NoPlace(path)
    return before, after


def write(path: Path, report: Report) -> list[Path]:
    """The report between the marks, and its pictures beside the page: PAGE.png, PAGE-OTHER.png. Raises `NoPlace`."""
    before, after = _parts(path)
    drawn = [
        plots.draw(_picture(path, name, report), picture.panels, title=picture.title)
        for name, picture in report.pictures.items()
    ]
    links = [f"![{report.title}: {picture.stem}]({picture.name})" for picture in drawn]
    lines: Sequence[str] = [BEGIN, "", *facts(report), "", *links, "", *report.lines, END, ""]
    path.write_text(before + "\n".join(lines) + after, encoding="utf-8")
    return [path, *drawn]


def _picture(path: Path, name: str, report: Report) -> Path:
    return path.with_name(f"{path.stem}.png" if name == report.name else f"{path.stem}-{name}.png")


def facts(report: Report) -> list[str]:
    """The command, the rows and the machine; without addresses, which say nothing to a reader."""
    shown = ("command", "commit", "machine", "rows", "versions")
    return [f"- {name}: {report.facts[name]}" for name in shown if name in report.facts]
