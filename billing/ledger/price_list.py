"""Price lists in the ledger: immutable versions, of which the last is in force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, func, insert, select

from billing.accounts import audit_log
from billing.accounts.audit_log import AuditEntry
from billing.errors import LedgerUnavailable, RowRefused
from billing.price import ModelPrice
from billing.store.database import Database
from billing.store.schema import price_lists, prices


@dataclass(frozen=True, slots=True)
class PriceList:
    """One version of the price list, its models in order of their id."""

    version: int
    prices: tuple[ModelPrice, ...]

    def of(self, model_id: str) -> ModelPrice | None:
        return next((price for price in self.prices if price.model_id == model_id), None)

    def reduced(self, ppm: int) -> PriceList:
        """The same list, of which so many millionths are charged."""
        return replace(self, prices=tuple(replace(price, ppm=ppm) for price in self.prices))


def latest(connection: Connection) -> PriceList | None:
    """The list in force, or None when none was ever published."""
    newest = connection.execute(select(func.max(price_lists.c.version))).scalar_one_or_none()
    return None if newest is None else of_version(connection, newest)


def newest_equal_to(connection: Connection, wanted: Sequence[ModelPrice]) -> PriceList | None:
    """The last version that has exactly these prices: another deployment on the ledger may have published since."""
    ordered = _in_order(wanted)
    if not ordered:
        return None
    # Any equal list prices the first model the same.
    first = {name: value for name, value in _row(0, ordered[0]).items() if name != "version"}
    alike = select(prices.c.version).where(*(prices.c[name] == value for name, value in first.items()))
    for version in connection.execute(alike.order_by(prices.c.version.desc())).scalars():
        found = of_version(connection, version)
        if found is not None and found.prices == ordered:
            return found
    return None


def version_with(connection: Connection, price: ModelPrice, *, at_first: int) -> int | None:
    """The version that lists this price: `at_first` if it does, else the last one; None: none."""
    listed = (prices.c[name] == value for name, value in _row(0, price).items() if name != "version")
    last = prices.c.version.desc()
    return connection.execute(
        select(prices.c.version).where(*listed).order_by((prices.c.version == at_first).desc(), last).limit(1)
    ).scalar()


def of_version(connection: Connection, version: int) -> PriceList | None:
    """That list; None where it was never published."""
    rows = connection.execute(
        select(prices).where(prices.c.version == version).order_by(prices.c.model_id)
    ).all()
    if not rows:
        return None
    found = tuple(
        ModelPrice(
            row.model_id,
            row.input_micro_usd_per_mtok,
            row.output_micro_usd_per_mtok,
            row.minimum_nano_usd,
            row.cached_input_micro_usd_per_mtok,
        )
        for row in rows
    )
    # PostgreSQL sorts by its own collation: sorted again, so that two lists compare alike everywhere.
    return PriceList(rows[0].version, _in_order(found))


def publish(connection: Connection, wanted: Sequence[ModelPrice], now: datetime) -> int:
    """Writes the next version when a price changed, and returns the version in force.

    Two callers that publish at once collide on the version's primary key; the loser starts over.
    """
    ordered = _in_order(wanted)
    if not ordered:
        raise ValueError("prices: a price list needs at least one model")
    repeated = {a.model_id for a, b in pairwise(ordered) if a.model_id == b.model_id}
    if repeated:
        raise ValueError(f"prices: model {min(repeated)!r} is priced twice")
    present = latest(connection)
    if present is not None and present.prices == ordered:
        return present.version
    version = present.version + 1 if present else 1
    connection.execute(insert(price_lists), {"version": version, "created_at": now})
    connection.execute(insert(prices), [_row(version, price) for price in ordered])
    return version


def _row(version: int, price: ModelPrice) -> dict[str, object]:
    return {
        "version": version,
        "model_id": price.model_id,
        "input_micro_usd_per_mtok": price.input_micro_usd_per_mtok,
        "output_micro_usd_per_mtok": price.output_micro_usd_per_mtok,
        "minimum_nano_usd": price.minimum_nano_usd,
        "cached_input_micro_usd_per_mtok": price.cached_input_micro_usd_per_mtok,
    }


def _in_order(found: Sequence[ModelPrice]) -> tuple[ModelPrice, ...]:
    return tuple(sorted(found, key=lambda price: price.model_id))


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
        before = latest(connection)
        version = publish(connection, prices, now)
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
