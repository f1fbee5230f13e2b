"""The whole service without Ray: the real API, ledger and files, a fake engine, and a client that speaks raw ASGI."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from prometheus_client import CollectorRegistry
from sqlalchemy import text
from starlette.types import ASGIApp, Message

from billing.accounts.accounts import Accounts
from billing.books.invariants import differences
from billing.caller import ProjectLimits
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.store.database import Database, FakeOutageDatabase, Work, open_database
from billing.store.migration import upgrade
from billing.webhooks.limit_alerts import Refusals
from models.embedding_backends import RetrievalModel
from models.engine import Engine, EngineChunk, EngineRequest, PromptBound
from models.fake_engine import FakeEngine
from serve.app import build_service, open_ledger
from serve.batches.wiring import BatchRoom
from serve.catalog.offered import Away, catalog_of, none_away
from serve.compressors.compressor import RunningModel
from serve.config.settings import Settings
from serve.metrics.background import TraceMetrics
from serve.money.ledger_setup import prices_of, read_pepper
from serve.tracing.request_record import Tracing
from tests.migrated import migrated_file
from tests.serve.metrics.readings import counting

T = TypeVar("T")

# Dear enough that every token shows in whole nano-dollars: 100 and 400 dollars a million, a tenth of a cent at least.
INPUT_NANO_USD = 100_000
OUTPUT_NANO_USD = 400_000
MINIMUM_NANO_USD = 1_000_000
# "hi" is one word, and a message costs one more.
PROMPT_TOKENS = 2
HI = [{"role": "user", "content": "hi"}]
ONE_AT_A_TIME = ProjectLimits(max_in_flight=1)
DEADLINE_S = 60.0


def token_cost(completion_tokens: int) -> int:
    """Nano-dollars of the tokens alone, for the prompt "hi"."""
    return PROMPT_TOKENS * INPUT_NANO_USD + completion_tokens * OUTPUT_NANO_USD


def usage_of(prompt_tokens: int, completion_tokens: int, *, cached_tokens: int = 0) -> dict[str, Any]:
    """A reply's `usage`."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def model_document(model_id: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": model_id,
        "name": model_id.title(),
        "blurb": "For tests.",
        "checkpoint": "embedded:none",
        "context_length": 4096,
        "price": {"input_usd_per_mtok": "100", "output_usd_per_mtok": "400", "minimum_request_usd": "0.001"},
        **fields,
    }


def settings_document(folder: Path, **fields: Any) -> dict[str, Any]:
    """A configuration with four models, `alpha` the default, that keeps all it writes in `folder`."""
    return {
        "state_dir": str(folder / "var"),
        "server": {"max_body_bytes": 4096},
        "billing": {
            "database_url": f"sqlite:///{folder / 'pith.db'}",
            "spool_path": str(folder / "spool.db"),
        },
        "demo": {"enabled": True, "key_path": str(folder / "demo-key"), "monthly_limit_usd": None},
        "models": [model_document(name) for name in ("alpha", "beta", "gamma", "delta")],
        **fields,
    }


async def eventually(condition: Callable[[], Any], what: str = "the condition") -> None:
    """Poll until `condition` is true; fail at the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S:g} s: {what}"
        await asyncio.sleep(0.001)


async def at_rest() -> None:
    """Wait until nothing runs on the loop but the test itself; fail when something never ends."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    while others:
        _, pending = await asyncio.wait(others, timeout=DEADLINE_S)
        assert not pending, f"still running: {pending}"
        others = asyncio.all_tasks() - {asyncio.current_task()}


class PausingDatabase(FakeOutageDatabase):
    """A fake that can stop at a write, before or after its commit, until the test lets it go on."""

    def __init__(self, inner: Database) -> None:
        super().__init__(inner)
        self.reset()

    def reset(self) -> None:
        """Every knob as it was."""
        self.is_down = self.loses_answers = False
        self.pauses: str | None = None
        self.paused = asyncio.Event()
        self.resumed = asyncio.Event()

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        pauses, self.pauses = self.pauses, None
        if pauses == "before":
            await self._pause()
        result = await super().write(work, durable=durable)
        if pauses == "after":
            await self._pause()
        return result

    async def _pause(self) -> None:
        self.paused.set()
        await self.resumed.wait()


