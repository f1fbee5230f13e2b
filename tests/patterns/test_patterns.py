"""No regular expression that a caller's bytes reach costs more than their length."""

# ruff: noqa: RUF001 - marks of other scripts are intended
from __future__ import annotations

from functools import cache

import pytest

from tests.patterns.collecting import Found, every_pattern
from tests.patterns.rules import faults as found_faults

# Two tests ask for most of them.
faults = cache(found_faults)

_LINES = "`_matching` tries it where a line begins"
AT_ONE_PLACE = {
    "compression.segmentation.documents._LABELLED": _LINES,
    "compression.segmentation.documents._TAG": _LINES,
    "compression.segmentation.documents._TITLED": _LINES,
    "compression.segmentation.documents._NUMBERED": _LINES,
    "compression.segmentation.documents._RULE": _LINES,
    "compression.segmentation.lines.LIST_ITEM": _LINES.replace("_matching", "_is_plain"),
    "compression.segmentation.lines.LOG_LINE": _LINES.replace("_matching", "_is_plain"),
    "compression.segmentation.code.TRACE_FRAME": _LINES.replace("_matching", "_foreign_until"),
    "compression.segmentation.tables._QUOTED_OR_BARE": "`cells` tries it where a cell begins",
    "compression.segmentation.tables._SECTIONS": "tried where a row begins",
    "compression.segmentation.outputs.OUTPUT_LINE": _LINES.replace("_matching", "_is_plain"),
}
# Harmless all the same, and why.
EXCEPTIONS = {
    "compression.neural.words._TICKS": "the end of the text closes what nothing else does: it never fails",
    "compression.salience.needs._VALUE": "the end of the text closes what nothing else does: it never fails",
    "compression.neural.words._WORD_BEFORE": "reads 24 characters",
    "compression.neural.words._LAST_MARK": "reads 16 characters",
    "compression.source.json_tree._TOKEN": "reads JSON that was parsed before: every string in it ends",
    "compression.conversation.layout._SPACE_OUTSIDE": "reads JSON that was parsed before: every string in it ends",
    "compression.segmentation.lines._LINE": "what ends no line is followed by a line's end, or by the text's",
    "compression.segmentation.code_regions._REMARK": "reads a line of 400 characters at the most",
    "compression.segmentation.prose._LAST_WORD": "reads 24 characters",
    "compression.source.token_counter._WORDS": "white space with nothing behind it ends the text",
}

# What was here once, and cost the square or worse: a rule that passes one of them is no rule.
MENDED = (
    r"(?:[\w$]+\.)*[A-Z][\w$]*(?:Error|Exception|Interrupt|Exit|Warning|Fault)\b",
    r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*\Z",
    r"(?:^|[.!?:\n]\s*)(?:your\s+)?new instructions\s*(?:are\b|:)",
    r"ignorier\w*\s+(?:alle\s+|die\s+){1,4}\w*(?:anweisung|regel)",
    r"ignor\w+\s+(?:todas\s+|toutes\s+){1,3}(?:instruc\w+|consignes)",
    r"[.!?…]++(?:\\[\"']|[\"'”’)\]*_])*+(?=[ \t]|\\[nr])",
    r"“[^”\n]+”",
    r"(a+)+$",
    r"(a|ab)*c",
    r"(\s|\n)*x",
    r"x*y?x*z",
    r"\w*_\w*=",
    r"x(?=[ab]*[bc]*d)",
)
SOUND = (
    r"\bno\b",
    r"[^\r\n]*",
    r"(?<![.!?])[.!?]++(?=\s)",
    r"\b\w+n't",
    r"https?://[^\s<>]{1,2000}",
    r'"[^"\n]{2,100}"',
    r"[A-Z](?:[^\WA-Z]|\$)*+(?:Error|Exit)(?!\w)",
)


@pytest.mark.parametrize("found", every_pattern(), ids=lambda found: found.name)
def test_a_pattern_of_ours_is_linear_by_its_shape(found: Found) -> None:
    if found.name not in EXCEPTIONS:
        searched = found.searched and found.name not in AT_ONE_PLACE
        assert not faults(found.pattern, found.flags, searched=searched), found.pattern


def test_every_exception_is_still_needed() -> None:
    refused = {
        found.name for found in every_pattern() if faults(found.pattern, found.flags, searched=found.searched)
    }
    assert EXCEPTIONS.keys() | AT_ONE_PLACE.keys() <= refused


def test_all_patterns_are_looked_at() -> None:
    names = {found.name for found in every_pattern()}
    assert len(names) > 60
    assert {
        "compression.segmentation.code._ERROR_NAME",
        "compression.neural.token_classifier._CORE",
    } <= names


@pytest.mark.parametrize("pattern", MENDED)
def test_the_rules_refuse_what_was_mended(pattern: str) -> None:
    assert faults(pattern, 0, searched=True)


@pytest.mark.parametrize("pattern", SOUND)
def test_the_rules_pass_what_is_sound(pattern: str) -> None:
    assert not faults(pattern, 0, searched=True)
