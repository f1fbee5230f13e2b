"""The ops port: `/metrics`, and the admin API where it is served, in a thread beside whatever else the process does."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Security
from fastapi.security import HTTPBearer
from prometheus_client import CollectorRegistry
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from billing.ledger.spool import Spool
from billing.store.database import open_database
from billing.usage import now
from serve.config.settings import Settings
from serve.http.auth import MissingKey, TooManyWrongKeys
from serve.http.errors import WrongAdminKey, http_problem
from serve.http.middleware import BodyLimitMiddleware, RequestIdMiddleware
from serve.http.openapi import docs_routes
from serve.http.server.bounds import is_loopback, ops_bounds
from serve.http.server.server import PithServer, config_within
from serve.metrics.ops_port import scrape_app
from serve.money.ledger_setup import REPORT_TIMEOUT_S, read_pepper
from serve.operator.adapters import ServedAdapters
from serve.ops.account_routes import key_routes, project_routes, webhook_routes, workspace_routes
from serve.ops.adapter_routes import adapter_routes
from serve.ops.administration import FILE, AdminKeys, Gate, Ledgers, make_admin_key
from serve.ops.answers import answer_errors, error_responses, problem
from serve.ops.book_routes import archive_routes, book_routes, export_routes, reconciliation_routes
from serve.ops.budget_routes import budget_routes
from serve.ops.idempotency import KeptAnswers
from serve.ops.money_routes import adjustment_routes, collection_routes, spool_routes
from serve.ops.reconciling import Reconciling
from serve.processes.listener import BACKLOG, Listener, bound_socket

Adapters = Callable[[], ServedAdapters | None]
VERSION = "1.0.0"
MAX_BODY_BYTES = 64 * 1024
DESCRIPTION = """What the `pith` command does, over HTTP, on the ops port alone.

Keys are admin keys, sent as `Authorization: Bearer <ADMIN_KEY>`; `ops.admin_key_file` has them. No key of a project
opens anything here.
"""


def create_ops(
    settings: Settings,
    registry: CollectorRegistry,
    admin_key_file: Path | None,
    in_force: Callable[[], Settings] | None = None,
    adapters: Adapters = lambda: None,
) -> ASGIApp:
    """`/metrics` of `registry`; without `admin_key_file` nothing else. Serve it with its lifespan. `in_force` gives the
    settings as a reload has left them, `adapters` what changes those that are served."""
    scrapes, reconciling = Scrapes(registry), Reconciling()
    ledgers: list[Ledgers] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if admin_key_file is not None:
            ledgers.append(open_ledgers(settings, in_force or (lambda: settings), adapters))
        yield
        await reconciling.stop()
        for one in ledgers:
            await one.close()

    api = FastAPI(
        title="pith, ops port",
        version=VERSION,
        description=DESCRIPTION,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json" if admin_key_file is not None else None,
        lifespan=lifespan,
    )
    answer_errors(api)

    @api.get("/metrics", response_model=None, include_in_schema=False)
    async def scrape(request: Request) -> Response:
        return await scrapes.answer(request)

    served: ASGIApp = BodyLimitMiddleware(api, MAX_BODY_BYTES)
    if admin_key_file is not None:
        gate = Gate(lambda: ledgers[0], AdminKeys(admin_key_file))
        _include_admin(api, reconciling)
        served = AdmissionMiddleware(served, gate)
    return RequestIdMiddleware(served)


def open_ledgers(settings: Settings, in_force: Callable[[], Settings], adapters: Adapters) -> Ledgers:
    """The databases that the settings name. Nothing is connected yet."""
    url = settings.billing.database_url
    return Ledgers(
        in_force,
        open_database(url, pool_size=4),
        open_database(url, timeout_s=REPORT_TIMEOUT_S, pool_size=2),
        Spool(settings.billing.spool_path),
        read_pepper(settings.state_dir),
        now,
        adapters,
    )


def _include_admin(api: FastAPI, reconciling: Reconciling) -> None:
    # For the documentation: `AdmissionMiddleware` reads the header, so that its errors have the contract's shape.
    documented = [Security(HTTPBearer(auto_error=False, description="An admin key.", scheme_name="AdminKey"))]
    kept = KeptAnswers()
    api.include_router(docs_routes())
    for routes in (
        workspace_routes(kept),
        project_routes(kept),
        key_routes(kept),
        budget_routes(),
        webhook_routes(kept),
        adapter_routes(kept),
        book_routes(),
        reconciliation_routes(reconciling),
        archive_routes(),
        collection_routes(kept),
        adjustment_routes(),
        spool_routes(),
        export_routes(),
    ):
        api.include_router(
            routes, dependencies=documented, responses=error_responses(401, 422, 429, 500, 503)
        )


# More of them at once only take longer.
AT_ONCE = 4
# Scrapers are few. Whoever asks for more keeps no connection while it waits.
WAITING = 16


class Scrapes:
    """Answers scrapes, compressed where it is asked for."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._app = scrape_app(registry)
        self._room = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    async def answer(self, request: Request) -> Response:
        environ = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": request.url.path,
            "QUERY_STRING": request.url.query,
            "HTTP_ACCEPT_ENCODING": request.headers.get("accept-encoding", ""),
        }
        if self._waiting >= WAITING:
            return http_problem(503, "too many scrapes at once").response()
        self._waiting += 1
        try:
            async with self._room:
                return await asyncio.to_thread(self._collected, environ)
        finally:
            self._waiting -= 1

    def _collected(self, environ: dict[str, Any]) -> Response:
        told: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]]) -> None:
            told[:] = [int(status.split(" ", 1)[0]), dict(headers)]

        body = b"".join(self._app(environ, start))
        status, headers = told
        return Response(body, status_code=status, headers=headers)


