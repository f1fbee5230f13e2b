"""The SQL of keys: what they are, what they may, and the balance of those that have a spend limit.

The balance of a key starts when it is given a limit, from what its events and open holds add up to; until then its
requests cost no statement more. Keys that were rotated share the limits and the balance of the first of them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Connection, Row, Select, and_, delete, func, insert, or_, select, update

from billing.accounts import account_sql
from billing.accounts.account_sql import Page, Project, Workspace, paged
from billing.accounts.keys import NO_TERMS, KeyTerms, moment_of, terms_of_row
from billing.caller import RATES, Caller, ProjectLimits
from billing.errors import UnknownAccount
from billing.labels import person_key
from billing.store.dates import now_s
from billing.store.rollup_tables import usage_months
from billing.store.schema import api_keys, holds, key_months, projects, workspaces

_k = api_keys.c
# The row that has a key's limits and its balance: its own, or that of the first of rotated keys.
_b = api_keys.alias("budget")
_LIMITS_KEY = func.coalesce(_k.budget_key_id, _k.id)
_BUDGET = (
    *RATES,
    *("spend_limit_nano_usd", "monthly_limit_nano_usd"),
    *("posted_nano_usd", "held_nano_usd", "month", "month_posted_nano_usd"),
)
_COLUMNS = (
    *(_k[name] for name in ("id", "project_id", "name", "digest", "created_at", "revoked_at")),
    *(_k[name] for name in ("expires_at", "last_used_at", "allowed_models", "allowed_routes")),
    *(_b.c[name] for name in _BUDGET),
    _b.c.id.label("limits_key_id"),
    func.coalesce(_k.expires_at <= now_s(), False).label("has_expired"),
    (_k.expires_at - now_s()).label("expires_in_s"),
)
_JOINED = api_keys.join(_b, _b.c.id == _LIMITS_KEY)
_KEYS: Select[Any] = select(*_COLUMNS).select_from(_JOINED)
# A use is written down at most this often.
LAST_USE_S = 60


@dataclass(frozen=True, slots=True)
class KeyBalance:
    """What was charged to a key with a spend limit, and what is held: nano-USD; `month_posted` is of `month`."""

    posted_nano_usd: int
    held_nano_usd: int
    month: str
    month_posted_nano_usd: int


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What is kept of a key after it was shown: all but its secret. `limits_key_id` is the key whose limits and balance
    it shares: itself, unless it was made by a rotation."""

    id: str
    project_id: str
    name: str
    created_at: datetime
    revoked_at: datetime | None
    terms: KeyTerms = NO_TERMS
    last_used_at: datetime | None = None
    has_expired: bool = False
    limits_key_id: str = ""
    balance: KeyBalance | None = field(default=None)


@dataclass(frozen=True, slots=True)
class StoredKey:
    """What authentication needs to know about a key. Inactive: the key, its project or its workspace is revoked, or the
    key has ended; `expires_in_s` is counted from when it was read."""

    digest: str
    active: bool
    caller: Caller
    expires_in_s: float | None = None


_STORED_KEY = (
    select(
        *_COLUMNS,
        projects.c.workspace_id,
        projects.c.metered,
        projects.c.compression,
        projects.c.proof,
        projects.c.person_required,
        projects.c.allowed_tags,
        projects.c.label_rates,
        account_sql.SIZE_STEP,
        *(projects.c[name].label(f"project_{name}") for name in RATES),
        *(workspaces.c[name].label(f"workspace_{name}") for name in RATES),
        projects.c.weight,
        projects.c.revoked_at.label("project_revoked"),
        workspaces.c.revoked_at.label("workspace_revoked"),
    )
    .select_from(_JOINED)
    .join(account_sql.SIZED_PROJECTS, projects.c.id == _k.project_id)
    .join(workspaces, workspaces.c.id == projects.c.workspace_id)
)


def stored_key(connection: Connection, key_id: str, pepper: bytes) -> StoredKey | None:
    row = connection.execute(_STORED_KEY.where(_k.id == key_id)).one_or_none()
    if row is None:
        return None
    ended = (row.revoked_at, row.project_revoked, row.workspace_revoked)
    terms = terms_of_row(row)
    caller = Caller(
        row.workspace_id,
        row.project_id,
        key_id,
        row.metered,
        account_sql.limits_of(row, "project_", weight=row.weight),
        row.compression,
        powers=terms.powers,
        key_limits=terms.limits,
        limits_key_id=row.limits_key_id,
        workspace_limits=account_sql.limits_of(row, "workspace_"),
        label_limits={
            label: ProjectLimits(**rates) for label, rates in (account_sql.label_rates(row) or {}).items()
        },
        size_step=row.size_step,
        proof=row.proof,
        person_required=row.person_required,
        allowed_tags=account_sql.allowed_tags(row),
        person_key=person_key(pepper, row.workspace_id),
    )
    active = all(moment is None for moment in ended) and not row.has_expired
    return StoredKey(row.digest, active, caller, row.expires_in_s)


