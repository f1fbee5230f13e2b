"""A server's restart after a power cut, and whether everything is there that its callers were told."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyarrow.parquet import read_table
from sqlalchemy import Connection, select

from billing.accounts.accounts import Accounts
from billing.books.books import Books
from billing.errors import BillingError, InvalidKey
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.rollups.archived import archived
from billing.store.database import Database, open_database
from billing.store.migration import newest_revision, upgrade
from billing.store.schema import adjustments, usage_events
from billing.transparency.notes import signer
from billing.transparency.sequencer import Sequencer
from serve.money.ledger_setup import read_pepper
from serve.ops.administration import make_admin_key
from tests.faults.leaves import leaves_of_workspaces
from tests.power_loss.workload import ARCHIVE, FILES, ORIGIN, SPOOL, now


@dataclass
class Told:
    """What callers had been told when the power went. `asked` are charges that were at least begun."""

    asked: dict[str, int] = field(default_factory=dict)
    charged: set[str] = field(default_factory=set)
    released: set[str] = field(default_factory=set)
    adjusted: dict[str, int] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    secrets: tuple[str, str] | None = None

    def hear(self, what: dict[str, Any]) -> None:
        match what["kind"]:
            case "asked":
                self.asked[what["id"]] = what["nano_usd"]
            case "persisted" | "degraded":
                self.charged.add(what["id"])
            case "released":
                self.released.add(what["id"])
            case "adjusted":
                self.adjusted[what["id"]] = what["nano_usd"]
            case "file":
                self.files[what["name"]] = what["sha256"]
            case "key":
                self.keys.append(what["key"])
            case "secrets":
                self.secrets = what["pepper"], what["admin_key"]

    @property
    def promises(self) -> int:
        others = len(self.adjusted) + len(self.files) + len(self.keys) + (self.secrets is not None)
        return len(self.charged) + others


@dataclass
class Verdict:
    """`lost` and `doubled` are in words, as is what else is `wrong`."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def violations(self) -> list[str]:
        return [*self.lost, *self.doubled, *self.wrong]


async def audit(state: Path, url: str, told: Told) -> Verdict:
    """Starts on what the disk has, as a server does, and looks. `url` is of the ledger."""
    verdict = Verdict()
    try:
        pepper = read_pepper(state)
        make_admin_key(state / "admin-keys")
        await upgrade(url)
        database, spool = open_database(url, timeout_s=120), Spool(state / SPOOL)
    except (BillingError, ValueError, OSError) as error:
        return Verdict(wrong=[f"it does not start: {type(error).__name__}: {error}"])
    ledger = Ledger(database, spool)
    sequencer = Sequencer(database, signer(pepper, ORIGIN), revision=newest_revision(), clock=now)
    try:
        if told.secrets not in (None, (pepper.hex(), (state / "admin-keys").read_text())):
            verdict.lost.append("the pepper or the admin key")
        await ledger.replay_spool()
        await ledger.keep_leases()
        while await sequencer.once():
            pass
        await _look_at_money(database, state, told, verdict)
        await _look_at_keys(Accounts(database, pepper=pepper), told, verdict)
        _look_at_files(state / FILES, told, verdict)
        books = await Books(database).reconcile(spool, full=True)
        if not books.is_clean:
            verdict.wrong.append(f"the books do not add up: {books}")
    except (BillingError, OSError) as error:
        verdict.wrong.append(f"{type(error).__name__}: {error}")
    finally:
        await ledger.close()
        await spool.close()
        await database.close()
    return verdict


async def _look_at_money(database: Database, state: Path, told: Told, verdict: Verdict) -> None:
    rows = await database.read(lambda c: c.execute(select(usage_events)).mappings().all())
    here, old = {row["event_id"] for row in rows}, []
    for month in await database.read(archived):
        of_month = _rows_of(state / ARCHIVE, month.month)
        # Until all are dropped from the ledger, some are in both.
        old += [row for row in of_month if month.is_dropped or row["event_id"] not in here]
    costs = [(str(row["event_id"]), int(row["cost_nano_usd"])) for row in (*rows, *old)]
    times = Counter(id_ for id_, _ in costs)
    verdict.lost += [f"event {one} was answered" for one in sorted(told.charged - set(times))]
    verdict.doubled += [f"event {one} is there {number} times" for one, number in times.items() if number > 1]
    verdict.wrong += [
        f"event {one} of {cost} is not what was asked for"
        for one, cost in costs
        if told.asked.get(one) != cost
    ]
    verdict.wrong += [f"event {one} was released" for one in told.released & set(times)]
    made = await database.read(_adjustments)
    verdict.lost += [
        f"adjustment {one}" for one, nano_usd in told.adjusted.items() if made.get(one) != nano_usd
    ]
    workspaces = {row["workspace_id"] for row in rows}
    leaves = await database.read(lambda c: leaves_of_workspaces(c, sorted(workspaces)))
    verdict.wrong += leaves.troubles
    if leaves.doubled:
        verdict.doubled.append(f"{leaves.doubled} leaves")


def _rows_of(folder: Path, month: str) -> list[dict[str, Any]]:
    return [row for path in folder.glob(f"*{month}*.parquet") for row in read_table(path).to_pylist()]


def _adjustments(connection: Connection) -> dict[str, int]:
    c = adjustments.c
    rows: Sequence[Any] = connection.execute(select(c.id, c.nano_usd)).all()
    return {row.id: int(row.nano_usd) for row in rows}


async def _look_at_keys(accounts: Accounts, told: Told, verdict: Verdict) -> None:
    for key in told.keys:
        try:
            await accounts.authenticate(key, now=now())
        except InvalidKey:
            verdict.lost.append("a key that was given out")


def _look_at_files(folder: Path, told: Told, verdict: Verdict) -> None:
    for name, sha256 in told.files.items():
        found = b""
        with suppress(FileNotFoundError):
            found = (folder / name).read_bytes()
        if hashlib.sha256(found).hexdigest() != sha256:
            verdict.lost.append(f"file {name}")
