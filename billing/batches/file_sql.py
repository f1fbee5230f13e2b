"""The SQL of one file: it is begun, written to disk meanwhile, and there once it was finished.

A row is there before its file is, and the file is gone before its row is: so whatever dies in between, every file on
disk has a row, which expires."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Insert,
    Row,
    and_,
    bindparam,
    case,
    delete,
    insert,
    or_,
    select,
    update,
)

from billing.batches.batch import (
    ENDED,
    FileBounds,
    FileInUse,
    FilePage,
    FilesFull,
    LostClaim,
    ResultsFull,
    StoredFile,
    UnknownFile,
)
from billing.store.batch_tables import batch_file_totals, batch_files, batches, file_stores
from billing.store.dates import now_s
from billing.store.statements import DIALECTS, inserting

# Whoever reaches a store says so, and rewrites its row this often at the most.
SEEN_EVERY_S = 60.0
# Where nobody has said so for so long, the store is lost: others end its batches, and its files take no room.
LOST_AFTER_S = 86_400.0
_s = file_stores.c


def see(connection: Connection, store: str) -> None:
    """A server reaches the store now."""
    added = inserting(connection.dialect.name, file_stores).values(id=store, seen_at=now_s())
    old = _s.seen_at <= now_s() - SEEN_EVERY_S
    connection.execute(
        added.on_conflict_do_update(index_elements=["id"], set_={"seen_at": now_s()}, where=old)
    )


def is_lost(store: "Column[str]") -> ColumnElement[bool]:
    """True where no server reaches the store that the row names. So it is with rows from before there were stores."""
    seen = select(_s.id).where(_s.id == store, _s.seen_at > now_s() - LOST_AFTER_S)
    return ~seen.exists()


_f = batch_files.c
_t = batch_file_totals.c
_is_there = and_(_f.complete, _f.expires_at > now_s())
_is_read = select(batches.c.id).where(batches.c.input_file_id == _f.id, batches.c.status.not_in(ENDED))

_is_over = and_(_f.expires_at <= now_s(), ~_is_read.correlate(batch_files).exists())


def begin(connection: Connection, file: StoredFile, *, grace_s: float, bounds: FileBounds | None) -> None:
    """Sets `file.size` bytes aside for a file that is about to be written; it has expired in `grace_s` unless it is
    kept alive. Raises `FilesFull`; without `bounds` it is counted and never refused."""
    see(connection, file.store)
    _take(connection, file, bounds)
    connection.execute(
        insert(batch_files).values(
            id=file.id,
            project_id=file.project_id,
            filename=file.filename,
            purpose=file.purpose,
            bytes=file.size,
            complete=False,
            created_at=now_s(),
            expires_at=now_s() + grace_s,
            store=file.store,
        )
    )


def keep_alive(connection: Connection, file_id: str, grace_s: float) -> None:
    """Raises `LostClaim` where it took too long and is being deleted."""
    mine = (_f.id == file_id) & ~_f.complete & (_f.expires_at > now_s())
    if not connection.execute(update(batch_files).where(mine).values(expires_at=now_s() + grace_s)).rowcount:
        raise LostClaim(f"file {file_id} took too long to write")


def finish(
    connection: Connection, file_id: str, *, size: int, lifetime_s: float, filename: str | None = None
) -> StoredFile:
    """Makes it readable, and gives back what it did not need; `filename` where that was not known before. Raises
    `LostClaim` as `keep_alive`."""
    row = connection.execute(select(batch_files).where(_f.id == file_id).with_for_update()).one_or_none()
    mine = (_f.id == file_id) & ~_f.complete & (_f.expires_at > now_s())
    done = update(batch_files).where(mine)
    values = {"complete": True, "bytes": size, "expires_at": now_s() + lifetime_s}
    if filename is not None:
        values["filename"] = filename
    if row is None or not connection.execute(done.values(values)).rowcount:
        raise LostClaim(f"file {file_id} took too long to write")
    _count(connection, row.project_id, files=0, size=size - row.bytes)
    return _stored(connection.execute(select(batch_files).where(_f.id == file_id)).one())


def find(connection: Connection, project_id: str, file_id: str, *, lock: bool = False) -> StoredFile:
    """Raises `UnknownFile`. With `lock` it cannot be deleted before the end of the transaction."""
    statement = select(batch_files).where(_f.id == file_id, _f.project_id == project_id, _is_there)
    row = connection.execute(statement.with_for_update() if lock else statement).one_or_none()
    if row is None:
        raise UnknownFile(file_id)
    return _stored(row)


def listed(connection: Connection, project_id: str, page: FilePage) -> list[StoredFile]:
    """One more than `page.limit` where there are more. Raises `UnknownFile` of `page.after`."""
    statement = select(batch_files).where(_f.project_id == project_id, _is_there)
    if page.purpose is not None:
        statement = statement.where(_f.purpose == page.purpose)
    if page.after is not None:
        last = find(connection, project_id, page.after)
        statement = statement.where(_beyond(last, page.oldest_first))
    order = (_f.created_at, _f.id) if page.oldest_first else (_f.created_at.desc(), _f.id.desc())
    rows = connection.execute(statement.order_by(*order).limit(page.limit + 1))
    return [_stored(row) for row in rows]


def forget(connection: Connection, project_id: str, file_id: str) -> StoredFile:
    """It is not there any more, and is about to be deleted. Raises `UnknownFile` or `FileInUse`."""
    file = find(connection, project_id, file_id, lock=True)
    reader = connection.execute(_is_read.where(_f.id == file_id).limit(1)).scalar_one_or_none()
    if reader is not None:
        raise FileInUse(file_id, reader)
    connection.execute(update(batch_files).where(_f.id == file_id).values(complete=False, expires_at=0))
    return file


def abandon(connection: Connection, file_id: str) -> bool:
    """One that was not finished is about to be deleted; False where it was finished."""
    connection.execute(update(batch_files).where(_f.id == file_id, ~_f.complete).values(expires_at=0))
    return connection.execute(select(_f.id).where(_f.id == file_id, _f.complete)).first() is None


def expired(connection: Connection, store: str, limit: int) -> list[str]:
    """Files of this store that are over, and read by no batch. From now on they are not there."""
    see(connection, store)
    statement = select(_f.id).where(_is_over, _f.store == store).order_by(_f.expires_at).limit(limit)
    found = list(connection.execute(statement.with_for_update(skip_locked=True)).scalars())
    # A batch that is made now does not find them.
    connection.execute(update(batch_files).where(_f.id.in_(found)).values(complete=False, expires_at=0))
    return found


def uncount_lost(connection: Connection, limit: int) -> int:
    """Files that are over in stores that no server reaches any more; how many. Their rows stay for a server that comes
    back with the store and deletes them; they take no room of their projects until then."""
    over = and_(_is_over, _f.counted, is_lost(_f.store))
    statement = select(_f.id, _f.project_id, _f.bytes).where(over).order_by(_f.expires_at).limit(limit)
    found = connection.execute(statement.with_for_update(skip_locked=True)).all()
    for row in found:
        gone = update(batch_files).where(_f.id == row.id)
        connection.execute(gone.values(complete=False, expires_at=0, counted=False))
        _count(connection, row.project_id, files=-1, size=-row.bytes)
    return len(found)


def unplaced(connection: Connection, after: str, limit: int) -> list[str]:
    """Files from before there were stores, by their ids."""
    statement = select(_f.id).where(_f.store == "", _f.id > after).order_by(_f.id).limit(limit)
    return list(connection.execute(statement).scalars())


def place(connection: Connection, store: str, file_ids: Collection[str]) -> None:
    """The store has the content of these, unless another one had it first."""
    see(connection, store)
    connection.execute(update(batch_files).where(_f.id.in_(file_ids), _f.store == "").values(store=store))


def delete_row(connection: Connection, file_id: str) -> None:
    """Deletes the row of a file that is not on disk any more."""
    gone = delete(batch_files).where(_f.id == file_id, ~_f.complete)
    for row in connection.execute(gone.returning(_f.project_id, _f.bytes, _f.counted)).all():
        if row.counted:
            _count(connection, row.project_id, files=-1, size=-row.bytes)


def count_result(connection: Connection, project_id: str, size: int) -> None:
    """Counts a line's result as a file's bytes until it is in one, whatever the project's bounds."""
    _count(connection, project_id, files=0, size=size)


