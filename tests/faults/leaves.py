"""The transparency log after a run: each event and adjustment of its workspaces is one leaf, under a signed root."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, select

from billing.store.database import use_one_snapshot
from billing.transparency import log_sql
from billing.transparency.leaves import leaf
from billing.transparency.log_sql import LOGGED, LogDamaged
from billing.transparency.notes import BadNote, checkpoint
from tests.billing.transparency.logged import leaves_of


@dataclass
class Leaves:
    """`found` are of the workspaces, of all that are in the tree."""

    found: int = 0
    lost: int = 0
    doubled: int = 0
    troubles: list[str] = field(default_factory=list)


def leaves_of_workspaces(connection: Connection, workspaces: Sequence[str]) -> Leaves:
    use_one_snapshot(connection)
    in_tree = Counter(leaves_of(connection))
    found = Leaves(doubled=in_tree.total() - len(in_tree))
    for table, _ in LOGGED:
        for row in connection.execute(select(table).where(table.c.workspace_id.in_(workspaces))).mappings():
            times = in_tree[leaf(row).entry]
            found.found += times > 0
            found.lost += times == 0
    if found.lost or found.doubled:
        found.troubles.append(f"{found.lost} leaves are lost, and {found.doubled} doubled")
    try:
        head = log_sql.head(connection)
        signed, root = checkpoint(head.note), log_sql.read_tree(connection).root()
        if (signed.size, signed.root, signed.root) != (head.size, head.root, root):
            found.troubles.append(f"the checkpoint of {signed.size} leaves is of another tree")
    except (BadNote, LogDamaged) as error:
        found.troubles.append(f"the log: {error}")
    return found
