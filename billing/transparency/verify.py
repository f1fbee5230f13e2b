"""Checks a proof file of pith: a bill's events are what a signed, append-only log holds; its sums and prices are right.

    python verify.py FILE [--key VKEY] [--receipts FOLDER [--all-receipts]] [--checkpoint OLD] [--witness VKEY]

It needs Python 3.9 and the package `cryptography`, and nothing of pith's. docs/proof.md says what it proves. Hashing is
RFC 9162's; keys, notes and checkpoints are C2SP's (signed-note, tlog-checkpoint, tlog-cosignature). Exit code 1:
something is wrong, each finding is printed under its kind; 2: wrong arguments.
"""

from __future__ import annotations

import argparse
import base64
import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

FORMAT, ED25519, COSIGNATURE = "pith-proof/1", 1, 4
POSTED = {"month", "pricing_version", "written_off_nano_usd"}
COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens", "written_off_nano_usd")
MONEY = ("subtotal_nano_usd", "cost_nano_usd", "minimum_applied", "saved_nano_usd", "compression_nano_usd")
MOST_PRINTED = 20
encoded = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
# A month ends for everyone by then, whatever a clock is off or a request was long.
FINAL, RECENT = timedelta(days=1), timedelta(hours=1)
MALFORMED = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    StopIteration,
    RecursionError,
    ArithmeticError,
    OSError,
)


class Wrong(Exception):
    """The kind of check that failed, and what it found."""


def require(holds: Any, kind: str, what: str) -> None:
    if not holds:
        raise Wrong(kind, what)


class Key(NamedTuple):
    name: str
    public: bytes  # The algorithm's number, then 32 bytes.
    id: bytes


def key_of(text: str, algorithm: int) -> Key:
    """A verifier key, `name+id+base64`: of a log, or of a witness."""
    name, key_id, public = (*text.strip().split("+", 2), "", "")[:3]
    data = base64.b64decode(public)
    found = Key(name, data, sha256(name.encode() + b"\n" + data).digest()[:4])
    is_key = len(data) == 33 and data[0] == algorithm and found.id.hex() == key_id
    require(is_key, "key", f"{text[:80]!r} is no key for this (name+id+key)")
    return found


def opened(note: str, key: Key, kind: str) -> tuple[str, datetime | None]:
    """The text of a note that this key has signed and, of a cosignature, when."""
    text, _, lines = note.rpartition("\n\n")
    text, at = f"{text}\n", None
    signatures = [line.split(" ")[2] for line in lines.split("\n") if line.startswith(f"\u2014 {key.name} ")]
    found = [data for data in map(base64.b64decode, signatures) if data[:4] == key.id]
    require(found, kind, f"it has no signature of {key.name}")
    signed, signature = text.encode(), found[0][4:]
    if key.public[0] == COSIGNATURE:
        seconds, signature = int.from_bytes(signature[:8], "big"), signature[8:]
        signed = b"cosignature/v1\ntime %d\n" % seconds + signed
        at = datetime.fromtimestamp(seconds, timezone.utc)
    try:
        Ed25519PublicKey.from_public_bytes(key.public[1:]).verify(signature, signed)
    except InvalidSignature as error:
        raise Wrong(kind, f"the signature of {key.name} is wrong") from error
    return text, at


def checkpoint_of(note: str, key: Key, kind: str) -> tuple[int, bytes]:
    """Size and root."""
    origin, digits, root = opened(note, key, kind)[0].split("\n")[:3]
    is_whole = origin == key.name and str(int(digits)) == digits and int(digits) >= 0
    require(is_whole, kind, f"it is no checkpoint of {key.name}")
    return int(digits), base64.b64decode(root)


def check_promise(note: str, key: Key, digest: bytes, kind: str) -> None:
    """That a note promises to log the record with this SHA-256."""
    text = f"{key.name}/receipt\n{base64.b64encode(digest).decode()}\n"
    require(opened(note, key, kind)[0] == text, kind, "a note promises another record than the one beside it")


def node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\1" + left + right).digest()


