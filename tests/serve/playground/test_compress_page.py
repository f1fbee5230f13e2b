"""Compress, clicked through in Chromium: every size from one answer, exact to the character, in any script."""

# ruff: noqa: RUF001 - letters that look like others are intended

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Route, expect

from models.fake_engine import FakeEngine
from serve.config.compression_models import DemoCompressionSettings
from tests.serve.loopback_service import Running, service
from tests.serve.playground.lexical import LexicalModel
from tests.serve.playground.watched import Watched, watched

# Characters outside the first plane, letters with marks of their own, line ends of another system.
ODD = (
    "The pump 🚰 ships with a filter. Its colour is a matter of taste 👩‍👩‍👧 and of the season.\r\n\r\n"
    "The warranty 𝕨 ends after two years, not after three. Spare parts cost 40 EUR.\r\n\r\n"
    "ضمان المضخة سنتان. اللون مسألة ذوق."
)
# An answer for every place of the slider is one request, and one more for each sixteen.
ONE_EXAMPLE = 3
pytestmark = pytest.mark.integration
HOSTILE = "<img src=x onerror=\"window.ran.push('context')\"><script>window.ran.push('script')</script>"


@pytest.fixture(scope="module", autouse=True)
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One that takes one example a minute. It is there before Playwright's loop."""
    demo = DemoCompressionSettings(requests_per_minute_per_address=ONE_EXAMPLE)
    folder = tmp_path_factory.mktemp("limited")
    with service(folder, FakeEngine(), compressor=LexicalModel(), demo=demo) as found:
        yield found


def asked_of(page: Watched, path: str) -> list[dict[str, Any]]:
    """The bodies that the page sends from now on."""
    found: list[dict[str, Any]] = []
    page.page.on("request", lambda one: found.append(one.post_data_json) if one.url.endswith(path) else None)
    return found


def shown(page: Watched) -> dict[str, str]:
    """What the source view says is kept, and that it has lost nothing."""
    parts = "[...document.querySelectorAll('#source > span')]"
    kept = page.page.evaluate(
        f"{parts}.filter(e => e.classList.contains('kept')).map(e => e.textContent).join('')"
    )
    cut = page.page.evaluate(f"{parts}.filter(e => e.getAttribute('role') === 'deletion').length")
    return {
        "source": page.page.locator("#source").evaluate("e => e.textContent"),
        "kept": kept,
        "cut": str(cut),
    }


def test_an_example_is_compressed_with_one_click_and_without_a_key(page: Watched, running: Running) -> None:
    asked = asked_of(page, "/v1/demo/compress")
    page.compress_example("Article")
    (body,) = asked
    answer = httpx.post(f"{running.url}/v1/demo/compress", json=body).json()
    found = shown(page)
    assert found["source"] == body["input"] and found["kept"] == answer["output"] and int(found["cut"]) > 0
    receipt = answer["receipt"]
    stats = page.text("#stats")
    assert f"{receipt['original_tokens']:,} → {receipt['output_tokens']:,}" in stats
    assert "Latency" in stats and "%" in stats
    assert page.violations() == []


def test_the_slider_asks_the_server_for_nothing_and_shows_what_the_server_would_say(
    page: Watched, running: Running
) -> None:
    asked = asked_of(page, "/v1/demo/compress")
    page.compress_example("Support ticket")
    values = [size["target_ratio"] for size in asked[0]["sizes"]]
    for at in (1, 7, 30, len(values) - 1):
        page.move_slider(at)
        body = {**asked[0], "sizes": None, "compression": {"target_ratio": values[at]}}
        answer = httpx.post(f"{running.url}/v1/demo/compress", json=body).json()
        assert shown(page)["kept"] == answer["output"]
        assert f"→ {answer['receipt']['output_tokens']:,}" in page.text("#stats")
        severities = page.page.locator("#flags .severity").all_inner_texts()
        assert sorted(severities) == sorted(flag["severity"] for flag in answer["receipt"]["risk_flags"])
    page.said()
    assert len(asked) == 1


def test_a_promise_takes_one_request_more_and_the_way_back_none(page: Watched) -> None:
    asked = asked_of(page, "/v1/demo/compress")
    page.compress_example("Article")
    page.choose("By promise")
    page.shows("#stats", "needed")
    assert len(asked) == 2 and "keep" in asked[1]["compression"] and "keep" in asked[1]["sizes"][0]
    page.move_slider(0)
    page.choose("By ratio")
    page.shows("#stats", "of at most")
    page.said()
    assert len(asked) == 2


def test_a_text_in_too_many_units_for_its_sizes_is_asked_anew_for_each(page: Watched) -> None:
    refusal = {
        "detail": [],
        "error": {"message": "too many units", "param": "sizes", "code": "invalid_field"},
    }

    def refuse_sizes(route: Route) -> None:
        if "sizes" in (route.request.post_data_json or {}):
            route.fulfill(status=422, json=refusal)
        else:
            route.continue_()

    page.page.route("**/v1/demo/compress", refuse_sizes)
    asked = asked_of(page, "/v1/demo/compress")
    page.compress_example("Article")
    assert ["sizes" in body for body in asked] == [True, False] and page.text("#compress-fault") == ""
    page.move_slider(3)
    page.shows("#stats", "of at most 10%")
    assert ["sizes" in body for body in asked] == [True, False, False]


