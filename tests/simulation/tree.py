"""The transparency log of the simulated world: every growth of it is compared with the ledger's rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from billing.transparency import log_sql
from billing.transparency.log_sql import LogDamaged
from billing.transparency.notes import BadNote, signer
from tests.billing.transparency.logged import due, leaves_of, signed
from tests.simulation.store import Store

SIGNER = signer(b"the secret of the simulated servers", "simulation")
_HEAD = "SELECT size, note FROM log_head"


class WatchedTree:
    """Remembers what was signed: a tree of a size is one for ever, and begins with each before it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._head: tuple[int, str] | None = None
        self._leaves: list[bytes] = []

    def look(self, *, anew: bool) -> Iterator[str]:
        """What is wrong with the tree, where it was signed anew; `anew`: wherever."""
        head = self._store.driver.execute(_HEAD).fetchone()
        if (head == self._head and not anew) or not head[1]:
            return
        self._head = head
        before, self._leaves = self._leaves, self._store.read(leaves_of)
        if self._leaves[: len(before)] != before:
            yield "leaves that were signed are not there any more, or elsewhere"
        entries = self._store.read(due)
        if Counter(self._leaves) != entries:
            yield f"{len(self._leaves)} leaves are signed, and {entries.total()} rows wait no more"
        yield from self._wrong_checkpoint()

    def _wrong_checkpoint(self) -> Iterator[str]:
        try:
            found = self._store.read(lambda c: signed(c, SIGNER))
            if (found.size, found.root) != (len(self._leaves), self._store.read(log_sql.read_tree).root()):
                yield f"the checkpoint of {found.size} leaves is not of the leaves that are there"
        except (BadNote, LogDamaged) as error:
            yield str(error)

    def waiting(self) -> int:
        (number,) = self._store.driver.execute("SELECT count(*) FROM log_pending").fetchone()
        return int(number)
