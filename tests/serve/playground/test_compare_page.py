"""Compare in Chromium: both answers and what they took, what is kept without a key, and a key that a link brings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Request, Route, expect

from models.errors import EngineUnavailable
from models.fake_engine import FakeEngine
from serve.catalog import offered
from tests.serve.loopback_service import Running
from tests.serve.playground.watched import Watched

pytestmark = pytest.mark.integration
CHAT = "/v1/chat/completions"
HOSTILE = "<img src=x onerror=window.ran.push('it')><script>window.ran.push('it')</script>"


@pytest.fixture(autouse=True)
def _as_it_was(engine: FakeEngine) -> Iterator[None]:
    before = dict(vars(engine))
    yield
    vars(engine).update(before)


@pytest.fixture
def visitor(page: Watched) -> Watched:
    """Somebody without a key, before the first example."""
    page.tab("Compare")
    expect(page.page.locator("#compare-context")).to_have_value(re.compile("Harlow Bridge"))
    return page


@pytest.fixture
def compare(visitor: Watched, running: Running) -> Watched:
    visitor.use_key(running.key)
    return visitor


def asked_of(page: Watched) -> list[dict[str, Any]]:
    """The chats that the page asks for from now on."""
    found: list[dict[str, Any]] = []
    page.page.on("request", lambda one: found.append(one.post_data_json) if one.url.endswith(CHAT) else None)
    return found


def ask(page: Watched) -> None:
    """Ask both, and wait until neither is under way. The click itself makes the page busy."""
    page.button("Ask both").click()
    rested(page)


def rested(page: Watched) -> None:
    expect(page.page.locator("#compare-sides")).to_have_attribute("aria-busy", "false")


def sent(engine: FakeEngine) -> list[str]:
    """The long part of each of the last two prompts that reached the engine, the longer one first."""
    prompts = [request.messages[-1]["content"] for request in engine.requests[-2:]]
    return sorted((str(content[0]["text"]) for content in prompts), key=len, reverse=True)


def kept(page: Watched) -> str:
    return str(
        page.page.evaluate(
            "[...document.querySelectorAll('#compare-source > .kept')].map(e => e.textContent).join('')"
        )
    )


def test_both_are_answered_and_what_each_took_stands_beside_it(compare: Watched, engine: FakeEngine) -> None:
    bodies = asked_of(compare)
    ask(compare)
    whole, compressed = compare.page.locator("#side-whole"), compare.page.locator("#side-compressed")
    for side in (whole, compressed):
        expect(side.locator(".said")).to_have_text(engine.text)
        for words in ("Prompt tokens", "Cost\n$0.0", "First word", "In all", "19 tokens of answer"):
            expect(side).to_contain_text(words, use_inner_text=True)
    # What is shown as kept is what the model read, and the whole is whole whatever its project says.
    text = compare.page.locator("#compare-context").input_value()
    assert sent(engine) == [text, kept(compare)]
    assert len(kept(compare)) < 0.2 * len(text)
    assert [body["compression"] is False for body in bodies] == [False, True]
    assert bodies[0]["messages"] == bodies[1]["messages"]
    tokens, money = r"read [\d,]+ tokens in place of [\d,]+ \(\d+(\.\d)?%\)", r"\$0\.0\d+ saved"
    words = re.compile(f"{tokens}; {money}; the first word .*(sooner|later|soon)")
    expect(compare.page.locator("#compare-difference")).to_have_text(words)
    compare.shows("#compare-kept-words", "tokens, as the compressor counts")
    assert compare.violations() == []


def test_each_is_asked_first_in_its_turn_and_what_the_cache_had_is_said(
    compare: Watched, engine: FakeEngine
) -> None:
    engine.cached_tokens = 0
    ask(compare)
    assert "asked first" in compare.text("#side-compressed") and "asked second" in compare.text("#side-whole")
    assert "none cached" in compare.text("#side-whole")
    expect(compare.page.locator("#compare-cache")).to_have_text("")
    engine.cached_tokens = 600
    bodies = asked_of(compare)
    ask(compare)
    assert "asked first" in compare.text("#side-whole") and bodies[0]["compression"] is False
    assert "600 of them cached" in compare.text("#side-whole")
    compare.shows("#compare-cache", "The engine still had much of the whole text")


def test_without_a_key_what_is_kept_is_shown_and_what_the_answers_need_is_said(
    visitor: Watched, running: Running, engine: FakeEngine
) -> None:
    before = len(engine.requests)
    visitor.button("Compress it").click()
    visitor.shows("#compare-kept-words", "Kept: ")
    assert kept(visitor) and len(engine.requests) == before
    visitor.shows("#compare-key-wanted", "The answers need a key.")
    expect(visitor.page.locator("#compare-sides")).to_be_hidden()
    assert visitor.violations() == []
    visitor.page.locator("#compare-add-key").click()
    visitor.page.get_by_label("Project key").fill(running.key)
    visitor.button("Use key").click()
    expect(visitor.page.locator("#compare-key-wanted")).to_be_hidden()
    ask(visitor)
    visitor.shows("#compare-difference", "saved")


def test_a_text_that_the_model_cannot_read_whole_is_answered_compressed(
    compare: Watched, engine: FakeEngine
) -> None:
    engine.context_length = 600
    compare.page.locator("#compare-query").press("Control+Enter")
    compare.shows("#side-compressed .said", engine.text)
    fault = compare.page.locator("#side-whole .fault")
    expect(fault).to_contain_text("tokens are left")
    rested(compare)
    expect(compare.page.locator("#compare-outcome")).to_be_hidden()
    assert compare.violations() == []


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [(402, "quota_exceeded", "spend limit"), (429, "rate_limit_exceeded", "Too many requests for now")],
)
def test_what_is_refused_is_said_where_its_answer_would_stand(
    compare: Watched, status: int, code: str, words: str
) -> None:
    refusal = {"error": {"message": "refused", "code": code}}
    compare.page.route(f"**{CHAT}", lambda route: route.fulfill(status=status, json=refusal))
    ask(compare)
    for side in ("whole", "compressed"):
        expect(compare.page.locator(f"#side-{side} .fault")).to_contain_text(words)
    compare.page.unroute(f"**{CHAT}")
    # The next time it is gone.
    ask(compare)
    expect(compare.page.locator("#side-whole .fault")).to_be_hidden()
    compare.shows("#compare-difference", "saved")


def test_a_model_that_starts_says_so_and_a_stop_ends_both(
    compare: Watched, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offered, "TOLD_AGAIN_S", 0)
    engine.is_ready, engine.answers = False, False
    before = len(asked := asked_of(compare))
    compare.button("Ask both").click()
    waiting = compare.page.locator("#side-compressed .waiting")
    expect(waiting).to_have_text(re.compile(r"Pith Mini \(embedded\) is starting, [1-9]\d* s…"))
    expect(compare.page.locator("#compare-model option").first).to_have_text(re.compile("starting"))
    expect(compare.button("Stop")).to_be_focused()
    assert compare.violations() == []
    compare.button("Stop").click()
    rested(compare)
    compare.shows("#side-compressed", "Stopped. What was done until then may be charged.")
    assert len(asked) == before + 1 and waiting.inner_text() == ""
    expect(compare.button("Ask both")).to_be_focused()
    engine.is_ready, engine.answers = True, True
    ask(compare)
    compare.shows("#compare-difference", "saved")


def test_a_stop_in_the_middle_keeps_what_came_and_ends_it_at_the_server(
    compare: Watched, engine: FakeEngine
) -> None:
    engine.token_s, engine.text = 0.05, "word " * 2000
    compare.button("Ask both").click()
    compare.shows("#side-compressed .said", "word word")
    compare.button("Stop").click()
    rested(compare)
    compare.shows("#side-compressed", "Stopped.")
    assert "word word" in compare.text("#side-compressed .said") and compare.text("#side-whole .said") == ""
    engine.token_s, engine.text = 0, "Again."
    ask(compare)
    assert engine.aborted


def test_an_answer_is_text_and_one_that_is_cut_off_says_so(compare: Watched, engine: FakeEngine) -> None:
    engine.text = f"{HOSTILE} " + "word " * 200
    ask(compare)
    assert compare.text("#side-whole .said").startswith("<img src=x")
    compare.shows("#side-whole", "Cut off at 160 tokens.")
    assert compare.page.locator("main img, main script").count() == 0


def test_what_is_not_there_is_asked_for(compare: Watched, engine: FakeEngine) -> None:
    before = len(engine.requests)
    compare.page.locator("#compare-query").fill(" ")
    compare.button("Ask both").click()
    compare.shows("#compare-fault", "There is no question yet.")
    compare.page.locator("#compare-context").fill("")
    compare.button("Ask both").click()
    compare.shows("#compare-fault", "There is no text yet")
    compare.button("A date").click()
    expect(compare.page.locator("#compare-query")).to_have_value(re.compile("reopen"))
    ask(compare)
    assert compare.text("#compare-fault") == "" and len(engine.requests) == before + 2


def test_an_engine_that_is_away_is_said_of_each(compare: Watched, engine: FakeEngine) -> None:
    engine.fails_with = EngineUnavailable("no replica", retry_after_s=7)
    ask(compare)
    for side in ("whole", "compressed"):
        compare.shows(f"#side-{side} .fault", "The model is busy or starting. Try again in 7 s.")


def test_a_key_in_the_link_is_used_and_out_of_the_address_at_once(page: Watched, running: Running) -> None:
    addresses: list[str] = []

    def note(one: Request) -> None:
        addresses.append(one.url + one.headers.get("referer", ""))

    page.page.on("request", note)
    page.page.goto("about:blank")
    page.page.goto(f"{running.url}/#key={running.key}")
    page.page.wait_for_selector("html[data-ready]")
    expect(page.page.locator("#key-state")).to_have_text("Key in use")
    expect(page.page.locator("#panel-compare")).to_be_visible()
    assert page.page.url == f"{running.url}/"
    stored = "JSON.stringify([{...localStorage}, {...sessionStorage}, location.href, document.cookie])"
    assert running.key not in page.page.evaluate(stored) and running.key not in page.page.content()
    assert addresses and not [one for one in addresses if running.key in one]
    ask(page)
    page.shows("#compare-difference", "saved")
    # In a page that has a key already, another one waits for a person: any site may have sent the visitor there.
    page.page.evaluate("location.hash = 'key=pith_wrong_wrong'")
    page.shows("#key-link", "Use it only if you know whose it is.")
    expect(page.page.locator("#key-state")).to_have_text("Key in use")
    assert page.page.url == f"{running.url}/"
    page.button("Use key").click()
    expect(page.page.locator("#key-state")).to_have_text("Key refused")


def test_elsewhere_than_on_ones_own_machine_a_key_in_a_link_waits_for_a_person(
    page: Watched, running: Running
) -> None:
    """Or whoever sends the link reads what is asked under their key."""
    elsewhere = "https://pith.test"

    def pass_on(route: Route) -> None:
        route.fulfill(response=route.fetch(url=route.request.url.replace(elsewhere, running.url)))

    page.page.route(f"{elsewhere}/**", pass_on)
    page.page.goto(f"{elsewhere}/#key={running.key}")
    page.page.wait_for_selector("html[data-ready]")
    assert page.page.url == f"{elsewhere}/"
    page.shows("#key-link", "Use it only if you know whose it is.")
    expect(page.page.locator("#key-state")).to_have_text("Add a key")
    assert page.violations() == []
    page.button("Use key").click()
    expect(page.page.locator("#key-state")).to_have_text("Key in use")
    expect(page.page.locator("#key-box")).to_be_hidden()
