"""The playground of `pith serve`: Ray, vLLM, the compressor's processes and the ledger behind every click."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.integration.running import Server
from tests.serve.playground.watched import Watched, chromium, watched


@pytest.fixture
def page(server: Server) -> Iterator[Watched]:
    with chromium() as browser, watched(browser, server.url) as found:
        yield found


def test_all_four_tabs_on_the_real_server(page: Watched, server: Server) -> None:
    assert any(f"playground: {server.url}/" in line for line in server.lines) or not server.lines
    page.use_key(server.new_key("playground"))
    page.compress_example("Article")
    before = page.text("#stats")
    page.move_slider(3)
    page.said()
    assert page.text("#stats") != before and "Charged to your key" in page.text("#compress-who")
    assert "v1/compress" in page.text("#snippet") and "$PITH_KEY" in page.text("#snippet")

    page.tab("Chat")
    page.page.get_by_label("Compress the context").check()
    page.button("Take it from Compress").click()
    page.page.get_by_label("Most tokens").fill("24")
    page.button("Send").click()
    expect(page.page.locator(".bill .saved")).to_have_count(2)
    assert "on record" in page.text(".bill") and page.text(".message.assistant .said")

    page.tab("Catalog")
    # Those of the tiny profile, and the adapter that the tests add.
    expect(page.page.locator("#catalog tbody tr")).to_have_count(9)

    page.tab("Usage")
    expect(page.page.locator("#usage figure")).to_have_count(5)
    assert page.text(".totals").split("Requests")[1].split()[0] == "2"
    assert "chat" in page.text("#usage") and "compress" in page.text("#usage")
    assert page.violations() == []
