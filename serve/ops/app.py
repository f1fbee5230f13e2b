"""The ASGI application of the ops port: `/metrics`, and the admin API where it is served."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request, Security
from fastapi.security import HTTPBearer
from prometheus_client import CollectorRegistry
from starlette.responses import Response
from starlette.types import ASGIApp

from billing.clock import now
from billing.spool.spool import Spool
from billing.store.database import open_database
from serve.config.settings import Settings
from serve.http.middleware import BodyLimitMiddleware
from serve.http.request_id import RequestIdMiddleware
from serve.http.routes import docs_routes
from serve.money.ledger_setup import REPORT_TIMEOUT_S
from serve.money.pepper import read_pepper
from serve.ops.account_routes import project_routes, workspace_routes
from serve.ops.admin_key import AdminKeys
from serve.ops.administration import Gate, Ledgers
from serve.ops.admission import AdmissionMiddleware
from serve.ops.archive_routes import archive_routes
from serve.ops.book_routes import book_routes
from serve.ops.export_routes import export_routes
from serve.ops.idempotency import Made
from serve.ops.key_routes import key_routes
from serve.ops.money_routes import adjustment_routes, collection_routes, spool_routes
from serve.ops.reconciliation_routes import reconciliation_routes
from serve.ops.reconciling import Reconciling
from serve.ops.refusals import answer_errors, error_responses
from serve.ops.scrape import Scrapes
from serve.ops.webhook_routes import webhook_routes

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
) -> ASGIApp:
    """`/metrics` of `registry`; without `admin_key_file` nothing else. Serve it with its lifespan. `in_force` gives the
    settings as a reload has left them."""
    scrapes, reconciling = Scrapes(registry), Reconciling()
    ledgers: list[Ledgers] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if admin_key_file is not None:
            ledgers.append(open_ledgers(settings, in_force or (lambda: settings)))
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
        _include_admin(api, gate, reconciling)
        served = AdmissionMiddleware(served, gate)
    return RequestIdMiddleware(served)


def open_ledgers(settings: Settings, in_force: Callable[[], Settings]) -> Ledgers:
    """The databases that the settings name. Nothing is connected yet."""
    url = settings.billing.database_url
    return Ledgers(
        in_force,
        open_database(url, pool_size=4),
        open_database(url, timeout_s=REPORT_TIMEOUT_S, pool_size=2),
        Spool(settings.billing.spool_path),
        read_pepper(settings.state_dir),
        now,
    )


def _include_admin(api: FastAPI, gate: Gate, reconciling: Reconciling) -> None:
    # For the documentation: `Gate` reads the header, so that its errors have the contract's shape.
    documented = [Security(HTTPBearer(auto_error=False, description="An admin key.", scheme_name="AdminKey"))]
    made = Made()
    api.include_router(docs_routes())
    for routes in (
        workspace_routes(gate, made),
        project_routes(gate, made),
        key_routes(gate, made),
        webhook_routes(gate, made),
        book_routes(gate),
        reconciliation_routes(gate, reconciling),
        archive_routes(gate),
        collection_routes(gate, made),
        adjustment_routes(gate),
        spool_routes(gate),
        export_routes(gate),
    ):
        api.include_router(
            routes, dependencies=documented, responses=error_responses(401, 422, 429, 500, 503)
        )
