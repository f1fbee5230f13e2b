"""Every paid or limited request, in every shape and with every kind of key, is refused where a limit is spent.

A new route, setting or refusal without a place in the matrix fails here by its name.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import fields, replace
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest
import pytest_asyncio
from fastapi import FastAPI

from billing.accounts.account_sql import Project, Workspace
from billing.accounts.key_sql import KeyRecord
from billing.accounts.keys import ROUTE_NAMES, KeyTerms, ModelNotAllowed, RouteNotAllowed
from billing.batches.batch import TooManyBatches
from billing.caller import KeyPowers, ProjectLimits
from billing.errors import BillingDisabled, InvalidKey, QuotaExceeded, RateLimited
from billing.ledger.budget_settings import SCOPES
from billing.ledger.ledger import Ledger
from serve.http.auth import MissingKey, TooManyWrongKeys, route_name
from serve.http.errors import STATUSES, WrongAdminKey
from serve.http.openapi import FILES, PAGES
from serve.playground.page_routes import ABOUT, ANY_FILE, RUNNING
from tests.serve.money.bypass.house import Account, House, open_cells, open_house, told, undisturbed_cells
from tests.serve.money.bypass.limits import BUDGET_OWNERS, KINDS, LIMITS, RATES, Kind
from tests.serve.money.bypass.shapes import ROWS, SHAPES, Shape
from tests.serve.served import Client, at_rest

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Routes that do no work, for a key: each group has a limit of requests a minute of its own.
WITH_A_KEY = {
    **{
        (method, f"{base}/v1/models{one}"): "lists what there is"
        for base, one in product(("/openai", "/anthropic"), ("", "/{model_id:path}"))
        for method in ("GET", "HEAD")
    },
    ("GET", "/v1/models"): "lists what there is",
    ("GET", "/v1/usage"): "reads the books",
    ("GET", "/v1/usage/proof"): "reads the books",
    ("GET", "/v1/limits"): "reads the books",
    ("GET", "/v1/compress/{id}/original"): "reads what was paid for and kept",
    ("POST", "/openai/v1/files"): "keeps a file, within bounds of the project",
    ("GET", "/openai/v1/files"): "reads files",
    ("GET", "/openai/v1/files/{file_id}"): "reads files",
    ("GET", "/openai/v1/files/{file_id}/content"): "reads files",
    ("DELETE", "/openai/v1/files/{file_id}"): "deletes a file",
    ("POST", "/openai/v1/batches"): "notes that there is work; each line is held by itself",
    ("GET", "/openai/v1/batches"): "reads batches",
    ("GET", "/openai/v1/batches/{batch_id}"): "reads batches",
    ("POST", "/openai/v1/batches/{batch_id}/cancel"): "ends work",
}
# They take no key and tell of no account; the demo is limited by the addresses of its callers.
WITHOUT_A_KEY = {
    ("POST", "/v1/demo/compress"),
    ("GET", "/v1/catalog"),
    ("GET", "/openai/health"),
    ("GET", "/log/checkpoint"),
    ("GET", "/log/verify.py"),
    ("GET", "/log/tile/{tile:path}"),
    *product(("GET", "HEAD"), ("/health", "/ready", "/openapi.json", "/", ABOUT, RUNNING, ANY_FILE)),
    *product(("GET", "HEAD"), (*PAGES, *FILES)),
}
# Settings and facts of accounts that refuse nothing.
NO_LIMITS = {
    "workspace": {"id", "name", "created_at", "time_zone", "month", "weight"}
    | {f"{part}_nano_usd" for part in ("posted", "held", "month_posted", "collected", "credited")},
    # Its weight is a share of what is busy, and whether it is metered a kind of key here.
    "project": {"id", "workspace_id", "name", "created_at", "compression", "size_step", "proof"}
    | {"metered", "weight"},
    "key": {"id", "project_id", "name", "created_at", "last_used_at", "has_expired", "limits_key_id"}
    | {"balance", "weight"},
}
# Their fields stand beside the others'.
PARTS = {"limits", "label_rates", "terms", "powers"}
SETTINGS: dict[str, tuple[Any, ...]] = {
    "workspace": (Workspace, ProjectLimits),
    "project": (Project, ProjectLimits),
    "key": (KeyRecord, KeyTerms, ProjectLimits, KeyPowers),
}
CAUSES = {QuotaExceeded, BillingDisabled, RateLimited, InvalidKey, ModelNotAllowed, RouteNotAllowed}
# Of keys that nobody has, of administrators, and of the number of batches that wait.
OTHER_REFUSALS = {MissingKey, TooManyWrongKeys, WrongAdminKey, TooManyBatches}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with open_house(tmp_path_factory.mktemp("matrix")) as found:
        yield found


async def test_every_route_has_a_place(house: House) -> None:
    inner: Any = house.served.api
    while not isinstance(inner, FastAPI):
        inner = inner._app
    found = {(method, route.path) for route in inner.routes for method in route.methods}
    assert found == {("POST", row.path) for row in ROWS} | WITH_A_KEY.keys() | WITHOUT_A_KEY
    named = {route_name(path) for path in (*(row.path for row in ROWS), *(path for _, path in WITH_A_KEY))}
    assert named == set(ROUTE_NAMES)


async def test_every_endpoint_of_batches_has_a_row(house: House) -> None:
    body = {"input_file_id": "file-a", "endpoint": "/v1/none", "completion_window": "24h"}
    refused = (await house.served.post("/openai/v1/batches", body).run()).json()["error"]["message"]
    offered = refused.partition("one of ")[2].partition(", with or")[0]
    assert set(offered.split(", ")) == {row.in_batches for row in ROWS if row.in_batches}


@pytest.mark.parametrize("scope", SETTINGS)
async def test_every_setting_of_an_account_is_a_limit_or_refuses_nothing(scope: str) -> None:
    found = {field.name for shape in SETTINGS[scope] for field in fields(shape)} - PARTS
    assert {name for name in found if f"{scope} {name}" not in LIMITS} == NO_LIMITS[scope]


async def test_every_scope_of_budgets_and_every_rate_has_limits() -> None:
    assert set(BUDGET_OWNERS) == set(SCOPES)
    assert set(RATES) == {field.name for field in fields(ProjectLimits)} - {"weight"}


async def test_every_refusal_of_a_caller_is_that_of_some_limit() -> None:
    refusals = {kind for kind, row in STATUSES.items() if row.status in (401, 402, 403, 429)}
    assert refusals == CAUSES | OTHER_REFUSALS


# The fast lane asks with these alone, and `make test` at each limit with one of the others too, in turn.
PLAIN: Kind = "plain"
OTHERS = tuple(kind for kind in KINDS if kind != PLAIN)


def rows_of_cells() -> Iterator[Any]:
    for place, name in enumerate(LIMITS):
        yield pytest.param(name, PLAIN)
        for turn, kind in enumerate(OTHERS):
            lane = pytest.mark.thorough if place % len(OTHERS) == turn else pytest.mark.long
            yield pytest.param(name, kind, marks=(pytest.mark.thorough, lane))


@pytest.mark.parametrize(("name", "kind"), list(rows_of_cells()))
async def test_no_cell_is_open(house: House, name: str, kind: Kind) -> None:
    assert await undisturbed_cells(house, LIMITS[name], (kind,)) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_every_shape_is_let_in_where_there_is_room(house: House, kind: Kind) -> None:
    account = await house.account()
    for shape in SHAPES:
        before, client = house.work, await account.ask(shape, kind, shape.name)
        status, code, message = told(client)
        assert (status, code) == (200, ""), f"{shape.name}: {status} {code} {message}"
        assert is_streamed(client) == shape.streams, shape.name
        assert house.work > before, shape.name
    charged = await charges(account)
    assert charged == ({} if kind == "unmetered" else {shape.name: expected(shape) for shape in SHAPES})


def is_streamed(client: Client) -> bool:
    return client.reply_headers["content-type"].startswith(("text/event-stream", "application/x-ndjson"))


async def charges(account: Account) -> dict[str, list[str]]:
    """By request, its service tier or its route for each event."""
    events = await account.events()
    found: dict[str, list[str]] = {shape.name: [] for shape in SHAPES if events}
    for request_id, route in events:
        found[request_id].append(route.partition(":")[0])
    return found


def expected(shape: Shape) -> list[str]:
    name = shape.row.name
    if name == "count_tokens":
        return []
    if name.startswith("compress"):
        return ["compress"]
    asked = shape.tier or route_name(shape.row.path) or ""
    # The compression of its prompt is an event of its own.
    return [asked] * (2 if shape.compresses else 1)


def unclaimed() -> Iterator[Shape]:
    """Ways to ask that a route is not said to know."""
    for row in ROWS:
        # Compressions have settings of that name themselves.
        if not row.compresses and not row.name.startswith("compress"):
            yield Shape(row, compresses=True)
        if not row.streams:
            yield Shape(row, streams=True)
        if not row.tiers:
            yield Shape(row, tier="flex")


async def test_no_route_knows_another_way_to_ask(house: House) -> None:
    account = await house.account()
    for shape in unclaimed():
        before, client = len(house.compressor.started), await account.ask(shape, "plain", shape.name)
        if client.status == 200:
            assert not is_streamed(client), shape.name
            compresses = shape.row.name.startswith("compress")
            assert (len(house.compressor.started) == before) or compresses, shape.name
        else:
            assert client.status in (400, 422), shape.name
    assert not [route for _, route in await account.events() if route.startswith("flex")]
    for row in ROWS:
        if "x-api-key" not in row.headers:
            assert (await account.ask(Shape(row, header="x-api-key"), "plain", row.name)).status == 401


ADMIN_KEY = f"pith_admin_{'a' * 43}"
NEVER_A_KEY = ("", ADMIN_KEY, "pith_", f"pith_{'a' * 16}_{'b' * 43}")


@pytest.mark.parametrize("token", NEVER_A_KEY, ids=["none", "admin", "malformed", "unknown"])
async def test_what_is_no_key_of_a_project_is_refused(house: House, token: str) -> None:
    before = house.work
    for shape in SHAPES:
        client = await house.client(shape, token, shape.name).run()
        is_the_contracts = shape.row.path.startswith("/v1/")
        assert client.status == (403 if is_the_contracts and token else 401), shape.name
    assert house.work == before


async def ask_for_nothing(house: House, route: tuple[str, str], token: str) -> Client:
    """A route that does no work, asked for with an empty body."""
    method, path = route
    for parameter in ("{id}", "{model_id:path}", "{file_id}", "{batch_id}"):
        path = path.replace(parameter, "none")
    path += "?month=2026-01" * path.endswith("/proof")
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    return await Client(house.served.api, path, method, headers, (json.dumps({}).encode(),)).run()


@pytest.mark.parametrize("route", WITH_A_KEY, ids=" ".join)
async def test_what_does_no_work_is_counted_apart_and_is_for_keys_that_work(
    house: House, route: tuple[str, str]
) -> None:
    account = await house.account(LIMITS["project requests_per_minute"])
    token = account.tokens["plain"]
    # A body that is refused, as the one here is, counts as work.
    if route[0] != "POST":
        assert (await house.served.chat(key=token).run()).status == 200
    assert (await ask_for_nothing(house, route, token)).status not in (401, 403, 429)
    assert (await ask_for_nothing(house, route, token)).status == 429
    assert len(await account.events()) == (route[0] != "POST")
    account = await house.account()
    await account.change_keys(allowed_routes=["score"])
    assert (await ask_for_nothing(house, route, account.tokens["plain"])).status == 403
    await house.served.accounts.keys.revoke(account.ids["plain"], now=datetime.now(UTC))
    ended = await ask_for_nothing(house, route, account.tokens["plain"])
    assert ended.status == (403 if route[1].startswith("/v1/") else 401)


async def test_a_route_that_holds_nothing_is_found_in_exactly_its_cells(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = Ledger.hold

    async def forgetful(ledger: Ledger, caller: Any, **given: Any) -> Any:
        if given["route"].endswith("responses"):
            caller = replace(caller, metered=False)
        return await hold(ledger, caller, **given)

    monkeypatch.setattr(Ledger, "hold", forgetful)
    limit = LIMITS["budget of the project per day"]
    kinds: list[Kind] = [kind for kind in KINDS if kind != "unmetered"]
    found = {cell.partition(":")[0] for cell in await open_cells(house, limit, kinds)}
    of_row = [shape for shape in SHAPES if shape.row.name == "responses"]
    assert found == {f"{limit.name} / {shape.name} / {kind}" for shape in of_row for kind in kinds}


async def test_the_cells_are_counted() -> None:
    """`pytest -s` shows how many there are."""
    cells = list(product(LIMITS.values(), SHAPES, KINDS))
    spared = [limit.spared(shape, kind) for limit, shape, kind in cells]
    axes = f"{len(LIMITS)} limits by {len(SHAPES)} shapes by {len(KINDS)} kinds of keys"
    print(f"\n{axes}: {spared.count(None)} cells are refused, {len(cells) - spared.count(None)} spared")
    assert len(cells) > 5000 and spared.count(None) > 0.8 * len(cells)
    await at_rest()
