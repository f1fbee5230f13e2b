"""Tampers at random with ledgers, logs, statements and receipts, and counts what the verifier catches, by kind.

    python -m tests.billing.transparency.tampering --runs 10000 [--seed 1]

Of each run there is an honest twin: the same customer with the same kinds of evidence, who must accuse nobody.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import sys
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from billing.transparency import notes
from billing.transparency.leaves import digest, leaf
from billing.transparency.log_sql import id_of
from tests.billing.transparency.proof_files import (
    BEGIN,
    END,
    LATER,
    MONTH,
    OWNER,
    Evidence,
    Log,
    Row,
    Witness,
    adjustment,
    event,
    is_event,
    is_replayed,
    log,
    priced,
    totals,
)


@dataclass
class Case:
    """One customer of one honest log, and what there is to tamper with."""

    rng: random.Random
    log: Log

    @property
    def key(self) -> str:
        return str(self.log.signer.verifier)

    def file(self, of: Log | None = None, **how: Any) -> dict[str, Any]:
        return (of or self.log).proof(made_at=LATER, **how)

    def own(self, of: Log | None = None) -> list[Row]:
        """The customer's events of the month."""
        rows = (of or self.log).rows
        return [
            row for row in rows if row["workspace_id"] == OWNER and row["month"] == MONTH and is_event(row)
        ]

    def replayed(self) -> list[Row]:
        """Those that were answered in the month and charged to the next."""
        return [row for row in self.log.rows if row["workspace_id"] == OWNER and is_replayed(row)]

    def plain(self) -> Row:
        """One whose price is above nothing, and which no other names."""
        return self.rng.choice(
            [row for row in self.own() if not row["paired_with"] and row["cost_nano_usd"] > 10]
        )

    def seen(self) -> int:
        """A size of the log that the customer saw. Both events of a request come at once."""
        rows = self.log.rows
        halves = {n for n in range(1, len(rows)) if rows[n - 1].get("paired_with") == id_of(rows[n])}
        return self.rng.choice([size for size in range(1, len(rows) + 1) if size not in halves])

    def forged(self, change: Callable[[Log, Row], None]) -> Log:
        """The log that the operator makes and signs anew after changing one of the customer's rows."""
        row, other = self.plain(), self.log.copy()
        change(other, next(one for one in other.rows if id_of(one) == row["event_id"]))
        return other

    def evidence(self, file: dict[str, Any], **kept: Any) -> Evidence:
        return Evidence(file, self.key, **kept)


def case(rng: random.Random) -> Case:
    while True:
        found = Case(rng, log(rng))
        if sum(not row["paired_with"] and row["cost_nano_usd"] > 10 for row in found.own()) > 3:
            found.log.pending = [event(rng, END - timedelta(minutes=n), OWNER, month=MONTH) for n in range(2)]
            return found


Tampering = Callable[[Case], Evidence]
KINDS: dict[str, tuple[frozenset[str], Tampering]] = {}


def caught_by(*checks: str) -> Callable[[Tampering], Tampering]:
    """The checks that are meant to catch it: one of them must."""

    def add(tampering: Tampering) -> Tampering:
        KINDS[tampering.__name__.replace("_", " ")] = (frozenset(checks), tampering)
        return tampering

    return add


def edited(rng: random.Random, row: Row) -> None:
    """Fewer or more tokens, another time, another model: whatever an operator may want to be otherwise."""
    name = rng.choice(
        ("prompt_tokens", "completion_tokens", "settled_at", "request_id", "key_id", "route", "offline")
    )
    row[name] = {
        "prompt_tokens": lambda: row[name] + rng.randrange(1, 900),
        "completion_tokens": lambda: row[name] + rng.randrange(1, 900),
        "settled_at": lambda: row[name] + timedelta(seconds=rng.randrange(1, 90)),
        "offline": lambda: not row[name],
    }.get(name, lambda: f"{row[name]}x")()
    row |= priced(row)


# The statement's file, by whoever has not the log's key.


@caught_by("tree")
def file_a_record_is_edited(case: Case) -> Evidence:
    file, other = case.file(), case.forged(lambda _, row: edited(case.rng, row))
    return case.evidence(file | {name: case.file(other)[name] for name in ("leaves", "totals")})


