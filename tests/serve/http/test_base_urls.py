"""Clients that were given a wrong base URL are told the right one, or are served where only a version is missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest

from models.fake_engine import FakeEngine
from serve.http.error_dialects import right_base
from serve.http.middleware import plain_dialect_path
from tests.serve.loopback_service import Running, service

HI: Any = [{"role": "user", "content": "hi"}]
OPENAI, ANTHROPIC, COHERE = "/openai/v1", "/anthropic", "/openai"
# What clients of each protocol add to their base URL.
OF_OPENAI = (
    "chat/completions",
    "completions",
    "embeddings",
    "responses",
    "responses/resp_1",
    "models/pith-mini",
    "files",
    "files/file-1/content",
    "batches",
    "batches/batch_1/cancel",
    "rerank",
    "score",
)
OF_ANTHROPIC = ("v1/messages", "v1/messages/count_tokens")
OF_OLLAMA = ("api/chat", "api/generate", "api/tags", "api/embed", "api/embeddings", "api/show", "api/version")
OF_COHERE = ("v2/rerank",)
# Path, and the base URL that its 404 names.
WRONG = [
    *((f"{base}/{end}", OPENAI) for base in ("", "/openai", "/openai/v1/v1", "/api/v1") for end in OF_OPENAI),
    *((f"/v1/{end}", OPENAI) for end in OF_OPENAI if end != "chat/completions"),
    *((f"/anthropic/{end}", OPENAI) for end in ("chat/completions", "v1/chat/completions", "responses")),
    *((f"/openai/deployments/pith-mini/{end}", OPENAI) for end in ("chat/completions", "embeddings")),
    *((f"{base}/{end}", ANTHROPIC) for base in ("", "/openai", "/openai/v1", "/v1") for end in OF_ANTHROPIC),
    *((f"{base}/messages", ANTHROPIC) for base in ("", "/openai", "/openai/v1")),
    *((f"{base}/{end}", OPENAI) for base in ("", "/v1", "/openai", "/openai/v1") for end in OF_OLLAMA),
    *((f"{base}/{end}", COHERE) for base in ("", "/v1", "/openai/v1", "/anthropic") for end in OF_COHERE),
]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with service(tmp_path_factory.mktemp("service"), FakeEngine()) as found:
        yield found


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[httpx.Client]:
    with running.client() as made:
        yield made


@pytest.mark.parametrize(("path", "base"), WRONG)
def test_a_404_names_the_base_url(client: httpx.Client, path: str, base: str) -> None:
    method = "GET" if path.endswith(("tags", "version", "content", "pith-mini", "resp_1")) else "POST"
    reply = client.request(method, path, params={"api-version": "2025-01-01"})
    assert reply.status_code == 404
    body = reply.json()
    message = body["error"] if isinstance(body["error"], str) else body["error"]["message"]
    assert message.startswith(f"Not Found: {method} {path}; ")
    assert message.endswith(f" the base URL is this server's address followed by {base}")
    is_dialects = path.startswith(("/openai/", "/anthropic/"))
    assert ("detail" in body) is not is_dialects
    if "messages" in path:
        assert (body["type"], body["error"]["type"]) == ("error", "not_found_error")
        assert body["request_id"] == reply.headers["x-request-id"]
    elif "/api/" in path and "/api/v1" not in path:
        assert isinstance(body["error"], str)
    else:
        assert body["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    "path",
    [
        *(f"{OPENAI}/{end}" for end in OF_OPENAI),
        *(f"{ANTHROPIC}/{end}" for end in OF_ANTHROPIC),
        f"{COHERE}/v2/rerank",
        "/",
        "/v1/nothing",
        "/openai/v1/audio/speech",
        "/openai/v1/modelsandmore",
    ],
)
def test_what_has_no_other_place_has_no_hint(path: str) -> None:
    assert right_base(path) is None


@pytest.mark.parametrize("version", ["", "/v1", "/v1/v1"])
def test_anthropics_version_may_be_missing_or_doubled(client: httpx.Client, version: str) -> None:
    base = f"{ANTHROPIC}{version}"
    body = {"model": "pith-mini", "max_tokens": 4, "messages": HI}
    assert client.post(f"{base}/messages", json=body).json()["type"] == "message"
    assert client.post(f"{base}/messages/count_tokens", json=body).json()["input_tokens"] > 0
    assert client.get(f"{base}/models").json()["first_id"] == "pith-mini"
    assert client.get(f"{base}/models/pith-mini").json()["id"] == "pith-mini"


def test_a_models_name_is_no_version() -> None:
    for path in ("/anthropic/v1/models/v1/messages", "/anthropic/v1/models/a/v1/v1/models"):
        assert plain_dialect_path(path) == path
    assert plain_dialect_path("/v1/v1/messages") == "/v1/v1/messages"


def of_openai(url: str, key: str) -> Any:
    return openai.OpenAI(base_url=url, api_key=key, max_retries=0)


def of_azure(url: str, key: str) -> Any:
    return openai.AzureOpenAI(azure_endpoint=url, api_key=key, api_version="2025-01-01", max_retries=0)


def of_anthropic(url: str, key: str) -> Any:
    return anthropic.Anthropic(base_url=url, api_key=key, max_retries=0)


def chats(client: Any) -> Any:
    return client.chat.completions.create(model="pith-mini", messages=HI)


def embeds(client: Any) -> Any:
    return client.embeddings.create(model="pith-mini", input="hi")


def responds(client: Any) -> Any:
    return client.responses.create(model="pith-mini", input="hi")


def says(client: Any) -> Any:
    return client.messages.create(model="pith-mini", max_tokens=4, messages=HI)


@pytest.mark.parametrize(
    ("made", "path", "asks", "base"),
    [
        (of_openai, "", chats, OPENAI),
        (of_openai, "/openai", chats, OPENAI),
        (of_openai, "/v1", embeds, OPENAI),
        (of_openai, "/v1", responds, OPENAI),
        (of_openai, "/anthropic", chats, OPENAI),
        (of_azure, "", chats, OPENAI),
        (of_anthropic, "", says, ANTHROPIC),
        (of_anthropic, "/openai", says, ANTHROPIC),
        (of_anthropic, "/openai/v1", says, ANTHROPIC),
    ],
)
def test_sdks_show_it(
    running: Running, made: Callable[[str, str], Any], path: str, asks: Callable[[Any], Any], base: str
) -> None:
    with (
        made(running.url + path, running.key) as client,
        pytest.raises((openai.NotFoundError, anthropic.NotFoundError)) as error,
    ):
        asks(client)
    assert f"the base URL is this server's address followed by {base}" in str(error.value)


@pytest.mark.parametrize("path", ["/anthropic", "/anthropic/v1", "/anthropic/v1/"])
def test_anthropics_sdk_is_served_with_either_base_url(running: Running, path: str) -> None:
    with of_anthropic(running.url + path, running.key) as client:
        assert says(client).stop_reason


def test_a_long_path_is_looked_through_once() -> None:
    """It is a caller's to choose, up to 64 KiB; looked through from each beginning, one of these would take seconds."""
    began = time.process_time()
    for part in ("responses/", "api/", "deployments/x/", "v2/rerank/", "v1/", "/"):
        right_base(f"/{part * (60_000 // len(part))}\nx")
    assert time.process_time() - began < 1


def test_another_404_is_what_it_was(client: httpx.Client) -> None:
    assert client.get("/v1/nothing").json()["detail"] == "Not Found: GET /v1/nothing"
    assert client.get("/openai/v1/models/none").json()["error"]["code"] == "model_not_found"
