"""Keys changed over the admin API while the service is under load and broken: each call until it is answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from prometheus_client import CollectorRegistry
from sqlalchemy import bindparam, text

from billing.books.invariants import differences
from billing.store.database import Database, open_database
from serve.config.settings import Settings
from serve.ops.app import open_ops
from tests.faults.postgres import free_port

TIMEOUT_S = 30.0
RETRY_S = 0.05
# The first key's never stands in a request's way; the others' are reached, and raised.
FIRST_LIMIT_USD, LIMIT_USD, RAISE_USD = 1000.0, (0.005, 0.1), (0.001, 0.02)
OVERLAP_S = 3600
_KEYS = text(
    "SELECT k.id, k.revoked_at FROM api_keys k JOIN projects p ON p.id = k.project_id "
    "WHERE p.workspace_id IN :workspaces"
).bindparams(bindparam("workspaces", expanding=True))


@asynccontextmanager
async def administering(
    settings: Settings, workspaces: Sequence[str], tokens: Sequence[str], rng: random.Random
) -> AsyncIterator[list[str]]:
    """An administrator goes on inside the block. Its list has what was wrong, once the block has ended."""
    settings = settings.model_copy(
        update={"ops": settings.ops.model_copy(update={"port": free_port(), "admin_key_file": None})}
    )
    close = open_ops(settings, CollectorRegistry())
    key = (settings.state_dir / "admin-key").read_text().strip()
    url = f"http://127.0.0.1:{settings.ops.port}/admin/v1"
    troubles: list[str] = []
    headers = {"Authorization": f"Bearer {key}"}
    try:
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=TIMEOUT_S) as client:
            administrator = Administrator(client, [token.split("_")[1] for token in tokens], rng)
            await administrator.limit_keys()
            going_on = asyncio.create_task(administrator.administer())
            try:
                yield troubles
            finally:
                administrator.stop()
                await going_on
        troubles += administrator.troubles
        troubles += await _troubles_in(settings.billing.database_url, workspaces, administrator)
    finally:
        await asyncio.to_thread(close)


@dataclass
class Administrator:
    """Raises limits, and makes, rotates and revokes keys. `keys` are those of the load: they stay in use."""

    client: httpx.AsyncClient
    keys: Sequence[str]
    rng: random.Random
    made: list[str] = field(default_factory=list)
    revoked: set[str] = field(default_factory=set)
    troubles: list[str] = field(default_factory=list)
    calls: int = 0
    _limits: dict[str, float] = field(default_factory=dict)
    _stopping: bool = False

    async def limit_keys(self) -> None:
        """Before the load: what is posted is within the limit from the beginning."""
        for number, key in enumerate(self.keys):
            await self._set_limit(key, FIRST_LIMIT_USD if number == 0 else self.rng.uniform(*LIMIT_USD))

    async def administer(self) -> None:
        while not self._stopping:
            await self.rng.choice((self._raise, self._raise, self._make, self._rotate, self._revoke))()

    def stop(self) -> None:
        self._stopping = True

    async def _raise(self) -> None:
        key = self.rng.choice(self.keys)
        await self._set_limit(key, self._limits[key] + self.rng.uniform(*RAISE_USD))

    async def _set_limit(self, key: str, usd: float) -> None:
        self._limits[key] = usd
        await self._call("PATCH", f"/keys/{key}", {"spend_limit_usd": f"{usd:.9f}"})

    async def _make(self) -> None:
        owner = await self._call("GET", f"/keys/{self.rng.choice(self.keys)}")
        made = await self._call(
            "POST", "/keys", {"project": owner["project_id"], "name": "made", "spend_limit_usd": "1"}
        )
        self.made.append(made["id"])

    async def _rotate(self) -> None:
        key = self.rng.choice([*self.keys, *(one for one in self.made if one not in self.revoked)])
        rotated = await self._call("POST", f"/keys/{key}/rotate", {"overlap_s": OVERLAP_S})
        self.made.append(rotated["id"])

    async def _revoke(self) -> None:
        left = [key for key in self.made if key not in self.revoked]
        if left:
            key = self.rng.choice(left)
            await self._call("POST", f"/keys/{key}/revoke")
            self.revoked.add(key)

    async def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        while True:
            reply = await self.client.request(method, path, json=body)
            if reply.status_code != 503:
                break
            # The ledger is away.
            await asyncio.sleep(RETRY_S)
        self.calls += 1
        if not reply.is_success:
            self.troubles.append(f"{method} {path} was answered {reply.status_code}: {reply.text[:300]}")
            return {"id": "", "project_id": ""}
        return reply.json()


async def _troubles_in(url: str, workspaces: Sequence[str], administrator: Administrator) -> list[str]:
    database = open_database(url)
    try:
        return await _judged(database, workspaces, administrator)
    finally:
        await database.close()


async def _judged(database: Database, workspaces: Sequence[str], administrator: Administrator) -> list[str]:
    wanted = {"workspaces": list(workspaces)}
    rows = await database.read(lambda c: c.execute(_KEYS, wanted).all())
    there = {row.id: row.revoked_at for row in rows}
    troubles = [f"key {key} was made and is not there" for key in administrator.made if key not in there]
    troubles += [f"key {key} was revoked and is not" for key in administrator.revoked if not there.get(key)]
    troubles += [f"a balance does not add up: {one}" for one in await database.read(differences)]
    if not administrator.made or not administrator.calls:
        troubles.append("no key was made")
    return troubles
