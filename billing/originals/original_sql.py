"""The SQL of one original: it is begun, its chunks are added, and it is there once it was finished.

A writer that dies leaves an original that is not complete. It has expired `grace_s` after it was begun, and is deleted
like any other.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import (
    ColumnElement,
    Connection,
    Insert,
    Row,
    bindparam,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from billing.errors import OriginalsFull
from billing.store.dates import now_s
from billing.store.schema import original_chunks, original_totals, originals, projects, workspaces
from billing.store.statements import DIALECTS, inserting

# What an original counts beyond its text, so that a million tiny ones are bounded too.
OVERHEAD_BYTES = 1024
# A chunk's place in the text, and its ciphertext.
Chunk = tuple[int, bytes]
# "busy": another writer is writing it. "expired": its rest has to be deleted first.
Begun = Literal["begun", "busy", "expired"]

_o = originals.c
_now = now_s()
_until = now_s() + bindparam("retain_s")
_is_this = (_o.project_id == bindparam("of_project")) & (_o.id == bindparam("of_id"))
_is_there = _o.complete & (_o.expires_at > _now)


@dataclass(frozen=True, slots=True)
class Head:
    """An original without its text, which has `characters` in `chunks`. `generation` names this writing of it, and
    `size` is its text's in bytes."""

    project_id: str
    id: str
    generation: str
    characters: int
    chunks: int
    size: int


# Built once: SQLAlchemy takes longer to build these than to run them.
_EXTEND = (
    update(originals)
    .where(_o.project_id == bindparam("of_project"), _o.id.in_(bindparam("ids", expanding=True)), _is_there)
    .values(expires_at=case((_o.expires_at > _until, _o.expires_at), else_=_until))
    .returning(_o.id, _o.expires_at)
)
_FINISH = (
    update(originals)
    .where(_o.generation == bindparam("of_generation"), ~_o.complete, _o.expires_at > _now)
    .values(complete=True, expires_at=_until)
    .returning(_o.expires_at)
)
_ABANDON = (
    update(originals).where(_o.generation == bindparam("of_generation"), ~_o.complete).values(expires_at=0)
)
_HAS_EXPIRED = select(_o.expires_at <= _now).where(_is_this)
_FIND = select(originals).where(_is_this, _is_there)
_CHUNKS = (
    select(original_chunks.c.ciphertext)
    .where(
        original_chunks.c.generation == bindparam("of_generation"),
        original_chunks.c.number.between(bindparam("first"), bindparam("last")),
    )
    .order_by(original_chunks.c.number)
)


def extend(connection: Connection, project_id: str, ids: Collection[str], retain_s: int) -> dict[str, float]:
    """Extends stored originals to at least `retain_s` from now. Returns when each of them expires."""
    parameters = {"of_project": project_id, "ids": sorted(ids), "retain_s": retain_s}
    return {row.id: row.expires_at for row in connection.execute(_EXTEND, parameters)}


def begin(connection: Connection, head: Head, *, grace_s: float, most_bytes: int) -> Begun:
    """Makes room for the original and lets its chunks in. Raises `OriginalsFull`."""
    values = {
        "project_id": head.project_id,
        "id": head.id,
        "generation": head.generation,
        "characters": head.characters,
        "chunks": head.chunks,
        "bytes": head.size + OVERHEAD_BYTES,
        "complete": False,
        "grace_s": grace_s,
    }
    if connection.execute(_INSERT[connection.dialect.name], values).rowcount:
        _take(connection, head, most_bytes)
        return "begun"
    whose = {"of_project": head.project_id, "of_id": head.id}
    return "expired" if connection.execute(_HAS_EXPIRED, whose).scalar_one_or_none() else "busy"


def add(connection: Connection, generation: str, chunks: Sequence[Chunk]) -> None:
    """Raises `RowRefused` through the database where the original was deleted meanwhile."""
    rows = [{"generation": generation, "number": number, "ciphertext": sealed} for number, sealed in chunks]
    connection.execute(insert(original_chunks), rows)


def finish(connection: Connection, generation: str, retain_s: int) -> float | None:
    """Makes it readable; until when, in seconds since 1970. None where it took too long and has expired."""
    return connection.execute(
        _FINISH, {"of_generation": generation, "retain_s": retain_s}
    ).scalar_one_or_none()


def abandon(connection: Connection, generation: str) -> None:
    """Leaves what was not finished to the next deletion."""
    connection.execute(_ABANDON, {"of_generation": generation})


def find(connection: Connection, project_id: str, id_: str) -> Head | None:
    """The original, where it is there and has not expired."""
    row = connection.execute(_FIND, {"of_project": project_id, "of_id": id_}).one_or_none()
    if row is None:
        return None
    size = row.bytes - OVERHEAD_BYTES
    return Head(row.project_id, row.id, row.generation, row.characters, row.chunks, size)


def chunks(connection: Connection, generation: str, first: int, last: int) -> list[bytes]:
    """The ciphertexts from `first` to `last`, both included; fewer where some were deleted."""
    parameters = {"of_generation": generation, "first": first, "last": last}
    return list(connection.execute(_CHUNKS, parameters).scalars())


