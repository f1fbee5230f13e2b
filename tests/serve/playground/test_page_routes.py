"""The playground's files: each from this server, under a policy that lets nothing else run; and none when it is off."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path
from posixpath import dirname, join, normpath

import pytest
import pytest_asyncio

from serve.playground.page_routes import ABOUT, FOLDER, PAGE_SIZES, RUNNING, page_files
from tests.serve.served import Client, Served, serving

FILES = {file.path: file for file in page_files()}
MODULES = {path: file.body.decode() for path, file in FILES.items() if path.endswith(".js")}
# How a script makes HTML or code of text, and where a key would outlive its tab.
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|createContextualFragment|"
    r"parseFromString|setHTML|srcdoc|javascript:|localStorage|indexedDB|document\.cookie|https?://(?!www\.w3\.org/2000/svg)"
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with serving(tmp_path_factory.mktemp("playground")) as found:
        yield found


async def get(served: Served, path: str, method: str = "GET", **headers: str) -> Client:
    return await Client(served.api, path, method, headers).run()


async def test_every_file_is_sent_whole_under_a_policy_that_lets_nothing_else_run(served: Served) -> None:
    for path, file in FILES.items():
        reply = await get(served, path)
        assert (reply.status, reply.body) == (200, file.body), path
        sent = reply.reply_headers
        assert sent["content-type"] == file.media_type
        policy = dict(part.split(None, 1) for part in sent["content-security-policy"].split(";"))
        assert (policy["default-src"], policy["require-trusted-types-for"]) == ("'none'", "'script'")
        for name in ("script-src", "style-src", "connect-src"):
            assert policy[name] == "'self'"
        for name in ("base-uri", "form-action", "frame-ancestors", "trusted-types"):
            assert policy[name] == "'none'"
        assert policy["img-src"] == "'self' data:"
        assert "unsafe" not in sent["content-security-policy"]
        assert (sent["x-content-type-options"], sent["referrer-policy"]) == ("nosniff", "no-referrer")
        head = await get(served, path, "HEAD")
        assert head.status == 200 and head.reply_headers["content-length"] == str(len(file.body))


async def test_a_file_that_a_browser_has_is_not_sent_again_until_it_changes(served: Served) -> None:
    reply = await get(served, "/")
    etag = reply.reply_headers["etag"]
    assert reply.reply_headers["cache-control"] == "no-cache"
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = await get(served, "/", **{"If-None-Match": known})
        assert (again.status, again.body) == (304, b"") and again.reply_headers["etag"] == etag
        assert "content-security-policy" in again.reply_headers
    assert (await get(served, "/", **{"If-None-Match": '"other"'})).status == 200
    assert len({file.etag for file in FILES.values()}) == len(FILES)


@pytest.mark.parametrize(
    "path",
    [
        "/playground",
        "/playground/",
        "/playground/%2e%2e/about.py",
        "/playground/styles/",
        "/index.html",
        "/playground//main.js",
    ],
)
async def test_no_other_file_is_sent(served: Served, path: str) -> None:
    reply = await get(served, path)
    assert reply.status == 404 and set(reply.json()) == {"detail", "error"}
    assert (await get(served, "/", "POST")).status == 405


async def test_it_says_of_the_server_what_is_public(served: Served) -> None:
    reply = await get(served, ABOUT)
    found = reply.json()
    assert reply.status == 200 and reply.reply_headers["x-content-type-options"] == "nosniff"
    ids = [model.id for model in served.settings.models]
    assert [model["id"] for model in found["chat"]] == ids
    catalog = (await get(served, "/v1/catalog")).json()
    for ours, theirs in zip(found["chat"], catalog["models"], strict=True):
        assert ours.items() >= theirs.items()
    # This server compresses nothing, so there is no demo.
    assert (found["compression"], found["demo"]) == ([], {})
    assert str(served.settings.state_dir) not in reply.body.decode()


async def test_it_says_which_models_answer(served: Served) -> None:
    reply = await get(served, RUNNING)
    models = reply.json()["models"]
    assert reply.status == 200 and reply.reply_headers["cache-control"] == "no-cache"
    assert models == {model.id: True for model in served.settings.models}


async def test_without_it_the_address_is_a_404_and_nothing_else_changes(
    served: Served, tmp_path: Path
) -> None:
    async with serving(tmp_path, server={"playground": False}) as off:
        for path in (*FILES, ABOUT, RUNNING):
            assert (await get(off, path)).status == 404, path
        for path in ("/v1/catalog", "/health", "/docs", "/openapi.json"):
            ours, theirs = await get(off, path), await get(served, path)
            assert (ours.status, ours.body) == (theirs.status, theirs.body)


class References(HTMLParser):
    """What a page names, and what stands in it that only a laxer policy would allow."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.inline: list[str] = []
        self.ids: list[str] = []
        self._in = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.urls += [value or "" for name, value in attrs if name in ("href", "src", "action", "srcset")]
        self.inline += [name for name in named if name.startswith("on") or name == "style"]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self._in = tag if tag in ("script", "style") else ""

    def handle_data(self, data: str) -> None:
        if self._in and data.strip():
            self.inline.append(data)


async def test_the_page_names_files_of_this_server_alone_and_holds_no_script(served: Served) -> None:
    found = References(FILES["/"].body.decode())
    assert not found.inline and len(found.ids) == len(set(found.ids))
    for url in found.urls:
        if url.startswith("#"):
            continue
        # Relative, so that it holds behind a proxy that serves pith under a prefix.
        assert not re.match(r"(\w+:)?//|/", url), url
        assert (await get(served, f"/{url}")).status == 200, url


@pytest.mark.parametrize("path", MODULES)
async def test_a_module_makes_no_html_and_no_code_of_text(path: str) -> None:
    assert not (found := FORBIDDEN.search(MODULES[path])), found
    imported = re.findall(r'from "([^"]+)"', MODULES[path])
    assert all(normpath(join(dirname(path), one)) in FILES for one in imported), imported
    assert len(MODULES[path].splitlines()) <= 300


async def test_each_file_of_the_folder_is_one_that_is_sent() -> None:
    there = {
        f"/playground/{file.relative_to(FOLDER).as_posix()}" for file in FOLDER.rglob("*") if file.is_file()
    }
    assert there - set(FILES) == {"/playground/index.html"}
    assert sum(len(file.body) for file in FILES.values()) < 175_000


async def test_the_page_asks_for_as_many_sizes_as_the_server_counts() -> None:
    assert f"const RATIOS = {PAGE_SIZES};" in next(
        body for path, body in MODULES.items() if path.endswith("compress/sizes.js")
    )