def root_of(size: int, indices: list[int], hashes: list[bytes], nodes: Iterator[bytes]) -> bytes:
    """The root over these leaves and, from left to right, the largest subtrees without any of them."""

    def over(begin: int, end: int, first: int, last: int) -> bytes:
        if first == last:
            return next(nodes)
        if end - begin == 1:
            return hashes[first]
        middle = begin + (1 << (end - begin - 1).bit_length() - 1)
        at = bisect_left(indices, middle, first, last)
        return node(over(begin, middle, first, at), over(middle, end, at, last))

    return over(0, size, 0, len(indices))


def is_beginning(size: int, root: bytes, new_size: int, new_root: bytes, path: Iterator[bytes]) -> bool:
    """Verifies a consistency proof: RFC 9162, 2.1.4."""

    def both(old: int, new: int, is_left: bool) -> tuple[bytes, bytes]:
        """The roots of the first `old` leaves of a subtree, and of its `new`."""
        if old == new:
            beginning = root if is_left else next(path)
            return beginning, beginning
        middle = 1 << (new - 1).bit_length() - 1
        if old <= middle:
            before, after = both(old, middle, is_left)
            return before, node(after, next(path))
        before, after = both(old - middle, new - middle, False)
        left = next(path)
        return node(left, before), node(left, after)

    is_right = size == 0 or both(size, new_size, True) == (root, new_root)
    return is_right and next(path, None) is None


def rounded(numerator: int, denominator: int) -> int:
    """To the nearest, ties to the even one."""
    whole, rest = divmod(numerator, denominator)
    return whole + (2 * rest > denominator or (2 * rest == denominator and whole % 2 == 1))


def cost(event: dict[str, Any], price: dict[str, Any], prompt: int, cached: int) -> tuple[int, int, bool]:
    """In nano-USD: of the tokens; what is charged; whether that is the minimum. A micro-USD per million tokens is a
    pico-USD per token, and `price_ppm` the part of the price in millionths."""
    own, cached, ppm = price["input_micro_usd_per_mtok"], min(cached, prompt), event["price_ppm"]
    pico = (prompt - cached) * own + cached * price.get("cached_input_micro_usd_per_mtok", own)
    pico += event["completion_tokens"] * price["output_micro_usd_per_mtok"]
    subtotal = rounded(pico * ppm, 10**9)
    if event["outcome"] != "failed" and pico < price["minimum_nano_usd"] * 1000:
        return subtotal, rounded(price["minimum_nano_usd"] * ppm, 10**6), True
    return subtotal, subtotal, False


def check_price(event: dict[str, Any], price: dict[str, Any], paired_cost: int) -> None:
    due = cost(event, price, event["prompt_tokens"], event["cached_tokens"])
    saved, spent, original = 0, 0, event.get("original_tokens")
    if original is not None:
        whole = cost(event, price, original, event.get("original_cached_tokens", 0))
        saved, spent = whole[1] - due[1], paired_cost
    charged = tuple(event[name] for name in MONEY)
    what = f"event {event['event_id']} has {charged}, and its tokens and price {(*due, saved, spent)}"
    require(charged == (*due, saved, spent), "price", what)


class Leaf(NamedTuple):
    id: str
    row: dict[str, Any]
    record: bytes  # SHA-256 of the record's text.
    entry: bytes
    index: Any
    is_event: bool
    month: str


def leaf_of(given: dict[str, Any]) -> Leaf:
    record, posting = parsed(given["record"]), parsed(given["posting"])
    require(not POSTED & record.keys() and posting.keys() <= POSTED, "leaf", "record and posting overlap")
    digest, row = sha256(given["record"].encode()).digest(), {**record, **posting}
    entry = sha256(digest + sha256(given["posting"].encode()).digest()).digest()
    is_event = "id" not in row
    # In old events, the month to which they are charged is that in which they were settled.
    month = row.get("month") or row["settled_at"][:7]
    leaf_id = row["event_id" if is_event else "id"]
    return Leaf(leaf_id, row, digest, entry, given.get("index"), is_event, month)