@caught_by("tree")
def file_a_posting_is_edited(case: Case) -> Evidence:
    file = case.file()
    one = case.rng.choice([one for one in file["leaves"] if "written_off" in one["posting"]])
    posting = json.loads(one["posting"])
    posting["written_off_nano_usd"] += 1
    one["posting"] = json.dumps(posting, sort_keys=True, separators=(",", ":"))
    return case.evidence(file)


@caught_by("tree", "malformed")
def file_a_leaf_is_cut_out(case: Case) -> Evidence:
    file, name = case.file(), case.plain()["event_id"]
    whole = case.file(without=[name])
    return case.evidence(whole | {"nodes": file["nodes"]})


@caught_by("sums")
def file_a_leaf_is_left_out_with_a_valid_proof(case: Case) -> Evidence:
    file = case.file()
    return case.evidence(case.file(without=[case.plain()["event_id"]]) | {"totals": file["totals"]})


@caught_by("receipt")
def file_a_leaf_and_its_sums_are_left_out_and_there_is_a_receipt(case: Case) -> Evidence:
    row = case.plain()
    return case.evidence(case.file(without=[row["event_id"]]), receipts=case.log.receipts([row]))


@caught_by("history")
def file_a_leaf_and_its_sums_are_left_out_and_there_is_an_old_file(case: Case) -> Evidence:
    old = case.file()
    return case.evidence(case.file(without=[case.plain()["event_id"]]), old=json.dumps(old))


@caught_by("omitted")
def file_half_of_a_request_is_left_out(case: Case) -> Evidence:
    pairs = [row for row in case.own() if row["paired_with"]]
    if not pairs:
        return file_a_leaf_named_as_unlogged(case)
    return case.evidence(case.file(without=[case.rng.choice(pairs)["event_id"]]))


def file_a_leaf_named_as_unlogged(case: Case) -> Evidence:
    """As pith itself tells of a row that was changed in the ledger after it was logged."""
    file = case.file()
    case.rng.choice(file["leaves"])["index"] = None
    return case.evidence(file)


@caught_by("duplicate", "order")
def file_a_leaf_is_listed_twice(case: Case) -> Evidence:
    file = case.file()
    at = case.rng.randrange(len(file["leaves"]))
    twin = copy.deepcopy(file["leaves"][at])
    twin["index"] += case.rng.choice((0, 1))
    file["leaves"].insert(at + 1, twin)
    return case.evidence(file)


@caught_by("tree", "order")
def file_two_leaves_change_places(case: Case) -> Evidence:
    file = case.file()
    one, other = case.rng.sample(file["leaves"], 2)
    if case.rng.random() < 0.5:
        one["index"], other["index"] = other["index"], one["index"]
        file["leaves"].sort(key=lambda leaf: leaf["index"])
    else:
        at, to = file["leaves"].index(one), file["leaves"].index(other)
        file["leaves"][at], file["leaves"][to] = other, one
    return case.evidence(file)


@caught_by("price")
def file_a_price_is_changed(case: Case) -> Evidence:
    file, row = case.file(), case.plain()
    price = next(one for one in file["prices"] if one["model_id"] == row["model_id"])
    price["input_micro_usd_per_mtok"] = price["input_micro_usd_per_mtok"] * 10**6 + 10**9
    price["minimum_nano_usd"] += 10**15 * case.rng.choice((0, 1))
    return case.evidence(file)


@caught_by("sums")
def file_a_total_is_changed(case: Case) -> Evidence:
    file = case.file()
    line = case.rng.choice(file["totals"]["usage"])
    name = case.rng.choice([name for name in line if not name.endswith("_id")])
    line[name] += case.rng.choice((-1, 1)) * case.rng.randrange(1, 10**6)
    return case.evidence(file)


@caught_by("checkpoint")
def file_a_checkpoint_is_edited(case: Case) -> Evidence:
    file = case.file()
    origin, size, root, *rest = file["checkpoint"].split("\n")
    if case.rng.random() < 0.5:
        size = str(int(size) + case.rng.randrange(1, 9))
    else:
        root = b64encode(case.rng.randbytes(32)).decode()
    return case.evidence(file | {"checkpoint": "\n".join([origin, size, root, *rest])})


@caught_by("tree")
def file_a_node_is_changed(case: Case) -> Evidence:
    file = case.file()
    at = case.rng.randrange(len(file["nodes"]))
    file["nodes"][at] = b64encode(flipped(case.rng, b64decode(file["nodes"][at]))).decode()
    return case.evidence(file)


