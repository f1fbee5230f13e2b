"""What a key may be used for: by every route, in every dialect and in the lines of batches, decided in one place."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from billing.accounts.keys import ROUTE_NAMES, KeyTerms
from billing.caller import KeyPowers, ProjectLimits
from billing.errors import LedgerUnavailable
from serve.http.auth import route_name
from tests.serve.compressing import CONTEXT, QUERY, Compressing
from tests.serve.served import HI, Client

pytestmark = pytest.mark.asyncio(loop_scope="module")
CHAT = {"messages": HI, "max_tokens": 6}
ITEM = {"query": QUERY, "input": CONTEXT}
# A route of each dialect, and how it says that the key may not use the model: its status and its code or type.
REFUSALS: dict[str, tuple[Any, int, str]] = {
    "/v1/chat/completions": (CHAT, 403, "model_not_allowed"),
    "/v1/compress": (ITEM, 403, "model_not_allowed"),
    "/openai/v1/chat/completions": (CHAT, 404, "model_not_found"),
    "/openai/v1/completions": ({"prompt": "hi", "max_tokens": 6}, 404, "model_not_found"),
    "/openai/v1/responses": ({"input": "hi", "max_output_tokens": 6}, 404, "model_not_found"),
    "/anthropic/v1/messages": (CHAT, 404, "not_found_error"),
    "/anthropic/v1/messages/count_tokens": (CHAT, 404, "not_found_error"),
}


@pytest_asyncio.fixture(loop_scope="module")
async def served(module_service: Compressing) -> Compressing:
    return module_service


async def key_with(served: Compressing, terms: KeyTerms, *, limits: ProjectLimits | None = None) -> str:
    await served.new_key(limits=limits or ProjectLimits())
    project = (await served.accounts.list_projects())[-1].project.id
    return (await served.accounts.keys.create(project, "k", terms=terms, now=datetime.now(UTC)))[1]


def only(**powers: set[str]) -> KeyTerms:
    return KeyTerms(powers=KeyPowers(**{name: frozenset(some) for name, some in powers.items()}))


async def ask(served: Compressing, path: str, key: str, body: Any = None, method: str = "POST") -> Client:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    raw = b"" if body is None else json.dumps(body).encode()
    return await Client(served.api, path, method, headers, (raw,)).run()


@pytest.mark.parametrize("path", REFUSALS)
async def test_a_model_that_a_key_may_not_use_is_refused_in_each_dialects_form(
    served: Compressing, path: str
) -> None:
    body, status, code = REFUSALS[path]
    key = await key_with(served, only(models={"beta"}))
    refused = await ask(served, path, key, body)
    error = refused.json()["error"]
    assert (refused.status, error.get("code") or error["type"]) == (status, code)
    if path != "/v1/compress":
        assert (await ask(served, path, key, {**body, "model": "beta"})).status == 200


async def test_a_compression_inside_a_chat_is_refused_where_it_was_asked_for(served: Compressing) -> None:
    key = await key_with(served, only(models={"alpha"}))
    asked = {**CHAT, "compression": {"target_ratio": 0.5}}
    refused = await ask(served, "/v1/chat/completions", key, asked)
    assert (refused.status, refused.json()["error"]["code"]) == (403, "model_not_allowed")
    messages = {"messages": [{"role": "user", "content": CONTEXT}]}
    refused = await ask(served, "/v1/compress", key, messages)
    assert (refused.status, refused.json()["error"]["code"]) == (403, "model_not_allowed")


@pytest.mark.parametrize("prefix", ["", "/openai", "/anthropic"])
async def test_it_is_in_no_list_of_models(served: Compressing, prefix: str) -> None:
    key = await key_with(served, only(models={"beta", "delta"}))
    listed = (await ask(served, f"{prefix}/v1/models", key, method="GET")).json()
    models = listed if isinstance(listed, list) else listed["data"]
    assert [model["id"] for model in models] == ["beta", "delta"]
    if prefix:
        assert (await ask(served, f"{prefix}/v1/models/alpha", key, method="GET")).status == 404
        assert (await ask(served, f"{prefix}/v1/models/beta", key, method="GET")).status == 200


@pytest.mark.parametrize("path", REFUSALS)
async def test_a_route_that_a_key_may_not_use_is_a_403(served: Compressing, path: str) -> None:
    name = route_name(path)
    assert name is not None
    others = set(ROUTE_NAMES) - {name}
    refused = await ask(served, path, await key_with(served, only(routes=others)), REFUSALS[path][0])
    assert refused.status == 403 and name in refused.body.decode()
    assert (
        await ask(served, path, await key_with(served, only(routes={name})), REFUSALS[path][0])
    ).status == 200


async def test_an_expired_key_says_no_more_than_one_that_never_was(served: Compressing) -> None:
    ended = KeyTerms(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    never = f"pith_{'a' * 16}_{'b' * 43}"
    answers = [
        await ask(served, "/v1/models", key, method="GET") for key in (await key_with(served, ended), never)
    ]
    assert answers[0].status == answers[1].status == 403
    assert answers[0].body == answers[1].body


async def test_a_keys_own_limits_stand_beside_its_projects(served: Compressing) -> None:
    tight = KeyTerms(limits=ProjectLimits(requests_per_minute=2))
    key = await key_with(served, tight, limits=ProjectLimits(requests_per_minute=3))
    first = await ask(served, "/v1/chat/completions", key, CHAT)
    assert first.reply_headers["x-ratelimit-limit-requests"] == "2"
    assert (await ask(served, "/v1/chat/completions", key, CHAT)).status == 200
    refused = await ask(served, "/v1/chat/completions", key, CHAT)
    assert refused.status == 429 and "API key rate limit exceeded: 2 requests" in refused.body.decode()
    # What the key's limit refused is not counted against the project's.
    project = (await served.accounts.keys.find(key)).project_id
    _, other = await served.accounts.keys.create(project, "other", now=datetime.now(UTC))
    assert (await ask(served, "/v1/chat/completions", other, CHAT)).status == 200
    refused = await ask(served, "/v1/chat/completions", other, CHAT)
    assert refused.status == 429 and "project rate limit exceeded: 3 requests" in refused.body.decode()


async def test_a_keys_spend_limit_is_a_402_that_says_so(served: Compressing) -> None:
    key = await key_with(served, KeyTerms(monthly_limit_nano_usd=1000))
    refused = await ask(served, "/v1/chat/completions", key, CHAT)
    assert refused.status == 402 and "key quota exceeded" in refused.json()["detail"]


async def test_a_use_is_noted_in_the_background_and_not_by_the_request(served: Compressing) -> None:
    key = await key_with(served, KeyTerms())
    began = datetime.now(UTC)
    await served.accounts.authenticate(key, now=began)
    assert (await served.accounts.keys.find(key)).last_used_at is None
    served.database.is_down = True
    with pytest.raises(LedgerUnavailable):
        await served.accounts.note_uses()
    served.database.is_down = False
    await served.accounts.note_uses()
    noted = (await served.accounts.keys.find(key)).last_used_at
    assert noted is not None and noted >= began - timedelta(seconds=1)
    await served.accounts.authenticate(key, now=began)
    await served.accounts.note_uses()
    assert (await served.accounts.keys.find(key)).last_used_at == noted
