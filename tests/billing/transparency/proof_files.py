"""A made-up log with its customers, and the proof files of one of them: in memory, each with the operator's own key."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from billing.books.statement_proof import Logged, StatementProof
from billing.price import ModelPrice, cost, saved_nano_usd
from billing.store.schema import adjustments, usage_events
from billing.transparency import notes, verify
from billing.transparency.leaves import digest, leaf
from billing.transparency.log_sql import id_of
from billing.transparency.notes import COSIGNATURE, SIGNATURE_PREFIX, Verifier
from billing.transparency.tree import TILE_HEIGHT, Tree, leaf_hash, paired_up

MONTH, NEXT, OWNER = "2026-10", "2026-11", "ws_own"
BEGIN, END = datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)
# When the customer asks for the file.
LATER = END + timedelta(days=3)
PRICES = (
    ModelPrice("large", 150_000, 600_000, 20_000, 15_000),
    ModelPrice("small", 1_234_567, 89, 0),
    ModelPrice("dear", 99_999_999, 999_999_999, 5_000_000_000),
)
PER_MODEL = {price.model_id: price for price in PRICES}
Row = dict[str, Any]


def is_event(row: Row) -> bool:
    return "id" not in row


def is_replayed(row: Row) -> bool:
    """True of what was settled in the month and charged to another."""
    return is_event(row) and row["month"] != MONTH and f"{row['settled_at']:%Y-%m}" == MONTH


def is_here(row: Row) -> bool:
    """True where the month's file has it."""
    return row["month"] == MONTH or is_replayed(row)


def tree_of(entries: Sequence[bytes]) -> Tree:
    levels = [[leaf_hash(entry) for entry in entries]]
    while len(levels[-1]) > 1:
        levels.append(paired_up(levels[-1]))

    def read_tile(level: int, number: int) -> bytes:
        return b"".join(levels[level * TILE_HEIGHT][number << TILE_HEIGHT : (number + 1) << TILE_HEIGHT])

    return Tree(len(entries), read_tile)


@dataclass
class Witness:
    """One that has seen one line of checkpoints, and cosigns no other."""

    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    @property
    def verifier(self) -> Verifier:
        return Verifier("witness.example", self.key.public_key().public_bytes_raw(), COSIGNATURE)

    def cosigned(self, note: str, at: datetime) -> str:
        seconds = int(at.timestamp())
        text = note.rpartition("\n\n")[0] + "\n"
        signature = seconds.to_bytes(8) + self.key.sign(notes.cosigned_text(text, seconds))
        line = b64encode(self.verifier.id + signature).decode()
        return f"{note}{SIGNATURE_PREFIX}{self.verifier.name} {line}\n"


@dataclass
class Log:
    """Rows in the order in which they were logged, and those that wait. `signer` is the operator's."""

    signer: notes.Signer
    rows: list[Row]
    pending: list[Row] = field(default_factory=list)

    def tree(self, size: int | None = None) -> Tree:
        return tree_of([leaf(row).entry for row in self.rows[:size]])

    def checkpoint(self, size: int | None = None) -> str:
        tree = self.tree(size)
        return self.signer.checkpoint(tree.size, tree.root())

    def copy(self) -> Log:
        return replace(
            self, rows=[dict(row) for row in self.rows], pending=[dict(row) for row in self.pending]
        )

    def proof(
        self,
        *,
        size: int | None = None,
        from_size: int | None = None,
        made_at: datetime,
        without: Iterable[str] = (),
    ) -> dict[str, Any]:
        """The file of `OWNER` when the log had `size` leaves; what came later is not known yet. `without` leaves some
        ids out, with all that belongs to it."""
        tree, gone = self.tree(size), set(without)
        own = [
            (index, row)
            for index, row in enumerate(self.rows[:size])
            if row["workspace_id"] == OWNER and is_here(row) and id_of(row) not in gone
        ]
        is_now = size in (None, len(self.rows))
        waiting = [row for row in self.pending if is_now and id_of(row) not in gone]
        found = StatementProof(
            OWNER,
            None,
            MONTH,
            made_at,
            self.checkpoint(size),
            price_rows(),
            [Logged(index, leaf(row)) for index, row in own],
            [leaf(row) for row in waiting],
            list(tree.around([index for index, _ in own])),
            {} if from_size is None else {from_size: tree.consistency(from_size)},
            totals([row for _, row in own if row["month"] == MONTH] + waiting),
        )
        return json.loads("".join(found.pieces(self.signer)))

    def receipts(self, of: Iterable[Row]) -> list[tuple[str, str]]:
        records = [leaf(row).record for row in of]
        return [(record, self.signer.receipt(digest(record))) for record in records]

    def own_events(self) -> list[Row]:
        return [row for row in [*self.rows, *self.pending] if row["workspace_id"] == OWNER and is_event(row)]


