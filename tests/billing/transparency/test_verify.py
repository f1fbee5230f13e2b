"""The verifier: it needs nothing of pith's, accuses nobody who is honest, and catches every kind of tampering."""

from __future__ import annotations

import ast
import json
import random
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from billing.price import ModelPrice, cost
from billing.transparency import verify
from tests.billing.transparency import tampering
from tests.billing.transparency.proof_files import END, NEXT, OWNER, event, is_here, log, tree_of

SOURCE = Path(verify.__file__)


@pytest.fixture(scope="module")
def case() -> tampering.Case:
    return tampering.case(random.Random(5))


@pytest.mark.parametrize("name", tampering.KINDS)
def test_tampering_is_caught_by_the_check_that_is_meant_to(name: str) -> None:
    checks, tamper = tampering.KINDS[name]
    for seed in range(3):
        assert tamper(tampering.case(random.Random(f"{name}{seed}"))).findings() & checks, seed


def test_an_honest_operator_is_never_accused() -> None:
    for seed in range(40):
        assert tampering.honest(tampering.case(random.Random(seed))).findings() == set(), seed


def test_it_imports_the_standard_library_and_cryptography_alone() -> None:
    tree = ast.parse(SOURCE.read_text(), feature_version=(3, 9))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    roots = {name.partition(".")[0] for name in names}
    assert roots - sys.stdlib_module_names == {"cryptography"}


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As somebody runs it who has that one file of pith alone."""
    alone = folder / "verify.py"
    alone.write_text(SOURCE.read_text())
    command = [sys.executable, "-I", str(alone), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


def test_a_customer_runs_it_over_a_file_and_the_replies_that_were_kept(
    case: tampering.Case, tmp_path: Path
) -> None:
    (tmp_path / "proof.json").write_text(json.dumps(case.file(from_size=9)))
    (tmp_path / "old.txt").write_text(case.log.checkpoint(9))
    (tmp_path / "kept").mkdir()
    reply, streamed, *lines = (
        {"service": {"metering": {"proof": {"record": record, "note": note}}}}
        for record, note in case.log.receipts([*case.own(), *case.replayed(), *case.log.pending])
    )
    (tmp_path / "kept/reply.json").write_text(json.dumps(reply, indent=1))
    (tmp_path / "kept/stream.txt").write_text(
        f'data: {{"id": "a"}}\n\ndata: {json.dumps(streamed)}\n\ndata: [DONE]\n\n'
    )
    (tmp_path / "kept/lines.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "kept/holiday.jpg").write_bytes(bytes(range(256)))
    options = ("--receipts", "kept", "--all-receipts", "--checkpoint", "old.txt", "--key", case.key)
    done = run(tmp_path, "proof.json", *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{len(case.file()['leaves'])} leaves, 2 pending" in done.stdout
    (tmp_path / "kept/lines.jsonl").unlink()
    done = run(tmp_path, "proof.json", *options)
    assert done.returncode == 1 and "unknown: " in done.stdout and "NOT proven" in done.stdout


def test_a_file_that_is_none_is_said_to_be(tmp_path: Path) -> None:
    for text in ("", "[]", "{}", "null", '{"key": 1}', "[" * 100_000):
        (tmp_path / "proof.json").write_text(text)
        done = run(tmp_path, "proof.json")
        assert (done.returncode, done.stderr) == (1, ""), text[:9]


ODD: tuple[Any, ...] = (None, True, -1, 2**80, 0.5, "", "é", [], {}, [[]], "AAAA", "\ud800")


def test_no_value_anywhere_in_a_file_makes_it_fail_otherwise_than_by_a_finding(case: tampering.Case) -> None:
    rng, file = random.Random(1), case.file(from_size=9)
    for _ in range(300):
        twin = json.loads(json.dumps(file))
        part: Any = twin
        while True:
            at = rng.choice(list(part)) if isinstance(part, dict) else rng.randrange(len(part))
            if not isinstance(part[at], dict | list) or not part[at] or rng.random() < 0.2:
                break
            part = part[at]
        if part[at] == (odd := rng.choice(ODD)) or at in ("made_at", "from"):
            continue
        part[at] = odd
        proof = verify.Proof(twin, case.key)
        if proof.is_read:
            proof.attempt(proof.check_history, case.log.checkpoint(9), None)
        assert proof.findings, (at, odd)


def test_a_record_that_two_programs_may_read_differently_is_refused(case: tampering.Case) -> None:
    file = case.file()
    one = file["leaves"][0]
    one["record"] = one["record"].replace('"model_id":', '"model_id":"small","model_id":', 1)
    assert "leaf" in {kind for kind, _ in verify.Proof(file).findings}


@pytest.mark.parametrize("size", range(1, 40))
def test_a_consistency_proof_is_one_of_its_two_trees_alone(size: int) -> None:
    entries = [bytes([n]) * 32 for n in range(39)]
    old, new = tree_of(entries[:size]), tree_of(entries)
    path = new.consistency(size)
    assert verify.is_beginning(size, old.root(), 39, new.root(), iter(path))
    assert not verify.is_beginning(size, bytes(32), 39, new.root(), iter(path))
    assert not verify.is_beginning(size, old.root(), 39, bytes(32), iter(path))
    assert not verify.is_beginning(size, old.root(), 39, new.root(), iter([*path, bytes(32)]))


def test_a_price_is_that_of_the_ledger_with_ties_to_the_even_one() -> None:
    rng = random.Random(2)
    for _ in range(3000):
        price = ModelPrice(
            "m", rng.choice((500, 1500, rng.randrange(10**9))), rng.randrange(9) * 500, rng.randrange(3) * 7
        )
        ppm, prompt = rng.choice((10**6, 500_000, 1, 333_333)), rng.randrange(9)
        cached, reply, outcome = (
            rng.randrange(prompt + 1),
            rng.randrange(9),
            rng.choice(("completed", "failed")),
        )
        price = ModelPrice(
            *(
                price.model_id,
                price.input_micro_usd_per_mtok,
                price.output_micro_usd_per_mtok,
                price.minimum_nano_usd,
                price.input_micro_usd_per_mtok // 3,
                ppm,
            )
        )
        due = cost(
            price,
            prompt_tokens=prompt,
            completion_tokens=reply,
            cached_tokens=cached,
            minimum=outcome != "failed",
        )
        row = {"completion_tokens": reply, "price_ppm": ppm, "outcome": outcome}
        listed = {name: getattr(price, name) for name in price.__slots__}
        found = verify.cost(row, listed, prompt, cached)
        assert found == (due.subtotal_nano_usd, due.nano_usd, due.minimum_applied)


def test_an_old_checkpoint_without_a_proof_is_said_to_be_unproven(case: tampering.Case) -> None:
    assert case.evidence(case.file(), old=case.log.checkpoint(9)).findings() == {"unproven"}


def test_a_promise_of_the_month_after_accuses_nobody(case: tampering.Case) -> None:
    later = [row for row in log(random.Random(6)).rows if not is_here(row)]
    assert case.evidence(case.file(), receipts=case.log.receipts(later)).findings() == set()


def test_what_was_settled_in_the_month_and_charged_to_the_next_is_there_and_counts_nowhere(
    case: tampering.Case,
) -> None:
    file, replayed = case.file(), case.replayed()
    ids = {json.loads(one["record"]).get("event_id") for one in file["leaves"]}
    assert replayed and ids >= {row["event_id"] for row in replayed}
    receipts = case.log.receipts([*case.own(), *case.log.pending, *replayed])
    assert case.evidence(file, receipts=receipts, all_receipts=True).findings() == set()
    # An operator who leaves one out is found by its receipt.
    without = case.file(without=[replayed[0]["event_id"]])
    assert case.evidence(without, receipts=receipts).findings() == {"receipt"}


def test_usage_that_a_spool_brought_when_the_month_was_over_is_not_called_backdated(
    case: tampering.Case,
) -> None:
    before = case.log.copy()
    before.pending = []
    after, size = before.copy(), len(before.rows)
    after.rows.append(event(random.Random(7), END - timedelta(hours=5), OWNER, month=NEXT))
    old = before.proof(made_at=tampering.LATER)
    file = after.proof(made_at=tampering.LATER, from_size=size)
    assert case.evidence(file, old=json.dumps(old)).findings() == set()


def test_an_adjustment_of_another_month_is_not_taken_for_one_of_this_by_more_fields(
    case: tampering.Case,
) -> None:
    proof = verify.Proof(case.file(), case.key)
    leaf = next(one for one in proof.leaves if not one.is_event)
    settled = next(one.row["settled_at"] for one in proof.leaves if one.is_event)
    twin = leaf._replace(month=NEXT, row=leaf.row | {"settled_at": settled})
    with pytest.raises(verify.Wrong, match="another month"):
        proof.check_leaf(twin)