def insert_key(
    connection: Connection,
    project: str,
    key_id: str,
    name: str,
    digest: str,
    terms: KeyTerms,
    now: datetime,
    *,
    budget_key_id: str | None = None,
) -> KeyRecord:
    """Raises `UnknownAccount` and `AccountRevoked`. With `budget_key_id` its limits are those of that key."""
    owner = account_sql.find_active_project(connection, project, wanted="key")
    row = {
        "id": key_id,
        "project_id": owner.id,
        "name": name,
        "digest": digest,
        "created_at": now,
        **terms.columns(),
        "budget_key_id": budget_key_id,
    }
    connection.execute(insert(api_keys), row)
    if budget_key_id is None:
        set_limits(connection, find_key(connection, key_id), terms)
    return find_key(connection, key_id)


def find_key(connection: Connection, key_id: str) -> KeyRecord:
    account_sql.check_storable("key", key_id)
    row = connection.execute(_KEYS.where(_k.id == key_id)).one_or_none()
    if row is None:
        raise UnknownAccount("key", key_id)
    return _key(row)


def all_keys(
    connection: Connection, project: str | None, workspace: str | None = None, page: Page | None = None
) -> list[KeyRecord]:
    """Oldest first. Raises `UnknownAccount`."""
    statement = paged(connection, _KEYS, api_keys, page)
    if workspace is not None:
        owner = account_sql.find_workspace(connection, workspace).id
        theirs = select(projects.c.id).where(projects.c.workspace_id == owner)
        statement = statement.where(_k.project_id.in_(theirs))
    if project is not None:
        statement = statement.where(_k.project_id == account_sql.find_project(connection, project).id)
    return [_key(row) for row in connection.execute(statement)]


def set_terms(connection: Connection, key: KeyRecord, terms: KeyTerms) -> None:
    """Takes the locks of its workspace and of its rows, in this order, until the transaction ends."""
    if terms.limit_columns() != key.terms.limit_columns():
        set_limits(connection, key, terms)
    connection.execute(update(api_keys).where(_k.id == key.id).values(**terms.columns()))


def set_expiry(connection: Connection, key_id: str, moment: datetime | None) -> None:
    seconds = None if moment is None else moment.timestamp()
    connection.execute(update(api_keys).where(_k.id == key_id).values(expires_at=seconds))


def set_limits(connection: Connection, key: KeyRecord, terms: KeyTerms) -> None:
    """Changes the row that has this key's limits. A first spend limit starts the balance from what the key's events
    and open holds add up to; with the last one the balance ends."""
    values = terms.limit_columns()
    if terms.has_spend_limit == (key.balance is not None):
        # The balance goes on, or there is none.
        connection.execute(update(api_keys).where(_k.id == key.limits_key_id).values(**values))
        return
    workspace_id = account_sql.find_project(connection, key.project_id).workspace_id
    # Whoever moves money has the workspace's lock: until this transaction ends, nobody does.
    account_sql.lock(connection, workspaces, workspace_id)
    connection.execute(delete(key_months).where(key_months.c.key_id == key.limits_key_id))
    balance = {"month": None, "posted_nano_usd": 0, "held_nano_usd": 0, "month_posted_nano_usd": 0}
    if terms.has_spend_limit:
        month = connection.execute(
            select(workspaces.c.month).where(workspaces.c.id == workspace_id)
        ).scalar_one()
        balance = _started(connection, key.limits_key_id, month)
    connection.execute(update(api_keys).where(_k.id == key.limits_key_id).values(**values, **balance))
    mark_limited(connection, workspace_id)


def mark_limited(connection: Connection, workspace_id: str) -> None:
    """Notes on the workspace's row whether any of its keys has a balance."""
    counted = (
        select(_k.id)
        .join(projects, projects.c.id == _k.project_id)
        .where(projects.c.workspace_id == workspace_id, _k.month.is_not(None))
    )
    has_some = connection.execute(select(counted.exists())).scalar_one()
    marking = update(workspaces).where(workspaces.c.id == workspace_id)
    connection.execute(marking.values(has_limited_keys=has_some))


def sharing(key_id: str) -> Select[Any]:
    """The ids of the keys whose limits and balance are on the row of this one, itself included."""
    return select(_k.id).where(or_(_k.id == key_id, _k.budget_key_id == key_id))


