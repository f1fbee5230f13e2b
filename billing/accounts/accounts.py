"""Accounts: who a key belongs to, and how workspaces, projects and keys are made, listed and revoked."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection, Table

from billing.accounts import account_sql, audit_log, keys
from billing.accounts.account_lists import ListedKey, ListedProject, listed_keys, listed_projects
from billing.accounts.account_sql import KeyRecord, Project, StoredKey, Workspace
from billing.accounts.audit_log import AuditEntry
from billing.accounts.key_cache import KeyCache, KeyCacheTimes
from billing.caller import NO_LIMITS, Caller, ProjectLimits
from billing.clock import now as utc_now
from billing.errors import AccountExists, InvalidAccount, InvalidKey, RowRefused
from billing.store.database import Database, Work
from billing.store.schema import api_keys, projects, workspaces

Record = Workspace | Project | KeyRecord
A = TypeVar("A", Workspace, Project, KeyRecord)
Find = Callable[[Connection, str], A]

_KINDS: dict[type, str] = {Workspace: "workspace", Project: "project", KeyRecord: "key"}
# Balances change by themselves and are not settings.
_FIGURES = {"posted_nano_usd", "held_nano_usd", "collected_nano_usd", "month", "month_posted_nano_usd"}

MAX_NAME_CHARS = 64
MAX_LIMIT_NANO_USD = 2**63 - 1


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
        self._actor = actor
        self._clock = clock
        self._pepper = keys.check_pepper(pepper)
        self._cache = KeyCache(self._stored_key, cache_times or KeyCacheTimes())

    async def authenticate(self, token: str, *, now: datetime) -> Caller:
        """The caller behind a bearer token. Raises `InvalidKey`."""
        key = keys.parse(token)
        stored = await self._cache.get(key.key_id, now)
        # Compared against something in every case, so that the time taken reveals nothing about the id.
        fits = keys.matches(key, stored.digest if stored else "0" * 64, self._pepper)
        if stored is None or not fits:
            raise InvalidKey("unknown id" if stored is None else "wrong secret")
        if not stored.active:
            raise InvalidKey("revoked")
        return stored.caller

    async def create_workspace(
        self,
        name: str,
        *,
        spend_limit_nano_usd: int | None = None,
        monthly_limit_nano_usd: int | None = None,
        billing_enabled: bool = True,
        now: datetime,
    ) -> Workspace:
        return await self._create(
            "workspace",
            _checked_name(name),
            now,
            partial(
                account_sql.insert_workspace,
                name=name,
                spend_limit_nano_usd=_checked_limit("spend_limit_nano_usd", spend_limit_nano_usd),
                monthly_limit_nano_usd=_checked_limit("monthly_limit_nano_usd", monthly_limit_nano_usd),
                billing_enabled=billing_enabled,
                now=now,
            ),
        )

    async def create_project(
        self,
        workspace: str,
        name: str,
        *,
        metered: bool = True,
        limits: ProjectLimits = NO_LIMITS,
        now: datetime,
    ) -> Project:
        work = partial(
            account_sql.insert_project,
            workspace=workspace,
            name=name,
            metered=metered,
            limits=limits,
            now=now,
        )
        return await self._create("project", _checked_name(name), now, work)

    async def create_key(self, project: str, name: str, *, now: datetime) -> tuple[KeyRecord, str]:
        """The record and the token. The token cannot be recovered: only its HMAC is kept."""
        key = keys.mint()
        work = partial(
            account_sql.insert_key,
            project=project,
            key_id=key.key_id,
            name=_checked_name(name),
            digest=keys.digest(key, self._pepper),
            now=now,
        )
        return await self._create("key", name, now, work), key.token

    async def find_workspace(self, workspace: str) -> Workspace:
        return await self._database.read(lambda c: account_sql.find_workspace(c, workspace))

    async def find_project(self, project: str) -> Project:
        return await self._database.read(lambda c: account_sql.find_project(c, project))

    async def list_workspaces(self) -> list[Workspace]:
        return await self._database.read(account_sql.all_workspaces)

    async def list_projects(self, workspace: str | None = None) -> list[ListedProject]:
        return await self._database.read(lambda c: listed_projects(c, workspace))

    async def list_keys(self, workspace: str | None = None, project: str | None = None) -> list[ListedKey]:
        return await self._database.read(lambda c: listed_keys(c, workspace, project))

    async def set_spend_limits(
        self, workspace: str, *, spend_limit_nano_usd: int | None, monthly_limit_nano_usd: int | None
    ) -> Workspace:
        limits = {
            "spend_limit_nano_usd": _checked_limit("spend_limit_nano_usd", spend_limit_nano_usd),
            "monthly_limit_nano_usd": _checked_limit("monthly_limit_nano_usd", monthly_limit_nano_usd),
        }
        return await self._change(workspaces, account_sql.find_workspace, workspace, limits)

    async def set_billing(self, workspace: str, *, enabled: bool) -> Workspace:
        values = {"billing_enabled": enabled}
        return await self._change(workspaces, account_sql.find_workspace, workspace, values)

    async def set_metered(self, project: str, *, metered: bool) -> Project:
        return await self._change(projects, account_sql.find_project, project, {"metered": metered})

    async def set_project_limits(self, project: str, limits: ProjectLimits) -> Project:
        values = account_sql.limit_columns(limits)
        return await self._change(projects, account_sql.find_project, project, values)

    async def revoke_workspace(self, workspace: str, *, now: datetime) -> Workspace:
        """Ends every key of every project in it, within the cache's `ttl_s`. It cannot be undone."""
        return await self._revoke(workspaces, account_sql.find_workspace, workspace, now)

    async def revoke_project(self, project: str, *, now: datetime) -> Project:
        return await self._revoke(projects, account_sql.find_project, project, now)

    async def revoke_key(self, key: str, *, now: datetime) -> KeyRecord:
        """By the key's id, or by the whole key, which is what someone who found one has at hand."""
        key_id = keys.parse(key).key_id if key.startswith(f"{keys.PREFIX}_") else key
        return await self._revoke(api_keys, account_sql.find_key, key_id, now)

    async def _change(self, table: Table, find: Find[A], ref: str, values: Mapping[str, object]) -> A:
        def make(connection: Connection, row_id: str) -> None:
            account_sql.change(connection, table, row_id, values)

        return await self._alter("change", table, find, ref, make, self._clock())

    async def _revoke(self, table: Table, find: Find[A], ref: str, now: datetime) -> A:
        def make(connection: Connection, row_id: str) -> None:
            account_sql.revoke(connection, table, row_id, now)

        return await self._alter("revoke", table, find, ref, make, now)

    async def _alter(
        self,
        verb: str,
        table: Table,
        find: Find[A],
        ref: str,
        make: Callable[[Connection, str], None],
        now: datetime,
    ) -> A:
        """What `make` changes of one row, with its entry in the audit log, in one transaction."""

        def work(connection: Connection) -> A:
            row_id = find(connection, ref).id
            account_sql.lock(connection, table, row_id)
            before = find(connection, row_id)
            make(connection, row_id)
            after = find(connection, row_id)
            changed = _differences(before, after)
            if changed:
                self._note(connection, verb, after, changed, now)
            return after

        return await self._write_and_forget(work)

    def _note(
        self, connection: Connection, verb: str, record: Record, details: Mapping[str, Any], now: datetime
    ) -> None:
        action = f"{_KINDS[type(record)]}.{verb}"
        workspace_id = account_sql.workspace_of(connection, record)
        audit_log.record(connection, AuditEntry(now, self._actor, action, workspace_id, record.id, details))

    async def _write_and_forget(self, work: Work[A]) -> A:
        # Cleared even if it is unknown whether the write succeeded: the next request reads the current state.
        try:
            return await self._database.write(work)
        finally:
            self._cache.clear()

    async def _create(self, kind: str, name: str, now: datetime, make: Work[A]) -> A:
        def work(connection: Connection) -> A:
            made = make(connection)
            self._note(connection, "create", made, _settings(made), now)
            return made

        try:
            return await self._database.write(work)
        except RowRefused as error:
            raise AccountExists(kind, name) from error

    async def _stored_key(self, key_id: str) -> StoredKey | None:
        return await self._database.read(lambda c: account_sql.stored_key(c, key_id))


def _checked_name(name: str) -> str:
    """A name must be printable, and must not look like an id or like `workspace/project`."""
    if not 1 <= len(name) <= MAX_NAME_CHARS or not name.isprintable() or name != name.strip():
        raise InvalidAccount(f"name: must be 1 to {MAX_NAME_CHARS} printable characters, not {name!r}")
    if "/" in name or name.startswith(("ws_", "prj_")):
        raise InvalidAccount(f"name: must not contain '/' nor begin with 'ws_' or 'prj_', but is {name!r}")
    return name


def _checked_limit(field: str, limit: int | None) -> int | None:
    if limit is not None and not 0 <= limit <= MAX_LIMIT_NANO_USD:
        raise InvalidAccount(f"{field}: must be between 0 and {MAX_LIMIT_NANO_USD}, not {limit}")
    return limit


def _settings(record: Record) -> dict[str, Any]:
    """What an operator chose of an account, without its balances."""
    fields = asdict(record)
    limits = fields.pop("limits", {})
    return {name: value for name, value in (fields | limits).items() if name not in _FIGURES}


def _differences(before: Record, after: Record) -> dict[str, Any]:
    old, new = _settings(before), _settings(after)
    return {name: [old[name], value] for name, value in new.items() if old[name] != value}