def uncount(connection: Connection, project_id: str, size: int) -> None:
    """Results are in a file by now, or deleted."""
    left = case((_t.bytes > size, _t.bytes - size), else_=0)
    connection.execute(update(batch_file_totals).where(_t.project_id == project_id).values(bytes=left))


def check_room(connection: Connection, project_id: str, most_bytes: int) -> None:
    """Raises `ResultsFull` where the project has that many bytes already."""
    full = select(_t.project_id).where(_t.project_id == project_id, _t.bytes >= most_bytes)
    if connection.execute(full).first() is not None:
        raise ResultsFull(most_bytes)


def _beyond(last: StoredFile, oldest_first: bool) -> ColumnElement[bool]:
    at, id_ = _f.created_at, _f.id
    if oldest_first:
        return or_(at > last.created_at, and_(at == last.created_at, id_ > last.id))
    return or_(at < last.created_at, and_(at == last.created_at, id_ < last.id))


def _take(connection: Connection, file: StoredFile, bounds: FileBounds | None) -> None:
    most = bounds or FileBounds(2**31 - 1, 2**63 - 1)
    parameters = {
        "project_id": file.project_id,
        "bytes": file.size,
        "most": most.bytes,
        "most_files": most.files,
    }
    too_large = file.size > most.bytes or most.files < 1
    if too_large or not connection.execute(_TAKE[connection.dialect.name], parameters).rowcount:
        raise FilesFull(most_files=most.files, most_bytes=most.bytes)


def _count(connection: Connection, project_id: str, *, files: int, size: int) -> None:
    totals = update(batch_file_totals).where(_t.project_id == project_id)
    connection.execute(totals.values(files=_t.files + files, bytes=_t.bytes + size))


def _taking(dialect: str) -> Insert:
    made = inserting(dialect, batch_file_totals).values(
        project_id=bindparam("project_id"), files=1, bytes=bindparam("bytes")
    )
    taking: Insert = made.on_conflict_do_update(
        index_elements=["project_id"],
        set_={"files": _t.files + 1, "bytes": _t.bytes + made.excluded.bytes},
        where=and_(_t.files < bindparam("most_files"), _t.bytes <= bindparam("most") - made.excluded.bytes),
    )
    return taking


_TAKE = {dialect: _taking(dialect) for dialect in DIALECTS}


def _stored(row: Row[Any]) -> StoredFile:
    return StoredFile(
        row.id,
        row.project_id,
        row.filename,
        row.purpose,
        row.bytes,
        row.created_at,
        row.expires_at,
        row.store,
    )
