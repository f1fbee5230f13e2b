"""The playground's other tabs in Chromium: by mouse, by keyboard alone, on a phone, in the dark, and under attack."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from playwright.sync_api import Browser, Route, expect

from billing.ledger.budget_settings import Budgets
from billing.store.database import open_database
from billing.usage import now
from models.errors import EngineFailed, EngineUnavailable
from models.fake_engine import FakeEngine
from serve.money.ledger_setup import DEMO
from tests.serve.loopback_service import Running
from tests.serve.playground.usage_replies import usage_reply
from tests.serve.playground.watched import DESKTOP, PHONE, Watched, watched

HOSTILE = "<img src=x onerror=window.ran.push('it')><script>window.ran.push('it')</script>"
pytestmark = pytest.mark.integration
TABS = ("Compare", "Compress", "Chat", "Catalog", "Usage", "Proof")
LONG = (
    "The pump ships with a filter. Its colour is a matter of taste. The warranty ends after two years. " * 8
)


@pytest.fixture(autouse=True)
def _as_it_was(engine: FakeEngine) -> Iterator[None]:
    before = dict(vars(engine))
    yield
    vars(engine).update(before)


def give_usage(page: Watched) -> None:
    page.page.route("**/v1/usage?*", lambda route: route.fulfill(json=usage_reply(route.request.url)))


def send(page: Watched, words: str) -> None:
    page.page.get_by_label("Your message").fill(words)
    page.button("Send").click()


def test_a_chat_streams_and_says_what_it_cost(page: Watched, running: Running, engine: FakeEngine) -> None:
    page.tab("Chat")
    send(page, "Tell me about the river.")
    page.shows("#chat-fault", "needs a key")
    page.page.get_by_label("Project key").fill(running.key)
    # Whoever goes on while the server is asked whether it knows the key waits for what it says.
    asked: list[Route] = []
    page.page.route("**/v1/limits", lambda route: asked.append(route))
    before = len(engine.requests)
    page.button("Use key").click()
    page.button("Send").click()
    expect(page.page.locator("#key-button")).to_have_attribute("data-state", "checking")
    assert len(engine.requests) == before
    asked[0].continue_()
    for words in ("charged, the minimum", "19 tokens out", "$0.00001", "on record"):
        page.shows(".bill", words)
    expect(page.page.locator(".message.assistant .said")).to_have_text(engine.text)
    # The conversation goes on: what was said is sent again.
    send(page, "And then?")
    expect(page.page.locator(".bill")).to_have_count(2)
    said = engine.requests[-1].messages
    assert [message["role"] for message in said] == ["user", "assistant", "user"]
    assert page.violations() == []
    # What the ledger says of the same key: the route itself, and no invented figures.
    page.tab("Usage")
    expect(page.page.locator("#usage figure")).to_have_count(5)
    totals = re.compile(r"Spend\s*\$0\.00002\d*\s*Requests\s*2\s")
    expect(page.page.locator(".totals")).to_contain_text(totals, use_inner_text=True)
    page.shows("#usage", "pith-mini")
    page.shows("#usage", "chat")


def test_compressing_the_context_shows_what_it_saved(page: Watched, running: Running) -> None:
    page.use_key(running.key)
    page.page.locator("#context").fill(LONG)
    page.page.locator("#query").fill("When does the warranty end?")
    page.tab("Chat")
    page.page.get_by_label("Compress the context").check()
    page.button("Take it from Compress").click()
    page.page.locator("#chat-ratio").fill("20")
    page.button("Send").click()
    saved = page.page.locator(".bill .saved")
    expect(saved).to_have_count(2)
    assert "tokens saved (" in saved.first.inner_text() and "$" in saved.last.inner_text()
    assert page.violations() == []


def test_a_stopped_reply_ends_at_the_server_too(page: Watched, running: Running, engine: FakeEngine) -> None:
    engine.token_s, engine.text = 0.05, "word " * 2000
    page.use_key(running.key)
    page.tab("Chat")
    page.page.get_by_label("Most tokens").fill("2000")
    send(page, "Go on and on.")
    page.shows(".message.assistant .said", "word word")
    page.button("Stop").click()
    page.shows(".bill", "Stopped")
    expect(page.button("Send")).to_be_visible()
    # It is settled with what was generated, and the model is free for the next.
    engine.token_s, engine.text = 0, "Again."
    send(page, "Again?")
    expect(page.page.locator(".message.assistant .said").last).to_have_text("Again.")
    assert engine.aborted


def test_a_reply_that_breaks_off_shows_what_it_was_charged(
    page: Watched, running: Running, engine: FakeEngine
) -> None:
    engine.fails_with, engine.fails_after = EngineFailed("the engine died"), 3
    page.use_key(running.key)
    page.tab("Chat")
    send(page, "Tell me about the river.")
    page.shows("#chat-fault", "broke off: the server failed. What had arrived is charged")
    page.shows(".message.assistant .bill", "3 tokens out")
    assert "charged" in page.text(".bill") and "on record" in page.text(".bill")
    # Before the first token nothing is charged, and nothing stays.
    engine.fails_after = 0
    send(page, "And then?")
    page.shows("#chat-fault", "Nothing was charged")
    expect(page.page.locator(".message.assistant")).to_have_count(1)
    assert page.violations() == []


def test_a_key_stays_in_memory_unless_its_owner_says_otherwise(page: Watched, running: Running) -> None:
    stored = "JSON.stringify([{...localStorage}, {...sessionStorage}, location.href, document.cookie])"
    page.use_key(running.key)
    expect(page.page.locator("#key-button")).to_have_text("Key in use")
    assert running.key not in page.page.evaluate(stored)
    page.page.reload()
    expect(page.page.locator("#key-button")).to_have_text("Add a key")
    page.page.locator("#key-button").click()
    page.page.get_by_label("until this tab is closed").check()
    page.page.get_by_label("Project key").fill(running.key)
    page.button("Use key").click()
    expect(page.page.locator("#key-button")).to_have_text("Key in use")
    page.page.reload()
    expect(page.page.locator("#key-button")).to_have_text("Key in use")
    assert running.key not in page.page.evaluate("JSON.stringify([{...localStorage}, location.href])")
    assert running.key not in page.page.content()
    page.page.locator("#key-button").click()
    page.button("Forget it").click()
    assert running.key not in page.page.evaluate(stored)


def test_the_catalog_sorts_by_a_column_and_says_so(page: Watched) -> None:
    page.tab("Catalog")
    names = page.page.locator("#catalog tbody th span:first-child")
    expect(names).to_have_count(8)
    page.button("Output").click()
    page.button("Output").click()
    expect(names.first).to_have_text("Pith Wide (embedded)")
    head = page.page.get_by_role("columnheader", name="Output")
    assert head.get_attribute("aria-sort") == "descending"
    assert "$3.00" in page.text("#catalog tbody tr:first-child") and page.violations() == []


@pytest.mark.usefixtures("one_day")
def test_usage_is_drawn_with_a_table_behind_each_plot(page: Watched, running: Running) -> None:
    page.tab("Usage")
    page.shows("#usage", "it needs one")
    assert page.violations() == []
    give_usage(page)
    page.use_key(running.key)
    expect(page.page.locator("#usage figure")).to_have_count(5)
    first = page.page.evaluate("new Date(Date.now() - 29 * 864e5).toISOString().slice(0, 10)")
    total = usage_reply(f"?group_by=day&start={first}")["total"]
    assert f"{total['requests']:,}" in page.text(".totals")
    page.page.locator("#usage summary").first.click()
    assert page.page.locator("#usage figure").first.locator("tbody tr").count() == 30
    page.page.locator("#usage-days").select_option("7")
    expect(page.page.locator("#usage figure").first.locator("tbody tr")).to_have_count(7)
    # The highest day says its value, and every bar when it is pointed at.
    drawn = page.page.locator("#usage figure").first
    cells = drawn.locator("tbody td").all_text_contents()
    values = [one for one in drawn.locator("svg text.axis").all_text_contents() if one in cells]
    assert values and drawn.locator("svg rect title").count() == 7
    assert page.violations() == []


def test_a_projects_people_and_tags_are_listed_with_their_budgets(page: Watched, running: Running) -> None:
    people = ("ada", "ada", "ada", "grace")
    with running.client() as client:
        for person in people:
            asked = {
                "model": "pith-mini",
                "messages": [{"role": "user", "content": "Tell me."}],
                "user": person,
                "metadata": {"tags": "nightly,research" if person == "ada" else "research"},
            }
            client.post("/v1/chat/completions", json=asked).raise_for_status()
    with ThreadPoolExecutor(1) as beside:  # Playwright has a loop in this thread.
        beside.submit(asyncio.run, set_budgets(running)).result()
    with running.client() as client:
        client.post("/v1/chat/completions", json=asked).raise_for_status()
        found = client.get("/v1/usage", params={"scope": "project", "group_by": "person"}).json()["data"]
    page.use_key(running.key)
    page.tab("Usage")
    expect(page.page.locator("#usage figure")).to_have_count(5)
    assert page.page.locator("#usage .labels").count() == 0, "they are of a project"
    page.page.locator("#usage-scope").select_option("project")
    expect(page.page.locator("#usage .labels")).to_have_count(2)
    of_people, of_tags = (page.page.locator("#usage .labels").nth(at) for at in (0, 1))
    names = of_people.locator("tbody th")
    assert names.all_text_contents() == [row["person"] for row in found] and len(found) == 2
    assert of_tags.locator("tbody th").all_text_contents() == ["research", "nightly"]
    ada, grace = (of_people.locator("tbody tr").nth(at) for at in (0, 1))
    expect(ada).to_contain_text("$0 of $2.00 today")
    expect(grace).to_contain_text(re.compile(r"\$0\.0\S+ of \$2\.00 today"))
    expect(of_tags.locator("tbody tr").nth(1)).not_to_contain_text("of $")
    expect(of_tags.locator("tbody tr").nth(0)).to_contain_text(re.compile(r"\$0\.0\S+ of \$5\.00 in all"))
    # A head sorts, also by keyboard.
    of_people.get_by_role("button", name="Requests").focus()
    page.page.keyboard.press("Enter")
    expect(names.first).to_have_text(found[1]["person"])
    assert page.violations() == []


async def set_budgets(running: Running) -> None:
    database = open_database(running.settings.billing.database_url)
    try:
        budgets = Budgets(database, "test")
        project = f"{DEMO}/{DEMO}"
        await budgets.set("person", project, "day", 2 * 10**9, now=now())
        await budgets.set("tag", project, "total", 5 * 10**9, tag="research", now=now())
    finally:
        await database.close()


def test_of_very_many_people_the_most_expensive_are_shown_and_more_when_asked(
    page: Watched, running: Running
) -> None:
    give_usage(page)
    page.use_key(running.key)
    page.tab("Usage")
    page.page.locator("#usage-scope").select_option("project")
    people = page.page.locator("#usage .labels").first
    expect(people.locator("tbody tr")).to_have_count(50)
    expect(people).to_contain_text("the 50 most expensive")
    expect(page.page.locator("#usage .labels").last).to_contain_text("<img src=x onerror")
    page.button("Show 500").focus()
    page.page.route("**/v1/usage?*", lambda route: route.fulfill(status=503, json={"detail": HOSTILE}))
    page.page.keyboard.press("Enter")
    page.shows("#usage-fault", "cannot do this now")
    expect(page.button("Show 500")).to_be_enabled()
    give_usage(page)
    page.button("Show 500").focus()
    page.page.keyboard.press("Enter")
    expect(people.locator("tbody tr")).to_have_count(500)
    expect(people).to_contain_text("the 500 most expensive")
    expect(page.button("Show 500")).to_have_count(0)
    assert page.page.evaluate("document.activeElement.textContent") == "People"


def test_everything_can_be_done_by_keyboard_alone(page: Watched, running: Running) -> None:
    press = page.page.keyboard.press
    focused = "document.activeElement.id || document.activeElement.textContent"
    press("Tab")
    assert page.page.evaluate(focused) == "skip"
    press("Tab")
    assert page.page.evaluate(focused) == "tab-compress"
    for name in ("chat", "catalog", "usage", "proof", "compare", "compress"):
        press("ArrowRight")
        assert page.page.evaluate(focused) == f"tab-{name}"
        assert page.page.evaluate("location.hash") == f"#{name}"
        expect(page.page.locator(f"#panel-{name}")).to_be_visible()
    press("Tab")
    assert page.page.evaluate(focused) == "key-button"
    press("Tab")
    press("Enter")  # the first example
    page.settle()
    for _ in range(60):
        press("Tab")
        if page.page.evaluate(focused) == "slider":
            break
    before = page.text("#stats")
    press("ArrowLeft")
    press("ArrowLeft")
    page.said()
    assert page.text("#stats") != before and page.page.evaluate(focused) == "slider"
    shown = page.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert shown != "none"


@pytest.mark.parametrize("look", ["phone", pytest.param("dark", marks=pytest.mark.long)])
def test_it_fits_a_phone_and_is_readable_in_the_dark(
    running: Running, browser: Browser, engine: FakeEngine, look: str
) -> None:
    scheme: Any = "dark" if "dark" in look else "light"
    size = PHONE if "phone" in look else DESKTOP
    with watched(browser, running.url, size, color_scheme=scheme, reduced_motion="reduce") as page:
        give_usage(page)
        page.use_key(running.key)
        page.compress_example("Agent trace")
        page.tab("Compare")
        page.button("Ask both").click()
        page.shows("#compare-difference", "saved")
        page.tab("Chat")
        page.page.get_by_label("Most tokens").fill("3")
        send(page, "Which is cut off?")
        page.shows(".cut-off", "3 tokens")
        engine.fails_with = EngineUnavailable("no replica", retry_after_s=7)
        send(page, "Which fails?")
        page.shows(".message.unsent", "Not answered")
        page.page.locator("#chat-code summary").click()
        for tab in TABS:
            page.tab(tab)
            if tab == "Usage":
                page.page.locator("#usage-scope").select_option("project")
                expect(page.page.locator("#usage .labels")).to_have_count(2)
                expect(page.page.locator("#usage figure")).to_have_count(5)
            assert not page.is_wider_than_the_screen(), tab
            assert page.violations() == [], tab
        shade = page.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert (shade == "rgb(18, 21, 19)") == ("dark" in look)
        page.page.locator("#key-button").click()
        page.page.get_by_label("Project key").fill("any text")
        page.button("Use key").click()
        page.page.locator("#key-fault").wait_for()
        assert page.violations() == [] and not page.is_wider_than_the_screen()


def test_hostile_names_replies_and_errors_are_text(
    page: Watched, running: Running, engine: FakeEngine
) -> None:
    def hostile_about(route: Route) -> None:
        about = route.fetch().json()
        for model in [*about["chat"], *about["compression"]]:
            model["name"] = model["blurb"] = HOSTILE
        route.fulfill(json=about)

    error = {"detail": HOSTILE, "error": {"message": HOSTILE, "code": HOSTILE}}
    page.page.route("**/about.json", hostile_about)
    page.page.route("**/v1/usage?*", lambda route: route.fulfill(status=422, json=error))
    page.page.reload()
    page.page.wait_for_selector("html[data-ready]")
    page.use_key(running.key)
    engine.text = f"{HOSTILE} done"
    page.tab("Chat")
    send(page, HOSTILE)
    page.shows(".bill", "charged")
    assert page.text(".message.assistant .said").startswith("<img src=x")
    page.tab("Catalog")
    assert HOSTILE in page.text("#catalog")
    page.tab("Usage")
    page.shows("#usage-fault", "<img src=x")
    assert page.page.locator("main img, main script, main iframe").count() == 0


def test_the_policy_stops_what_would_get_in_anyway(page: Watched) -> None:
    """The page's own guard is tested by what it must refuse."""
    tried = """() => {
      const fails = (work) => { try { work(); return "ran"; } catch (error) { return error.name; } };
      return [fails(() => { document.body.innerHTML = "<p>"; }), fails(() => document.write("<p>"))];
    }"""
    assert page.page.evaluate(tried) == ["TypeError", "TypeError"]
    reached = "fetch('https://example.com/').then(() => 'sent', () => 'refused')"
    assert page.page.evaluate(reached) == "refused"
    violated = page.page.evaluate("window.ran.splice(0)")
    assert "policy: connect-src" in violated and "policy: require-trusted-types-for" in violated
    page.problems.clear()


def test_events_are_read_whole_wherever_the_network_cuts_them(page: Watched) -> None:
    read = """async () => {
      const {eventsOf} = await import("./playground/api/events.js");
      const sent = ': hi\\r\\ndata: {"a":"é🚰"}\\r\\n\\r\\ndata:one\\ndata: two\\n\\n'
        + 'event: x\\rdata: [DONE]\\r\\rdata: never';
      const bytes = new TextEncoder().encode(sent);
      const found = new Set();
      for (let size = 1; size <= bytes.length; size++) {
        const stream = new ReadableStream({start(out) {
          for (let at = 0; at < bytes.length; at += size) out.enqueue(bytes.slice(at, at + size));
          out.close();
        }});
        const events = [];
        for await (const data of eventsOf(stream)) events.push(data);
        found.add(JSON.stringify(events));
      }
      return [...found];
    }"""
    assert page.page.evaluate(read) == ['["{\\"a\\":\\"é🚰\\"}","one\\ntwo","[DONE]"]']
