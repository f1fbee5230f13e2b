"""schemathesis over the documents of both ports, with all its checks: what it finds is mended, or listed here with a
reason."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import schemathesis

from models.fake_engine import FakeEngine
from serve.config.compression_models import DemoCompressionSettings
from tests.fuzzing.accounts import both_apis
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


PHASES = "examples,coverage,fuzzing,stateful"
STRICT = (
    "JSON Schema calls 1.0 an integer; types are strict here, since a float for a count is a client's mistake"
)
DEPENDS = "fields that depend on one another: JSON Schema of one field does not say so"
ACCEPTED = [
    Accepted(
        "ST202",
        r'"code":"unsupported_option"',
        "which options a model has is told by a 400, not by the shape",
    ),
    Accepted("ST202", r'"type":"int_type"[^}]*"input":-?\d+(\.0|e)|"type":"int_type"[^}]*\d\.0\b', STRICT),
    Accepted(
        "ST202",
        r'"type":"(needs_stream|needs_logprobs|above_max_tokens|missing|two_sizes|misplaced_option)"'
        "|end must not be below start|end must be 1 to 366 days after start|group_by must be some of",
        DEPENDS,
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


ACCEPTED_OF_ADMIN = [
    Accepted("ST202", r'"type":"int_type"', STRICT),
    Accepted(
        "ST202",
        r"cursor: has the workspace|savings are measured (of whole workspaces|by )|a (credit|refund|debit|adjustment) "
        r"|name one of workspace, project and key|person: |tag: |at_end is refuse|request_id|event_id",
        DEPENDS,
    ),
    Accepted(
        "ST202", r"'(0000|9999)-\d\d' is not a month", "the first and the last year cannot be reckoned with"
    ),
    Accepted("ST202", r"is no IANA time zone", "a list of 600 names is not in the document"),
    Accepted("ST202", r"url: ", "what may stand in an address is more than a pattern says"),
    Accepted(
        "ST202", r"must be 1 to \d+ printable characters", "JSON Schema has no word for what is printable"
    ),
    Accepted("ST202", r"must not contain '/' nor begin with", "a name must not look like an id"),
    Accepted(
        "ST202",
        r'"type":"decimal_(parsing|type|max_places)"|"type":"less_than_equal"',
        "JSON Schema bounds no number in a text; a price may be written as in the configuration",
    ),
    Accepted(
        "ST205",
        r"OPTIONS /admin/v1/webhooks/deliveries",
        "a webhook may be looked for by any id, which a DELETE then does not find",
    ),
]


def findings(output: str) -> list[str]:
    """What schemathesis prints of each finding, from its code to the request that shows it."""
    return re.findall(r"^- (ST\d+ .*?)^Reproduce with", output, re.MULTILINE | re.DOTALL)


def is_accepted(finding: str, accepted: Sequence[Accepted] = ACCEPTED) -> bool:
    return any(finding.startswith(one.code) and re.search(one.words, finding) for one in accepted)


def printed_of(url: str, key: str, folder: Path, *more: str) -> str:
    """What schemathesis prints of the document there."""
    command = [str(Path(sys.executable).parent / "schemathesis"), "run", f"{url}/openapi.json"]
    command += ["--header", f"Authorization: Bearer {key}", "--checks", "all", "--seed", "1"]
    command += ["--no-shrink", "--continue-on-failure", "--suppress-health-check", "all"]
    command += ["--output-truncate", "false", "--no-color", "--warnings", "off", *more]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=MOST_S, check=False)
    # 1: there are findings. Anything above is schemathesis itself.
    assert done.returncode == int(bool(findings(done.stdout))), done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.integration
def test_schemathesis_finds_nothing_but_what_is_listed(tmp_path: Path) -> None:
    with service(tmp_path, FakeEngine(), compressor=ReadyModel(local_model()), demo=OPEN_DEMO) as running:
        # A dialect's bodies are documented by reference: `tests/serve/dialects/test_wrong_types.py` goes through them.
        but = ("--exclude-path-regex", "^/(openai|anthropic)/")
        said = printed_of(running.url, running.key, tmp_path, "--phases", PHASES, "--max-examples", "4", *but)
    assert "Tested: 14" in said, said[-3000:]
    assert not [finding[:3000] for finding in findings(said) if not is_accepted(finding)]


@pytest.mark.long
@pytest.mark.integration
def test_schemathesis_finds_nothing_but_what_is_listed_of_the_admin_api(tmp_path: Path) -> None:
    with both_apis(tmp_path) as apis:
        key = apis.admin.headers["Authorization"].removeprefix("Bearer ")
        said = printed_of(
            str(apis.admin.base_url), key, tmp_path, "--max-examples", "3", "--phases", "coverage,stateful"
        )
    assert "Tested: 49" in said, said[-3000:]
    assert not [finding[:3000] for finding in findings(said) if not is_accepted(finding, ACCEPTED_OF_ADMIN)]


def test_what_is_accepted_of_schemathesis_says_why() -> None:
    assert all(one.why and re.fullmatch(r"ST\d+", one.code) for one in [*ACCEPTED, *ACCEPTED_OF_ADMIN])
    assert schemathesis.__version__
    assert not is_accepted("ST107 Server error\n\n[500] Internal Server Error")
    assert findings("- ST201 a\n\nb\n\nReproduce with: x\n- ST202 c\nReproduce with") == [
        "ST201 a\n\nb\n\n",
        "ST202 c\n",
    ]
