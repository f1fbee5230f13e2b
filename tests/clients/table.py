"""`python -m tests.clients.table` writes the table of docs/clients.md anew, from the record of the last run."""

from __future__ import annotations

import sys
from itertools import groupby

from tests.clients.environments import ROOT
from tests.clients.record import WORKS, Row, read, rows_of_tests

PAGE = ROOT / "docs/clients.md"
HEAD = "| client | version | what was done | result |\n|---|---|---|---|\n"


def table(rows: list[Row]) -> str:
    """One row a client, with what each of its tests did."""
    lines = [HEAD]
    for (package, version), tests in groupby(rows, key=lambda row: (row.package, row.version)):
        done = list(tests)
        others = [f"{row.result}: {row.done}" for row in done if row.result != WORKS]
        said = "<br>".join(row.done for row in done)
        lines.append(f"| {package} | {version} | {said} | {'<br>'.join(others) or WORKS} |\n")
    return "".join(lines)


def committed(page: str) -> str:
    """The table as the page has it."""
    lines = page[page.index(HEAD) :].splitlines(keepends=True)
    return "".join(
        lines[: next((at for at, line in enumerate(lines) if not line.startswith("|")), len(lines))]
    )


def main() -> None:
    found = {(row.package, row.version, row.done): row for row in read()}
    wanted = [(row.package, row.version, row.done) for row in rows_of_tests()]
    if missing := [" ".join(each) for each in wanted if each not in found]:
        sys.exit(
            "no run of these is on record; `.venv/bin/python -m pytest tests/clients` makes one:\n"
            + "\n".join(missing)
        )
    page = PAGE.read_text()
    PAGE.write_text(page.replace(committed(page), table([found[each] for each in wanted])))


if __name__ == "__main__":
    main()
