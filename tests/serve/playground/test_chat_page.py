"""Chat and the key in Chromium: questions that fail, models that start, replies that are cut, keys of every state."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import expect

from models.errors import EngineUnavailable
from models.fake_engine import FakeEngine
from serve.catalog import offered
from tests.serve.loopback_service import Running
from tests.serve.playground.watched import Watched

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _as_it_was(engine: FakeEngine) -> Iterator[None]:
    before = dict(vars(engine))
    yield
    vars(engine).update(before)


@pytest.fixture
def chat(page: Watched, running: Running) -> Watched:
    page.use_key(running.key)
    page.tab("Chat")
    return page


def write(page: Watched, words: str) -> None:
    page.page.get_by_label("Your message").fill(words)


def send(page: Watched, words: str) -> None:
    write(page, words)
    page.button("Send").click()


def said(engine: FakeEngine) -> list[str]:
    """The texts of the last request that reached the engine."""
    return [str(message["content"]) for message in engine.requests[-1].messages]


def test_a_question_that_fails_is_not_sent_and_can_be_tried_again(chat: Watched, engine: FakeEngine) -> None:
    send(chat, "The first question?")
    expect(chat.page.locator(".bill")).to_have_count(1)
    engine.fails_with = EngineUnavailable("no replica", retry_after_s=7)
    send(chat, "What fails?")
    chat.shows("#chat-fault", "The model is busy or starting. Try again in 7 s")
    composer = chat.page.get_by_label("Your message")
    expect(composer).to_have_value("What fails?")
    chat.shows(".message.unsent", "Not answered")
    assert chat.violations() == []
    engine.fails_with = None
    chat.button("Retry").click()
    expect(chat.page.locator(".bill")).to_have_count(2)
    expect(composer).to_have_value("")
    assert said(engine) == ["The first question?", engine.text, "What fails?"]
    assert chat.page.locator(".unsent").count() == 0 and chat.text("#chat-fault") == ""
    assert chat.page.locator(".message.user").count() == 2


def test_what_is_written_while_a_question_fails_stays(chat: Watched, engine: FakeEngine) -> None:
    engine.answers = False
    send(chat, "Too slow?")
    write(chat, "Something else.")
    chat.button("Stop").click()
    chat.shows(".message.unsent", "Stopped before the reply began")
    expect(chat.page.get_by_label("Your message")).to_have_value("Something else.")
    engine.answers = True
    chat.button("Send").click()
    expect(chat.page.locator(".bill")).to_have_count(1)
    # What was not answered is no part of what follows, and stays to be tried again.
    assert said(engine) == ["Something else."]
    chat.button("Retry").click()
    expect(chat.page.locator(".bill")).to_have_count(2)
    assert said(engine) == ["Something else.", engine.text, "Too slow?"]


def test_an_edited_question_takes_the_place_of_the_one_that_failed(chat: Watched, engine: FakeEngine) -> None:
    engine.fails_with = EngineUnavailable("no replica", retry_after_s=7)
    send(chat, "Wrong?")
    chat.shows(".message.unsent", "Not answered")
    engine.fails_with = None
    send(chat, "Right?")
    expect(chat.page.locator(".bill")).to_have_count(1)
    assert said(engine) == ["Right?"]
    assert chat.page.locator(".message.user .said").all_inner_texts() == ["Right?"]


def test_a_model_that_starts_says_so_and_for_how_long(
    chat: Watched, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offered, "TOLD_AGAIN_S", 0)
    engine.is_ready, engine.answers = False, False
    chat.page.locator("#chat-model").focus()
    first = chat.page.locator("#chat-model option").first
    expect(first).to_have_text("Pith Mini (embedded) · not running")
    chat.shows("#chat-price", "the first request waits for its start")
    send(chat, "Are you there?")
    waiting = chat.page.locator(".message.assistant .waiting")
    expect(waiting).to_have_text(re.compile(r"Pith Mini \(embedded\) is starting, [1-9]\d* s…"))
    expect(waiting).not_to_have_text(waiting.inner_text())
    expect(waiting).to_have_text(re.compile(r"Pith Mini \(embedded\) is starting, [1-9]\d* s…"))
    expect(first).to_have_text(re.compile(r"Pith Mini \(embedded\) · starting, \d+ s"))
    assert chat.violations() == []
    # Up, it is waited for as any other, and no more once it is stopped.
    engine.is_ready = True
    expect(waiting).to_contain_text("Waiting for Pith Mini (embedded)")
    expect(first).to_have_text("Pith Mini (embedded)")
    chat.button("Stop").click()
    expect(waiting).to_have_count(0)


def test_a_reply_says_that_it_was_cut_and_how_fast_it_came(chat: Watched, engine: FakeEngine) -> None:
    engine.first_token_s = engine.token_s = 0.06
    chat.page.get_by_label("Most tokens").fill("7")
    send(chat, "Go on.")
    chat.shows(".cut-off", "Cut off at 7 tokens")
    bill = chat.page.locator(".bill").inner_text()
    assert "to the first token" in bill and "tokens a second" in bill
    chat.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    copy = chat.page.locator(".message.assistant").get_by_role("button")
    copy.click()
    expect(copy).to_have_text("Copied")
    assert chat.page.evaluate("navigator.clipboard.readText()") == " ".join(engine.text.split()[:7])
    # One that ends by itself does not, and one word has no speed.
    engine.first_token_s, engine.token_s, engine.text = 0, 0, "Yes."
    chat.page.get_by_label("Most tokens").fill("200")
    send(chat, "And now?")
    expect(chat.page.locator(".bill")).to_have_count(2)
    assert chat.page.locator(".cut-off").count() == 1
    assert "tokens a second" not in chat.page.locator(".bill").last.inner_text()


def test_the_chat_as_curl_is_the_request(chat: Watched, running: Running, engine: FakeEngine) -> None:
    chat.page.locator("#chat-code summary").click()
    write(chat, "It's \"quoted\", isn't it? $HOME `id` \\ 🚰")
    code = chat.page.locator("#chat-code-text")
    expect(code).to_contain_text("quoted")
    before = code.inner_text()
    assert running.key not in chat.page.content()
    chat.button("Send").click()
    expect(chat.page.locator(".bill")).to_have_count(1)
    sent = engine.requests[-1]
    assert code.inner_text() == before, "with nothing written, it is the last one"
    done = subprocess.run(
        ["bash", "-c", before], env={**os.environ, "PITH_KEY": running.key}, capture_output=True, text=True
    )
    assert done.returncode == 0 and "data: [DONE]" in done.stdout
    again = engine.requests[-1]
    assert again is not sent
    assert (again.messages, again.options, again.max_tokens) == (sent.messages, sent.options, sent.max_tokens)
    assert chat.violations() == []


def test_what_a_field_cannot_be_is_said_by_its_name(chat: Watched, engine: FakeEngine) -> None:
    asked = len(engine.requests)
    temperature = chat.page.get_by_label("Temperature")
    temperature.fill("3")
    send(chat, "Hot?")
    chat.shows("#chat-fault", "Temperature must be 2 or less.")
    expect(temperature).to_be_focused()
    temperature.fill("1.25")
    expect(chat.page.locator("#chat-fault")).to_be_hidden()
    chat.page.get_by_label("Most tokens").fill("")
    chat.button("Send").click()
    chat.shows("#chat-fault", "Most tokens must be a number.")
    chat.page.get_by_label("Most tokens").fill("1.5")
    chat.button("Send").click()
    chat.shows("#chat-fault", "Most tokens must be a whole number.")
    chat.page.get_by_label("Most tokens").fill("20")
    # What only the server knows of, in the same words.
    for field in ("max-tokens", "temperature"):
        chat.page.locator(f"#{field}").evaluate(
            "field => { field.min = ''; field.max = ''; field.value = '-1'; }"
        )
    chat.button("Send").click()
    chat.shows("#chat-fault", "Most tokens must be 1 or more. Temperature must be 0 or more.")
    chat.shows(".message.unsent", "Not sent")
    chat.page.get_by_label("Most tokens").fill("20")
    temperature.fill("1")
    chat.page.get_by_label("Your message").evaluate("field => { field.value = 'half of a pair \\ud83d'; }")
    chat.button("Send").click()
    chat.shows("#chat-fault", "half of a character")
    assert len(engine.requests) == asked and "body" not in chat.text("#chat-fault").lower()


def test_a_key_is_in_use_only_when_the_server_knows_it(page: Watched, running: Running) -> None:
    page.tab("Chat")
    send(page, "Hello?")
    page.shows("#chat-fault", "Chat needs a key.")
    state, button = page.page.locator("#key-state"), page.page.locator("#key-button")
    page.shows("#key-box", "pith key create")
    page.shows("#key-box", "var/demo-key")
    field = page.page.get_by_label("Project key")
    for wrong in ("pith_wrong_wrong", "any text", "schlüssel"):
        field.fill(wrong)
        page.button("Use key").click()
        expect(state).to_have_text("Key refused")
        expect(button).to_have_attribute("data-state", "refused")
        page.page.locator("#key-fault").wait_for()
        assert wrong not in page.page.content() and "needs a key" in page.text("#chat-fault"), wrong
    assert page.violations() == []
    # One that is refused is not used: the demo still compresses.
    page.tab("Compress")
    page.shows("#compress-who", "Without a key")
    page.tab("Chat")
    page.page.route("**/v1/limits", lambda route: route.abort())
    field.fill(running.key)
    page.button("Use key").click()
    expect(state).to_have_text("Key not checked")
    page.shows("#key-fault", "The server did not answer")
    page.page.unroute("**/v1/limits")
    page.button("Use key").click()
    expect(state).to_have_text("Key in use")
    expect(page.page.locator("#key-box")).to_be_hidden()
    expect(page.page.locator("#chat-fault")).to_be_hidden()
    expect(page.page.get_by_label("Your message")).to_have_value("Hello?")


def test_a_key_that_is_revoked_is_in_use_no_more(chat: Watched, running: Running) -> None:
    refusal = httpx.get(f"{running.url}/v1/limits", headers={"Authorization": "Bearer pith_revoked"})
    assert refusal.status_code == 403
    path = "**/v1/chat/completions"
    chat.page.route(path, lambda route: route.fulfill(status=403, json=refusal.json()))
    send(chat, "Hello?")
    chat.shows("#chat-fault", "does not accept this key")
    chat.shows("#key-state", "Key refused")
    chat.shows(".message.unsent", "Not sent")
    chat.button("Retry").click()
    chat.shows("#chat-fault", "Chat needs a key.")
    chat.page.unroute(path)
    chat.page.get_by_label("Project key").fill(running.key)
    chat.button("Use key").click()
    expect(chat.page.locator("#chat-fault")).to_be_hidden()
    chat.button("Retry").click()
    chat.shows(".bill", "charged")
