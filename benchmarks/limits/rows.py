"""All rows of the table. A part of the service has a module here with its own; add it to `ROWS`."""

from __future__ import annotations

from benchmarks.limits.chat import CHAT
from benchmarks.limits.compression import COMPRESSION
from benchmarks.limits.files import FILES
from benchmarks.limits.http import HTTP
from benchmarks.limits.prompt import PROMPT
from benchmarks.limits.row import Row

ROWS: tuple[Row, ...] = (*COMPRESSION, *CHAT, *PROMPT, *HTTP, *FILES)


def find(name: str) -> Row:
    return next(row for row in ROWS if row.name == name)
