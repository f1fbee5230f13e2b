"""Accounts: who a key belongs to, and how workspaces, projects and keys are made, listed and revoked."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import Connection, Table, select

from billing.accounts import account_sql, audit_log, key_sql, keys
from billing.accounts.account_sql import Page, Project, Workspace
from billing.accounts.audit_log import A, AccountChanges, Find, checked_name, workspace_of
from billing.accounts.key_cache import KeyCache, KeyCacheTimes, KeyUses
from billing.accounts.key_sql import (
    KeyRecord,
    ListedKey,
    ListedProject,
    StoredKey,
    listed_keys,
    listed_projects,
)
from billing.accounts.keys import (
    NO_TERMS,
    SPEND_LIMITS,
    KeyChange,
    KeyTerms,
    check_spend_limit,
    checked_terms,
    moment_of,
)
from billing.caller import EACH_PERSON, LIMITS, NO_LIMITS, RATES, Caller, ProjectLimits
from billing.errors import AccountRevoked, InvalidAccount, InvalidKey
from billing.labels import TAG_WORDS, is_tag
from billing.periods import UnknownTimeZone, time_zone
from billing.store.database import Database
from billing.store.dates import now_s
from billing.store.schema import api_keys, projects, workspaces
from billing.usage import now as utc_now

# It is read with every key.
MAX_COMPRESSION_CHARS = 4096
MAX_ALLOWED_TAGS = 100
# `GET /v1/limits` asks for each of them.
MAX_LABEL_RATES = 20
MAX_LABEL_RATE = 2**53


def workspace_columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """The named settings of a workspace, as its row has them. Raises `InvalidAccount`."""
    _refuse_others("workspace", values, (*SPEND_LIMITS, *RATES, "billing_enabled", "time_zone"))
    _check_rates(values)
    try:
        time_zone(values.get("time_zone", "UTC"))
    except UnknownTimeZone as error:
        raise InvalidAccount(str(error)) from error
    for name in SPEND_LIMITS:
        check_spend_limit(name, values.get(name))
    return dict(values)


def project_columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """The named settings of a project, as its row has them. Raises `InvalidAccount`."""
    switches = ("metered", "proof", "person_required")
    _refuse_others("project", values, (*LIMITS, *switches, "compression", "allowed_tags", "label_rates"))
    _check_rates(values)
    compression = values.get("compression")
    if compression is not None and not 1 <= len(compression) <= MAX_COMPRESSION_CHARS:
        raise InvalidAccount(
            f"compression: must have 1 to {MAX_COMPRESSION_CHARS} characters, not {len(compression)}"
        )
    columns = dict(values)
    if columns.get("allowed_tags") is not None:
        columns["allowed_tags"] = _stored_tags(columns["allowed_tags"])
    if columns.get("label_rates") is not None:
        columns["label_rates"] = _stored_rates(columns["label_rates"])
    return columns


def _check_rates(values: Mapping[str, Any]) -> None:
    try:
        ProjectLimits(**{name: values[name] for name in LIMITS if name in values})
    except ValueError as error:
        raise InvalidAccount(str(error)) from error


def _stored_rates(by_label: Any) -> str | None:
    if not isinstance(by_label, dict) or not all(isinstance(rates, dict) for rates in by_label.values()):
        raise InvalidAccount("label_rates: must be an object of rate limits by tag, or * for each person")
    if len(by_label) > MAX_LABEL_RATES or not all(one == EACH_PERSON or is_tag(one) for one in by_label):
        raise InvalidAccount(
            f"label_rates: must be of at most {MAX_LABEL_RATES} of *, and tags of {TAG_WORDS}"
        )
    for label, rates in by_label.items():
        _refuse_others("tag or a person", rates, RATES)
        _check_rates(rates)
        if max(filter(None, rates.values()), default=0) > MAX_LABEL_RATE:
            raise InvalidAccount(f"label_rates: {label}: a limit must be at most {MAX_LABEL_RATE}")
    set_ = {label: {name: rate for name, rate in rates.items() if rate} for label, rates in by_label.items()}
    return json.dumps(set_) if set_ else None


def _stored_tags(tags: Collection[str]) -> str:
    if len(tags) > MAX_ALLOWED_TAGS or not all(map(is_tag, tags)):
        raise InvalidAccount(f"allowed_tags: must be at most {MAX_ALLOWED_TAGS} tags, each of {TAG_WORDS}")
    return ",".join(sorted(set(tags)))


def _refuse_others(kind: str, values: Mapping[str, Any], settings: tuple[str, ...]) -> None:
    for name in values:
        if name not in settings:
            raise InvalidAccount(f"{name}: a {kind} has no such setting")


class Accounts:
    """The accounts of one ledger. Refer to them by id or by name: `acme`, and `acme/search` for a project.

    Every method raises `LedgerUnavailable`; those that take an id or a name `UnknownAccount`; those that make
    something `AccountExists`, `InvalidAccount` and, in what was revoked, `AccountRevoked`. Every change is in the audit
    log, as made by `actor`.
    """

    def __init__(
        self,
        database: Database,
        *,
        pepper: bytes,
        cache_times: KeyCacheTimes | None = None,
        actor: str = "server",
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._database = database
        self._clock = clock
        self._pepper = keys.check_pepper(pepper)
        self._cache = KeyCache(self._stored_key, cache_times or KeyCacheTimes())
        self._changes = AccountChanges(database, actor, self._cache.clear)
        self._uses = KeyUses()
        self.keys = ApiKeys(self._changes, pepper=self._pepper)

    async def authenticate(self, token: str, *, now: datetime) -> Caller:
        """The caller behind a bearer token. Raises `InvalidKey`."""
        key = keys.parse(token)
        stored = await self._cache.get(key.key_id, now)
        # Compared against something in every case, so that the time taken reveals nothing about the id.
        fits = keys.matches(key, stored.digest if stored else "0" * 64, self._pepper)
        if stored is None or not fits:
            raise InvalidKey("unknown id" if stored is None else "wrong secret")
        if not stored.active:
            raise InvalidKey("revoked or expired")
        self._uses.add(key.key_id)
        return stored.caller

    async def caller_of(self, key_id: str, *, now: datetime) -> Caller:
        """The caller in whose name work goes on that was asked for with this key. Raises `InvalidKey` where it was
        revoked or has expired."""
        stored = await self._cache.get(key_id, now)
        if stored is None or not stored.active:
            raise InvalidKey("unknown id" if stored is None else "revoked or expired")
        return stored.caller

    async def create_workspace(self, name: str, *, now: datetime, **settings: Any) -> Workspace:
        """`settings` as `change_workspace` takes them."""
        columns = workspace_columns(settings)
        work = partial(account_sql.insert_workspace, name=name, settings=columns, now=now)
        return await self._changes.create("workspace", checked_name(name), now, work)

    async def create_project(
        self, workspace: str, name: str, *, limits: ProjectLimits = NO_LIMITS, now: datetime, **settings: Any
    ) -> Project:
        """`settings` as `change_project` takes them, beside `limits`."""
        columns = project_columns(asdict(limits) | settings)
        work = partial(account_sql.insert_project, workspace=workspace, name=name, settings=columns, now=now)
        return await self._changes.create("project", checked_name(name), now, work)

    async def find_workspace(self, workspace: str) -> Workspace:
        return await self._database.read(lambda c: account_sql.find_workspace(c, workspace))

    async def find_project(self, project: str) -> Project:
        return await self._database.read(lambda c: account_sql.find_project(c, project))

    async def list_workspaces(self, page: Page | None = None) -> list[Workspace]:
        return await self._database.read(lambda c: account_sql.all_workspaces(c, page))

    async def list_projects(
        self, workspace: str | None = None, page: Page | None = None
    ) -> list[ListedProject]:
        return await self._database.read(lambda c: listed_projects(c, workspace, page))

    async def change_workspace(self, workspace: str, values: Mapping[str, Any]) -> Workspace:
        """Its limits, whether it may be charged and its time zone, by the names of `ProjectLimits` and `Workspace`;
        what is not named stays as it is by then, whoever else changes it."""
        columns = workspace_columns(values)
        return await self._change(workspaces, account_sql.find_workspace, workspace, columns)

    async def change_project(self, project: str, values: Mapping[str, Any]) -> Project:
        """Its limits, weight, compression, whether it is metered and whether its replies carry promises, and what its
        requests name, by the names of `ProjectLimits` and `Project`; what is not named stays as it is by then."""
        return await self._change(projects, account_sql.find_project, project, project_columns(values))

    async def revoke_workspace(self, workspace: str, *, now: datetime) -> Workspace:
        """Ends every key of every project in it, within the cache's `ttl_s`. It cannot be undone."""
        return await self._revoke(workspaces, account_sql.find_workspace, workspace, now)

    async def revoke_project(self, project: str, *, now: datetime) -> Project:
        return await self._revoke(projects, account_sql.find_project, project, now)

    async def note_uses(self) -> None:
        """Notes the last use of the keys that were seen since the last call. Raises `LedgerUnavailable`, and then they
        are noted the next time."""
        await self._uses.note(self._database)

    async def _change(self, table: Table, find: Find[A], ref: str, values: Mapping[str, object]) -> A:
        def make(connection: Connection, row_id: str) -> None:
            if values:
                account_sql.change(connection, table, row_id, values)

        return await self._changes.alter("change", table, find, ref, make, self._clock())

    async def _revoke(self, table: Table, find: Find[A], ref: str, now: datetime) -> A:
        def make(connection: Connection, row_id: str) -> None:
            account_sql.revoke(connection, table, row_id, now)

        return await self._changes.alter("revoke", table, find, ref, make, now)

    async def _stored_key(self, key_id: str) -> StoredKey | None:
        return await self._database.read(lambda c: key_sql.stored_key(c, key_id, self._pepper))


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
