"""The site of these pages: it is built without a complaint, and works in a browser that can reach nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from os import environ
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

from tests.integration.missing import cannot_run
from tests.serve.playground.watched import chromium

ROOT = Path(__file__).parents[2]
SITE = ROOT / "var/site"
REFERENCES = ROOT / "scripts/site/references.py"
NOT_INSTALLED = 3
BUILD_S = 800


@pytest.fixture(scope="module")
def site() -> Path:
    """The site, built anew by the command of `make docs`."""
    given = {**environ, "PYTHON": sys.executable}
    done = subprocess.run(
        [ROOT / "scripts/docs"], env=given, capture_output=True, text=True, timeout=BUILD_S, check=False
    )
    if done.returncode == NOT_INSTALLED:
        cannot_run(done.stderr)
    assert done.returncode == 0, done.stderr
    return SITE


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that reaches files alone; what else it asks for fails the test."""
    opened, refused = browser.new_page(color_scheme="dark"), []

    def files_alone(route: Route) -> None:
        if route.request.url.startswith("file://"):
            route.continue_()
        else:
            refused.append(route.request.url)
            route.abort()

    opened.route("**/*", files_alone)
    yield opened
    opened.close()
    assert not refused


def test_every_page_of_the_menu_is_there_and_the_entrance_leads_to_the_index(site: Path, page: Page) -> None:
    page.goto(f"{site.as_uri()}/index.html")
    expect(page.get_by_role("heading", name="Documentation", level=1)).to_be_visible()
    menu = page.locator(".sidebar-tree a.reference")
    assert {"Operating pith", "Security", "Decisions"} <= set(menu.all_text_contents())


def test_search_finds_a_page_from_a_file(site: Path, page: Page) -> None:
    page.goto(f"{site.as_uri()}/docs/README.html")
    search = page.get_by_role("textbox", name="Search")
    search.fill("max_queued_requests")
    search.press("Enter")
    found = page.locator("#search-results li a").first
    expect(found).to_be_visible()
    found.click()
    expect(page.locator("article")).to_contain_text("max_queued_requests")


@pytest.mark.parametrize(
    ("asked", "first"), [("batches", "batches"), ("webhooks", "webhooks"), ("sizing", "sizing")]
)
def test_search_puts_the_page_of_that_name_first(site: Path, page: Page, asked: str, first: str) -> None:
    page.goto(f"{site.as_uri()}/search.html?q={asked}")
    # The number of results is told once all are there.
    expect(page.locator(".search-summary")).to_contain_text("found")
    links = page.locator("#search-results li > a:first-child")
    places = [
        link.split("#")[0].split("?")[0] for link in links.evaluate_all("all => all.map(one => one.href)")
    ]
    assert places[0].endswith(f"/docs/{first}.html")
    assert len(places) > 3


def test_the_pages_are_dark_where_the_reader_wants_it(site: Path, page: Page) -> None:
    page.goto(f"{site.as_uri()}/docs/billing.html")
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(int(part) for part in colour[4:-1].split(",")) < 64


@pytest.mark.parametrize("name", ["README.html", "docs/README.html", "docs/api/public.html"])
def test_axe_finds_nothing_on_a_page(site: Path, page: Page, name: str) -> None:
    page.goto(f"{site.as_uri()}/{name}")
    found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa"]}).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('<script src="https://cdn.test/a.js"></script>', "index.html loads https://cdn.test/a.js"),
        ('<link rel="stylesheet" href="//fonts.test/a.css">', "index.html loads //fonts.test/a.css"),
        ('<a href="other.html">other</a>', "index.html leads to other.html"),
        ('<a href="#there">there</a>', "index.html leads to #there"),
        ('<a href="https://elsewhere.test/">a link to follow</a><b id="x"></b><a href="#x">x</a>', ""),
    ],
)
def test_a_reference_to_nothing_or_a_resource_of_another_site_is_refused(
    tmp_path: Path, content: str, said: str
) -> None:
    (tmp_path / "index.html").write_text(content)
    command = [sys.executable, str(REFERENCES), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (1 if said else 0, said)


def test_a_stylesheet_that_loads_a_foreign_font_is_refused(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("")
    (tmp_path / "a.css").write_text('@font-face { src: url("https://fonts.test/a.woff2") }')
    command = [sys.executable, str(REFERENCES), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (1, "a.css loads https://fonts.test/a.woff2")
