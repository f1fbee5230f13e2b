"""Budgets as an operator sets, lists and removes them."""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Literal, get_args

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.engine import Row

from billing.accounts import account_sql, audit_log, key_sql
from billing.accounts.account_sql import Page, paged
from billing.accounts.accounts import id_of
from billing.accounts.audit_log import AuditEntry
from billing.accounts.keys import check_spend_limit
from billing.caller import EACH_PERSON
from billing.errors import InvalidAccount, UnknownAccount
from billing.labels import TAG_WORDS, is_tag
from billing.ledger.budgets import FOUND, REFUSE, BudgetState, label_subject, look_again, states
from billing.periods import PeriodKind
from billing.store.budget_tables import budget_counters, budgets
from billing.store.database import Database
from billing.store.schema import workspaces

BudgetScope = Literal["workspace", "project", "key", "person", "tag"]
SCOPES: tuple[BudgetScope, ...] = get_args(BudgetScope)
_b = budgets.c
# Which models there are, each server knows for itself.
_AT_END = re.compile(r"refuse|flex|model:[A-Za-z0-9][A-Za-z0-9._/-]{0,126}")


def scope_of(named: Mapping[str, str | None], *, person: bool, tag: str | None) -> tuple[BudgetScope, str]:
    """The scope of a budget of the one that is named, by what it is, or of the persons or a tag of a project; and its
    id or name. Raises `InvalidAccount`."""
    owners = [(scope, named[scope]) for scope in SCOPES if named.get(scope) is not None]
    if len(owners) != 1:
        raise InvalidAccount("name one of workspace, project and key")
    ((scope, of),) = owners
    asked: dict[BudgetScope, bool] = {"person": person, "tag": tag is not None}
    labels = [label for label, is_asked in asked.items() if is_asked]
    if len(labels) > 1 or (labels and scope != "project"):
        raise InvalidAccount("name either a person or a tag, with a project")
    return (*labels, scope)[0], str(of)


@dataclass(frozen=True, slots=True)
class Budgets:
    """The budgets of one ledger. Methods raise `UnknownAccount` and `LedgerUnavailable`; changes are in the audit log,
    as made by `actor`, and in force with the next request."""

    database: Database
    actor: str

    async def set(
        self,
        scope: BudgetScope,
        of: str,
        period: PeriodKind,
        limit_nano_usd: int,
        *,
        tag: str | None = None,
        at_end: str | None = None,
        land_from_percent: int | None = None,
        now: datetime,
    ) -> BudgetState:
        """Of the workspace, project or key with this id or name, or of the project's persons or its tag. It counts from
        when it is first set, and goes on counting where its limit is changed. `at_end` says what becomes of a chat that
        it has no room for, from `land_from_percent` of the limit on already; None: as before, at first `refuse` and
        100. Raises `InvalidAccount`."""
        if (scope == "tag") != (tag is not None) or (tag is not None and not is_tag(tag)):
            raise InvalidAccount(f"tag: a budget of a tag, and no other, names one of {TAG_WORDS}")
        check_spend_limit("limit_nano_usd", limit_nano_usd)
        if at_end is not None and _AT_END.fullmatch(at_end) is None:
            raise InvalidAccount(f"at_end: {at_end!r} is none of refuse, flex and model:ID")
        if land_from_percent is not None and not 1 <= land_from_percent <= 100:
            raise InvalidAccount(f"land_from_percent: {land_from_percent} is not between 1 and 100")
        if at_end == REFUSE:
            land_from_percent = land_from_percent or 100
        asked = {"at_end": at_end, "land_from_percent": land_from_percent}
        values = {"limit_nano_usd": limit_nano_usd} | {n: to for n, to in asked.items() if to is not None}
        setting = partial(_set, scope=scope, of=of, tag=tag, period=period, values=values)
        return await self.database.write(partial(setting, actor=self.actor, now=now))

    async def listed(self, workspace: str | None = None, page: Page | None = None) -> list[BudgetState]:
        """Oldest first, each in its present period."""
        return await self.database.read(partial(_listed, workspace=workspace, page=page))

    async def remove(self, budget_id: str, *, now: datetime) -> BudgetState:
        """What it was. Requests that run are charged to their other budgets alone."""
        return await self.database.write(partial(_remove, budget_id=budget_id, actor=self.actor, now=now))


