"""The service with all its routes, accounts with a limit that is used up, and which of their requests are let in."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from sqlalchemy import text

from billing.accounts.keys import ROUTE_NAMES, KeyChange, KeyTerms
from billing.books.invariants import differences
from billing.caller import KeyPowers
from billing.errors import LedgerUnavailable
from billing.ledger.budget_settings import Budgets, BudgetScope
from models.fake_engine import FakeEngine
from tests.migrated import migrated_file
from tests.serve.compressing import DemoClient, ReadyModel, local_model
from tests.serve.money.bypass.limits import BUDGET_OWNERS, Kind, Limit, answer_of
from tests.serve.money.bypass.shapes import CHAT_NANO_USD, LABELS, SHAPES, SPENT_TOKENS, TAG, Shape
from tests.serve.retrieval.serving import LEXICAL, MODELS, FakeRetrieval
from tests.serve.served import Client, Gate, Served, at_rest, model_document, serving

# The rotated keys may do what the matrix asks of them, and nothing else.
POWERS = KeyPowers(
    frozenset({"alpha", "small", "order", "lexical"}), frozenset(ROUTE_NAMES) - {"models", "usage"}
)
LASTING = timedelta(days=1)
# Ids of requests that use a limit up, and of those that it spares.
SPENDING, LET_IN = "spending", "let in"


@dataclass
class Account:
    """A workspace with a project that is metered and one that is not, and their keys, each with its terms."""

    house: House
    name: str
    tokens: dict[Kind, str] = field(default_factory=dict)
    ids: dict[Kind, str] = field(default_factory=dict)

    async def budget(self, scope: BudgetScope, period: Any) -> None:
        budgets = Budgets(self.house.served.database, "test")
        for owner in BUDGET_OWNERS[scope](self):
            tag = TAG if scope == "tag" else None
            await budgets.set(scope, owner, period, CHAT_NANO_USD, now=datetime.now(UTC), tag=tag)

    async def change_keys(self, **values: Any) -> None:
        for key_id in self.ids.values():
            change = KeyChange(values)
            await self.house.served.accounts.keys.change(key_id, change, now=datetime.now(UTC))

    async def change_projects(self, **values: Any) -> None:
        for project in ("metered", "unmetered"):
            await self.house.served.accounts.change_project(f"{self.name}/{project}", values)

    async def revoke(self, what: Literal["workspace", "project", "key"]) -> None:
        accounts, now = self.house.served.accounts, datetime.now(UTC)
        if what == "workspace":
            await accounts.revoke_workspace(self.name, now=now)
        for project in ("metered", "unmetered") if what == "project" else ():
            await accounts.revoke_project(f"{self.name}/{project}", now=now)
        for key_id in self.ids.values() if what == "key" else ():
            await accounts.keys.revoke(key_id, now=now)

    async def events(self) -> list[tuple[str, str]]:
        """Request ids and routes of what it was charged."""
        await at_rest()
        asked = text(
            "SELECT e.request_id, e.route FROM usage_events e JOIN workspaces w ON w.id = e.workspace_id "
            "WHERE w.name = :name ORDER BY e.event_id"
        )
        rows = await self.house.served.database.read(lambda c: c.execute(asked, {"name": self.name}).all())
        return [tuple(row) for row in rows]

    async def ask(self, shape: Shape, kind: Kind, request_id: str, *, is_labelled: bool = True) -> Client:
        return await self.house.client(shape, self.tokens[kind], request_id, is_labelled=is_labelled).run()


@dataclass
class House:
    """The service with all its routes, what works behind it, and accounts in it."""

    served: Served
    retriever: FakeRetrieval
    compressor: ReadyModel
    _clients: int = 0

    async def account(self, limit: Limit | None = None) -> Account:
        """A new one; its limit is set and has room."""
        asked = limit or Limit("none", "money")
        accounts, now = self.served.accounts, datetime.now(UTC)
        account = Account(self, f"acme-{uuid4().hex}")
        await accounts.create_workspace(account.name, **asked.workspace, now=now)
        for project in ("metered", "unmetered"):
            metered = project == "metered"
            await accounts.create_project(
                account.name, project, metered=metered, limits=asked.project, now=now
            )
        restricted = replace(asked.key, powers=POWERS)
        made: tuple[tuple[Kind, str, KeyTerms], ...] = (
            ("plain", "metered", asked.key),
            ("rotated, the old", "metered", restricted),
            ("unmetered", "unmetered", asked.key),
        )
        for kind, project, terms in made:
            owner = f"{account.name}/{project}"
            record, account.tokens[kind] = await accounts.keys.create(owner, "key", terms=terms, now=now)
            account.ids[kind] = record.id
        new, token, _ = await accounts.keys.rotate(account.ids["rotated, the old"], overlap=LASTING, now=now)
        account.tokens["rotated, the new"], account.ids["rotated, the new"] = token, new.id
        if asked.setting is not None:
            await asked.setting(account)
        return account

    def client(self, shape: Shape, token: str, request_id: str, *, is_labelled: bool = True) -> Client:
        """Of an address of its own: what is counted by addresses is no part of the matrix."""
        self._clients += 1
        given = token if shape.header == "x-api-key" else f"Bearer {token}"
        headers = {shape.header: given, "content-type": "application/json", "x-request-id": request_id}
        if shape.row.name == "compress many" and shape.streams:
            headers["accept"] = "application/x-ndjson"
        body = {**shape.body, **(shape.labels if is_labelled else {})}
        address = f"2001:db8:{self._clients:x}::1"
        if shape.row.name == "compress many":
            body.pop("stream", None)
        raw = (json.dumps(body).encode(),)
        return DemoClient(self.served.api, shape.row.path, "POST", headers, raw, address=address)

    @property
    def work(self) -> tuple[int, ...]:
        """What was asked of engines and models so far."""
        engine, compressor = self.served.engine, self.compressor
        asked = engine.requests, engine.counted, self.retriever.jobs, compressor.started, compressor.counted
        return tuple(map(len, asked))

    @asynccontextmanager
    async def spent(self, limit: Limit, account: Account) -> AsyncIterator[None]:
        """While it is used up, by chats that were let in and by nothing else."""
        if limit.cut is not None:
            await limit.cut(account)
            yield
            return
        gate = Gate(SPENT_TOKENS - 1)
        self.served.engine = FakeEngine(sleep=gate) if limit.is_of_running else FakeEngine()
        chats = []
        for kind in limit.spenders:
            chats.append(self.served.chat(key=account.tokens[kind], request_id=SPENDING, **LABELS).start())
            if limit.is_of_running:
                await gate.reached.wait()
                gate.reached.clear()
            else:
                assert (await chats[-1]).status == 200, (limit.name, chats[-1].result().body)
        try:
            yield
        finally:
            gate.opened.set()
            ended = [await chat for chat in chats]
        assert [chat.status for chat in ended] == [200] * len(ended)


@asynccontextmanager
async def open_house(folder: Path) -> AsyncIterator[House]:
    (folder / "pith.db").write_bytes(await migrated_file())
    billing = {
        "database_url": f"sqlite:///{folder / 'pith.db'}",
        "spool_path": str(folder / "spool.db"),
        "service_tiers": {"flex": 0.5, "priority": 2},
        # Each request sees its key as it is.
        "key_cache_s": 0,
    }
    retriever, compressor = FakeRetrieval(), ReadyModel(local_model())
    async with serving(
        folder,
        billing=billing,
        models=[*(model_document(name) for name in ("alpha", "beta")), *MODELS],
        compression={"models": [{**LEXICAL, "price_usd_per_mtok_input": "10"}]},
        retrievers={found["id"]: retriever for found in MODELS},
        compressors={"lexical": compressor},
    ) as served:
        yield House(await served.renewed(), retriever, compressor)
        assert await served.database.read(differences) == []


def told(client: Client) -> tuple[int, str, str]:
    """Status, code and message of an answer; of a stream, of its first line."""
    is_lines = client.reply_headers["content-type"] == "application/x-ndjson"
    body = client.body.splitlines()[0] if is_lines else client.body
    return told_of(client.status, json.loads(body) if body.startswith(b"{") else {})


def told_of(status: int, reply: Any) -> tuple[int, str, str]:
    """Of many items those of the first one, as if it had been alone."""
    found = reply if "error" in reply else (reply.get("results") or [{}])[0]
    error = found.get("error")
    if not isinstance(error, dict):
        return status, "", ""
    return 402 if "index" in found else status, error.get("code") or error["type"], error["message"]


def why_open(limit: Limit, path: str, answer: tuple[int, str, str]) -> str | None:
    """What is wrong with an answer where the limit is spent; None: it is refused, and for that."""
    status, code, message = answer
    if (status, code) != answer_of(limit.cause, path) or not re.search(limit.says, message):
        return f"{status} {code} {message}"
    return None


async def open_cells(house: House, limit: Limit, kinds: Sequence[Kind]) -> list[str]:
    """Of this limit and these keys: cells that are let in, refused for something else, charged, held, or worked for."""
    account, found = await house.account(limit), []
    async with house.spent(limit, account):
        let_in: set[Kind] = set()
        for kind, shape in product(kinds, SHAPES):
            cell, reason = f"{limit.name} / {shape.name} / {kind}", limit.spared(shape, kind)
            if reason is not None and kind in let_in:
                continue
            before = house.work
            asked_as = LET_IN if reason else cell
            client = await account.ask(shape, kind, asked_as, is_labelled=limit.is_of_labelled)
            if reason is not None:
                let_in.add(kind)
                assert client.status == 200, f"{cell} is refused, although {reason}: {client.body!r}"
            elif (why := why_open(limit, shape.row.path, told(client))) is not None:
                found.append(f"{cell}: {why}")
            elif house.work != before:
                found.append(f"{cell}: refused after it was worked for")
    return found + await left_behind(account)


async def left_behind(account: Account) -> list[str]:
    """Events of requests that were to be refused; no hold is left."""
    database = account.house.served.database
    found = [f"charged: {id_}" for id_, _ in await account.events() if id_ not in (SPENDING, LET_IN)]
    holds = text("SELECT count(*) FROM holds")
    assert await database.read(lambda c: c.execute(holds).scalar_one()) == 0
    return found


def was_disturbed(began: datetime, limit: Limit, found: list[str]) -> bool:
    """Whether what had been used up came free meanwhile, its hour or its minute being over, or the machine stood still
    for longer than the ledger waits."""
    now = datetime.now(UTC)
    is_late = limit.cause == "rate" and now - began > timedelta(seconds=40)
    return is_late or now.hour != began.hour or any(": 503 ledger_unavailable " in cell for cell in found)


async def undisturbed_cells(house: House, limit: Limit, kinds: Sequence[Kind]) -> list[str]:
    """`open_cells`, with a new account where something came between."""
    for _ in range(3):
        began = datetime.now(UTC)
        try:
            found = await open_cells(house, limit, kinds)
        except LedgerUnavailable as error:
            found = [f"{limit.name}: 503 ledger_unavailable {error}"]
        if not found or not was_disturbed(began, limit, found):
            return found
    raise AssertionError(f"{limit.name}: disturbed three times, at last in {found}")