def price_rows() -> list[dict[str, Any]]:
    names = ("model_id", "input_micro_usd_per_mtok", "output_micro_usd_per_mtok", "minimum_nano_usd")
    return [
        {
            "version": 1,
            **{name: getattr(price, name) for name in names},
            **(
                {"cached_input_micro_usd_per_mtok": cached}
                if (cached := price.cached_input_micro_usd_per_mtok) is not None
                else {}
            ),
        }
        for price in PRICES
    ]


def totals(rows: Iterable[Row]) -> dict[str, Any]:
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    adjusted = 0
    for row in rows:
        if "id" in row:
            adjusted += row["nano_usd"]
            continue
        name = (row["project_id"], row["model_id"])
        zero = {"project_id": name[0], "model_id": name[1], "requests": 0, "prompt_tokens": 0}
        line = lines.setdefault(
            name,
            zero
            | dict.fromkeys(
                ("completion_tokens", "cached_tokens", "charged_nano_usd", "written_off_nano_usd"), 0
            ),
        )
        line["requests"] += 1
        line["charged_nano_usd"] += row["cost_nano_usd"] - row["written_off_nano_usd"]
        for count in ("prompt_tokens", "completion_tokens", "cached_tokens", "written_off_nano_usd"):
            line[count] += row[count]
    return {"usage": [lines[name] for name in sorted(lines)], "adjusted_nano_usd": adjusted}


def priced(row: Row) -> Row:
    """The row with the money that is due for its tokens."""
    price = replace(PER_MODEL[row["model_id"]], ppm=row["price_ppm"])
    with_minimum = row["outcome"] != "failed"
    due = cost(
        price,
        prompt_tokens=row["prompt_tokens"],
        completion_tokens=row["completion_tokens"],
        cached_tokens=row["cached_tokens"],
        minimum=with_minimum,
    )
    saved = 0
    if row["original_tokens"] is not None:
        saved = saved_nano_usd(
            price,
            due.nano_usd,
            original_tokens=row["original_tokens"],
            original_cached_tokens=row["original_cached_tokens"],
            completion_tokens=row["completion_tokens"],
            minimum=with_minimum,
        )
    figures = (due.subtotal_nano_usd, due.nano_usd, due.minimum_applied, saved)
    names = ("subtotal_nano_usd", "cost_nano_usd", "minimum_applied", "saved_nano_usd")
    return row | dict(zip(names, figures, strict=True))


