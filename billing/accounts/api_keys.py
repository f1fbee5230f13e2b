"""Keys as an operator makes, changes, rotates and revokes them."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, select

from billing.accounts import account_sql, audit_log, key_sql, keys
from billing.accounts.account_sql import Page
from billing.accounts.audit_log import AccountChanges, checked_name, workspace_of
from billing.accounts.key_sql import KeyRecord, ListedKey, listed_keys
from billing.accounts.keys import NO_TERMS, KeyChange, KeyTerms, checked_terms, moment_of
from billing.errors import AccountRevoked, InvalidAccount
from billing.store.dates import now_s
from billing.store.schema import api_keys, workspaces

MAX_OVERLAP = timedelta(days=366)


class ApiKeys:
    """The keys of one ledger. Methods that change something raise `UnknownAccount` and `LedgerUnavailable`."""

    def __init__(self, changes: AccountChanges, *, pepper: bytes) -> None:
        self._changes = changes
        self._pepper = pepper

    async def create(
        self, project: str, name: str, *, terms: KeyTerms = NO_TERMS, now: datetime
    ) -> tuple[KeyRecord, str]:
        """The record and the token, which cannot be recovered: only its HMAC is kept. Raises `InvalidAccount` and
        `AccountRevoked`."""
        key, name, terms = keys.mint(), checked_name(name), checked_terms(terms)
        digest = keys.digest(key, self._pepper)

        def make(connection: Connection) -> KeyRecord:
            return key_sql.insert_key(connection, project, key.key_id, name, digest, terms, now)

        return await self._changes.create("key", name, now, make), key.token

    async def change(self, key: str, change: KeyChange, *, now: datetime) -> KeyRecord:
        """Settings that are not named stay. It reaches every server within the time for which keys are cached. Raises
        `InvalidAccount`."""

        def work(connection: Connection) -> KeyRecord:
            before = _locked(connection, key)
            key_sql.set_terms(connection, before, change.applied_to(before.terms))
            after = key_sql.find_key(connection, before.id)
            return self._changes.noted(connection, "change", before, after, now)

        return await self._changes.write(work)

    async def rotate(
        self, key: str, *, overlap: timedelta, now: datetime
    ) -> tuple[KeyRecord, str, KeyRecord]:
        """A new key with the same powers, limits, balance and end, its token, and the old one, which ends after
        `overlap` by the database's clock, or as before where that is sooner. The end that an earlier rotation gave the
        old key is its own alone. Raises `InvalidAccount` and `AccountRevoked`."""
        if not timedelta(0) <= overlap <= MAX_OVERLAP:
            raise InvalidAccount(f"overlap: must be from 0 s to {MAX_OVERLAP.days} days")
        new = keys.mint()
        digest = keys.digest(new, self._pepper)

        def work(connection: Connection) -> tuple[KeyRecord, KeyRecord]:
            before = _locked(connection, key)
            if before.revoked_at is not None or before.has_expired:
                ended = before.revoked_at or before.terms.expires_at or now
                raise AccountRevoked("key", before.id, ended, wanted="key made from it")
            made = key_sql.insert_key(
                connection,
                before.project_id,
                new.key_id,
                before.name,
                digest,
                replace(before.terms, expires_at=_own_end(connection, before)),
                now,
                budget_key_id=before.limits_key_id,
            )
            key_sql.set_expiry(connection, before.id, _end_of(connection, before, overlap))
            old = key_sql.find_key(connection, before.id)
            details = {"key": made.id, "expires_at": [before.terms.expires_at, old.terms.expires_at]}
            self._changes.note(connection, "rotate", old, details, now)
            self._changes.note(connection, "create", made, {"rotated_from": old.id, "name": made.name}, now)
            return made, old

        made, old = await self._changes.write(work)
        return made, new.token, old

    async def revoke(self, key: str, *, now: datetime) -> KeyRecord:
        """By the key's id, or by the whole key, which is what someone who found one has at hand."""

        def make(connection: Connection, row_id: str) -> None:
            account_sql.revoke(connection, api_keys, row_id, now)

        return await self._changes.alter("revoke", api_keys, key_sql.find_key, id_of(key), make, now)

    async def find(self, key: str) -> KeyRecord:
        return await self._changes.database.read(lambda c: key_sql.find_key(c, id_of(key)))

    async def listed(
        self, workspace: str | None = None, project: str | None = None, page: Page | None = None
    ) -> list[ListedKey]:
        return await self._changes.database.read(lambda c: listed_keys(c, workspace, project, page))


def id_of(key: str) -> str:
    """The id of a key, given as that or as a whole. Raises `InvalidKey` for what begins as a key and is none."""
    return keys.parse(key).key_id if key.startswith(f"{keys.PREFIX}_") else key


def _locked(connection: Connection, key: str) -> KeyRecord:
    """The key, which nobody else changes until the transaction ends. Money moves in this order of locks too."""
    found = key_sql.find_key(connection, id_of(key))
    account_sql.lock(connection, workspaces, workspace_of(connection, found))
    for row_id in sorted({found.id, found.limits_key_id}):
        account_sql.lock(connection, api_keys, row_id)
    return key_sql.find_key(connection, found.id)


def _own_end(connection: Connection, key: KeyRecord) -> datetime | None:
    """When it ends apart from the overlaps of its rotations, as the audit log has it."""
    shared = connection.execute(key_sql.sharing(key.limits_key_id).where(api_keys.c.id != key.id).limit(1))
    if shared.one_or_none() is None:
        return key.terms.expires_at
    own: Any = key.terms.expires_at
    for entry in reversed(audit_log.entries(connection, subject=key.id)):
        if entry.action == "key.rotate":
            own = entry.details["expires_at"][0]
        elif "expires_at" in entry.details:
            break
    return datetime.fromisoformat(own) if isinstance(own, str) else own


def _end_of(connection: Connection, key: KeyRecord, overlap: timedelta) -> datetime | None:
    end = moment_of(connection.execute(select(now_s() + overlap.total_seconds())).scalar_one())
    set_already = key.terms.expires_at
    return end if set_already is None or end is None else min(end, set_already)
