"""SQL of accounts: workspaces, their projects, and pages of lists of them."""

import json
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, Table, and_, insert, literal, or_, select, tuple_, update
from sqlalchemy.engine import Row

from billing.caller import NO_LIMITS, RATES, ProjectLimits
from billing.errors import AccountRevoked, UnknownAccount
from billing.store.schema import preservation_sizes, projects, workspaces
from billing.usage import month_of


@dataclass(frozen=True, slots=True)
class Page:
    """So many rows after the one with this id; None: from the first."""

    limit: int
    after: str | None = None


def paged(connection: Connection, rows: Select[Any], table: Table, page: Page | None) -> Select[Any]:
    """`rows` of `table`, oldest first; without a page all of them. Raises `UnknownAccount` where there is no row of the
    page's id."""
    order = (table.c.created_at, table.c.id)
    rows = rows.order_by(*order)
    if page is None:
        return rows
    if page.after is not None:
        place = None
        # NUL and lone surrogates name nothing; each database would refuse them in its own way.
        if page.after.isprintable():
            place = connection.execute(select(*order).where(table.c.id == page.after)).one_or_none()
        if place is None:
            raise UnknownAccount("row of this list", page.after)
        # Row values, which an index on both is entered by.
        there = (literal(value, column.type) for value, column in zip(place, order, strict=True))
        rows = rows.where(tuple_(*order) > tuple_(*there))
    return rows.limit(page.limit)


