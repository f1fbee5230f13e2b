"""`GET /v1/usage`, its proof, and `GET /v1/limits`: what a key and its project used, and what they may still use."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from billing.books.preservation import Preservation, preservation
from billing.books.usage_report import PeriodUsage, period_usage
from billing.caller import Caller
from billing.errors import RateLimited
from billing.ledger.balances import Spending, spending
from billing.ledger.budgets import BudgetState, Spender, in_force, states_by_label
from billing.rate_limits.rate_limits import NO_STATE, RateLimits, counted_for
from billing.store.database import Database
from serve.account.proof import PARAMETERS as PROOF_PARAMETERS
from serve.account.proof import ProofReply, Prover, asked_proof
from serve.account.response import (
    MOST_CHECKS,
    PARAMETERS,
    Limits,
    UsageQuery,
    UsageReport,
    limits_in_force,
    usage_body,
    usage_query,
)
from serve.http.auth import Authenticate
from serve.http.openapi import (
    BEARER,
    RATE_LIMIT_HEADERS,
    REQUEST_ID_HEADER,
    REQUEST_ID_PARAMETER,
    error_responses,
)
from serve.http.replies import rate_limit_headers

MAX_WAITING = 8


class AccountReader:
    """Each project has a bounded number of reads that wait; the rest is refused with `RateLimited`."""

    def __init__(self, database: Database, prover: Prover) -> None:
        self._database = database
        self.prover = prover
        self._reading = asyncio.Lock()
        self._waiting: Counter[str] = Counter()

    async def usage(self, caller: Caller, asked: UsageQuery) -> PeriodUsage:
        """With one row more than asked for where there are more. Raises `LedgerUnavailable`."""
        read = partial(
            period_usage,
            by=asked.by,
            workspace_id=caller.workspace_id,
            project_id=caller.project_id,
            key_id=caller.key_id if asked.scope == "key" else None,
            since=asked.since,
            until=asked.until,
            limit=asked.limit + 1,
        )
        async with self._turn(caller.project_id):
            return await self._database.read(read)

    async def preservation(self, caller: Caller, asked: UsageQuery) -> list[Preservation] | None:
        """By model and kind of block, where it is asked by model. Raises `LedgerUnavailable`."""
        if "model" not in asked.by:
            return None
        read = partial(
            preservation,
            by=("model", "kind"),
            workspace=caller.workspace_id,
            project_id=caller.project_id,
            since=asked.since,
            until=asked.until,
            limit=MOST_CHECKS,
        )
        async with self._turn(caller.project_id):
            return await self._database.read(read)

    async def budgets(
        self, caller: Caller, asked: UsageQuery, found: PeriodUsage
    ) -> dict[str, list[BudgetState]]:
        """Of the persons or tags that were found, where it is asked by these alone. Raises `LedgerUnavailable`."""
        if asked.by not in (("person",), ("tag",)):
            return {}
        (kind,) = asked.by
        of = Spender(caller.workspace_id, caller.project_id, caller.key_id)
        labels = [row.group[kind] for row in found.groups[: asked.limit]]
        read = partial(states_by_label, of=of, scope=kind, labels=labels)
        async with self._turn(caller.project_id):
            return await self._database.read(read)

    async def spending(self, caller: Caller) -> tuple[Spending, list[BudgetState]]:
        """Raises `LedgerUnavailable`."""
        of = Spender(caller.workspace_id, caller.project_id, caller.key_id)
        async with self._turn(caller.project_id):
            return await self._database.read(
                lambda c: (spending(c, of.workspace_id, of.key_id), in_force(c, of))
            )

    @asynccontextmanager
    async def _turn(self, project_id: str) -> AsyncIterator[None]:
        if self._waiting[project_id] >= MAX_WAITING:
            raise RateLimited(which="in_flight", limit=MAX_WAITING, retry_after_s=1, state=NO_STATE)
        self._waiting[project_id] += 1
        try:
            async with self._reading:
                yield
        finally:
            self._waiting[project_id] -= 1
            if not self._waiting[project_id]:
                del self._waiting[project_id]


_HEADERS: dict[int | str, dict[str, Any]] = {200: {"headers": {**REQUEST_ID_HEADER, **RATE_LIMIT_HEADERS}}}


@dataclass(frozen=True, slots=True)
class AccountRoutes:
    """The collaborators of the routes."""

    reader: AccountReader
    limiter: RateLimits
    authenticate: Authenticate
    clock: Callable[[], datetime]


def account_routes(needed: AccountRoutes) -> APIRouter:
    """They count against a limit of their own, as `GET /v1/models` does, and cost nothing."""
    routes = APIRouter(tags=["account"], dependencies=[BEARER])

    @routes.get(
        "/v1/usage",
        response_model=UsageReport,
        openapi_extra={"parameters": [*PARAMETERS, REQUEST_ID_PARAMETER]},
        responses={**_HEADERS, **error_responses(401, 403, 422, 429, 500, 503)},
    )
    async def read_usage(request: Request) -> Response:
        """Usage and charges of this key or its project, by day (UTC), model, route and key."""
        caller = await needed.authenticate(request)
        asked = usage_query(request.query_params, today=needed.clock().date())
        admission = await needed.limiter.admit(
            caller.counted_apart("account"), tokens_bound=0, now=needed.clock()
        )
        try:
            found = await needed.reader.usage(caller, asked)
            kept = await needed.reader.preservation(caller, asked)
            body = usage_body(asked, found, kept, await needed.reader.budgets(caller, asked, found))
        finally:
            await admission.done(0)
        return _answer(orjson.dumps(body), rate_limit_headers(admission.headers_state))

    @routes.get(
        "/v1/limits",
        response_model=Limits,
        openapi_extra={"parameters": [REQUEST_ID_PARAMETER]},
        responses={**_HEADERS, **error_responses(401, 403, 429, 500, 503)},
    )
    async def read_limits(request: Request) -> Response:
        """The limits and budgets in force for this key, of the key, its project, that one's tags, and its workspace:
        what is used and left of them, and when they reset."""
        caller = await needed.authenticate(request)
        admission = await needed.limiter.admit(
            caller.counted_apart("account"), tokens_bound=0, now=needed.clock()
        )
        try:
            spending, budgets = await needed.reader.spending(caller)
            states = {
                scope: await needed.limiter.state(one, now=needed.clock())
                for scope, one in counted_for(replace(caller, tags=tuple(caller.label_limits))).items()
            }
            body = limits_in_force(caller, spending, budgets, states)
        finally:
            await admission.done(0)
        return _answer(body.model_dump_json(), rate_limit_headers(admission.headers_state))

    _add_proof(routes, needed)
    return routes


def _add_proof(routes: APIRouter, needed: AccountRoutes) -> None:
    @routes.get(
        "/v1/usage/proof",
        openapi_extra={"parameters": [*PROOF_PARAMETERS, REQUEST_ID_PARAMETER]},
        responses={
            200: {
                "content": {"application/json": {"schema": {"type": "object"}}},
                "description": "A proof file, which `verify.py` or `pith verify` checks: docs/proof.md.",
                **_HEADERS[200],
            },
            **error_responses(401, 403, 409, 422, 429, 500, 503),
        },
        response_class=Response,
    )
    async def read_proof(request: Request) -> Response:
        """A month of this key's project, to be checked without trusting this server: each event and each adjustment
        of one as a leaf of the signed log, with prices and sums. The workspace's other projects and credits are not in
        it. A log without a checkpoint, an archived month, or one of more than 20,000 events or 3,000 bundles of leaves
        is refused with 409."""
        caller = await needed.authenticate(request)
        asked = asked_proof(request.query_params)
        admission = await needed.limiter.admit(
            caller.counted_apart("account"), tokens_bound=0, now=needed.clock()
        )
        await admission.done(0)
        headers = rate_limit_headers(admission.headers_state)
        return ProofReply(needed.reader.prover, caller, asked, request.state.request_id, headers)


def _answer(written: str | bytes, headers: dict[str, str]) -> Response:
    return Response(written, media_type="application/json", headers=headers)
