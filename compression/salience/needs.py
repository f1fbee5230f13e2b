"""Values of a tool's result that an agent is likely to repeat, whatever its next question: identifiers first.

A user asks what a text says; an agent calls the next tool with values of the last one's result, and what it will ask is
not known yet. So the worth of a part is the sum of what its values are worth, little for those that it knows already.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

from compression.source.units import STRUCTURE, Segmentation

ValueKind = Literal[
    "identifier", "capitals", "date", "digits", "address", "text", "name", "time", "number", "code", "word", "flag"
]  # fmt: skip

# A string that is followed by a colon names a member. One that does not end is taken to the end of the text: it would
# be looked for again from each quotation mark in it.
_VALUE = re.compile(
    r'"(?P<string>[^"\\]*+(?:\\.[^"\\]*+)*+)(?:"|\\?+\Z)(?P<key>[ \t\r\n]*+:)?'
    r"|(?P<bare>-?\d++(?:\.\d++)?+(?:[eE][+-]?\d++)?+|true|false|null)",
    re.DOTALL,
)
_DATE = re.compile(r"\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?[-/.]\d\d?[-/.]\d{4}")
_TIME = re.compile(r"(?:\d{4}-\d\d-\d\d[T ])?\d\d?:\d\d(?::\d\d)?(?:\.\d{1,9})?[\w+:.-]{0,8}")
_NUMBER = re.compile(r"[-+$€£]?\d{1,15}(?:[.,]\d{1,15})*%?")
_ADDRESS = re.compile(r"[^@\s]{1,64}@[^@\s]{1,255}|\w{1,10}://\S++")
_LONGEST = 80
# Whole numbers with this many digits are rarely counts or measurements.
_DIGITS = 6
_CODE = 4
_NAME_WORDS = 4


def values(text: str) -> Iterator[tuple[str, ValueKind]]:
    """Each value in a piece of JSON, strings without their quotes, with its kind; no names of members."""
    for found in _VALUE.finditer(text):
        if found["key"] is None:
            value = found["bare"] if found["string"] is None else found["string"]
            yield value, kind_of_value(value, is_string=found["string"] is not None)


def kind_of_value(value: str, *, is_string: bool) -> ValueKind:
    """`value` without quotes."""
    if not value or (not is_string and value[0] in "tfn"):
        return "flag"
    if not is_string:
        return "identifier" if value.isdigit() and len(value) >= _DIGITS else "number"
    if len(value) > _LONGEST:
        return "text"
    for kind, pattern in (("date", _DATE), ("time", _TIME), ("address", _ADDRESS)):
        if pattern.fullmatch(value):
            return kind  # type: ignore[return-value]
    if value.isdigit():
        return "identifier" if len(value) >= _DIGITS else "digits"
    if _NUMBER.fullmatch(value):
        return "number"
    return _kind_of_words(value)


def _kind_of_words(value: str) -> ValueKind:
    if any(char.isspace() for char in value):
        # Scripts without capitals have names too.
        is_name = len(value.split()) <= _NAME_WORDS and not value[0].islower()
        return "name" if is_name else "text"
    if len(value) >= _CODE and (any(map(str.isdigit, value)) or "/" in value):
        return "identifier"
    if value.isupper():
        return "code" if len(value) <= _CODE else "capitals"
    return "word" if value[0].islower() else "name"


WORTH: Mapping[ValueKind, float] = {
    "identifier": 1.0, "date": 0.6, "capitals": 0.5, "digits": 0.3, "address": 0.3, "text": 0.2, "name": 0.15,
    "time": 0.1, "number": 0.1, "code": 0.08, "word": 0.05, "flag": 0.03,
}  # fmt: skip
# The share of its worth that a repeated value keeps: one in the conversation, or earlier in the same result.
KNOWN, REPEATED = 0.03, 0.1
_SHORTEST_KNOWN = 4
# What full relevance to the query is worth: of a sentence, which answers by itself, and of a member.
SENTENCE, MEMBER = 20.0, 0.1


def is_record(text: Segmentation) -> bool:
    """True where the text is one JSON value; a log of one a line is not."""
    if text.is_conversation or not text.frames or text.frames[0].kind != "json":
        return False
    return text.frames[0].open == 0 and text.frames[0].close == len(text.units) - 1


def worths(
    text: Segmentation, relevance: Sequence[float], query: str, known: Collection[str] = frozenset()
) -> list[float]:
    """One a unit, 0 or more: the more, the sooner an agent needs it. They add up.

    `relevance` to the query is from 0 to 1; `known` are values that the reader has before it anyway.
    """
    found, seen = [], set[str]()
    for at, unit in enumerate(text.units):
        is_text = unit.kind not in ("json_member", "bracket")
        worth = (SENTENCE if is_text else MEMBER) * relevance[at]
        if not is_text and unit.kind not in STRUCTURE:
            for value, kind in values(text.text(at)):
                share = _share(value, query, known, seen)
                seen.add(value)
                worth += share * WORTH[kind] + (SENTENCE * relevance[at] if kind == "text" else 0.0)
        found.append(worth)
    return found


def is_known(value: str, query: str, known: Collection[str] = ()) -> bool:
    """True for a value that the reader has anyway: the query has it, or it is among `known`."""
    return len(value) >= _SHORTEST_KNOWN and (value in known or value in query)


def _share(value: str, query: str, known: Collection[str], seen: Collection[str]) -> float:
    if is_known(value, query, known):
        return KNOWN
    return REPEATED if value in seen else 1.0
