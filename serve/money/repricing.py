"""The prices of a configuration that takes the place of another while the server runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from billing.accounts.accounts import Accounts
from billing.ledger.price_list import change_prices
from billing.price import ModelPrice
from billing.store.database import open_database
from serve.config.settings import Settings
from serve.money.ledger_setup import demo_key, pepper_of


async def put_in_force(
    settings: Settings,
    prices: Sequence[ModelPrice],
    *,
    actor: str,
    action: str,
    details: Mapping[str, Any],
    now: datetime,
) -> int:
    """Publish the prices, with a line in the audit log, and make the demo key where there is to be one. Returns the
    version of the price list. The ledger is not migrated. Raises `LedgerUnavailable` or `ConfigError`."""
    database = open_database(settings.billing.database_url)
    try:
        version = await change_prices(
            database,
            prices,
            actor=actor,
            action=action,
            subject=f"server:{settings.server.port}",
            details=details,
            now=now,
        )
        if settings.demo.enabled:
            accounts = Accounts(database, pepper=pepper_of(settings), actor=actor)
            await demo_key(accounts, settings.demo, now=now)
        return version
    finally:
        await database.close()
