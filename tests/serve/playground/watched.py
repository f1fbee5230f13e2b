"""A page of the playground that is watched: what it may not do is an error of the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect, sync_playwright

from tests.integration.browser import chromium_program

# A machine ten times slower than a developer's may be at work with other tests too.
WAIT_MS = 60_000
expect.set_options(timeout=WAIT_MS)
DESKTOP, PHONE = (1280, 900), (360, 740)
# Chromium says so of every status above 399, which the page itself has to show.
_STATUS = "Failed to load resource"
_WATCH = """
window.ran = [];
window.addEventListener("securitypolicyviolation", (event) => window.ran.push(`policy: ${event.violatedDirective}`));
"""


@dataclass
class Watched:
    """`problems` has errors of scripts and violations of the policy."""

    page: Page
    url: str
    problems: list[str] = field(default_factory=list)

    def open(self, name: str = "compress") -> Watched:
        self.page.goto(f"{self.url}/#{name}")
        self.page.wait_for_selector("html[data-ready]")
        return self

    def tab(self, name: str) -> None:
        self.page.get_by_role("tab", name=name).click()

    def button(self, name: str, *, exact: bool = True) -> Locator:
        return self.page.get_by_role("button", name=name, exact=exact)

    def use_key(self, key: str) -> None:
        self.page.locator("#key-button").click()
        self.page.get_by_label("Project key").fill(key)
        self.button("Use key").click()
        expect(self.page.locator("#key-button")).to_have_attribute("data-state", "valid")

    def compress_example(self, name: str = "Article") -> None:
        self.button(name).click()
        self.settle()

    def settle(self) -> None:
        """Until the result is of what is asked."""
        self.page.wait_for_selector('.result[aria-busy="false"]:not(.stale) #result-body:not([hidden])')

    def move_slider(self, *places: int) -> None:
        """To each of these places in turn, too fast for it to rest at any but the last."""
        self.page.locator("#slider").evaluate(
            "(slider, places) => places.forEach((at) => {"
            " slider.value = at; slider.dispatchEvent(new Event('input', {bubbles: true})); })",
            list(places),
        )
        self.painted()

    def painted(self) -> None:
        self.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def said(self) -> None:
        """Wait until a screen reader has been told of what is shown now: by then all that was to be asked is asked."""
        self.painted()
        tokens = self.page.locator("#stats dd").first.inner_text().splitlines()[0].split(" → ")[1]
        expect(self.page.locator("#compress-said")).to_contain_text(f"{tokens} of ")

    def choose(self, name: str) -> None:
        self.page.get_by_role("radio", name=name, exact=True).check()

    def shows(self, selector: str, words: str) -> None:
        """Wait until it does."""
        expect(self.page.locator(selector)).to_contain_text(words)

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def violations(self) -> list[str]:
        """What axe finds wrong, each with its first element."""
        found = Axe().run(self.page).response["violations"]
        return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found]

    def is_wider_than_the_screen(self) -> bool:
        root = "document.documentElement"
        return bool(self.page.evaluate(f"{root}.scrollWidth > {root}.clientWidth"))

    def check(self) -> None:
        assert not self.problems, self.problems
        assert self.page.evaluate("window.ran") == []


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's. Playwright's loop, which is there until the end, would be in the way of asynchronous tests."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=chromium_program(),
            args=["--no-sandbox", "--disable-dev-shm-usage"],
            timeout=WAIT_MS,
        )
        yield found
        found.close()


@contextmanager
def watched(browser: Browser, url: str, size: tuple[int, int] = DESKTOP, **options: Any) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **options)
    context.set_default_timeout(WAIT_MS)
    context.add_init_script(_WATCH)
    page = context.new_page()
    found = Watched(page, url)

    def console(message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith(_STATUS):
            found.problems.append(message.text)

    page.on("console", console)
    page.on("pageerror", lambda error: found.problems.append(str(error)))
    try:
        yield found.open()
        found.check()
    finally:
        context.close()
