"""Whole web pages to summarize, and facts in them: documentation in HTML that is installed, in shells of several sites.

Articles are read from where Debian's `python3-doc` and `debian-handbook` and npm put their pages. Without them these
suites are empty, and say what to install.
"""

# Some marks of other scripts look like ASCII ones; they are intended.
# ruff: noqa: RUF001

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

from benchmarks.evaluation.case import Case, Need, seeded
from benchmarks.evaluation.suites.page_shells import HELD_OUT, TUNED, Fact, Shell

QUERY = "Summarize this article."
CASES = 48
SHORTEST, LONGEST = 1_500, 9_000
# A block with fewer letters, such as a label, is not asked for.
LETTERS = 20
_DOCS = Path("/usr/share/doc")
_NPM = Path("/usr/lib/node_modules/npm/docs/output")
_HANDBOOK = "debian-handbook/html"
_LANGUAGES = ("en-US", "de-DE", "fr-FR", "ja-JP", "zh-CN", "es-ES", "ar-MA", "vi-VN")
_SPHINX = re.compile(r'<div class="body" role="main">(.*?)<div class="clearer">', re.DOTALL)
_PUBLICAN = re.compile(r'(<div class="section">.*)<ul class="docnav">', re.DOTALL)
_OF_NPM = re.compile(r'<div id="_content">(.*)</div>\s*</section>', re.DOTALL)
_ANCHOR = re.compile(r'<a class="headerlink".*?</a>|<a [^<>]*class="indexterm"></a>', re.DOTALL)
# The handbook's paragraphs, as other sites write them.
_PARAGRAPH = re.compile(
    r'<div class="para">((?:(?!</?div\b|<p\b|<[uo]l\b|<pre\b|<table\b).)*)</div>', re.DOTALL
)
_HEADING = re.compile(r"<h([1-6])[^<>]*>(.*?)</h\1>", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")
_SCRIPT = re.compile(r"<(script|style|svg)\b.*?</\1>|<!--.*?-->", re.DOTALL | re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{4,}")


@dataclass(frozen=True, slots=True)
class Article:
    name: str
    title: str
    html: str


def _files() -> Iterator[tuple[Path, re.Pattern[str]]]:
    """Pages that hold an article, and where it is in them."""
    for folder in ("howto", "tutorial", "faq", "library"):
        for path in sorted(_DOCS.glob(f"python3.*/html/{folder}/*.html"))[:60]:
            yield path, _SPHINX
    for language in _LANGUAGES:
        for path in sorted((_DOCS / _HANDBOOK / language).glob("sect.*.html"))[:40]:
            yield path, _PUBLICAN
    for path in sorted(_NPM.glob("*/*.html"))[:30]:
        yield path, _OF_NPM


def articles() -> list[Article]:
    """Those of a usual length, each from its heading on, in an order that has nothing to do with their names."""
    found = []
    for path, pattern in _files():
        match = pattern.search(path.read_text(encoding="utf-8", errors="replace"))
        if match is None:
            continue
        html = _PARAGRAPH.sub(r"<p>\1</p>", _ANCHOR.sub("", match[1]).strip())
        heading = _HEADING.search(html)
        if heading and SHORTEST <= len(text_of(html)) <= LONGEST:
            found.append(Article("/".join(path.parts[-3:]), text_of(heading[2]), html))
    if not found:
        print("no pages: install Debian's python3-doc and debian-handbook, or npm", file=sys.stderr)
    seeded("pages").shuffle(found)
    return found


def text_of(html: str) -> str:
    """The text of a page or of what is left of one, without tags and scripts."""
    return " ".join(unescape(_TAG.sub(" ", _SCRIPT.sub(" ", html))).split())


class _Blocks(HTMLParser):
    """Texts of the innermost blocks of an article, and where each begins."""

    BLOCKS = frozenset(
        {
            "p", "li", "dt", "dd", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "td",
            "th", "div", "section", "blockquote", "figure", "ul", "ol", "dl", "table", "tr", "caption",
        }
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self._open: list[str] = []

    def _end(self) -> None:
        text = "".join(self._open)
        if text.strip():
            self.texts.append(text)
        self._open = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in self.BLOCKS:
            self._end()

    def handle_endtag(self, tag: str) -> None:
        if tag in self.BLOCKS:
            self._end()

    def handle_data(self, data: str) -> None:
        self._open.append(data)


def blocks(html: str) -> list[str]:
    parser = _Blocks()
    parser.feed(html)
    parser.close()
    parser._end()
    return [text for text in parser.texts if sum(map(str.isalnum, text)) >= LETTERS]


def _made(article: Article, number: int) -> tuple[Shell, bool]:
    shells = (*TUNED, *HELD_OUT)
    make = shells[number % len(shells)]
    return make(article.title, article.html, seeded(f"pages {article.name}")), make in HELD_OUT


def page_cases(suite: str = "pages") -> Iterator[Case]:
    """A page whose article is asked for as a whole. Rows of shells that nothing was tuned on are held out."""
    for number, article in enumerate(articles()[:CASES]):
        shell, is_held_out = _made(article, number)
        start = shell.html.index(article.html)
        span = (start, start + len(article.html))
        needs = tuple(Need(text, (span,)) for text in blocks(article.html))
        yield Case(
            suite, f"{suite} {number} {article.name}", QUERY, shell.html, ((0, len(shell.html)),), evidence=(span,),
            is_held_out=is_held_out, needs=needs,
        )  # fmt: skip


def fact_cases(suite: str = "page_facts") -> Iterator[Case]:
    """One sentence of a page: of the article, or of what is around it."""
    for number, article in enumerate(articles()[:CASES]):
        shell, is_held_out = _made(article, number)
        fact = shell.facts[number // 6 % 2] if number % 2 else _fact_of(article)
        if fact is None:
            continue
        need = Need(fact.sentence, ((0, len(shell.html)),))
        yield Case(
            suite, f"{suite} {number} {article.name}", fact.question, shell.html, ((0, len(shell.html)),),
            evidence=need.spans, is_held_out=is_held_out, needs=(need,),
        )  # fmt: skip


_LINK = re.compile(r'<a [^<>]*?href="(?P<address>[^"#<>][^"<>]*)"[^<>]*>(?P<text>.*?)</a>', re.DOTALL)


def link_cases(suite: str = "links_pages") -> Iterator[Case]:
    """The address of a link of the article, asked for by its text, which no other link has."""
    for number, article in enumerate(articles()[:CASES]):
        shell, is_held_out = _made(article, number)
        found = [(text_of(link["text"]), link) for link in _LINK.finditer(shell.html)]
        counts = Counter(text for text, _ in found)
        own = [(text, link) for text, link in found if counts[text] == 1 and len(_words(text)) >= 1]
        own = [(text, link) for text, link in own if link[0] in article.html]
        if not own:
            continue
        text, link = seeded(f"link {article.name}").choice(own)
        need = Need(link["address"], (link.span("address"),))
        yield Case(
            suite, f"{suite} {number} {article.name}", f"What is the link to {text}?", shell.html,
            ((0, len(shell.html)),), evidence=need.spans, is_held_out=is_held_out, needs=(need,),
        )  # fmt: skip


def _fact_of(article: Article) -> Fact | None:
    """A sentence that three of its words tell from all others, asked for by them."""
    texts = [text for text in blocks(article.html) if 60 <= len(text) <= 400]
    counts = Counter(word for text in texts for word in set(_words(text)))
    for text in seeded(f"fact {article.name}").sample(texts, len(texts)):
        rare = [word for word in dict.fromkeys(_words(text)) if counts[word] == 1]
        if len(rare) >= 3 and not _is_several(text):
            return Fact(f"What does the page say about {rare[0]}, {rare[1]} and {rare[2]}?", text)
    return None


def _is_several(text: str) -> bool:
    """More than one sentence: a question is for one."""
    return len(re.findall(r"[.!?](?:\s|$)|[。！？]", text)) > 1


def _words(text: str) -> Sequence[str]:
    return [word.lower() for word in _WORD.findall(text)]
