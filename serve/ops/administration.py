"""Administrators: the keys that let them in, and what they work with, which is what the `pith` command calls too."""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from billing.errors import InvalidKey
from billing.ledger.spool import Spool
from billing.store.database import Database
from billing.store.durable_files import make_once
from billing.store.private_files import make_file_private
from serve.config.settings import Settings
from serve.http.auth import MissingKey, WrongKeys, bearer_key, client_of
from serve.http.errors import WrongAdminKey
from serve.operator.adapters import ServedAdapters
from serve.operator.operator import Operator

FILE = "admin-key"
PREFIX = "pith_admin_"
# A shorter one could be guessed.
MIN_CHARS = 32
MOST_KEYS = 20


class AdminKeys:
    """The keys in one file. Lines that begin with `#` are comments; without a usable key nobody is let in."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at: tuple[int, int] | None = None
        self._actors: dict[bytes, str] = {}

    def actor_of(self, given: str) -> str:
        """The holder's name in the audit log. Compared in constant time with every key. Raises `WrongAdminKey`."""
        digest, found = _digest(given), None
        for known, actor in self._current().items():
            if hmac.compare_digest(digest, known):
                found = actor
        if found is None:
            raise WrongAdminKey
        return found

    def _current(self) -> dict[bytes, str]:
        try:
            stat = self._path.stat()
            stamp = (stat.st_mtime_ns, stat.st_size)
            if stamp != self._read_at:
                lines = self._path.read_text(encoding="utf-8").split("\n")
                self._actors, self._read_at = _keys(lines), stamp
        except (OSError, UnicodeDecodeError):
            # Fails closed: a file that is gone ends its keys.
            self._actors, self._read_at = {}, None
        return self._actors


def make_admin_key(path: Path) -> None:
    """A new key in the file (mode 0600) where there is none yet. Raises `OSError`."""
    if path.exists():
        make_file_private(path)
    else:
        make_once(path, f"{PREFIX}{secrets.token_hex(32)}\n".encode("ascii"))


def _keys(lines: list[str]) -> dict[bytes, str]:
    """Names of actors by the digests of their keys; a name says nothing of the secret."""
    keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return {
        _digest(key): f"admin:{_digest(key).hex()[:8]}" for key in keys[:MOST_KEYS] if len(key) >= MIN_CHARS
    }


def _digest(key: str) -> bytes:
    return hashlib.sha256(b"pith-admin-key-v1:" + key.encode()).digest()


@dataclass(frozen=True, slots=True)
class Ledgers:
    """The databases of the server, opened once for all requests."""

    # A reload changes them.
    in_force: Callable[[], Settings]
    database: Database
    # For what reads all of a ledger, which may take minutes.
    patient: Database
    spool: Spool
    pepper: bytes
    clock: Callable[[], datetime]
    adapters: Callable[[], ServedAdapters | None] = lambda: None

    def operator(self, actor: str) -> Operator:
        """With the settings that are in force now."""
        return Operator(
            actor,
            self.in_force(),
            self.database,
            self.patient,
            self.spool,
            lambda: self.pepper,
            self.clock,
            self.adapters(),
        )

    async def close(self) -> None:
        await self.database.close()
        await self.patient.close()
        await self.spool.close()


class Gate:
    """Lets administrators in. Wrong keys are throttled by the address that they come from."""

    def __init__(self, ledgers: Callable[[], Ledgers], keys: AdminKeys) -> None:
        self._ledgers = ledgers
        self._keys = keys
        self._wrong = WrongKeys()

    def admitted(self, request: Request) -> Operator:
        """Raises `MissingKey`, `WrongAdminKey` or `TooManyWrongKeys`."""
        try:
            given = bearer_key(request.headers.get("authorization"))
        except MissingKey:
            raise MissingKey("send an admin key as: Authorization: Bearer <ADMIN_KEY>") from None
        ledgers = self._ledgers()
        try:
            return ledgers.operator(self._keys.actor_of(given))
        except WrongAdminKey as wrong:
            client = client_of(request.client.host if request.client else None)
            counted = self._wrong.add(client, InvalidKey("admin key"), now=ledgers.clock())
            raise (wrong if isinstance(counted, InvalidKey) else counted) from None


async def _admitted(request: Request) -> Operator:
    operator: Operator = request.state.operator
    return operator


# Whom the gate has let in before anything of the request was read.
Caller = Annotated[Operator, Depends(_admitted)]
