"""schemathesis over the whole document, with all its checks: what it finds is mended, or listed here with a reason."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import schemathesis

from models.fake_engine import FakeEngine
from serve.config.compression_models import DemoCompressionSettings
from tests.serve.compressing import ReadyModel, local_model
from tests.serve.loopback_service import service

# For a hang: it needs 20 s of a processor.
MOST_S = 800
OPEN_DEMO = DemoCompressionSettings(requests_per_minute_per_address=10**6, requests_per_minute=10**6)


@dataclass(frozen=True)
class Accepted:
    """A finding that is as it should be: its code, what its text says, and why."""

    code: str
    words: str
    why: str


ACCEPTED = [
    Accepted(
        "ST202",
        r'"code":"unsupported_option"',
        "which options a model has is told by a 400, not by the shape",
    ),
    Accepted(
        "ST202",
        r'"type":"int_type"[^}]*"input":-?\d+(\.0|e)|"type":"int_type"[^}]*\d\.0\b',
        "JSON Schema calls 1.0 an integer; types are strict here, since a float for a count is a client's mistake",
    ),
    Accepted(
        "ST202",
        r'"type":"(needs_stream|needs_logprobs|above_max_tokens|missing|two_sizes|misplaced_option)"'
        "|end must not be below start|end must be 1 to 366 days after start|group_by must be some of",
        "fields that depend on one another: JSON Schema of one field does not say so",
    ),
    Accepted(
        "ST202",
        r"only a message of the assistant has calls",
        "what a message may have depends on its role: the shape says it in words",
    ),
    Accepted(
        "ST202",
        r"this server keeps originals for \d+ seconds at the most",
        "an operator may allow less than the contract does: the document of the contract has its bound",
    ),
    Accepted(
        "ST202", r'"code":"model_not_found"', "an id may be removed between the document and the request"
    ),
    Accepted(
        "ST201",
        r"in body - (stream|max_tokens|temperature): Incorrect type",
        "null counts as absent; the contract's table gives these fields one type, and so does the document",
    ),
    Accepted(
        "ST201",
        r"in body - items",
        "a batch's items are judged one by one: a bad one gets its error in a 200, and fails no other",
    ),
]


def findings(output: str) -> list[str]:
    """What schemathesis prints of each finding, from its code to the request that shows it."""
    return re.findall(r"^- (ST\d+ .*?)^Reproduce with", output, re.MULTILINE | re.DOTALL)


def is_accepted(finding: str) -> bool:
    return any(finding.startswith(one.code) and re.search(one.words, finding) for one in ACCEPTED)


@pytest.mark.integration
def test_schemathesis_finds_nothing_but_what_is_listed(tmp_path: Path) -> None:
    with service(tmp_path, FakeEngine(), compressor=ReadyModel(local_model()), demo=OPEN_DEMO) as running:
        command = [str(Path(sys.executable).parent / "schemathesis"), "run", f"{running.url}/openapi.json"]
        command += ["--header", f"Authorization: Bearer {running.key}", "--checks", "all", "--seed", "1"]
        command += ["--phases", "examples,coverage,fuzzing,stateful", "--max-examples", "10", "--no-shrink"]
        command += ["--continue-on-failure", "--suppress-health-check", "all"]
        # A dialect's bodies are documented by reference: `tests/serve/dialects/test_wrong_types.py` goes through them.
        command += ["--exclude-path-regex", "^/(openai|anthropic)/"]
        command += ["--output-truncate", "false", "--no-color", "--warnings", "off"]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, timeout=MOST_S, check=False
        )
    found = findings(done.stdout)
    assert "Tested: 14" in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]
    # 1: there are findings. Anything above is schemathesis itself.
    assert done.returncode == int(bool(found)), done.stdout[-3000:] + done.stderr[-3000:]
    assert not [finding[:3000] for finding in found if not is_accepted(finding)]


def test_what_is_accepted_of_schemathesis_says_why() -> None:
    assert all(one.why and re.fullmatch(r"ST\d+", one.code) for one in ACCEPTED)
    assert schemathesis.__version__
    assert not is_accepted("ST107 Server error\n\n[500] Internal Server Error")
    assert findings("- ST201 a\n\nb\n\nReproduce with: x\n- ST202 c\nReproduce with") == [
        "ST201 a\n\nb\n\n",
        "ST202 c\n",
    ]