def test_a_model_that_cannot_tell_of_other_sizes_is_asked_when_the_slider_rests(page: Watched) -> None:
    def about_without_sizes(route: Route) -> None:
        about = route.fetch().json()
        about["compression"][0]["offers_sizes"] = False
        route.fulfill(json=about)

    page.page.route("**/about.json", about_without_sizes)
    page.page.reload()
    page.page.wait_for_selector("html[data-ready]")
    asked = asked_of(page, "/v1/demo/compress")
    page.compress_example("Article")
    assert "sizes" not in asked[0] and "asked anew for each size" in page.text("#size-note")
    first = page.text("#stats")
    page.move_slider(3, 4, 5)
    page.shows("#stats", "of at most 15%")
    assert [body["compression"]["target_ratio"] for body in asked] == [0.4, 0.15]
    page.move_slider(15)
    page.said()
    assert page.text("#stats").splitlines()[1] == first.splitlines()[1] and len(asked) == 2


def test_offsets_hold_outside_the_first_plane_and_in_every_order(page: Watched, tmp_path: Path) -> None:
    asked = asked_of(page, "/v1/demo/compress")
    file = tmp_path / "odd.txt"
    file.write_bytes(ODD.encode())
    page.page.locator("#file").set_input_files(file)
    page.page.locator("#query").fill("When does the warranty end?")
    page.button("Compress").click()
    page.settle()
    assert asked[0]["input"] == ODD, "a file's own line ends"
    for at in range(0, 40, 6):
        page.move_slider(at)
        found = shown(page)
        assert found["source"] == ODD
        page.choose("Output")
        in_order = page.page.locator("#output").evaluate("e => e.textContent")
        assert in_order == found["kept"]
        page.choose("Source")
    page.move_slider(39)
    assert shown(page)["kept"] == ODD
    page.page.get_by_label("Keep the source’s order").uncheck()
    page.settle()
    assert asked[1]["compression"]["preserve_order"] is False and shown(page)["source"] == ODD


def test_a_flag_leads_to_its_place_and_focuses_it(page: Watched) -> None:
    page.compress_example("Support ticket")
    page.move_slider(3)
    place = page.page.locator("#flags .places button").first
    words = place.inner_text().rstrip("…")
    place.press("Enter")
    focused = page.page.evaluate(
        "document.activeElement.closest('#source') && document.activeElement.className"
    )
    assert focused and "spot" in focused
    marked = "[...document.querySelectorAll('#source .spot')].map(e => e.textContent).join('')"
    assert page.page.evaluate(marked).startswith(words)
    assert page.page.locator("#source .spot").first.is_visible()


@pytest.mark.parametrize("language", ["curl", "Python"])
def test_the_request_as_code_is_the_request(page: Watched, running: Running, language: str) -> None:
    page.page.locator("#query").fill("It's \"quoted\", isn't it? $HOME `id` \\ 🚰")
    page.page.locator("#context").fill("Alles gut.\n\nJSON\nIt's “quoted” \\n here. " + "Nothing else. " * 20)
    page.button("Compress").click()
    page.settle()
    page.choose(language)
    code = page.page.locator("#snippet").evaluate("e => e.textContent")
    output = page.page.evaluate("document.querySelectorAll('#source .kept').length")
    assert output and running.key not in code
    done = run_code(language, code)
    assert done.strip(), "the code was run, and said what is kept"
    kept = shown(page)["kept"]
    assert kept in done or repr(kept)[1:-1] in done or all(line in done for line in kept.split("\n") if line)


def run_code(language: str, code: str) -> str:
    if language == "Python":
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    return str(json.loads(done.stdout)["output"])


def test_an_error_goes_when_what_it_speaks_of_does(page: Watched, tmp_path: Path) -> None:
    page.button("Compress").click()
    page.shows("#compress-fault", "There is no context yet")
    page.page.locator("#context").fill("The warranty ends after two years.")
    expect(page.page.locator("#compress-fault")).to_be_hidden()
    notes, binary = tmp_path / "notes.txt", tmp_path / "photo.bin"
    notes.write_text("The pump ships with a filter.")
    binary.write_bytes(b"\xff\xfe\x00\xd8")
    page.page.locator("#file").set_input_files(notes)
    page.shows("#size", "notes.txt: 29 of")
    page.page.locator("#file").set_input_files(binary)
    page.shows("#context-fault", "photo.bin is not text in UTF-8. The context is still notes.txt.")
    page.shows("#size", "notes.txt: 29 of")
    assert page.violations() == []
    page.page.locator("#file").set_input_files(notes)
    expect(page.page.locator("#context-fault")).to_be_hidden()
    # The server's own words name the field as the page does.
    page.page.locator("#query").fill("q" * 20_001)
    page.button("Compress").click()
    page.shows("#compress-fault", "Question: holds 20,001 characters; the limit is 20,000.")
    page.page.locator("#query").fill("Does it have a filter?")
    expect(page.page.locator("#compress-fault")).to_be_hidden()


