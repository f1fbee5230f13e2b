"""The samples of `tests/samples`, and what became of one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.evaluation.suites.traces import is_conversation

ROOT = Path(__file__).parents[3]
SAMPLES = ROOT / "tests" / "samples"


@dataclass(frozen=True, slots=True)
class Sample:
    """A text, a question to it, and words of the text that an answer needs."""

    file: Path
    query: str
    facts: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.file.parent.name}/{self.file.name}"

    @property
    def is_json(self) -> bool:
        return self.file.suffix == ".json"


@dataclass(frozen=True, slots=True)
class Reading:
    """What became of a sample."""

    sample: Sample
    output: str
    receipt: dict[str, Any]

    @property
    def plain(self) -> str:
        """The output without JSON's escapes, where it is JSON."""
        try:
            return (
                json.dumps(json.loads(self.output), ensure_ascii=False)
                if self.sample.is_json
                else self.output
            )
        except ValueError:
            return self.output

    @property
    def lost(self) -> list[str]:
        """The facts that it does not hold any more."""
        return [fact for fact in self.sample.facts if fact not in self.plain]

    @property
    def kept(self) -> str:
        """How many facts it holds: `3 of 4`, and whether chat messages are a conversation still."""
        facts = len(self.sample.facts)
        said = f"{facts - len(self.lost)} of {facts}"
        is_chat = self.sample.is_json and is_conversation(self.sample.file.read_text("utf-8"))
        return said if not is_chat or is_conversation(self.output) else f"{said}, no conversation"

    @property
    def warnings(self) -> str:
        """The codes of its flags of severity warning and above."""
        flags = [flag["code"] for flag in self.receipt["risk_flags"] if flag["severity"] != "info"]
        return ", ".join(flags)


def load_samples(folder: Path) -> list[Sample]:
    """The samples that `samples.json` lists."""
    listed = json.loads((folder / "samples.json").read_text("utf-8"))
    return [Sample(folder / each["file"], each["query"], tuple(each["facts"])) for each in listed]


def read(sample: Sample, ratio: float, *, checkout: Path, options: tuple[str, ...] = ()) -> Reading:
    """Compress it with `pith compress` of the code in `checkout`. Raises `CalledProcessError`."""
    command = [
        sys.executable,
        "-c",
        "from serve.cli.main import main; main()",
        "compress",
        str(sample.file.resolve()),
    ]
    asked = ["--query", sample.query, "--ratio", str(ratio), "--json", *options]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(
        [*command, *asked], cwd=checkout, env=environment, check=True, stdout=subprocess.PIPE
    )
    found = json.loads(done.stdout)
    return Reading(sample, found["output"], found["receipt"])
