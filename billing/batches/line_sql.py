"""The SQL of a batch's lines. One attempt at a time has a line's claim, and ends the line once."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, bindparam, func, insert, select, update

from billing.batches import file_sql
from billing.batches.batch import (
    ClaimedLine,
    EndedLine,
    LineState,
    LineTokens,
    LostClaim,
    NewBatch,
    NewLine,
    kept_bytes,
)
from billing.store.batch_tables import batch_lines, batches
from billing.store.dates import now_s

# Of results, read at once.
PAGE_CHARS = 8 * 2**20
_l = batch_lines.c
_b = batches.c
_ENDED = (
    update(batch_lines)
    .where(
        _l.batch_id == bindparam("of_batch"),
        _l.number == bindparam("of_number"),
        _l.claim == bindparam("of_claim"),
        _l.state == "waiting",
    )
    .values(
        state=bindparam("new_state"),
        result=bindparam("new_result"),
        claim=None,
        prompt_tokens=bindparam("prompt"),
        cached_tokens=bindparam("cached"),
        completion_tokens=bindparam("completion"),
    )
)


def add(connection: Connection, batch_id: str, lines: Sequence[NewLine]) -> None:
    """Raises `RowRefused` through the database where a `custom_id` is there already."""
    connection.execute(insert(batch_lines), [_row(batch_id, line) for line in lines])


def known(connection: Connection, batch_id: str, custom_ids: Collection[str]) -> set[str]:
    """Those that a line of the batch has already."""
    found = select(_l.custom_id).where(_l.batch_id == batch_id, _l.custom_id.in_(custom_ids))
    return set(connection.execute(found).scalars())


def claim(connection: Connection, batch_id: str, claims: Sequence[str], lease_s: float) -> list[ClaimedLine]:
    """The next lines of a batch that nobody runs, one for each name in `claims` at the most."""
    batch = connection.execute(
        select(batches).where(_b.id == batch_id, _b.status == "in_progress", _b.ends_as == "completed")
    ).one_or_none()
    if batch is None:
        return []
    free = select(batch_lines).where(
        _l.batch_id == batch_id, _l.state == "waiting", _l.claimable_at <= now_s()
    )
    rows = connection.execute(
        free.order_by(_l.number).limit(len(claims)).with_for_update(skip_locked=True)
    ).all()
    for row, name in zip(rows, claims, strict=False):
        taken = update(batch_lines).where(_l.batch_id == batch_id, _l.number == row.number)
        connection.execute(
            taken.values(claim=name, claimable_at=now_s() + lease_s, attempts=row.attempts + 1)
        )
    new = _new_batch(batch)
    return [
        ClaimedLine(new, _line(row), name, row.attempts + 1) for row, name in zip(rows, claims, strict=False)
    ]


def keep(connection: Connection, held: Sequence[ClaimedLine], lease_s: float) -> None:
    """Renews the claims that are still there."""
    for claimed in held:
        connection.execute(update(batch_lines).where(_mine(claimed)).values(claimable_at=now_s() + lease_s))


def end(
    connection: Connection, claimed: ClaimedLine, state: LineState, result: str, tokens: LineTokens
) -> None:
    """The line has ended, once. Raises `LostClaim` where somebody else has it, and then nothing was written."""
    parameters = {
        "of_batch": claimed.batch.id,
        "of_number": claimed.line.number,
        "of_claim": claimed.claim,
        "new_state": state,
        "new_result": result,
        "prompt": tokens.prompt,
        "cached": tokens.cached,
        "completion": tokens.completion,
    }
    if not connection.execute(_ENDED, parameters).rowcount:
        raise LostClaim(f"line {claimed.line.number} of {claimed.batch.id} is somebody else's by now")
    file_sql.count_result(connection, claimed.batch.project_id, kept_bytes(result))


def put_back(connection: Connection, claimed: ClaimedLine, *, wait_s: float, counts: bool) -> None:
    """Nothing came of this attempt; the next may begin in `wait_s`. Unless it `counts`, it was none."""
    attempts = claimed.attempts if counts else claimed.attempts - 1
    values = {"claim": None, "claimable_at": now_s() + wait_s, "attempts": attempts}
    connection.execute(update(batch_lines).where(_mine(claimed)).values(values))


def ended(connection: Connection, batch_id: str, after: int, limit: int) -> list[EndedLine]:
    """Ended lines after line `after`, in their order."""
    until = _page_end(connection, batch_id, after, limit)
    statement = select(_l.number, _l.custom_id, _l.state, _l.result).where(
        _l.batch_id == batch_id, _l.number > after, _l.number <= until
    )
    rows = connection.execute(statement.order_by(_l.number))
    return [EndedLine(row.number, row.custom_id, row.state, row.result) for row in rows]


def _page_end(connection: Connection, batch_id: str, after: int, limit: int) -> int:
    """The last line of the next `limit` before which their results have not `PAGE_CHARS` yet."""
    sizes = select(_l.number, func.length(_l.result)).where(_l.batch_id == batch_id, _l.number > after)
    end, size = after, 0
    for number, length in connection.execute(sizes.order_by(_l.number).limit(limit)).all():
        end, size = number, size + (length or 0)
        if size >= PAGE_CHARS:
            break
    return end


def _mine(claimed: ClaimedLine) -> ColumnElement[bool]:
    return and_(
        _l.batch_id == claimed.batch.id,
        _l.number == claimed.line.number,
        _l.claim == claimed.claim,
        _l.state == "waiting",
    )


def _row(batch_id: str, line: NewLine) -> dict[str, Any]:
    return {
        "batch_id": batch_id,
        "number": line.number,
        "custom_id": line.custom_id,
        "offset_bytes": line.offset,
        "length_bytes": line.length,
        "state": "waiting",
        "claimable_at": 0.0,
        "attempts": 0,
        "prompt_tokens": 0,
        "cached_tokens": 0,
        "completion_tokens": 0,
    }


def _line(row: Row[Any]) -> NewLine:
    return NewLine(row.number, row.custom_id, row.offset_bytes, row.length_bytes)


def _new_batch(row: Row[Any]) -> NewBatch:
    return NewBatch(
        id=row.id,
        project_id=row.project_id,
        key_id=row.key_id,
        input_file_id=row.input_file_id,
        endpoint=row.endpoint,
        completion_window=row.completion_window,
        metadata=row.metadata_json,
        pricing_version=row.pricing_version,
        price_ppm=row.price_ppm,
        window_s=row.expires_at - row.created_at,
    )