def charged_by_month(connection: Connection, key_id: str) -> dict[str, int]:
    """Charges of a key and of those that share its balance, by month: nano-USD."""
    month = usage_months.c.month
    summing = (
        select(month, func.sum(usage_months.c.cost_nano_usd).label("charged"))
        .where(usage_months.c.key_id.in_(sharing(key_id)))
        .group_by(month)
    )
    return {row.month: int(row.charged) for row in connection.execute(summing)}


def note_uses(connection: Connection, key_ids: Collection[str]) -> None:
    """Notes that these keys were used just now, where that was not noted within `LAST_USE_S`. Rows that a payment has
    locked are left for the next time: two that wait for each other's rows would deadlock."""
    due = or_(_k.last_used_at.is_(None), _k.last_used_at < now_s() - LAST_USE_S, _k.last_used_at > now_s())
    free = select(_k.id).where(and_(_k.id.in_(sorted(key_ids)), due)).with_for_update(skip_locked=True)
    connection.execute(update(api_keys).where(_k.id.in_(free)).values(last_used_at=now_s()))


def _started(connection: Connection, key_id: str, month: str) -> dict[str, Any]:
    """The balance of a key as of now, for its row; what was charged in other months goes to theirs."""
    by_month = charged_by_month(connection, key_id)
    others: Sequence[dict[str, Any]] = [
        {"key_id": key_id, "month": other, "posted_nano_usd": amount}
        for other, amount in by_month.items()
        if other != month
    ]
    if others:
        connection.execute(insert(key_months), others)
    held = select(func.coalesce(func.sum(holds.c.amount_nano_usd), 0)).where(
        holds.c.key_id.in_(sharing(key_id))
    )
    return {
        "month": month,
        "posted_nano_usd": sum(by_month.values()),
        "held_nano_usd": int(connection.execute(held).scalar_one()),
        "month_posted_nano_usd": by_month.get(month, 0),
    }


def _key(row: Row[Any]) -> KeyRecord:
    balance = None
    if row.month is not None:
        balance = KeyBalance(row.posted_nano_usd, row.held_nano_usd, row.month, row.month_posted_nano_usd)
    return KeyRecord(
        row.id,
        row.project_id,
        row.name,
        row.created_at,
        row.revoked_at,
        terms=terms_of_row(row),
        last_used_at=moment_of(row.last_used_at),
        has_expired=bool(row.has_expired),
        limits_key_id=row.limits_key_id,
        balance=balance,
    )


# Which of the three was revoked. The outermost is named, since revoking it ended all that is in it.
Revoked = Literal["workspace", "project", "key"]


@dataclass(frozen=True, slots=True)
class ListedProject:
    """A project with its workspace, and what was revoked where none of its keys works."""

    project: Project
    workspace: Workspace
    revoked: Revoked | None


@dataclass(frozen=True, slots=True)
class ListedKey:
    """A key with what it belongs to, and what was revoked where it does not work."""

    key: KeyRecord
    project: Project
    workspace: Workspace
    revoked: Revoked | None


def listed_projects(
    connection: Connection, workspace: str | None = None, page: Page | None = None
) -> list[ListedProject]:
    """Oldest first. Raises `UnknownAccount` for an unknown workspace."""
    found = account_sql.all_projects(connection, workspace, page)
    return _with_owners(connection, found, some=page is not None)


def listed_keys(
    connection: Connection, workspace: str | None = None, project: str | None = None, page: Page | None = None
) -> list[ListedKey]:
    """Oldest first. Raises `UnknownAccount` for an unknown workspace or project."""
    found = all_keys(connection, project, workspace, page)
    some = page is not None
    ids = {key.project_id for key in found} if some else None
    theirs = _with_owners(connection, account_sql.all_projects(connection, None, ids=ids), some=some)
    owners = {listed.project.id: listed for listed in theirs}
    return [
        ListedKey(key, owner.project, owner.workspace, owner.revoked or ("key" if key.revoked_at else None))
        for key in found
        for owner in [owners[key.project_id]]
    ]


def _with_owners(connection: Connection, found: Sequence[Project], *, some: bool) -> list[ListedProject]:
    """With `some` only their workspaces are read."""
    ids = {project.workspace_id for project in found} if some else None
    owners = {owner.id: owner for owner in account_sql.all_workspaces(connection, ids=ids)}
    return [
        ListedProject(project, owner, _revoked(owner, project))
        for project in found
        for owner in [owners[project.workspace_id]]
    ]


def _revoked(workspace: Workspace, project: Project) -> Revoked | None:
    if workspace.revoked_at:
        return "workspace"
    return "project" if project.revoked_at else None