AnyRow = Row[*tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Workspace:
    """An account that pays. None means no limit; `month` is the month that `month_posted` covers.

    `collected` is the part of `posted` that was cut into collections; the rest, less what was credited, is uncollected,
    and below zero it is credit. `month_posted` is net of what was credited in the month.
    """

    id: str
    name: str
    billing_enabled: bool
    spend_limit_nano_usd: int | None
    monthly_limit_nano_usd: int | None
    posted_nano_usd: int
    held_nano_usd: int
    month: str
    month_posted_nano_usd: int
    created_at: datetime
    revoked_at: datetime | None
    collected_nano_usd: int
    credited_nano_usd: int = 0
    # Of the periods of its budgets.
    time_zone: str = "UTC"
    limits: ProjectLimits = NO_LIMITS


@dataclass(frozen=True, slots=True)
class Project:
    """A set of keys with its own rate limits. Usage of a project that is not metered is not recorded."""

    id: str
    workspace_id: str
    name: str
    metered: bool
    limits: ProjectLimits
    created_at: datetime
    revoked_at: datetime | None
    # How its chats are compressed unless they say so themselves, as JSON; None: not at all.
    compression: str | None = None
    # Where their size stands, if samples of what compression changes decide it and there is one.
    size_step: float | None = None
    # Whether its replies carry promises that their usage will be in the log.
    proof: bool = False
    # Whether its requests have to name a person, and the tags that they may name; None: all.
    person_required: bool = False
    allowed_tags: tuple[str, ...] | None = None
    # Limits of each person (`EACH_PERSON`) and by tag.
    label_rates: dict[str, dict[str, int]] | None = None


# Projects, each with its size under the compression that it has now.
SIZED_PROJECTS = projects.outerjoin(
    preservation_sizes,
    and_(
        preservation_sizes.c.project_id == projects.c.id,
        preservation_sizes.c.compression == projects.c.compression,
    ),
)
SIZE_STEP = preservation_sizes.c.step.label("size_step")
_PROJECTS = select(projects, SIZE_STEP).select_from(SIZED_PROJECTS)


def insert_workspace(
    connection: Connection, name: str, settings: Mapping[str, Any], now: datetime
) -> Workspace:
    """`settings`: its other columns that an operator sets."""
    row = {
        "id": f"ws_{secrets.token_hex(10)}",
        "name": name,
        "billing_enabled": True,
        "posted_nano_usd": 0,
        "held_nano_usd": 0,
        "month": month_of(now),
        "month_posted_nano_usd": 0,
        "created_at": now,
        **settings,
    }
    connection.execute(insert(workspaces), row)
    return find_workspace(connection, str(row["id"]))


def insert_project(
    connection: Connection, workspace: str, name: str, settings: Mapping[str, Any], now: datetime
) -> Project:
    """As `insert_workspace`."""
    owner = find_workspace(connection, workspace)
    _require_active("workspace", owner, wanted="project")
    row = {
        "id": f"prj_{secrets.token_hex(10)}",
        "workspace_id": owner.id,
        "name": name,
        "metered": True,
        "created_at": now,
        **settings,
    }
    connection.execute(insert(projects), row)
    return find_project(connection, str(row["id"]))


def find_workspace(connection: Connection, ref: str) -> Workspace:
    """By id or by name."""
    check_storable("workspace", ref)
    statement = select(workspaces).where(or_(workspaces.c.id == ref, workspaces.c.name == ref))
    row = connection.execute(statement).one_or_none()
    if row is None:
        raise UnknownAccount("workspace", ref)
    return _workspace(row)


def find_project(connection: Connection, ref: str) -> Project:
    """By id, or as `workspace/project` by names or ids."""
    check_storable("project", ref)
    matches = projects.c.id == ref
    if "/" in ref:
        workspace, _, name = ref.partition("/")
        matches = and_(
            projects.c.workspace_id == find_workspace(connection, workspace).id,
            or_(projects.c.name == name, projects.c.id == name),
        )
    row = connection.execute(_PROJECTS.where(matches)).one_or_none()
    if row is None:
        raise UnknownAccount("project", ref)
    return _project(row)


def find_active_project(connection: Connection, ref: str, *, wanted: str) -> Project:
    """Raises `AccountRevoked` where it or its workspace was revoked."""
    owner = find_project(connection, ref)
    _require_active("workspace", find_workspace(connection, owner.workspace_id), wanted=wanted)
    _require_active("project", owner, wanted=wanted)
    return owner


def all_workspaces(
    connection: Connection, page: Page | None = None, *, ids: Collection[str] | None = None
) -> list[Workspace]:
    """Oldest first; of a page, or those with these ids."""
    statement = paged(connection, select(workspaces), workspaces, page)
    if ids is not None:
        statement = statement.where(workspaces.c.id.in_(ids))
    return [_workspace(row) for row in connection.execute(statement)]


def all_projects(
    connection: Connection,
    workspace: str | None,
    page: Page | None = None,
    *,
    ids: Collection[str] | None = None,
) -> list[Project]:
    """Oldest first; of a page, or those with these ids. Raises `UnknownAccount`."""
    statement = paged(connection, _PROJECTS, projects, page)
    if workspace is not None:
        statement = statement.where(projects.c.workspace_id == find_workspace(connection, workspace).id)
    if ids is not None:
        statement = statement.where(projects.c.id.in_(ids))
    return [_project(row) for row in connection.execute(statement)]


def lock(connection: Connection, table: Table, row_id: str) -> None:
    """Nobody else changes the row until this transaction ends; rows that refer to it can still be inserted."""
    locking = select(table.c.id).where(table.c.id == row_id).with_for_update(key_share=True)
    connection.execute(locking).one_or_none()


def change(connection: Connection, table: Table, row_id: str, values: Mapping[str, object]) -> None:
    connection.execute(update(table).where(table.c.id == row_id).values(**values))


def revoke(connection: Connection, table: Table, row_id: str, now: datetime) -> None:
    """Keeps the time of the first revocation."""
    revoking = update(table).where(table.c.id == row_id, table.c.revoked_at.is_(None))
    connection.execute(revoking.values(revoked_at=now))


def _require_active(kind: str, owner: Workspace | Project, *, wanted: str) -> None:
    if owner.revoked_at is not None:
        raise AccountRevoked(kind, owner.name, owner.revoked_at, wanted=wanted)


def check_storable(kind: str, ref: str) -> None:
    """NUL and lone surrogates name nothing; each database would refuse them in its own way."""
    if not ref.isprintable():
        raise UnknownAccount(kind, ref)


def limits_of(row: AnyRow, prefix: str = "", *, weight: int = 1) -> ProjectLimits:
    """The limits of the row's; with a prefix, of a row in which others' stand beside them."""
    return ProjectLimits(**{name: getattr(row, prefix + name) for name in RATES}, weight=weight)


def _workspace(row: AnyRow) -> Workspace:
    return _made(Workspace, row, limits=limits_of(row))


def _project(row: AnyRow) -> Project:
    limits, rates = limits_of(row, weight=row.weight), label_rates(row)
    return _made(Project, row, limits=limits, allowed_tags=allowed_tags(row), label_rates=rates)


T = TypeVar("T", Workspace, Project)


def _made(kind: type[T], row: AnyRow, **read: Any) -> T:
    # The row has columns that are no concern of an operator.
    return kind(**read, **{one.name: row._mapping[one.name] for one in fields(kind) if one.name not in read})


def allowed_tags(row: AnyRow) -> tuple[str, ...] | None:
    """None: all."""
    return None if row.allowed_tags is None else tuple(filter(None, row.allowed_tags.split(",")))


def label_rates(row: AnyRow) -> dict[str, dict[str, int]] | None:
    """By tag, and those of `EACH_PERSON`."""
    found: dict[str, dict[str, int]] | None = row.label_rates and json.loads(row.label_rates)
    return found
