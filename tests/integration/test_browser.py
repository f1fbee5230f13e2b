"""A page in a real browser calls the server from another origin, and another page may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.fake_engine import FakeEngine
from tests.integration.browser import result_of
from tests.integration.running import PAGE_ORIGIN, Server
from tests.serve.loopback_service import service

# Each answer as a page sees it: status, body, headers; or the error of `fetch`.
CALLS = """
const headers = {"Authorization": `Bearer ${given.key}`, "Content-Type": "application/json", "X-Stainless-Lang": "js"};
const body = (stream) => JSON.stringify({
  model: "pith-mini", messages: [{role: "user", content: "hi"}], max_tokens: 48, ignore_eos: true, stream,
});
const ask = async (path, options) => {
  try {
    const reply = await fetch(given.url + path, options);
    return {status: reply.status, body: await reply.text(), headers: Object.fromEntries(reply.headers)};
  } catch (error) {
    return {failed: String(error)};
  }
};
const pieces = async (path, options) => {
  const reader = (await fetch(given.url + path, options)).body.getReader();
  const found = [];
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return found;
    found.push(new TextDecoder().decode(value));
  }
};
"""
OPEN = (
    CALLS
    + """
const chat = "/openai/v1/chat/completions";
return {
  models: await ask("/openai/v1/models", {headers}),
  reply: await ask(chat, {method: "POST", headers, body: body(false)}),
  contract: await ask("/v1/chat/completions", {method: "POST", headers, body: body(false)}),
  pieces: await pieces(chat, {method: "POST", headers, body: body(true)}),
  wrong: await ask("/openai/v1/models", {headers: {...headers, "Authorization": "Bearer wrong"}}),
  unknown: await ask(chat, {method: "POST", headers, body: "{}", credentials: "include"}),
};
"""
)
CLOSED = (
    CALLS
    + """
const options = {method: "POST", headers, body: body(false)};
const replies = [ask("/v1/chat/completions", options), ask("/openai/v1/models", {headers}), ask("/health", {})];
return Promise.all(replies);
"""
)


def test_a_page_of_an_origin_that_is_named_reads_replies_streams_and_errors(
    server: Server, tmp_path: Path
) -> None:
    if PAGE_ORIGIN not in server.config.read_text():
        pytest.skip("the server was started for no page")
    found = result_of(OPEN, PAGE_ORIGIN, tmp_path, {"url": server.url, "key": server.key})
    assert found["models"]["status"] == 200 and "pith-mini" in found["models"]["body"]
    for name in ("reply", "contract"):
        assert found[name]["status"] == 200 and '"choices"' in found[name]["body"]
        assert found[name]["headers"]["x-request-id"]
    assert found["contract"]["headers"]["x-service-metering-status"] == "persisted"
    stream = found["pieces"]
    assert len(stream) > 1 and "".join(stream).rstrip().endswith("data: [DONE]")
    assert found["wrong"]["status"] == 401 and "invalid_api_key" in found["wrong"]["body"]
    assert found["unknown"]["status"] == 400 and '"error"' in found["unknown"]["body"]


def test_a_page_of_another_origin_reads_nothing(server: Server, tmp_path: Path) -> None:
    found = result_of(CLOSED, "http://other.test", tmp_path, {"url": server.url, "key": server.key})
    assert found == [{"failed": "TypeError: Failed to fetch"}] * 3


def test_a_server_that_is_closed_is_read_by_no_page(tmp_path: Path) -> None:
    with service(tmp_path, FakeEngine()) as running:
        found = result_of(CLOSED, PAGE_ORIGIN, tmp_path, {"url": running.url, "key": running.key})
    assert found == [{"failed": "TypeError: Failed to fetch"}] * 3