def parsed(text: str) -> dict[str, Any]:
    """Refuses a text that two programs may read differently, such as one that has a name twice."""
    found: dict[str, Any] = json.loads(text)
    require(isinstance(found, dict) and encoded(found) == text, "leaf", f"not in its one form: {text[:80]!r}")
    return found


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text[:-1]).replace(tzinfo=timezone.utc)


def end_of(month: str) -> datetime:
    year, number = (int(part) for part in month.split("-"))
    return datetime(year + number // 12, number % 12 + 1, 1, tzinfo=timezone.utc)


class Proof:
    """A proof file with the findings of its checks, by kind, and `notes`: what its reader should know beside."""

    def __init__(self, given: dict[str, Any], key: str | None = None) -> None:
        self.given, self.received = given, set[str]()
        self.findings, self.notes = list[Any](), list[str]()
        self.is_read = self.attempt(self.read, key)
        if self.is_read:
            self.attempt(self.check_tree)
            for leaf in self.leaves:
                self.attempt(self.check_leaf, leaf)
            self.attempt(self.check_sums)

    def attempt(self, check: Any, *given: Any) -> bool:
        """Makes one check; the others are made although it fails."""
        try:
            check(*given)
            return True
        except Wrong as wrong:
            self.findings.append(wrong.args)
        except MALFORMED as error:
            self.findings.append(("malformed", f"{check.__name__}: {error!r:.200}"))
        return False

    def read(self, key: str | None) -> None:
        given, self.key = self.given, key_of(self.given["key"], ED25519)
        require(given["format"] == FORMAT, "malformed", f"it is not of format {FORMAT}")
        is_own = self.key == key_of(key or given["key"], ED25519) and self.key.name == given["origin"]
        require(is_own, "key", f"it is of the log of another key: {given['key']}")
        self.scope = given["workspace"], given["project"], given["month"]
        self.until, self.made_at = end_of(given["month"]), moment(given["made_at"])
        self.size, self.root = checkpoint_of(given["checkpoint"], self.key, "checkpoint")
        self.prices = {(one["version"], one["model_id"]): one for one in given["prices"]}
        self.logged, pending = ([leaf_of(one) for one in given[part]] for part in ("leaves", "pending"))
        self.leaves, self.pending = [*self.logged, *pending], {leaf.id for leaf in pending}
        self.by_id = {leaf.id: leaf for leaf in self.leaves}
        is_once = (len(self.by_id), len(self.prices)) == (len(self.leaves), len(given["prices"]))
        require(is_once, "duplicate", "an event, an adjustment or a price is listed twice")
        for one, leaf in zip(given["pending"], pending):
            check_promise(one["note"], self.key, leaf.record, "pending")

    def check_tree(self) -> None:
        placed = [leaf for leaf in self.logged if leaf.index is not None]
        indices = [leaf.index if type(leaf.index) is int else -1 for leaf in placed]
        ascend = all(one < other for one, other in zip([-1, *indices], [*indices, self.size]))
        require(ascend, "order", "the leaves' places in the log do not ascend, or one is taken twice")
        nodes = map(base64.b64decode, self.given["nodes"])
        hashes = [sha256(b"\0" + leaf.entry).digest() for leaf in placed]
        is_root = root_of(self.size, indices, hashes, nodes) == self.root and next(nodes, None) is None
        require(is_root, "tree", "the leaves are not in the log that was signed")

    def check_leaf(self, leaf: Leaf) -> None:
        row, month, pair = leaf.row, self.scope[2], self.by_id.get(leaf.row.get("paired_with", ""))
        is_placed = leaf.index is not None or leaf.id in self.pending
        require(is_placed, "omitted", f"{leaf.id} is not in the log as the file has it")
        require(self.is_own(row), "scope", f"{leaf.id} is of another workspace or project")
        # Of a chat, its compression's event, and of that the chat's: both are there, whatever their months.
        is_paired = "paired_with" not in row or (pair and pair.row.get("paired_with") == leaf.id)
        require(is_paired, "omitted", f"event {leaf.id} names {row.get('paired_with')}, which is not there")
        of = [m for e in (leaf, pair or leaf) if leaf.is_event for m in (e.month, e.row["settled_at"][:7])]
        require(month in (leaf.month, *of), "scope", f"{leaf.id} is of another month")
        if not leaf.is_event:
            require(type(row["nano_usd"]) is int, "leaf", f"adjustment {leaf.id} has no amount")
        elif leaf.month == month:
            counts = (*COUNTS, "cost_nano_usd", "price_ppm", "pricing_version")
            is_counted = all(type(row[name]) is int and row[name] >= 0 for name in counts)
            is_possible = is_counted and row["written_off_nano_usd"] <= row["cost_nano_usd"]
            require(is_possible, "leaf", f"event {leaf.id} has a count that none can be")
            is_after = moment(row["settled_at"]) < min(self.until + FINAL, self.made_at + RECENT)
            require(is_after, "backdated", f"event {leaf.id} is later than its month or the file")
            price = self.prices.get((row["pricing_version"], row["model_id"]))
            require(price, "price", f"event {leaf.id} names a price that the file lacks")
            check_price(row, price or {}, pair.row["cost_nano_usd"] if pair else 0)

    def check_sums(self) -> None:
        sums: dict[tuple[str, str], Counter[str]] = {}
        for row in [leaf.row for leaf in self.leaves if leaf.is_event and leaf.month == self.scope[2]]:
            line = sums.setdefault((row["project_id"], row["model_id"]), Counter())
            charged = row["cost_nano_usd"] - row["written_off_nano_usd"]
            line.update(requests=1, charged_nano_usd=charged, **{name: row[name] for name in COUNTS})
        due: Any = [{"project_id": one[0], "model_id": one[1], **sums[one]} for one in sorted(sums)]
        self.adjusted = sum(leaf.row["nano_usd"] for leaf in self.leaves if not leaf.is_event)
        totals = {"usage": due, "adjusted_nano_usd": self.adjusted}
        require(self.given["totals"] == totals, "sums", f"the leaves add up to {json.dumps(totals)}")
        self.charged = sum(line["charged_nano_usd"] for line in due)

    def check_receipt(self, text: str, note: str) -> None:
        """A promise that a reply had: the log has its record, as it was promised."""
        digest, row = sha256(text.encode()).digest(), parsed(text)
        check_promise(note, self.key, digest, "forged_receipt")
        leaf, name = self.by_id.get(row["event_id"]), row["event_id"]
        # What was settled as the month ended may count to the next, and what is new may not be there.
        is_due = moment(row["settled_at"]) < min(self.until, self.made_at) - RECENT
        self.received.add(name)
        if leaf:
            other = sorted(one for one in {*row, *leaf.row} - POSTED if row.get(one) != leaf.row.get(one))
            require(leaf.record == digest, "receipt", f"event {name} is not as promised: {', '.join(other)}")
        elif is_due and self.is_own(row) and row["settled_at"][:7] == self.given["month"]:
            raise Wrong("receipt", f"event {name}, settled {row['settled_at']}, was promised and has no leaf")
        else:
            self.notes.append(f"receipt of event {name}: of another month, project or workspace, or too new")

    def check_receipts(self, path: Path) -> None:
        """Of a file with a reply, or with one in each line, also as it was streamed (`data: …`)."""
        text = path.read_text(encoding="utf-8", errors="replace")
        try:
            left = [json.loads(text)]
        except ValueError:
            left = [json.loads(line[line.index("{") :]) for line in text.split("\n") if '"note"' in line]
        while left:
            value = left.pop()
            if isinstance(value, dict) and {"record", "note"} <= value.keys():
                self.attempt(self.check_receipt, value["record"], value["note"])
            elif isinstance(value, (dict, list)):
                left += value.values() if isinstance(value, dict) else value

    def check_received(self, are_all: bool) -> None:
        left = [one.id for one in self.leaves if one.is_event and one.id not in self.received]
        what = f"{len(left)} of the file's events have no receipt: {', '.join(left[:3])}"
        require(not left or not are_all, "unknown", what)
        self.notes += [what] if left else []

    def summary(self) -> str:
        used, adjusted = (f"{Decimal(nano).scaleb(-9):,.9f} USD" for nano in (self.charged, self.adjusted))
        what = f"{len(self.logged)} leaves, {len(self.pending)} pending; used {used}, adjusted {adjusted}"
        scope = " ".join(filter(None, self.scope))
        return f"proven: {what} ({scope}). The log has {self.size} leaves and the key {self.given['key']}."

    def is_own(self, row: dict[str, Any]) -> bool:
        return row["workspace_id"] == self.scope[0] and self.scope[1] in (None, row.get("project_id"))

    def check_history(self, old: str, witness: Key | None) -> None:
        """`old` is a checkpoint, or a proof file, of before: nothing of it was changed or taken away since."""
        earlier = at = None
        if old.startswith("{"):
            earlier = Proof(json.loads(old), self.given["key"])
            require(not earlier.findings, "history", f"the old file is wrong itself: {earlier.findings[:1]}")
            old, at = earlier.given["checkpoint"], earlier.made_at
        size, root = checkpoint_of(old, self.key, "history")
        at = opened(old, witness, "witness")[1] if witness and f"\n\u2014 {witness.name} " in old else at
        paths = {one["from"]: one["path"] for one in self.given["consistency"]}
        require(size <= self.size, "history", "the old checkpoint has more leaves: is it the newer one?")
        is_there = size in paths or size in (0, self.size)
        require(is_there, "unproven", f"the file has no proof from {size} leaves on: ask for one")
        is_kept = is_beginning(size, root, self.size, self.root, map(base64.b64decode, paths.get(size, [])))
        require(is_kept, "history", "the log was rewritten since, or forked")
        earlier = earlier if earlier and earlier.scope == self.scope else None
        known = {leaf.id: leaf.entry for leaf in earlier.leaves} if earlier else {}
        here = {leaf.id: leaf.entry for leaf in self.leaves}
        gone = [one for one in known if known[one] != here.get(one)]
        require(not gone, "history", f"{len(gone)} leaves of the old file are not in this one: {gone[:3]}")
        added = [leaf for leaf in self.leaves if leaf.id not in known and leaf.month == self.scope[2]]
        hidden = [leaf.id for leaf in added if earlier and leaf.index is not None and leaf.index < size]
        require(not hidden, "history", f"{len(hidden)} leaves were kept from the old file: {hidden[:3]}")
        is_over = at is not None and at > self.until + FINAL
        late = [one.id for one in added if is_over and (one.index is None or one.index >= size)]
        require(not late, "backdated", f"{len(late)} leaves came when the month was over: {late[:3]}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check a proof file of pith.")
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--key", metavar="VKEY", help="the log's key, from elsewhere than the file")
    parser.add_argument("--receipts", type=Path, metavar="FOLDER", help="replies that were kept")
    parser.add_argument("--all-receipts", action="store_true", help="an event without a receipt is wrong")
    parser.add_argument("--checkpoint", type=Path, metavar="OLD", help="a checkpoint or proof file of before")
    parser.add_argument("--witness", metavar="VKEY", help="who must have cosigned the checkpoint")
    given = parser.parse_args(arguments)
    try:
        proof = Proof(json.loads(given.file.read_text(encoding="utf-8")), given.key)
        witness = key_of(given.witness, COSIGNATURE) if given.witness else None
        if proof.is_read and witness:
            proof.attempt(opened, proof.given["checkpoint"], witness, "witness")
        if proof.is_read and given.checkpoint:
            proof.attempt(proof.check_history, given.checkpoint.read_text(encoding="utf-8"), witness)
        if proof.is_read and given.receipts:
            for path in sorted(path for path in given.receipts.rglob("*") if path.is_file()):
                proof.attempt(proof.check_receipts, path)
            proof.attempt(proof.check_received, given.all_receipts)
    except (Wrong, *MALFORMED) as error:
        print("it cannot be checked:", *(error.args if isinstance(error, Wrong) else [error]))
        return 1
    lines = [*(f"{kind}: {what}" for kind, what in proof.findings), *proof.notes]
    print(*lines[:MOST_PRINTED], "NOT proven" if proof.findings else proof.summary(), sep="\n")
    return 1 if proof.findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