class Gate:
    """A fake `sleep` for the fake engine: it makes `tokens` tokens at once and then waits to be opened."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        if self._tokens == 0:
            self.reached.set()
            await self.opened.wait()
        else:
            self._tokens -= 1
            await asyncio.sleep(0)


@dataclass(repr=False)
class Client:
    """One request in raw ASGI. Its client leaves when `gone` is set, and not before."""

    app: ASGIApp
    path: str
    method: str = "GET"
    headers: dict[str, str] = field(default_factory=dict)
    pieces: Sequence[bytes] = (b"",)
    sent: list[Message] = field(default_factory=list)
    read: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    # Leaves when so many pieces of the body were read.
    gone_after: int | None = None

    async def run(self) -> Client:
        await self.app(self.scope(), self.receive, self.send)
        if self.path.startswith("/openai/v1/") and self.is_complete and self.body:
            # Only here: what needs no client of OpenAI's starts without the package.
            from tests.openai_types import check_reply

            content_type = self.reply_headers.get("content-type", "")
            check_reply(self.method, self.path, self.status, content_type, self.body)
        return self

    def start(self) -> asyncio.Task[Client]:
        return asyncio.create_task(self.run())

    def scope(self) -> dict[str, Any]:
        raw = [
            (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in self.headers.items()
        ]
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "path": self.path.partition("?")[0],
            "raw_path": self.path.partition("?")[0].encode(),
            "query_string": self.path.partition("?")[2].encode(),
            "root_path": "",
            "headers": raw,
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 8000),
            "state": {},
        }

    async def receive(self) -> Message:
        if self.read == self.gone_after:
            self.gone.set()
        if self.read < len(self.pieces) and not self.gone.is_set():
            self.read += 1
            more = self.read < len(self.pieces)
            return {"type": "http.request", "body": self.pieces[self.read - 1], "more_body": more}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        # A server's send gives way to the loop when its buffer is full: here it always does.
        await asyncio.sleep(0)
        self.sent.append(message)

    @property
    def status(self) -> int:
        (start,) = [message for message in self.sent if message["type"] == "http.response.start"]
        status: int = start["status"]
        return status

    @property
    def reply_headers(self) -> dict[str, str]:
        (start,) = [message for message in self.sent if message["type"] == "http.response.start"]
        return {name.decode().lower(): value.decode() for name, value in start["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(m.get("body", b"") for m in self.sent if m["type"] == "http.response.body")

    @property
    def is_complete(self) -> bool:
        last = self.sent[-1] if self.sent else {"type": "nothing"}
        return last["type"] == "http.response.body" and not last.get("more_body", False)

    def json(self) -> Any:
        return json.loads(self.body)

    def events(self) -> list[Any]:
        """The stream's events, each parsed, `[DONE]` as it is."""
        *events, rest = self.body.split(b"\n\n")
        assert rest == b"" and all(event.startswith(b"data: ") for event in events), self.body
        payloads = [event.removeprefix(b"data: ") for event in events]
        return [payload.decode() if payload == b"[DONE]" else json.loads(payload) for payload in payloads]


@dataclass(frozen=True)
class Event:
    """What a test wants to know of a usage event."""

    outcome: str
    prompt_tokens: int
    completion_tokens: int
    cost_nano_usd: int
    minimum_applied: bool
    stream: bool


class EngineSwitch:
    """A fake that is whichever engine the test wants it to be."""

    def __init__(self) -> None:
        self.engine = FakeEngine()

    def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        return self.engine.generate(request)

    def prompt_bound(self) -> PromptBound | None:
        return self.engine.prompt_bound()

    async def count_tokens(self, request: EngineRequest, *, beyond_context: bool = False) -> int:
        return await self.engine.count_tokens(request, beyond_context=beyond_context)

    async def ready(self) -> bool:
        return await self.engine.ready()


