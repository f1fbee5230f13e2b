"""Which keys were used since it was last written down: kept in memory, so that no request waits for it or fails with
it, and written in the background."""

from functools import partial

from billing.accounts.key_sql import note_uses
from billing.store.database import Database, PatientWork

# In one transaction.
AT_ONCE = 500
# Of those used most recently; a use beyond them is not noted.
MAX_KEYS = 10_000


class KeyUses:
    """The keys that were seen. What a process has seen and not written is lost when it dies: a use shows late, or the
    next one does."""

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}

    def add(self, key_id: str) -> None:
        if key_id in self._seen or len(self._seen) < MAX_KEYS:
            self._seen[key_id] = None

    async def note(self, database: Database) -> None:
        """Write down what was seen since. Raises `LedgerUnavailable`, and then it is kept for the next time."""
        while self._seen:
            some = list(self._seen)[:AT_ONCE]
            for key_id in some:
                del self._seen[key_id]
            try:
                await database.write(PatientWork(partial(note_uses, key_ids=some)), durable=False)
            except BaseException:
                for key_id in some:
                    self.add(key_id)
                raise
