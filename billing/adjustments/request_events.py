"""Which usage event is meant by a request's id: `X-Request-ID`, as its customer has it."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, select

from billing.accounts import account_sql
from billing.adjustments.errors import AmbiguousRequest, UnknownRequest
from billing.store.charged import CHARGED
from billing.store.database_clock import now_s
from billing.store.schema import usage_events

_e = usage_events.c
# Ids of requests have no index, which each settlement would pay for: a workspace's events of this long are read.
SEARCHED = timedelta(days=35)
MOST_NAMED = 10


def event_of_request(
    connection: Connection, workspace: str, request_id: str, since: datetime | None = None
) -> str:
    """The id of the one event of the request that was charged, or of its only one. Only events of the workspace that
    were settled from `since` on are looked through: unless given, for `SEARCHED`.

    Raises `UnknownAccount`, `UnknownRequest` and `AmbiguousRequest`.
    """
    owner = account_sql.find_workspace(connection, workspace).id
    begin = since or datetime.fromtimestamp(connection.execute(select(now_s())).scalar_one(), UTC) - SEARCHED
    found = _events(connection, owner, request_id, begin) if request_id.isprintable() else []
    if not found:
        raise UnknownRequest(request_id, begin)
    wanted = [event_id for event_id, is_charged in found if is_charged] or [one for one, _ in found]
    if len(wanted) > 1:
        raise AmbiguousRequest(request_id, wanted)
    return wanted[0]


def _events(
    connection: Connection, workspace_id: str, request_id: str, begin: datetime
) -> list[tuple[str, bool]]:
    is_charged = (CHARGED > 0).label("is_charged")
    of_request = select(_e.event_id, is_charged).where(
        _e.workspace_id == workspace_id, _e.settled_at >= begin, _e.request_id == request_id
    )
    rows = connection.execute(of_request.order_by(is_charged.desc(), _e.event_id).limit(MOST_NAMED))
    return [(event_id, bool(charged)) for event_id, charged in rows]