def flipped(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


@caught_by("key", "checkpoint")
def file_another_key_has_signed(case: Case) -> Evidence:
    other = case.log.copy()
    origin = case.rng.choice((case.log.signer.origin, "other.example"))
    other.signer = notes.signer(case.rng.randbytes(32), origin)
    file = case.file(other)
    own = {"key": case.key, "origin": case.log.signer.origin} if case.rng.random() < 0.5 else {}
    return case.evidence(file | own)


@caught_by("history", "malformed")
def file_the_consistency_proof_is_changed(case: Case) -> Evidence:
    size = case.rng.randrange(1, len(case.log.rows))
    file = case.file(from_size=size)
    path = file["consistency"][0]["path"]
    at = case.rng.randrange(len(path))
    path[at] = b64encode(flipped(case.rng, b64decode(path[at]))).decode()
    return case.evidence(file, old=case.log.checkpoint(size))


@caught_by("pending")
def file_what_is_pending_is_forged(case: Case) -> Evidence:
    file = case.file()
    row = case.rng.choice(case.log.pending)
    edited(case.rng, row)
    other = case.file()
    for one, true in zip(other["pending"], file["pending"], strict=True):
        one["note"] = true["note"]
    return case.evidence(other)


@caught_by("sums")
def file_what_is_pending_is_left_out(case: Case) -> Evidence:
    file = case.file()
    file["pending"].pop(case.rng.randrange(len(file["pending"])))
    return case.evidence(file)


# The ledger and its log, by the operator, who signs what becomes of them.


@caught_by("receipt")
def operator_a_row_is_edited_and_there_is_a_receipt(case: Case) -> Evidence:
    other = case.forged(lambda _, row: edited(case.rng, row))
    return case.evidence(case.file(other), receipts=case.log.receipts(case.own()))


@caught_by("history")
def operator_a_row_is_edited_and_there_is_an_old_checkpoint(case: Case) -> Evidence:
    other = case.forged(lambda _, row: edited(case.rng, row))
    return with_old_checkpoint(case, other)


def with_old_checkpoint(case: Case, other: Log) -> Evidence:
    """One that has seen what differs now, of the same log or a part of it."""
    first = next(
        (n for n, (one, own) in enumerate(zip(other.rows, case.log.rows, strict=False)) if one != own),
        min(len(other.rows), len(case.log.rows)) - 1,
    )
    size = case.rng.randrange(min(first + 1, len(other.rows)), len(other.rows) + 1)
    file = case.file(other, from_size=size)
    return case.evidence(file, old=case.log.checkpoint(size))


@caught_by("witness")
def operator_a_row_is_edited_and_a_witness_saw_it(case: Case) -> Evidence:
    other, witness = case.forged(lambda _, row: edited(case.rng, row)), Witness()
    file = case.file(other)
    if case.rng.random() < 0.5:
        # The cosignature of the true checkpoint, under the forged one.
        line = witness.cosigned(case.log.checkpoint(), LATER).rstrip("\n").rpartition("\n")[2]
        file["checkpoint"] += line + "\n"
    return case.evidence(file, witness=str(witness.verifier))


@caught_by("price")
def operator_more_is_charged_than_tokens_cost(case: Case) -> Evidence:
    def charge(_: Log, row: Row) -> None:
        row["cost_nano_usd"] += case.rng.randrange(1, 10**6)

    return case.evidence(case.file(case.forged(charge)))


@caught_by("receipt")
def operator_tokens_are_padded_by_a_tenth_and_there_is_a_receipt(case: Case) -> Evidence:
    def pad(_: Log, row: Row) -> None:
        row["prompt_tokens"] += row["prompt_tokens"] // 10 + 1
        row |= priced(row)

    return case.evidence(case.file(case.forged(pad)), receipts=case.log.receipts(case.own()))


@caught_by("receipt")
def operator_a_call_is_never_logged_and_there_is_a_receipt(case: Case) -> Evidence:
    return case.evidence(case.file(case.forged(removed)), receipts=case.log.receipts(case.own()))


def removed(log: Log, row: Row) -> None:
    log.rows.remove(row)


@caught_by("history")
def operator_a_leaf_is_taken_away_and_there_is_an_old_checkpoint(case: Case) -> Evidence:
    return with_old_checkpoint(case, case.forged(removed))


@caught_by("duplicate")
def operator_a_call_is_logged_and_billed_twice(case: Case) -> Evidence:
    other = case.forged(lambda log, row: log.rows.insert(case.rng.randrange(len(log.rows)), dict(row)))
    return case.evidence(case.file(other))


@caught_by("unknown")
def operator_a_call_is_made_up_and_all_receipts_are_there(case: Case) -> Evidence:
    def invent(log: Log, row: Row) -> None:
        log.rows.append(row | {"event_id": f"{row['event_id'][:12]}{case.rng.randbytes(10).hex()}"})

    known = case.log.receipts([*case.own(), *case.log.pending])
    return case.evidence(case.file(case.forged(invent)), receipts=known, all_receipts=True)


@caught_by("history")
def operator_leaves_change_places_and_there_is_an_old_checkpoint(case: Case) -> Evidence:
    def swap(log: Log, row: Row) -> None:
        at = next(n for n, one in enumerate(log.rows) if one is row)
        to = case.rng.choice([n for n in range(len(log.rows)) if n != at])
        log.rows[at], log.rows[to] = log.rows[to], log.rows[at]

    return with_old_checkpoint(case, case.forged(swap))


@caught_by("backdated")
def operator_a_later_call_is_charged_to_the_month(case: Case) -> Evidence:
    other = case.log.copy()
    at = END + timedelta(days=case.rng.uniform(1, 2.9))
    other.rows.append(event(case.rng, at, OWNER, month=MONTH))
    return case.evidence(case.file(other))


@caught_by("backdated")
def operator_leaves_are_added_to_a_month_that_was_over(case: Case) -> Evidence:
    other, size = case.log.copy(), len(case.log.rows)
    at = BEGIN + (END - BEGIN) * case.rng.random()
    made = event if case.rng.random() < 0.7 else adjustment
    other.rows += [*other.pending, made(case.rng, at, OWNER)]
    old, other.pending = case.file(), []
    return case.evidence(case.file(other, from_size=size), old=json.dumps(old))


@caught_by("history")
def operator_what_is_written_off_is_charged_and_there_is_an_old_checkpoint(case: Case) -> Evidence:
    def charge(_: Log, row: Row) -> None:
        row["written_off_nano_usd"] = row["cost_nano_usd"] // 7 + (
            row["written_off_nano_usd"] == row["cost_nano_usd"] // 7
        )

    return with_old_checkpoint(case, case.forged(charge))


