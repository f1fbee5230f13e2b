"""The proof tab in Chromium: its own cryptography finds what the verifier finds, under the same names."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from playwright.sync_api import FilePayload, expect

from tests.billing.transparency import tampering
from tests.billing.transparency.proof_files import LATER, Evidence, Witness
from tests.serve.playground.watched import Watched

pytestmark = pytest.mark.integration


def payload(name: str, content: str) -> FilePayload:
    return {"name": name, "mimeType": "application/json", "buffer": content.encode()}


def reply(record: str, note: str) -> str:
    return json.dumps({"service": {"metering": {"proof": {"record": record, "note": note}}}})


def check(page: Watched, found: Evidence) -> None:
    """As a customer does it who has all of this."""
    files = page.page.locator
    page.page.get_by_label("Proof file", exact=True).set_input_files(
        payload("proof.json", json.dumps(found.file))
    )
    old = [payload("old", found.old)] if found.old else []
    page.page.get_by_label("Checkpoint or proof file of before").set_input_files(old)
    receipts = [payload(f"{n}.json", reply(*one)) for n, one in enumerate(found.receipts)]
    page.page.get_by_label("Replies that you have kept").set_input_files(receipts)
    page.page.get_by_label("The log's key").fill(found.key)
    page.page.get_by_label("The witness's key").fill(found.witness or "")
    page.button("Check").click()
    expect(files("#proof[aria-busy='false'] #proof-result")).to_be_visible()


def kinds(page: Watched) -> set[str]:
    return set(page.page.locator("#proof li strong").all_inner_texts())


def test_an_honest_file_is_proven_with_all_that_was_kept(page: Watched) -> None:
    case, witness = tampering.case(random.Random(4)), Witness()
    file = case.file(from_size=9)
    file["checkpoint"] = witness.cosigned(file["checkpoint"], LATER)
    rows = [*case.own(), *case.log.pending]
    kept: dict[str, Any] = {
        "old": witness.cosigned(case.log.checkpoint(9), LATER.replace(month=10)),
        "receipts": case.log.receipts(rows),
    }
    page.tab("Proof")
    check(page, Evidence(file, case.key, witness=str(witness.verifier), **kept))
    page.shows("#proof-result", "Proven")
    page.shows("#proof", f"{len(file['leaves'])} leaves of ws_own in 2026-10, and 2 that wait")
    assert page.violations() == []


def test_each_kind_of_tampering_is_named_as_the_verifier_names_it(page: Watched) -> None:
    page.tab("Proof")
    for name, (checks, tamper) in tampering.KINDS.items():
        found = tamper(tampering.case(random.Random(name)))
        if found.all_receipts:
            # The page counts them and leaves the judgement to its reader.
            continue
        check(page, found)
        page.shows("#proof-result", "Not proven")
        assert kinds(page) == found.findings() and kinds(page) & checks, name


def test_honest_operators_are_not_accused(page: Watched) -> None:
    page.tab("Proof")
    for seed in range(8):
        check(page, tampering.honest(tampering.case(random.Random(seed))))
        page.shows("#proof-result", "Proven")


def test_a_browser_without_the_cryptography_says_so(page: Watched) -> None:
    page.page.evaluate("Object.defineProperty(globalThis, 'crypto', {value: {}})")
    page.tab("Proof")
    page.shows("#proof-fault", "cannot check signatures here")