def test_the_first_example_keeps_the_evidence_in_a_quarter(page: Watched) -> None:
    page.button("Try the agent’s trace").click()
    page.settle()
    assert "of at most 25%" in page.text("#stats") and "No risk was found" in page.text("#flags")
    kept = float(re.findall(r"([\d.]+)%\s+estimated", page.text("#stats"))[0])
    assert kept >= 95
    # With a promise of 95% it keeps less than a third.
    page.choose("By promise")
    page.shows("#stats", "needed")
    assert page.text("#size-value") == "95%"
    assert float(re.findall(r"Ratio\s+([\d.]+)%", page.text("#stats"))[0]) < 33
    # Another example is shown at the page's own size.
    page.choose("By ratio")
    page.compress_example("Support ticket")
    assert "of at most 40%" in page.text("#stats")


def test_a_compressor_that_starts_says_so_and_for_how_long(page: Watched) -> None:
    held: list[Route] = []
    down = {"object": "running", "models": {"pith-lexical": False}}
    page.page.route("**/running.json", lambda route: route.fulfill(json=down))
    page.page.route("**/v1/demo/compress", lambda route: held.append(route))
    page.page.locator("#compressor").focus()
    first = page.page.locator("#compressor option").first
    expect(first).to_have_text("Pith Lexical · not running")
    page.button("Agent trace").click()
    waiting = page.page.locator("#compress-wait")
    expect(waiting).to_have_text(re.compile(r"Pith Lexical is starting, [1-9]\d* s…"))
    expect(waiting).not_to_have_text(waiting.inner_text())
    expect(waiting).to_have_text(re.compile(r"Pith Lexical is starting, [1-9]\d* s…"))
    expect(first).to_have_text(re.compile(r"Pith Lexical · starting, \d+ s"))
    assert page.violations() == []
    page.page.unroute("**/running.json")
    held[0].continue_()
    page.settle()
    assert page.text("#compress-wait") == ""
    expect(first).to_have_text("Pith Lexical")


@pytest.mark.parametrize(
    "size",
    [(1280, 800), *(pytest.param(size, marks=pytest.mark.long) for size in ((1280, 860), (1024, 768)))],
)
def test_the_button_is_on_the_first_screen(running: Running, browser: Browser, size: tuple[int, int]) -> None:
    with watched(browser, running.url, size) as page:
        page.compress_example("Agent trace")
        box = page.button("Compress").bounding_box()
        assert box is not None and box["y"] + box["height"] <= size[1]


@pytest.mark.parametrize("motion", ["reduce", pytest.param("no-preference", marks=pytest.mark.long)])
def test_on_a_phone_an_example_leads_to_its_result(running: Running, browser: Browser, motion: Any) -> None:
    with watched(browser, running.url, (390, 844), reduced_motion=motion) as page:
        page.compress_example("Agent trace")
        expect(page.page.locator("#stats")).to_be_in_viewport(ratio=1)
        expect(page.page.locator("#source")).to_be_in_viewport()
        # Its error leads back to where it is said.
        page.page.locator("#query").fill("q" * 20_001)
        page.button("Compress").click()
        page.shows("#compress-fault", "Question: holds")
        expect(page.page.locator("#compress-fault")).to_be_in_viewport(ratio=1)


def test_what_is_too_large_or_no_text_is_said_before_anything_is_sent(page: Watched, tmp_path: Path) -> None:
    asked = asked_of(page, "/v1/demo/compress")
    page.page.locator("#context").fill("word " * 4001)
    assert "Too large for the demo, which takes 20,000 characters" in page.text("#size")
    page.button("Compress").click()
    assert "With a key" in page.text("#compress-fault")
    binary = tmp_path / "photo.bin"
    binary.write_bytes(b"\xff\xfe\x00\xd8")
    page.page.locator("#file").set_input_files(binary)
    page.shows("#context-fault", "photo.bin is not text in UTF-8. The context is as it was.")
    assert page.text("#size").startswith("20,005 of the demo’s"), "it still speaks of what is there"
    large = tmp_path / "large.txt"
    large.write_bytes(b"a" * (2**21 + 1))
    page.page.locator("#file").set_input_files(large)
    page.shows("#context-fault", "this model takes 2.0 MB")
    assert asked == [] and page.violations() == []


def test_a_context_that_is_html_is_text(page: Watched) -> None:
    page.page.locator("#query").fill(HOSTILE)
    page.page.locator("#context").fill(f"{HOSTILE} The warranty ends after two years. " * 5)
    page.button("Compress").click()
    page.settle()
    page.choose("Output")
    page.choose("Python")
    assert page.page.locator("#panel-compress img, #panel-compress script").count() == 0
    assert "<img src=x" in shown(page)["source"]


def test_the_demos_limits_are_said_plainly(browser: Browser, limited: Running) -> None:
    with watched(browser, limited.url) as page:
        page.compress_example("Article")
        page.page.locator("#query").fill("Something else?")
        page.button("Compress").click()
        page.shows("#compress-fault", "demo’s limit")
        page.shows("#compress-fault", "Try again in")
        assert page.violations() == []