ADMIN = "/admin/"


class AdmissionMiddleware:
    """Answers whom the gate does not let in, whatever they sent and whether or not there is such a route."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(ADMIN):
            request = Request(scope)
            try:
                request.state.operator = self._gate.admitted(request)
            except (MissingKey, WrongAdminKey, TooManyWrongKeys) as error:
                await problem(error).response()(scope, receive, send)
                return
        await self._app(scope, receive, send)


START_S = 30.0
STOP_S = 5


def open_ops(
    settings: Settings,
    registry: CollectorRegistry,
    *,
    in_force: Callable[[], Settings] | None = None,
    adapters: Adapters = lambda: None,
) -> Callable[[], None]:
    """Listen; returns what ends it. `in_force` gives the settings as a reload has left them, `adapters` what changes
    those that are served.

    Raises `OSError` where it cannot listen, or cannot make the admin key.
    """
    sock = bound_socket(settings.ops.host, settings.ops.port, shared=False)
    try:
        sock.listen(BACKLOG)
        app = create_ops(settings, registry, admin_key_file(settings), in_force, adapters)
    except BaseException:
        sock.close()
        raise
    config = config_within(
        app, ops_bounds(settings), lifespan="on", proxy_headers=False, timeout_graceful_shutdown=STOP_S
    )
    server = PithServer(config, Listener(sock))
    return _serve(server)


def admin_key_file(settings: Settings) -> Path | None:
    """The file of the admin keys, made where it is not there; None where the admin API is not served: beyond loopback
    it is served only where the settings say so. Raises `OSError`."""
    served = settings.ops.admin
    if served is None:
        served = is_loopback(settings.ops.host)
    if not served:
        return None
    path = settings.ops.admin_key_file or settings.state_dir / FILE
    make_admin_key(path)
    return path


def _serve(server: PithServer) -> Callable[[], None]:
    thread = threading.Thread(target=server.run, name="ops-port", daemon=True)
    thread.start()

    def close() -> None:
        server.should_exit = True
        thread.join(START_S)

    return close