def _take(connection: Connection, head: Head, most_bytes: int) -> None:
    size = head.size + OVERHEAD_BYTES
    parameters = {"project_id": head.project_id, "bytes": size, "most_bytes": most_bytes}
    if size > most_bytes or not connection.execute(_TAKE[connection.dialect.name], parameters).rowcount:
        raise OriginalsFull(most_bytes)


def _inserting(dialect: str) -> Insert:
    values: dict[str, Any] = {
        name: bindparam(name)
        for name in ("project_id", "id", "generation", "characters", "chunks", "bytes", "complete")
    }
    new = inserting(dialect, originals).values(**values, expires_at=_now + bindparam("grace_s"))
    made: Insert = new.on_conflict_do_nothing(index_elements=["project_id", "id"])
    return made


def _taking(dialect: str) -> Insert:
    made = inserting(dialect, original_totals).values(
        project_id=bindparam("project_id"), bytes=bindparam("bytes")
    )
    together = original_totals.c.bytes + made.excluded.bytes
    taking: Insert = made.on_conflict_do_update(
        index_elements=["project_id"], set_={"bytes": together}, where=together <= bindparam("most_bytes")
    )
    return taking


_INSERT = {dialect: _inserting(dialect) for dialect in DIALECTS}
_TAKE = {dialect: _taking(dialect) for dialect in DIALECTS}


HEADS_AT_ONCE = 64
# Two megabytes at the most.
CHUNKS_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Deleted:
    """What one step deleted: complete originals, and those that were never finished. Unless `is_all`, call again."""

    complete: int
    unfinished: int
    is_all: bool = False


@dataclass(frozen=True, slots=True)
class Retained:
    """What a project has."""

    originals: int
    bytes: int


def expired() -> ColumnElement[bool]:
    return _o.expires_at <= now_s()


def of_project(project_id: str) -> ColumnElement[bool]:
    return _o.project_id == project_id


def named(project_id: str, id_: str) -> ColumnElement[bool]:
    """The rest of an expired original."""
    return (_o.project_id == project_id) & (_o.id == id_) & expired()


def delete_some(connection: Connection, which: ColumnElement[bool], *, waits: bool) -> Deleted:
    """One step. Rows that a writer or another server has locked are waited for; with `waits` false they are skipped."""
    heads = connection.execute(
        select(originals)
        .where(which)
        .order_by(_o.expires_at)
        .limit(HEADS_AT_ONCE)
        .with_for_update(skip_locked=not waits)
    ).all()
    if not heads:
        return Deleted(0, 0, is_all=True)
    whole = _that_fit(heads)
    if whole:
        _delete_chunks(connection, whole)
        return _delete_heads(connection, whole)
    return _shrink(connection, heads[0])


def retained(connection: Connection, project_id: str) -> Retained:
    counting = select(func.count(), func.coalesce(func.sum(_o.bytes), 0)).where(_o.project_id == project_id)
    count, size = connection.execute(counting).one()
    return Retained(int(count), int(size))


def revoked_projects(connection: Connection) -> list[str]:
    """Projects that were revoked, by themselves or with their workspace, and still have originals."""
    statement = (
        select(original_totals.c.project_id)
        .join(projects, projects.c.id == original_totals.c.project_id)
        .join(workspaces, workspaces.c.id == projects.c.workspace_id)
        .where(original_totals.c.bytes > 0)
        .where(or_(projects.c.revoked_at.is_not(None), workspaces.c.revoked_at.is_not(None)))
    )
    return list(connection.execute(statement).scalars())


def _that_fit(heads: Sequence[Row[Any]]) -> list[Row[Any]]:
    """The first of them that have no more chunks together than one step deletes."""
    fitting, count = [], 0
    for head in heads:
        count += head.chunks
        if count > CHUNKS_AT_ONCE:
            break
        fitting.append(head)
    return fitting


def _shrink(connection: Connection, head: Row[Any]) -> Deleted:
    """Some chunks of a large original, which cannot be read from now on."""
    mine = original_chunks.c.generation == head.generation
    some = (
        select(original_chunks.c.number).where(mine).order_by(original_chunks.c.number).limit(CHUNKS_AT_ONCE)
    )
    gone = connection.execute(
        delete(original_chunks).where(mine, original_chunks.c.number.in_(some))
    ).rowcount
    if gone < CHUNKS_AT_ONCE:
        return _delete_heads(connection, [head])
    connection.execute(update(originals).where(_o.generation == head.generation).values(expires_at=0))
    return Deleted(0, 0)


def _delete_chunks(connection: Connection, heads: Sequence[Row[Any]]) -> None:
    generations = [head.generation for head in heads]
    connection.execute(delete(original_chunks).where(original_chunks.c.generation.in_(generations)))


def _delete_heads(connection: Connection, heads: Sequence[Row[Any]]) -> Deleted:
    connection.execute(delete(originals).where(_o.generation.in_([head.generation for head in heads])))
    freed: dict[str, int] = defaultdict(int)
    for head in heads:
        freed[head.project_id] += head.bytes
    # Sorted, since two servers that lock the same totals in different orders would deadlock.
    for project_id in sorted(freed):
        totals = update(original_totals).where(original_totals.c.project_id == project_id)
        connection.execute(totals.values(bytes=original_totals.c.bytes - freed[project_id]))
    complete = sum(head.complete for head in heads)
    return Deleted(complete, len(heads) - complete)
