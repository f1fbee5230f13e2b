"""Addresses of links that a question asks for: they stay in a page's view where the link begins, all others go."""

from __future__ import annotations

import re

from compression.segmentation.markup import Token
from compression.source.text import content_terms
from compression.source.units import Slice

_ADDRESS = r"[^\"'\s<>\\]{1,300}"
_HREF = re.compile(
    rf"\shref\s{{0,4}}=\s{{0,4}}(?:\\?\"(?P<double>{_ADDRESS})\\?\"|\\?'(?P<single>{_ADDRESS})\\?'|(?P<bare>{_ADDRESS}))",
    re.IGNORECASE,
)
_TITLE = re.compile(
    r"\s(?:title|aria-label)\s{0,4}=\s{0,4}\\?[\"'](?P<title>[^\"'<>\\]{1,200})", re.IGNORECASE
)
_NOWHERE = ("#", "javascript:", "data:")
# In a question: a link, as the commonest languages call it, or what is written as an address is.
_LINK_WORDS = """
link links url urls uri uris href hyperlink hyperlinks verweis lien liens enlace enlaces collegamento ссылка ссылки
ссылку رابط روابط
"""
_LINKS = frozenset(_LINK_WORDS.split())
# A house has one too: it is a link's beside one of those words, or one of these.
_ADDRESSES = frozenset(("address", "addresses", "adresse", "adressen", "адрес", "адреса"))
_PLACE_WORDS = """
web page pages webpage webpages site sites website websites homepage seite seiten webseite webseiten
"""
_PLACES = frozenset(_PLACE_WORDS.split())
# What a question for links is made of, and names none of them.
_ASKING_WORDS = """
list all every each any give show find get please tell liste alle alles jede jeder jedes nenne zeige zeig gib finde
tous toutes chaque donne montre trouve lista todos todas cada dame muestra encuentra список все всех каждый покажи найди
"""
_NAMES_NOTHING = _LINKS | _PLACES | frozenset(_ASKING_WORDS.split())
_UNSPACED = ("链接", "連結", "网址", "網址", "リンク")
_WRITTEN = re.compile(r"https?://|\bwww\.|(?<![\w.])(?:[\w-]{1,40}\.){1,4}[a-z]{2,10}/")
_END = re.compile(r"</?a[\s>]", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")
_LONGEST_TEXT = 200
# Letters that are left of a word without its ending, and how many an ending has.
_STEM, _ENDING = 4, 3
# Of the links that a question names by the way, and of those where it asks for addresses.
_MOST_NAMED, _MOST_ASKED = 8, 64
# Terms of a question that are compared with every word of every link.
_MOST_TERMS = 64


class Addresses:
    """Says of each link of one page whether its address stays. A question that asks for addresses keeps those of links
    that share a word with it, in their text or in themselves, and every one where it has no other word. Any other
    question keeps those of the first few links all of whose words it has."""

    def __init__(self, question: str) -> None:
        terms = content_terms(question)
        asking = _LINKS.intersection(terms) or (
            _PLACES.intersection(terms) and _ADDRESSES.intersection(terms)
        )
        of_none = _NAMES_NOTHING | _ADDRESSES if asking else _NAMES_NOTHING
        told = [term for term in terms if term not in of_none][:_MOST_TERMS]
        self._whole = frozenset(term for term in told if len(term) < _STEM)
        self._stems = tuple(term[: max(_STEM, len(term) - _ENDING)] for term in told if len(term) >= _STEM)
        self._has_names = bool(told)
        self._asks = (
            bool(asking)
            or _WRITTEN.search(question) is not None
            or any(word in question for word in _UNSPACED)
        )
        self._most = _MOST_ASKED if self._asks else _MOST_NAMED
        self._kept = 0

    @classmethod
    def every(cls) -> Addresses:
        """Those of all links."""
        return cls("link")

    @property
    def found_none(self) -> bool:
        """The question asks for addresses, but by no word of any link."""
        return self._asks and self._has_names and not self._kept

    def of(self, source: str, link: Token) -> Slice | None:
        """Where the attribute with the address is in the source, the space before it included; None where it goes."""
        if not (self._has_names or self._asks) or (self._has_names and self._kept >= self._most):
            return None
        found = _HREF.search(source, link.start, link.end)
        address = found[found.lastgroup or 0] if found else ""
        if found is None or address.startswith(_NOWHERE):
            return None
        text = self._text(source, link)
        if not (self._asked(text, address) if self._asks else self._names(text)):
            return None
        self._kept += 1
        return Slice(*found.span())

    def _text(self, source: str, link: Token) -> str:
        end = _END.search(source, link.end, link.end + _LONGEST_TEXT)
        title = _TITLE.search(source, link.start, link.end)
        inside = source[link.end : link.end + _LONGEST_TEXT if end is None else end.start()]
        return f"{_TAG.sub(' ', inside)} {title['title'] if title else ''}"

    def _asked(self, text: str, address: str) -> bool:
        return not self._has_names or any(map(self._is_told, content_terms(f"{text} {address}")))

    def _names(self, text: str) -> bool:
        words = [word for word in content_terms(text) if word not in _NAMES_NOTHING]
        return bool(words) and all(map(self._is_told, words))

    def _is_told(self, word: str) -> bool:
        return word in self._whole or word.startswith(self._stems)
