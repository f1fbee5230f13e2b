"""Registry of requests that administrators have begun under idempotency keys: in the ledger, for every server on it."""

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, delete, insert, select

from billing.accounts.audit_log import MAX_ACTOR_CHARS
from billing.store.database_clock import now_s
from billing.store.schema import administrators_requests

KEPT_S = 86_400.0
_r = administrators_requests.c


@dataclass(frozen=True, slots=True)
class BegunRequest:
    """What somebody began: `digest` is the request's SHA-256, in hexadecimal."""

    actor: str
    idempotency_key: str
    digest: str


def begin(connection: Connection, request: BegunRequest) -> str | None:
    """Notes it, for a day; the digest of what was begun under its key before, and then nothing is noted. Of two at
    once, one raises `RowRefused`."""
    connection.execute(delete(administrators_requests).where(_r.began_at <= now_s() - KEPT_S))
    found: str | None = connection.execute(select(_r.digest).where(*_same(request))).scalar()
    if found is None:
        noted = {"actor": request.actor[:MAX_ACTOR_CHARS], "idempotency_key": request.idempotency_key}
        connection.execute(
            insert(administrators_requests).values(**noted, digest=request.digest, began_at=now_s())
        )
    return found


def forget(connection: Connection, request: BegunRequest) -> None:
    """It was refused: nothing was made, and it may be sent again."""
    connection.execute(delete(administrators_requests).where(*_same(request)))


def _same(request: BegunRequest) -> tuple[ColumnElement[bool], ...]:
    return _r.actor == request.actor[:MAX_ACTOR_CHARS], _r.idempotency_key == request.idempotency_key