@caught_by("scope", "duplicate")
def operator_another_customers_call_is_billed(case: Case) -> Evidence:
    file, other = case.file(), case.log.copy()
    foreign = case.rng.choice(
        [row for row in other.rows if row["workspace_id"] != OWNER and row["month"] == MONTH]
    )
    tree, kept = other.tree(), [*file["leaves"]]
    at = next(n for n, row in enumerate(other.rows) if row is foreign)
    kept.append({"index": at, "record": leaf(foreign).record, "posting": leaf(foreign).posting})
    kept.sort(key=lambda one: one["index"])
    nodes = [b64encode(one).decode() for one in tree.around([one["index"] for one in kept])]
    billed = [row for row in other.rows if row["workspace_id"] == OWNER and row["month"] == MONTH]
    return case.evidence(
        file | {"leaves": kept, "nodes": nodes, "totals": totals([*billed, foreign, *other.pending])}
    )


@caught_by("omitted")
def operator_a_row_is_edited_in_the_ledger_alone(case: Case) -> Evidence:
    file, row = case.file(), dict(case.plain())
    edited(case.rng, row)
    file = case.file(without=[row["event_id"]]) | {"totals": file["totals"]}
    file["leaves"].insert(0, {"index": None, "record": leaf(row).record, "posting": leaf(row).posting})
    return case.evidence(file)


@caught_by("history")
def fork_two_customers_compare_their_checkpoints(case: Case) -> Evidence:
    return with_old_checkpoint(case, fork(case))


def fork(case: Case) -> Log:
    """Another customer is shown a log in which something else happened to somebody else."""
    other = case.log.copy()
    foreign = case.rng.choice([row for row in other.rows if row["workspace_id"] != OWNER and is_event(row)])
    foreign["request_id"] = f"{foreign.get('request_id')}x"
    return other


@caught_by("witness")
def fork_a_witness_has_cosigned_the_other_line(case: Case) -> Evidence:
    witness, other = Witness(), fork(case)
    cosigned = witness.cosigned(case.log.checkpoint(), LATER)
    file = case.file(other)
    file["checkpoint"] += cosigned.rstrip("\n").rpartition("\n")[2] + "\n"
    return case.evidence(file, witness=str(witness.verifier))


