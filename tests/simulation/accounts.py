"""The accounts and the price of the simulated world, which each schedule finds with limits of its own."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import Connection, update

from billing.accounts import account_sql, key_sql
from billing.accounts.keys import KeyTerms
from billing.caller import EACH_PERSON, NO_LIMITS, Caller
from billing.ledger import price_list
from billing.ledger.budgets import label_subject
from billing.price import ModelPrice
from billing.store.schema import workspaces
from tests.simulation.plan import TAGS, TOKEN_NANO_USD, WorkspacePlan
from tests.simulation.store import Store

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
WORKSPACES = 2
# Half a token at the least.
PRICE = ModelPrice("model", 0, TOKEN_NANO_USD * 1000, TOKEN_NANO_USD // 2)
# Of the compression of a prompt: half a token for each of its own.
PART_PRICE = ModelPrice("press", TOKEN_NANO_USD * 500, 0, 0)


class Accounts:
    """Made once for each store. Ids are fixed, or a seed would not draw the same schedule twice."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.pricing_version: int = store.transact(
            lambda c: price_list.publish(c, [PRICE, PART_PRICE], LONG_AGO)
        )
        self.callers = tuple(
            store.transact(lambda c, n=number: _make_caller(c, n)) for number in range(1, WORKSPACES + 1)
        )

    def limit(self, plans: tuple[WorkspacePlan, ...], month: str) -> None:
        """Set the limits of a schedule, and the month that it begins in."""
        driver = self._store.driver
        driver.execute("UPDATE workspaces SET month = ?", (month,))
        for caller, plan in zip(self.callers, plans, strict=False):
            driver.execute(
                "UPDATE workspaces SET spend_limit_nano_usd = ?, monthly_limit_nano_usd = ?, time_zone = ?, "
                "has_budgets = ? WHERE id = ?",
                (
                    plan.spend_limit_nano_usd,
                    plan.monthly_limit_nano_usd,
                    plan.time_zone,
                    bool(plan.budgets),
                    caller.workspace_id,
                ),
            )
            for number, (scope, period, limit) in enumerate(plan.budgets, 1):
                of = {
                    "workspace": caller.workspace_id,
                    "project": caller.project_id,
                    "key": caller.key_id,
                    "person": label_subject(caller.project_id, EACH_PERSON),
                    "tag": label_subject(caller.project_id, TAGS[0]),
                }
                driver.execute(
                    "INSERT INTO budgets (id, workspace_id, scope, subject, period, limit_nano_usd, created_at) "
                    "VALUES (?, ?, ?, ?, ?, ?, '2026-01-01 00:00:00.000000')",
                    (
                        f"bud_{caller.workspace_id}_{number}",
                        caller.workspace_id,
                        scope,
                        of[scope],
                        period,
                        limit,
                    ),
                )


def _make_caller(connection: Connection, number: int) -> Caller:
    made = account_sql.insert_workspace(connection, f"workspace {number}", {}, LONG_AGO)
    workspace_id = f"ws_{number}"
    connection.execute(update(workspaces).where(workspaces.c.id == made.id).values(id=workspace_id))
    project = account_sql.insert_project(connection, workspace_id, "project", {}, LONG_AGO)
    key = key_sql.insert_key(connection, project.id, f"{number:016}", "key", "0" * 64, KeyTerms(), LONG_AGO)
    return Caller(workspace_id, project.id, key.id, metered=True, limits=NO_LIMITS)
