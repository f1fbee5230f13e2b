"""Marks the units that are kept whatever their score, by what the configuration says is not to be lost."""

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Literal, get_args

from compression.source.units import FRAMING, Segmentation, Unit

Protection = Literal["code", "tables", "json", "headings", "numbers", "urls", "quotes"]

NUMBER = re.compile(r"\d(?:[.,:/'\u2019\u00a0\u202f-]*+\d)*+(?:\s?%)?")
URL = re.compile(
    r"(?:https?://|ftp://|www\.)[^\s<>\"'|]{1,2000}|(?<![\w.+-])[\w.+-]{1,64}+@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}",
    re.IGNORECASE,
)
QUOTATION = re.compile('"[^"\\n]{2,}"|“[^“”\\n]+”|«[^«»\\n]+»|„[^„“\\n]+“|「[^「」\\n]+」')
_KINDS = {"code": "code_block", "tables": "table_row", "json": "json_member", "headings": "heading"}
_CONTENTS = {"numbers": NUMBER, "urls": URL, "quotes": QUOTATION}


def protect(text: Segmentation, protections: Collection[Protection]) -> Segmentation:
    """The same segmentation with `protected` set where a unit is, or holds, what is protected."""
    if not protections:
        return text
    is_protected = _rule(text, protections)
    units = tuple(replace(unit, protected=True) if is_protected(unit) else unit for unit in text.units)
    return replace(text, units=units)


def check_protections(names: Collection[str]) -> None:
    unknown = sorted(set(names) - set(get_args(Protection)))
    if unknown:
        raise ValueError(f"protections: {unknown[0]!r} is not one of {', '.join(get_args(Protection))}")


def _rule(text: Segmentation, protections: Collection[Protection]) -> Callable[[Unit], bool]:
    kinds = {_KINDS[name] for name in protections if name in _KINDS}
    contents = [_CONTENTS[name] for name in protections if name in _CONTENTS]

    def is_protected(unit: Unit) -> bool:
        if unit.kind in FRAMING:
            return False
        return unit.kind in kinds or any(
            pattern.search(text.source, unit.start, unit.end) for pattern in contents
        )

    return is_protected
