"""Two workspaces beside each other: by no route is anything of the one seen, changed or spent by the
other, or confirmed to exist. A new route without a case here fails."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from fastapi import FastAPI

from billing.books.usage_report import usage
from models.fake_engine import FakeEngine
from serve.http.openapi import FILES, PAGES
from serve.originals.originals import Original
from serve.playground.page_routes import ABOUT, ANY_FILE, RUNNING
from tests.serve.compressing import CONTEXT, QUERY, Compressing
from tests.serve.money.two_workspaces import rows_of
from tests.serve.served import HI, Client, serving

ITEM = {"query": QUERY, "input": CONTEXT}
CHAT = {"messages": HI, "max_tokens": 6}
CATALOGS = [
    f"{dialect}/v1/models{one}" for dialect in ("/openai", "/anthropic") for one in ("", "/{model_id:path}")
]
PLAYGROUND = ("/", ABOUT, RUNNING, ANY_FILE)
# What each route is asked. Those of NO_ACCOUNT take no key and tell of no account.
ROUTES: dict[tuple[str, str], Any] = {
    ("GET", "/v1/models"): None,
    ("GET", "/v1/usage"): None,
    ("GET", "/v1/usage/proof"): None,
    ("GET", "/v1/limits"): None,
    ("POST", "/v1/chat/completions"): CHAT,
    ("POST", "/v1/compress"): ITEM,
    ("POST", "/v1/batch/compress"): {"items": [{"id": "same", **ITEM}]},
    ("GET", "/v1/compress/{id}/original"): None,
    ("POST", "/openai/v1/chat/completions"): CHAT,
    ("POST", "/openai/v1/completions"): {"prompt": "hi", "max_tokens": 6},
    ("POST", "/anthropic/v1/messages"): CHAT,
    ("POST", "/anthropic/v1/messages/count_tokens"): CHAT,
    **{(method, path): None for path in CATALOGS for method in ("GET", "HEAD")},
    ("POST", "/openai/v1/responses"): {"input": "hi", "max_output_tokens": 6},
    ("GET", "/v1/catalog"): None,
    ("POST", "/v1/demo/compress"): ITEM,
    ("GET", "/health"): None,
    ("HEAD", "/health"): None,
    ("GET", "/openai/health"): None,
    ("GET", "/ready"): None,
    ("HEAD", "/ready"): None,
    ("GET", "/openapi.json"): None,
    ("HEAD", "/openapi.json"): None,
    **{(method, path): None for path in (*PAGES, *FILES, *PLAYGROUND) for method in ("GET", "HEAD")},
}
# The routes that are charged, and what their usage events call them.
SPEND = {
    ("POST", "/v1/chat/completions"): "chat",
    ("POST", "/v1/compress"): "compress",
    ("POST", "/v1/batch/compress"): "compress",
    ("POST", "/openai/v1/chat/completions"): "chat",
    ("POST", "/openai/v1/completions"): "completions",
    ("POST", "/anthropic/v1/messages"): "messages",
    ("POST", "/openai/v1/responses"): "responses",
}
# What stands in a path for its parameters.
IN_PATHS = {"{id}": "same", "{model_id:path}": "alpha", "{name:path}": "main.js"}


@dataclass(frozen=True)
class Tenant:
    """A workspace with its key, and every word by which it could be known."""

    workspace: str
    workspace_id: str
    key: str
    words: tuple[str, ...]


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def served(module_service: Compressing) -> Compressing:
    return await module_service.renewed()


async def tenant(served: Compressing, **kinds: Any) -> Tenant:
    key = await served.new_key(**kinds)
    (project,) = await served.accounts.list_projects(served.workspace)
    (record,) = await served.accounts.keys.listed(served.workspace)
    words = (served.workspace, project.workspace.id, project.project.id, record.key.id)
    await keep_original(served, key, "its own")
    return Tenant(served.workspace, project.workspace.id, key, words)


async def keep_original(served: Compressing, key: str, text: str) -> None:
    """Each tenant has one of the same id."""
    caller = await served.accounts.authenticate(key, now=datetime.now(UTC))
    assert (await served.originals.keep(caller, [Original("same", text)], retain_s=600)).until


async def ask(served: Compressing, route: tuple[str, str], key: str) -> Client:
    method, path = route
    body = ROUTES[route]
    raw = b"" if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "X-Request-ID": "same"}
    for parameter, value in IN_PATHS.items():
        path = path.replace(parameter, value)
    return await Client(served.api, path, method, headers, (raw,)).run()


async def test_every_route_has_a_case(served: Compressing) -> None:
    inner: Any = served.api
    while not isinstance(inner, FastAPI):
        inner = inner._app
    found = {(method, route.path) for route in inner.routes for method in route.methods}
    assert found == set(ROUTES)


# It tells a caller's own ids, once the log is signed: `tests/serve/account/test_proof.py` looks whose they are.
TELLS_IDS = {("GET", "/v1/usage/proof")}


@pytest.mark.parametrize("route", [route for route in ROUTES if route not in TELLS_IDS], ids=" ".join)
async def test_what_one_asks_shows_and_changes_nothing_of_the_other(
    served: Compressing, route: tuple[str, str]
) -> None:
    other, asking = await tenant(served), await tenant(served)
    for spent in SPEND:
        assert (await ask(served, spent, other.key)).status == 200
    await served.events()
    before = await rows_of(served.database, other.workspace_id)
    reply = await ask(served, route, asking.key)
    assert reply.status == 200
    await served.events()
    shown = reply.body.decode("utf-8", "replace") + json.dumps(reply.reply_headers)
    assert not [word for word in other.words if word in shown]
    # A caller's own ids are no part of an answer either: who reads a log of answers learns of no account.
    assert not [word for word in asking.words if word in shown]
    assert await rows_of(served.database, other.workspace_id) == before
    own = await rows_of(served.database, asking.workspace_id)
    assert len(own["usage_events"]) == int(route in SPEND)


@pytest.mark.parametrize("route", SPEND, ids=" ".join)
async def test_what_one_may_not_spend_the_other_still_may(
    served: Compressing, route: tuple[str, str]
) -> None:
    other, broke = await tenant(served), await tenant(served, spend_limit_nano_usd=0)
    refused = await ask(served, route, broke.key)
    # A batch says it of each item.
    assert refused.status == 402 or "quota_exceeded" in refused.body.decode()
    assert not [word for word in other.words if word in refused.body.decode()]
    assert (await ask(served, route, other.key)).status == 200
    await served.events()
    assert (await rows_of(served.database, broke.workspace_id))["usage_events"] == []
    assert len((await rows_of(served.database, other.workspace_id))["usage_events"]) == 1


async def test_the_same_request_id_and_the_same_item_id_are_two_events(served: Compressing) -> None:
    tenants = [await tenant(served) for _ in range(2)]
    for route in SPEND:
        for one in tenants:
            reply = await ask(served, route, one.key)
            assert (reply.status, reply.reply_headers["x-request-id"]) == (200, "same")
    await served.events()
    for one in tenants:
        assert len((await rows_of(served.database, one.workspace_id))["usage_events"]) == len(SPEND)
    by_route = await served.database.read(partial(usage, by=["route"], workspace=tenants[0].workspace))
    assert {line.group["route"]: line.requests for line in by_route} == Counter(SPEND.values())


@pytest.mark.parametrize(
    "route",
    [
        ("GET", "/v1/models"),
        ("GET", "/v1/usage"),
        ("GET", "/v1/usage/proof"),
        ("GET", "/v1/limits"),
        ("GET", "/v1/compress/{id}/original"),
        *SPEND,
    ],
    ids=" ".join,
)
async def test_a_key_that_ended_says_no_more_than_one_that_never_was(
    served: Compressing, route: tuple[str, str]
) -> None:
    other = await tenant(served)
    await served.accounts.revoke_workspace(other.workspace, now=datetime.now(UTC))
    never = f"pith_{'a' * 16}_{'b' * 43}"
    wrong = f"pith_{other.key.split('_')[1]}_{'b' * 43}"
    answers = {
        (reply.status, reply.body)
        for key in (other.key, never, wrong)
        for reply in [await ask(served, route, key)]
    }
    assert len(answers) == 1 and next(iter(answers))[0] == (401 if is_a_dialects(route) else 403)


def is_a_dialects(route: tuple[str, str]) -> bool:
    return route[1].startswith(("/openai/", "/anthropic/"))


async def test_of_the_same_id_each_reads_its_own_original(served: Compressing) -> None:
    one, two = await tenant(served), await tenant(served)
    await keep_original(served, await served.new_key(), one.workspace)
    for key in (one.key, two.key):
        found = await ask(served, ("GET", "/v1/compress/{id}/original"), key)
        assert found.json()["text"] == "its own"


async def test_prefixes_are_kept_apart_by_workspace(tmp_path: Path) -> None:
    """The engine is given a salt of the workspace's, and a caller cannot choose one."""
    async with serving(tmp_path) as service:
        service.engine = engine = FakeEngine()
        salts = []
        for name in ("one", "one-again", "two"):
            key = service.key if name == "one-again" else await service.new_key()
            service = replace(service, key=key)
            assert (await service.chat().run()).status == 200
            salts.append(engine.requests[-1].cache_salt)
        assert salts[0] == salts[1] != salts[2] and all(salts)
        refused = await service.chat(cache_salt=salts[0]).run()
        assert refused.status == 400 and refused.json()["error"]["param"] == "cache_salt"
