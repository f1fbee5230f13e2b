"""Deletes originals a few at a time, so that no transaction is long: those that expired, or all of a project."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, func, or_, select, update

from billing.store.database_clock import now_s
from billing.store.schema import original_chunks, original_totals, originals, projects, workspaces

HEADS_AT_ONCE = 64
# Two megabytes at the most.
CHUNKS_AT_ONCE = 32

_o = originals.c


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