@dataclass
class Served:
    """The service, and everything that a test wants to turn or to see."""

    api: ASGIApp
    settings: Settings
    switch: EngineSwitch
    database: PausingDatabase
    ledger: Ledger
    spool: Spool
    accounts: Accounts
    registry: CollectorRegistry
    batches: BatchRoom
    workspace: str = ""
    key: str = ""

    @property
    def engine(self) -> FakeEngine:
        return self.switch.engine

    @engine.setter
    def engine(self, engine: FakeEngine) -> None:
        self.switch.engine = engine

    async def renewed(self) -> Served:
        """The same service for the next test: a workspace of its own, and every knob as it was."""
        self.engine = FakeEngine()
        self.database.reset()
        name = f"acme-{uuid4().hex}"
        return replace(self, workspace=name, key=await self.new_key(name))

    async def new_key(
        self, name: str | None = None, *, limits: ProjectLimits = ONE_AT_A_TIME, **kinds: Any
    ) -> str:
        """A key of a new workspace and project; `kinds` are the workspace's, and `metered` the project's."""
        now = datetime.now(UTC)
        metered, name = kinds.pop("metered", True), name or f"other-{uuid4().hex}"
        await self.accounts.create_workspace(name, **kinds, now=now)
        await self.accounts.create_project(name, "project", metered=metered, limits=limits, now=now)
        return (await self.accounts.keys.create(f"{name}/project", "key", now=now))[1]

    def chat(self, *, key: str | None = None, request_id: str = "chat", **fields: Any) -> Client:
        """A chat request that was not sent yet; six tokens unless `fields` say otherwise."""
        body = json.dumps({"messages": HI, "max_tokens": 6, **fields}).encode()
        headers = {
            "Authorization": f"Bearer {key or self.key}",
            "Content-Type": "application/json",
            "X-Request-ID": request_id,
        }
        return Client(self.api, "/v1/chat/completions", "POST", headers, (body,))

    def post(self, path: str, body: Any, *, headers: dict[str, str] | None = None) -> Client:
        """A request of any other kind, as JSON, with this test's key unless `headers` has one."""
        given = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json", **(headers or {})}
        return Client(self.api, path, "POST", given, (json.dumps(body).encode(),))

    def get(self, path: str, *, key: str | None = None) -> Client:
        return Client(self.api, path, headers={"Authorization": f"Bearer {key or self.key}"})

    async def warm_up(self) -> None:
        """Have the key and the prices read, so that the ledger is next asked for the hold."""
        assert (await self.get("/v1/models").run()).status == 200

    async def events(self, request_id: str | None = None) -> list[Event]:
        """This test's usage events, or those of one request."""
        await at_rest()
        columns = ", ".join(f"e.{name}" for name in Event.__dataclass_fields__)
        statement = text(
            f"SELECT {columns} FROM usage_events e JOIN workspaces w ON w.id = e.workspace_id "
            "WHERE w.name = :workspace AND (e.request_id = :id OR :id IS NULL)"
        )
        wanted = {"workspace": self.workspace, "id": request_id}
        rows = await self.database.read(lambda c: c.execute(statement, wanted).all())
        return [
            Event(
                **{**row._mapping, "minimum_applied": bool(row.minimum_applied), "stream": bool(row.stream)}
            )
            for row in rows
        ]

    async def assert_nothing_is_left_open(self) -> None:
        """No hold, balances that add up, and a project of one request at a time that can go on."""
        await at_rest()
        holds = await self.database.read(lambda c: c.execute(text("SELECT count(*) FROM holds")).scalar_one())
        held = text("SELECT sum(held_nano_usd) FROM workspaces")
        assert (holds, await self.database.read(lambda c: c.execute(held).scalar_one())) == (0, 0)
        assert await self.database.read(differences) == []
        assert (await self.get("/v1/models").run()).status == 200


@asynccontextmanager
async def serving(
    folder: Path,
    *,
    retrievers: Mapping[str, RetrievalModel] | None = None,
    compressors: Mapping[str, RunningModel] | None = None,
    refusals: Refusals | None = None,
    ask_away: Away = none_away,
    **fields: Any,
) -> AsyncIterator[Served]:
    """The service with its own ledger: in `folder`, or where `billing` says. `renewed` gives it a key."""
    settings = Settings.model_validate(settings_document(folder, **fields))
    if "billing" in fields:
        await upgrade(settings.billing.database_url)
    else:
        (folder / "pith.db").write_bytes(await migrated_file())
    database = PausingDatabase(open_database(settings.billing.database_url))
    spool = Spool(settings.billing.spool_path, max_rows=settings.billing.spool_max_rows)
    ledger = open_ledger(settings, database, spool)
    prices = prices_of(catalog_of(settings), settings.compression.models, settings.retrieval_models)
    await ledger.publish_prices(prices, now=datetime.now(UTC))
    switch = EngineSwitch()
    engines: dict[str, Engine] = {model.id: switch for model in settings.models}
    counts, registry = counting()
    tracing = Tracing(settings.tracing, TraceMetrics(counts))
    api, batches, _ = build_service(
        settings,
        engines=engines,
        database=database,
        ledger=ledger,
        counts=counts,
        retrievers=retrievers,
        compressors=compressors,
        refusals=refusals,
        tracer=tracing.tracer,
        ask_away=ask_away,
    )
    accounts = Accounts(database, pepper=read_pepper(settings.state_dir))
    try:
        yield Served(api, settings, switch, database, ledger, spool, accounts, registry, batches)
    finally:
        await tracing.close()
        await ledger.close()
        await spool.close()
        await database.close()
