"""What was used and what it cost, summed by what an operator asks for: workspace, project, key, model, day, month."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from sqlalchemy import ColumnElement, Connection, Select, func, select

from billing.accounts import account_sql
from billing.books.charges import CHARGED, charged_month
from billing.store.dates import calendar, within
from billing.store.schema import api_keys, projects, usage_events, workspaces

Dimension = Literal["workspace", "project", "key", "model", "day", "month"]
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)

_e = usage_events.c


_SUMMED = {
    "prompt_tokens": _e.prompt_tokens,
    "completion_tokens": _e.completion_tokens,
    "cached_tokens": _e.cached_tokens,
    "cost_nano_usd": CHARGED,
    "written_off_nano_usd": _e.written_off_nano_usd,
}


@dataclass(frozen=True, slots=True)
class UsageSum:
    """`group` names what the sums are of, in the order asked for: ids with their names, models, days."""

    group: Mapping[str, str]
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    # What was charged, without what was written off.
    cost_nano_usd: int
    written_off_nano_usd: int = 0


def usage(
    connection: Connection,
    by: Sequence[Dimension],
    *,
    workspace: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    charged_in: str | None = None,
) -> list[UsageSum]:
    """Sums of the events settled from `since` to before `until`, or charged in one month: one row per group, in the
    groups' order.

    Without a dimension there is one row, of zeros where nothing was used. Raises `UnknownAccount`.
    """
    groups = [column for name in by for column in _columns(connection, name)]
    statement: Select[Any] = select(
        *groups,
        func.count().label("requests"),
        *(func.coalesce(func.sum(column), 0).label(name) for name, column in _SUMMED.items()),
    ).select_from(
        usage_events.join(workspaces, workspaces.c.id == _e.workspace_id)
        .join(projects, projects.c.id == _e.project_id)
        .join(api_keys, api_keys.c.id == _e.key_id)
    )
    if workspace is not None:
        statement = statement.where(_e.workspace_id == account_sql.find_workspace(connection, workspace).id)
    statement = within(statement, _e.settled_at, since, until)
    if charged_in is not None:
        statement = statement.where(charged_month(connection) == charged_in)
    rows = connection.execute(statement.group_by(*groups).order_by(*groups)).all()
    return [_sum(row._mapping, [group.name for group in groups]) for row in rows]


def _columns(connection: Connection, name: Dimension) -> list[Any]:
    match name:
        case "workspace":
            return [workspaces.c.name.label("workspace"), _e.workspace_id]
        case "project":
            return [projects.c.name.label("project"), _e.project_id]
        case "key":
            return [api_keys.c.name.label("key"), _e.key_id]
        case "model":
            return [_e.model_id.label("model")]
        case "day" | "month":
            # By a name of its own: PostgreSQL must see the same expression where it selects and where it groups.
            span: ColumnElement[str] = (
                charged_month(connection) if name == "month" else calendar(connection, _e.settled_at, name)
            )
            return [span.label(name)]


def _sum(fields: Mapping[Any, Any], groups: Sequence[str]) -> UsageSum:
    # PostgreSQL sums integers into a NUMERIC.
    return UsageSum(
        {name: fields[name] for name in groups},
        fields["requests"],
        int(fields["prompt_tokens"]),
        int(fields["completion_tokens"]),
        int(fields["cached_tokens"]),
        int(fields["cost_nano_usd"]),
        int(fields["written_off_nano_usd"]),
    )
