"""`/docs` and `/redoc` without internet: every file is the server's own, and a browser fetches no other."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest

from models.fake_engine import FakeEngine
from serve.http.openapi import FILES, PAGES
from tests.integration.browser import headless
from tests.serve.loopback_service import Running, service

# What a page must show of the service once its viewer has read /openapi.json.
SHOWN = {"/docs": "/v1/chat/completions", "/redoc": "/v1/chat/completions"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with service(tmp_path_factory.mktemp("viewers"), FakeEngine()) as found:
        yield found


class References(HTMLParser):
    """Every URL that a page names, and every script that it holds."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.inline: list[str] = []
        self._in_script = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.urls += [value or "" for name, value in attrs if name in ("href", "src", "action", "srcset")]
        self._in_script = tag == "script" and "src" not in named
        assert not [name for name in named if name.startswith("on")], "a handler in the page"

    def handle_data(self, data: str) -> None:
        if self._in_script and data.strip():
            self.inline.append(data)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_files_of_this_server_alone_and_each_is_there(running: Running, page: str) -> None:
    reply = httpx.get(running.url + page)
    assert reply.status_code == 200 and reply.headers["content-type"].startswith("text/html")
    found = References(reply.text)
    assert not found.inline and len(found.urls) >= 3
    for url in found.urls:
        if url == "data:,":
            continue
        # Relative, so that it holds behind a proxy that serves pith under a prefix.
        assert not re.match(r"(\w+:)?//|/", url), url
        assert httpx.get(urljoin(running.url + page, url)).status_code == 200, url


@pytest.mark.parametrize("path", [*PAGES, *FILES])
def test_a_file_is_sent_whole_with_headers_that_allow_no_other_site(running: Running, path: str) -> None:
    reply = httpx.get(running.url + path)
    assert reply.status_code == 200
    assert len(reply.content) == {**PAGES, **FILES}[path].stat().st_size > 0
    policy = dict(part.split(None, 1) for part in reply.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'" and policy["script-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    allowed = {word for sources in policy.values() for word in sources.split()}
    assert allowed <= {"'none'", "'self'", "'unsafe-inline'", "data:", "blob:"}
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["referrer-policy"] == "no-referrer"
    assert "x-request-id" in reply.headers
    assert httpx.head(running.url + path).status_code == 200


@pytest.mark.parametrize("path", ["/docs/", "/docs/%2e%2e/api.py", "/redoc/x", "/docs/oauth2-redirect"])
def test_no_other_file_is_sent(running: Running, path: str) -> None:
    reply = httpx.get(running.url + path)
    assert reply.status_code == 404 and set(reply.json()) == {"detail", "error"}


def test_our_own_scripts_name_no_site() -> None:
    ours = [path for path in FILES.values() if path.name in ("swagger.js", "redoc.js")]
    assert len(ours) == 2
    code = "\n".join(path.read_text() for path in ours)
    assert "//" not in re.sub(r"^//.*$", "", code, flags=re.MULTILINE)


@pytest.mark.integration
@pytest.mark.parametrize("page", PAGES)
def test_a_browser_without_internet_shows_the_service(running: Running, page: str, tmp_path: Path) -> None:
    log = tmp_path / "net.json"
    command = [
        *headless(tmp_path / "profile"),
        # Every name but the server's is unknown, as on a machine without internet.
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        "--enable-logging=stderr",
        f"--log-net-log={log}",
        "--virtual-time-budget=20000",
        "--dump-dom",
        running.url + page,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert SHOWN[page] in done.stdout, done.stderr[-2000:]
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line and "Refused" in line]
    assert not complaints, complaints
    # The browser asks its maker for updates; what the page asked for has the page as its initiator.
    events = [event.get("params", {}) for event in json.loads(log.read_text())["events"]]
    asked = {event["url"] for event in events if event.get("initiator") == running.url and "url" in event}
    assert len(asked) >= 3 and all(url.startswith((running.url, "blob:")) for url in asked), asked