@caught_by("witness")
def witness_another_key_has_cosigned(case: Case) -> Evidence:
    file, true, false = case.file(), Witness(), Witness()
    file["checkpoint"] = false.cosigned(file["checkpoint"], LATER)
    return case.evidence(file, witness=str(true.verifier))


# Receipts, by whoever wants to accuse the operator.


@caught_by("forged_receipt")
def receipt_its_record_is_edited(case: Case) -> Evidence:
    row = dict(case.plain())
    ((_, note),) = case.log.receipts([row])
    edited(case.rng, row)
    return case.evidence(case.file(), receipts=[(leaf(row).record, note)])


@caught_by("forged_receipt")
def receipt_another_key_has_signed_it(case: Case) -> Evidence:
    record = leaf(case.plain()).record
    other = notes.signer(case.rng.randbytes(32), case.log.signer.origin)
    return case.evidence(case.file(), receipts=[(record, other.receipt(digest(record)))])


@caught_by("forged_receipt")
def receipt_a_checkpoint_is_passed_off_as_one(case: Case) -> Evidence:
    record = leaf(case.plain()).record
    return case.evidence(case.file(), receipts=[(record, case.log.signer.checkpoint(3, digest(record)))])


def honest(case: Case) -> Evidence:
    """All kinds of evidence that there are, at random, and an operator who did nothing wrong."""
    rng, witness, size = case.rng, Witness(), case.seen()
    old: str | None = None
    kept: dict[str, Any] = {}
    is_witnessed, kind = rng.random() < 0.5, rng.randrange(3)
    if kind == 1:
        old = case.log.checkpoint(size)
    elif kind == 2:
        old = json.dumps(case.log.proof(size=size, made_at=LATER if size == len(case.log.rows) else END))
    file = case.file(from_size=size)
    if is_witnessed:
        kept["witness"] = str(witness.verifier)
        file["checkpoint"] = witness.cosigned(file["checkpoint"], LATER)
        if kind == 1 and old:
            old = witness.cosigned(old, END)
        elif kind == 2:
            is_witnessed, kept = False, {}
    if rng.random() < 0.7:
        rows = [*case.own(), *case.log.pending]
        is_all = rng.random() < 0.5
        chosen = rows if is_all else rng.sample(rows, rng.randrange(1, len(rows)))
        later = [row for row in case.log.rows if row["month"] != MONTH and row["workspace_id"] == OWNER]
        kept |= {"receipts": case.log.receipts([*chosen, *later]), "all_receipts": is_all}
    return case.evidence(file, old=old, **kept)


@dataclass
class Count:
    runs: int = 0
    caught: int = 0
    by_its_check: int = 0


def run(runs: int, seed: int) -> tuple[dict[str, Count], Counter[str]]:
    """By kind, and the findings against honest operators."""
    found, accused = {name: Count() for name in KINDS}, Counter[str]()
    names = list(KINDS)
    for number in range(runs):
        rng = random.Random(f"{seed}/{number}")
        name = names[number % len(names)]
        checks, tampering = KINDS[name]
        kinds = tampering(case(rng)).findings()
        count = found[name]
        count.runs += 1
        count.caught += bool(kinds)
        count.by_its_check += bool(kinds & checks)
        accused.update(honest(case(rng)).findings())
    return found, accused


def table(found: dict[str, Count]) -> str:
    lines = ["| tampering | caught by | runs | caught | by its check |", "|---|---|---|---|---|"]
    for name, count in found.items():
        checks = ", ".join(sorted(KINDS[name][0]))
        lines.append(f"| {name} | {checks} | {count.runs} | {count.caught} | {count.by_its_check} |")
    sums = [sum(getattr(one, name) for one in found.values()) for name in ("runs", "caught", "by_its_check")]
    return "\n".join([*lines, f"| all | | {sums[0]} | {sums[1]} | {sums[2]} |"])


def main() -> int:
    parser = argparse.ArgumentParser(description="Tamper at random, and count what the verifier catches.")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    found, accused = run(given.runs, given.seed)
    print(table(found))
    print(f"honest operators accused: {accused.total()} findings in {given.runs} runs {dict(accused)}")
    missed = given.runs - sum(count.by_its_check for count in found.values())
    return 1 if missed or accused else 0


if __name__ == "__main__":
    sys.exit(main())
