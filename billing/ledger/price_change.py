"""Prices that change while servers run: the new version and its line in the audit log, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from billing.accounts import audit_log
from billing.accounts.audit_log import AuditEntry
from billing.errors import LedgerUnavailable, RowRefused
from billing.ledger import price_list
from billing.price import ModelPrice
from billing.store.database import Database

ATTEMPTS = 10


async def change_prices(
    database: Database,
    prices: Sequence[ModelPrice],
    *,
    actor: str,
    action: str,
    subject: str,
    details: Mapping[str, Any],
    now: datetime,
) -> int:
    """The version in force for these prices: a new one if any differs. `details` get `pricing_version` as
    `[before, after]`. Raises `LedgerUnavailable`."""

    def write(connection: Connection) -> int:
        before = price_list.latest(connection)
        version = price_list.publish(connection, prices, now)
        versions = [before.version if before else None, version]
        entry = AuditEntry(now, actor, action, None, subject, {**details, "pricing_version": versions})
        audit_log.record(connection, entry)
        return version

    for _ in range(ATTEMPTS):
        try:
            return await database.write(write)
        except RowRefused:
            # Another server published the same version first.
            continue
    raise LedgerUnavailable(f"other servers published prices first, {ATTEMPTS} times in a row")
