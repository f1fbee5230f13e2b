"""A model that cannot be started: who lists models is told, requests to it are refused and cost nothing, and the server
is ready to serve the others."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from models.errors import EngineUnavailable
from models.fake_engine import FakeEngine
from serve.catalog.offered import UNAVAILABLE, readiness
from serve.config.settings import Settings
from serve.http.openapi import health_routes
from tests.serve.retrieval.serving import FakeRetrieval
from tests.serve.served import HI, Client, Served, serving, settings_document

pytestmark = pytest.mark.asyncio
AWAY = "beta"


async def ask_away() -> Collection[str]:
    return {AWAY}


def marked(models: Collection[Mapping[str, Any]]) -> dict[str, str | None]:
    return {model["id"]: model.get("unavailable") for model in models}


MARKED = {"alpha": None, AWAY: UNAVAILABLE, "gamma": None, "delta": None}


async def test_who_lists_the_models_is_told_and_not_why(tmp_path: Path) -> None:
    async with serving(tmp_path, ask_away=ask_away) as fresh:
        served = await fresh.renewed()
        contract = (await served.get("/v1/models").run()).json()
        openai = (await served.get("/openai/v1/models").run()).json()["data"]
        anthropic = (await served.get("/anthropic/v1/models").run()).json()["data"]
        assert marked(contract) == marked(openai) == marked(anthropic) == MARKED
        for dialect in ("openai", "anthropic"):
            one = (await served.get(f"/{dialect}/v1/models/{AWAY}").run()).json()
            other = (await served.get(f"/{dialect}/v1/models/alpha").run()).json()
            assert one["unavailable"] == UNAVAILABLE and "unavailable" not in other
        # It has its price: what is on offer does not change.
        assert [model["id"] for model in (await served.get("/v1/catalog").run()).json()["models"]] == list(
            MARKED
        )


def request_of(served: Served, path: str, **body: Any) -> Client:
    return Client(
        served.api,
        path,
        method="POST",
        headers={
            "Authorization": f"Bearer {served.key}",
            "Content-Type": "application/json",
            "anthropic-version": "2023-06-01",
        },
        pieces=[json.dumps({"model": AWAY, **body}).encode()],
    )


REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": HI}),
    ("/v1/chat/completions", {"messages": HI, "stream": True}),
    ("/openai/v1/chat/completions", {"messages": HI}),
    ("/openai/v1/completions", {"prompt": "Hello"}),
    ("/openai/v1/responses", {"input": "Hello", "max_tokens": None, "max_output_tokens": 16}),
    ("/anthropic/v1/messages", {"messages": HI}),
    ("/anthropic/v1/messages", {"messages": HI, "stream": True}),
]


@pytest.mark.parametrize(("path", "body"), REQUESTS)
async def test_a_request_to_it_is_refused_in_every_dialect_and_costs_nothing(
    tmp_path: Path, path: str, body: dict[str, Any]
) -> None:
    async with serving(tmp_path, ask_away=ask_away) as fresh:
        served = await fresh.renewed()
        why = f"{AWAY} {UNAVAILABLE}"
        served.engine = FakeEngine(fails_with=EngineUnavailable(why, retry_after_s=5), bound=None)
        body = {name: value for name, value in {"max_tokens": 6, **body}.items() if value is not None}
        reply = await request_of(served, path, **body).run()
        assert (reply.status, reply.reply_headers["retry-after"]) in ((503, "5"), (529, "5"))
        assert why in reply.body.decode()
        assert await served.events() == []
        await served.assert_nothing_is_left_open()


@pytest.mark.parametrize(
    ("up", "away", "is_ready"),
    [
        ({"alpha"}, set[str](), True),
        ({"alpha"}, {AWAY}, True),
        # It starts, and is waited for.
        ({"beta"}, set[str](), False),
        # It cannot start, and is not waited for.
        ({"beta"}, {"alpha"}, True),
        (set[str](), {"alpha"}, False),
        # An embedding model is one of the others.
        ({"texts"}, {"alpha"}, True),
    ],
)
async def test_a_default_model_that_is_away_does_not_keep_the_others_from_being_asked(
    tmp_path: Path, up: set[str], away: set[str], is_ready: bool
) -> None:
    settings = Settings.model_validate(settings_document(tmp_path))
    engines = {model.id: FakeEngine(is_ready=model.id in up) for model in settings.models}

    async def gone() -> Collection[str]:
        return away

    ready = readiness(settings, engines, {}, {"texts": FakeRetrieval()} if "texts" in up else {}, gone)
    assert await ready() is is_ready
    (route,) = (
        one for one in health_routes(ready, gone).routes if one.path == "/ready" and "GET" in one.methods
    )
    reply = await route.endpoint()
    assert reply.status_code == (200 if is_ready else 503)
    assert (b"unavailable" in reply.body) is bool(away)
