"""Statuses that need a fault (500, 502, 503), and what no small model reaches: the contract's section 7 over HTTP.

The service is the real one and listens on loopback; its engines and its ledger's outages are fakes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from models.engine import Engine
from models.errors import EngineError, EngineFailed, EngineRejected, EngineUnavailable
from models.fake_engine import FakeEngine
from tests.integration.contract_shapes import COMPLETION, ERROR, mismatches
from tests.serve.loopback_service import SECRET, FakeBrokenEngine, Running, service
from tests.serve.served import usage_of

COMPLETIONS = "/v1/chat/completions"
CHAT = {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 8}
both_forms = pytest.mark.parametrize("stream", [False, True], ids=["JSON", "SSE"])

Serve = Callable[[Engine], AbstractContextManager[Running]]


@pytest.fixture
def serving(tmp_path: Path) -> Serve:
    return lambda engine: service(tmp_path, engine)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def running(serving: Serve, engine: FakeEngine) -> Iterator[Running]:
    with serving(engine) as found:
        yield found


@pytest.fixture
def http(running: Running) -> Iterator[httpx.Client]:
    with running.client() as client:
        yield client


def ask(http: httpx.Client, *, stream: bool = False, **fields: Any) -> httpx.Response:
    return http.post(COMPLETIONS, json={**CHAT, "stream": stream, **fields})


def check_error(reply: httpx.Response, status: int, code: str) -> None:
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"].partition(";")[0] == "application/json"
    assert reply.headers["x-request-id"]
    assert mismatches(reply.json(), ERROR) == []
    assert reply.json()["error"]["code"] == code
    assert SECRET not in reply.text
    assert ("retry-after" in reply.headers) is (status == 503)


@both_forms
@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        pytest.param(EngineFailed("it died"), 502, "engine_failed", id="7 chat 502: the engine died"),
        pytest.param(
            EngineUnavailable("starting", retry_after_s=17),
            503,
            "engine_unavailable",
            id="7 chat 503: inference service unavailable",
        ),
        pytest.param(
            EngineRejected("too long", param="input_tokens"),
            422,
            "rejected_by_engine",
            id="7 chat 422: request too large for the model",
        ),
    ],
)
def test_what_an_engine_answers_instead_of_tokens_is(
    fault: EngineError, status: int, code: str, stream: bool, engine: FakeEngine, http: httpx.Client
) -> None:
    engine.fails_with = fault
    reply = ask(http, stream=stream)
    check_error(reply, status, code)
    if status == 503:
        assert reply.headers["retry-after"] == "17"
    engine.fails_with = None
    assert ask(http, stream=stream).status_code == 200


@both_forms
@pytest.mark.parametrize("garbage", [b"", b"<html>", b"[]", b"data: nonsense\n\n", b"\xff"], ids=repr)
def test_an_invalid_response_of_the_engine_is_a_502(
    garbage: bytes, stream: bool, engine: FakeEngine, http: httpx.Client
) -> None:
    """7 Errors: inference service returned an invalid response, 502."""
    engine.garbage = garbage
    check_error(ask(http, stream=stream), 502, "engine_failed")


def test_a_bug_is_a_500_that_tells_nothing_of_itself(serving: Serve) -> None:
    """7 Errors: unexpected server error, 500."""
    with serving(FakeBrokenEngine()) as running, running.client() as http:
        check_error(ask(http), 500, "internal_error")


def test_a_bug_behind_authentication_is_a_500_on_both_routes(running: Running, http: httpx.Client) -> None:
    """7 Errors: /v1/models 500 and /v1/chat/completions 500."""
    running.database.is_broken = True
    check_error(http.get("/v1/models"), 500, "internal_error")
    check_error(ask(http), 500, "internal_error")


def test_a_key_that_cannot_be_checked_is_a_503_on_both_routes(running: Running, http: httpx.Client) -> None:
    """5 and 7: authentication backend down, 503."""
    running.database.is_down = True
    for reply in (http.get("/v1/models"), ask(http), ask(http, stream=True)):
        check_error(reply, 503, "ledger_unavailable")


def test_without_a_ledger_the_catalog_is_a_503_until_it_was_read_once(
    running: Running, http: httpx.Client
) -> None:
    """7 Errors: /v1/catalog 503, model catalog temporarily unavailable."""
    running.database.is_down = True
    check_error(http.get("/v1/catalog"), 503, "catalog_unavailable")
    running.database.is_down = False
    assert http.get("/v1/catalog").status_code == 200
    running.database.is_down = True
    assert http.get("/v1/catalog").status_code == 200


@both_forms
def test_what_cannot_be_held_is_not_served(
    stream: bool, engine: FakeEngine, running: Running, http: httpx.Client
) -> None:
    """7 Errors: /v1/chat/completions 503, for a key that was checked before the ledger went away."""
    assert ask(http).status_code == 200
    served = len(engine.requests)
    running.database.is_down = True
    check_error(ask(http, stream=stream), 503, "ledger_unavailable")
    assert len(engine.requests) == served


@both_forms
def test_usage_that_waits_for_the_ledger_is_degraded(
    stream: bool, engine: FakeEngine, running: Running, http: httpx.Client
) -> None:
    """2 Metering: status degraded, persisted false; 4: X-Service-Metering-Status."""

    async def outage(_: float) -> None:
        running.database.is_down = True

    engine.sleep = outage
    reply = ask(http, stream=stream)
    assert reply.status_code == 200, reply.text
    body = json.loads(reply.text.split("data: ")[-2]) if stream else reply.json()
    assert body["service"]["metering"] == {"persisted": False, "status": "degraded"}
    # A stream's header went out with the hold.
    assert reply.headers["x-service-metering-status"] == ("persisted" if stream else "degraded")


@pytest.mark.parametrize(
    "fault", [EngineFailed("it died"), EngineUnavailable("gone", retry_after_s=1)], ids=repr
)
def test_a_failure_after_the_first_event_ends_the_stream_with_an_error(
    fault: EngineError, engine: FakeEngine, http: httpx.Client
) -> None:
    """6 and 7: the failure is an Error object as the last event, with what was charged, and nothing says `[DONE]`."""
    engine.fails_with, engine.fails_after = fault, 3
    reply = ask(http, stream=True)
    assert reply.status_code == 200
    assert mismatches(last_event(reply), ERROR) == []
    assert b"[DONE]" not in reply.content
    event = last_event(reply)
    assert event["usage"] == usage_of(2, 3)
    assert event["service"]["metering"] == {"persisted": True, "status": "persisted"}
    price = event["service"]["billing"]
    spent = 2 * price["input_price_per_mtok"] + 3 * price["output_price_per_mtok"]
    assert price["request_cost_usd"] == pytest.approx(spent / 10**6)
    assert price["minimum_applied"] is False


def test_a_bug_after_the_first_event_ends_the_stream_with_an_error(serving: Serve) -> None:
    """7 Errors: unexpected server error, once a stream has begun."""
    with serving(FakeBrokenEngine()) as running, running.client() as http:
        reply = ask(http, stream=True)
    assert reply.status_code == 200
    assert mismatches(last_event(reply), ERROR) == []
    assert last_event(reply)["error"]["code"] == "internal_error"
    assert SECRET not in reply.text


def last_event(reply: httpx.Response) -> Any:
    return json.loads(reply.content.rstrip(b"\n").rpartition(b"data: ")[2])


def test_readiness_follows_the_default_model(engine: FakeEngine, http: httpx.Client) -> None:
    """`/ready` says 503 with Retry-After while the default model is not up; `/health` does not care."""
    assert http.get("/ready").status_code == 200
    engine.is_ready = False
    reply = http.get("/ready")
    assert reply.status_code == 503
    assert int(reply.headers["retry-after"]) >= 1
    assert reply.headers["x-request-id"]
    assert http.get("/health").status_code == 200


@pytest.mark.parametrize("place", range(4), ids=lambda place: f"2 Model: id {place + 1} is served")
def test_every_model_of_the_catalog_answers_at_its_own_price(
    place: int, http: httpx.Client, engine: FakeEngine
) -> None:
    model = http.get("/v1/catalog").json()["models"][place]
    reply = ask(http, model=model["id"])
    assert reply.status_code == 200, reply.text
    assert mismatches(reply.json(), COMPLETION) == []
    assert reply.json()["model"] == engine.requests[-1].model_id == model["id"]
    billing = reply.json()["service"]["billing"]
    for price in ("input_price_per_mtok", "output_price_per_mtok", "minimum_request_charge_usd"):
        assert billing[price] == model[price]


@pytest.mark.parametrize(
    ("sent", "asked"),
    [
        pytest.param({"max_tokens": 1}, 1, id="8 max_tokens: 1"),
        pytest.param({"max_tokens": 16_384}, 16_384, id="8 max_tokens: 16384"),
        pytest.param({}, 512, id="8 max_tokens: 512 by default"),
        pytest.param({"max_tokens": 3, "max_completion_tokens": 4}, 4, id="max_completion_tokens wins"),
    ],
)
def test_the_engine_is_asked_for_at_most(
    sent: dict[str, int], asked: int, engine: FakeEngine, http: httpx.Client
) -> None:
    reply = http.post(COMPLETIONS, json={"messages": CHAT["messages"], **sent})
    assert reply.status_code == 200, reply.text
    assert engine.requests[-1].max_tokens == asked


def test_the_engine_is_asked_for_temperature_zero_by_default(engine: FakeEngine, http: httpx.Client) -> None:
    """8 Limits: temperature 0 by default."""
    assert ask(http).status_code == 200
    assert engine.requests[-1].options["temperature"] == 0


def test_extra_properties_never_reach_the_engine(engine: FakeEngine, http: httpx.Client) -> None:
    """2: extra properties are allowed, on a request and on a message."""
    message = {"role": "user", "content": "Hello.", "colour": "red"}
    assert ask(http, messages=[message], colour="red", extra_body={"cache_salt": "x"}).status_code == 200
    assert "red" not in repr(engine.requests[-1])
    assert "extra_body" not in repr(engine.requests[-1])
