"""Checks a built site: each link leads to a file and an anchor that are there, and nothing is loaded from another site.

`python references.py FOLDER` prints what is wrong and ends with 1.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser fetches by itself. A link that a reader may follow, `<a href>`, may lead anywhere.
LOADED = {"src", "srcset", "poster", "data", "action", "formaction"}
# Links of a page's head that load nothing.
INERT = {"canonical", "next", "prev", "search", "index", "author", "alternate"}
CSS_ADDRESS = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


@dataclass
class Page(HTMLParser):
    """The anchors of a page, what it links to and what it loads."""

    path: Path
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        self.loaded += [value for name, value in given.items() if name in LOADED and tag != "form"]
        if tag == "link" and not set(given.get("rel", "").split()) <= INERT:
            self.loaded.append(given["href"])
        elif tag != "link" and "href" in given:
            self.links.append(given["href"])


def wrong(site: Path) -> Iterator[str]:
    """One line for each reference that leads nowhere, or loads something from another site."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    for page in pages.values():
        where = page.path.relative_to(site)
        yield from (f"{where} loads {address}" for address in page.loaded if is_foreign(address))
        local = [each for each in (*page.links, *page.loaded) if not is_foreign(each)]
        yield from (f"{where} leads to {each}" for each in local if not is_there(page, each, pages))
    for path in sorted(site.rglob("*.css")):
        found = (one or other for one, other in CSS_ADDRESS.findall(path.read_text()))
        yield from (f"{path.relative_to(site)} loads {address}" for address in found if is_foreign(address))


def is_foreign(address: str) -> bool:
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def is_there(page: Page, address: str, pages: dict[Path, Page]) -> bool:
    parts = urlsplit(address)
    if parts.scheme:  # data:
        return True
    to = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
    if not parts.fragment:
        return to.is_file()
    return to in pages and unquote(parts.fragment) in pages[to].anchors


def main() -> None:
    site = Path(sys.argv[1]).resolve()
    found = list(wrong(site))
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    raise SystemExit(bool(found) or not (site / "index.html").is_file())


if __name__ == "__main__":
    main()
