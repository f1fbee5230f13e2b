"""How a command of pith ended, for the tests that run them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    def complaint(self) -> str:
        """The one line on stderr of a command that failed."""
        assert self.code != 0 and self.out == ""
        (line,) = self.err.splitlines()
        assert line.startswith("pith: ") and "Traceback" not in line
        return line.removeprefix("pith: ")