def event(rng: random.Random, at: datetime, owner: str, **fields: Any) -> Row:
    prompt = rng.randrange(1, 9000)
    row = dict.fromkeys(column.name for column in usage_events.columns) | {
        "event_id": f"{int(at.timestamp() * 1000):012x}{rng.randbytes(10).hex()}",
        "request_id": f"req-{rng.randrange(10**6)} é",
        "workspace_id": owner,
        "project_id": rng.choice(("prj_a", "prj_b")) if owner == OWNER else "prj_c",
        "key_id": "key",
        "model_id": rng.choice(PRICES).model_id,
        "pricing_version": 1,
        "prompt_tokens": prompt,
        "completion_tokens": rng.randrange(3000),
        "cached_tokens": rng.choice((0, rng.randrange(prompt + 1))),
        "outcome": rng.choice(("completed", "completed", "disconnected", "failed")),
        "stream": rng.random() < 0.5,
        "created_at": at - timedelta(seconds=2),
        "settled_at": at,
        "offline": rng.random() < 0.1,
        "written_off_nano_usd": 0,
        "month": f"{at:%Y-%m}",
        "compression_nano_usd": 0,
        "price_ppm": rng.choice((1_000_000, 500_000, 333_333)),
        "route": "chat",
        **fields,
    }
    row = priced(row)
    return row | {"written_off_nano_usd": row["cost_nano_usd"] // 3 if rng.random() < 0.1 else 0}


def compressed(rng: random.Random, at: datetime, owner: str) -> list[Row]:
    """A chat and the compression of its prompt."""
    chat = event(
        rng,
        at,
        owner,
        compression="applied",
        original_tokens=9500,
        original_cached_tokens=rng.randrange(9500),
    )
    other = event(
        rng, at, owner, project_id=chat["project_id"], request_id=chat["request_id"], receipt='{"ratio":0.5}'
    )
    chat |= {"paired_with": other["event_id"], "compression_nano_usd": other["cost_nano_usd"]}
    return [chat, other | {"paired_with": chat["event_id"]}]


def adjustment(rng: random.Random, at: datetime, owner: str) -> Row:
    return dict.fromkeys(column.name for column in adjustments.columns) | {
        "id": f"adj_{int(at.timestamp() * 1000):012x}{rng.randbytes(10).hex()}",
        "workspace_id": owner,
        "kind": "credit",
        "nano_usd": -rng.randrange(1, 10**9),
        "month": f"{at:%Y-%m}",
        "created_at": at,
        "actor": "cli:a",
        "reason": "an outage",
        "idempotency_key": str(rng.random()),
        "refunds_rest": False,
    }


def log(rng: random.Random, size: int = 60) -> Log:
    """A month's log of three customers, with a little of the month after it: in that, what was answered in the month
    while the ledger was away."""
    rows: list[Row] = []
    while len(rows) < size:
        at = BEGIN + (END - BEGIN) * (len(rows) / size) + timedelta(seconds=rng.random())
        owner, choice = rng.choice((OWNER, OWNER, "ws_b", "ws_c")), rng.random()
        if choice < 0.1:
            rows.append(adjustment(rng, at, owner))
        else:
            rows += compressed(rng, at, owner) if choice < 0.2 else [event(rng, at, owner)]
    rows += [event(rng, END - timedelta(hours=2 + n), OWNER, month=NEXT) for n in range(2)]
    rows += [event(rng, END + timedelta(hours=3 + n), OWNER) for n in range(3)]
    return Log(notes.signer(rng.randbytes(32), "log.example/pith"), rows)


@dataclass
class Evidence:
    """What a customer has: the file, and what was kept."""

    file: dict[str, Any]
    key: str
    old: str | None = None
    witness: str | None = None
    receipts: Sequence[tuple[str, str]] = ()
    all_receipts: bool = False

    def findings(self) -> set[str]:
        """The kinds of what the verifier finds, as its command finds them."""
        proof = verify.Proof(json.loads(json.dumps(self.file)), self.key)
        witness = verify.key_of(self.witness, COSIGNATURE) if self.witness else None
        if proof.is_read and witness:
            proof.attempt(verify.opened, proof.given["checkpoint"], witness, "witness")
        if proof.is_read and self.old:
            proof.attempt(proof.check_history, self.old, witness)
        if proof.is_read and self.receipts:
            for record, note in self.receipts:
                proof.attempt(proof.check_receipt, record, note)
            proof.attempt(proof.check_received, self.all_receipts)
        return {kind for kind, _ in proof.findings}