def _set(
    connection: Connection,
    *,
    scope: BudgetScope,
    of: str,
    tag: str | None,
    period: PeriodKind,
    values: Mapping[str, Any],
    actor: str,
    now: datetime,
) -> BudgetState:
    workspace_id, subject = _owner(connection, scope, of)
    if scope in ("person", "tag"):
        subject = label_subject(subject, tag or EACH_PERSON)
    # Whoever moves money has this lock: what is held from now on is counted.
    account_sql.lock(connection, workspaces, workspace_id)
    same = FOUND.where(_b.subject == subject, _b.period == period)
    before = connection.execute(same).one_or_none()
    if before is None:
        row = {
            "id": f"bud_{secrets.token_hex(10)}",
            "workspace_id": workspace_id,
            "scope": scope,
            "subject": subject,
            "period": period,
            "created_at": now,
            **values,
        }
        connection.execute(insert(budgets), row)
        _mark(connection, workspace_id)
    else:
        changing = update(budgets).where(_b.id == before.id)
        connection.execute(changing.values(values))
        if before.limit_nano_usd != values["limit_nano_usd"]:
            look_again(connection, before.id)
    after = connection.execute(same).one()
    if after.at_end == REFUSE and after.land_from_percent != 100:
        raise InvalidAccount(
            "land_from_percent: at_end is refuse, so nothing lands; give flex or model:ID, or 100"
        )
    changed = {name: [was, to] for name, to in values.items() if (was := getattr(before, name, None)) != to}
    if changed:
        _note(connection, "budget.set", after, changed, actor, now)
    return states(connection, [after])[0]


def _owner(connection: Connection, scope: BudgetScope, of: str) -> tuple[str, str]:
    """The workspace, and the id that requests find the budget by."""
    if scope == "workspace":
        found = account_sql.find_workspace(connection, of).id
        return found, found
    if scope != "key":
        project = account_sql.find_project(connection, of)
        return project.workspace_id, project.id
    key = key_sql.find_key(connection, id_of(of))
    return account_sql.find_project(connection, key.project_id).workspace_id, key.limits_key_id


def _listed(connection: Connection, *, workspace: str | None, page: Page | None) -> list[BudgetState]:
    rows = paged(connection, FOUND, budgets, page)
    if workspace is not None:
        rows = rows.where(_b.workspace_id == account_sql.find_workspace(connection, workspace).id)
    return states(connection, connection.execute(rows).all())


def _remove(connection: Connection, *, budget_id: str, actor: str, now: datetime) -> BudgetState:
    account_sql.check_storable("budget", budget_id)
    asked = FOUND.where(_b.id == budget_id)
    row = connection.execute(asked).one_or_none()
    if row is not None:
        account_sql.lock(connection, workspaces, row.workspace_id)
        # Whoever had the lock may have removed it.
        row = connection.execute(asked).one_or_none()
    if row is None:
        raise UnknownAccount("budget", budget_id)
    (removed,) = states(connection, [row])
    connection.execute(delete(budget_counters).where(budget_counters.c.budget_id == budget_id))
    connection.execute(delete(budgets).where(_b.id == budget_id))
    _mark(connection, row.workspace_id)
    _note(connection, "budget.remove", row, {"limit_nano_usd": [row.limit_nano_usd, None]}, actor, now)
    return removed


def _mark(connection: Connection, workspace_id: str) -> None:
    """Notes on the workspace's row whether it has any."""
    some = select(_b.id).where(_b.workspace_id == workspace_id)
    has_some = connection.execute(select(some.exists())).scalar_one()
    marking = update(workspaces).where(workspaces.c.id == workspace_id)
    connection.execute(marking.values(has_budgets=has_some))


def _note(
    connection: Connection, action: str, row: Row[Any], details: Mapping[str, Any], actor: str, now: datetime
) -> None:
    said = {"scope": row.scope, "of": row.subject, "period": row.period, **details}
    audit_log.record(connection, AuditEntry(now, actor, action, row.workspace_id, row.id, said))
