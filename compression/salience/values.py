"""The kind of a JSON value, from its shape alone: an identifier, a date, an amount, a word."""

import re
from collections.abc import Iterator
from typing import Literal

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
