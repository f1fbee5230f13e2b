"""Text to be wary of: scripts that the scorer was not made for, and text that gives instructions."""

import re
from collections.abc import Iterator
from itertools import pairwise

from compression.flags.evidence import Evidence
from compression.flags.flag import Flag
from compression.text.scripts import letters_outside

_PHRASES: tuple[tuple[str, str], ...] = (
    (
        "ignore",
        r"ignore\s+(?:all\s+|any\s+|the\s+|your\s+|my\s+|of\s+|these\s+|those\s+|previous\s+|prior\s+|above\s+){1,5}"
        r"(?:instruction|prompt|rule|direction|command|message|context)",
    ),
    (
        "disregard",
        r"disregard\s+(?:all\s+|any\s+|the\s+|your\s+|of\s+|previous\s+|prior\s+|above\s+){1,5}"
        r"(?:instruction|prompt|rule|direction|command|message|context)",
    ),
    (
        "forget",
        r"forget\s+(?:all\s+|everything\s+|your\s+|the\s+|previous\s+|prior\s+){1,4}"
        r"(?:instruction|prompt|rule|you were told)",
    ),
    (
        "system prompt",
        r"(?:reveal|print|show|repeat|output|leak)\s+"
        r"(?:me\s+)?(?:your|the)\s+(?:full\s+|entire\s+|hidden\s+)?system prompt",
    ),
    ("you are now", r"you are now\s+(?:a|an|in|the|no longer|free|dan)\b"),
    # Where it begins a sentence: inside one, somebody speaks to somebody.
    ("from now on", r"(?:^|[.!?:\n][^\S\n]*+)from now on,?\s+you\s+(?:are|will|must|should)\b"),
    ("new instructions", r"(?:^|[.!?:\n][^\S\n]*+)(?:your\s+)?new instructions\s*(?:are\b|:)"),
    ("do not tell the user", r"do not tell the user"),
    ("<|", r"<\|(?:im_start|im_end|system|user|assistant|start_header_id|eot_id|endoftext)\|>"),
    ("[inst]", r"\[inst\]"),
    ("<<sys>>", r"<<sys>>"),
    ("### instruction", r"### instruction\s*:"),
    (
        "ignor",
        r"\bignorier\w*+\s+(?:alle\s+|die\s+|sämtliche\s+|bisherigen\s+|vorherigen\s+|obigen\s+){1,4}"
        r"\w*(?:anweisung|regel)",
    ),
    (
        "ignor",
        r"\bignor\w++\s+(?:todas\s+|toutes\s+|las\s+|les\s+|tes\s+|tus\s+){1,3}(?:instruc\w+|consignes)",
    ),
    ("忽略", r"忽略(?:之前|以上|上述|前面|所有)?的?(?:所有|一切|全部)?的?(?:指令|指示|提示|说明)"),
)
_ORDERS = tuple((word, re.compile(pattern, re.IGNORECASE)) for word, pattern in _PHRASES)


def doubtful_text(evidence: Evidence) -> Iterator[Flag]:
    orders = sorted(_orders(evidence))
    if orders:
        yield evidence.flag("instruction_like_text", orders)
    outside, letters = letters_outside(evidence.output, evidence.settings.scripts)
    if outside and outside >= evidence.settings.unsupported_share * letters:
        yield evidence.flag("unsupported_language", _foreign_spans(evidence), count=outside)


def _orders(evidence: Evidence) -> Iterator[tuple[int, int]]:
    """Kept phrases that address a model. They are kept all the same: only the caller can tell what they are."""
    lowered = evidence.output.lower()
    in_order = all(before[1] <= after[0] for before, after in pairwise(evidence.slices))
    for word, pattern in _ORDERS:
        # What was kept whole is in the output, which is shorter than the source, unless its parts were moved.
        if word in lowered and not (in_order and pattern.search(evidence.output) is None):
            for found in pattern.finditer(evidence.source):
                if evidence.is_whole(*found.span()):
                    yield found.span()


def _foreign_spans(evidence: Evidence) -> list[tuple[int, int]]:
    spans = []
    for index in evidence.kept_units:
        unit = evidence.text.units[index]
        outside, letters = letters_outside(evidence.text.text(index), evidence.settings.scripts)
        if outside * 2 > letters:
            spans.append((unit.start, unit.end))
        if len(spans) == 3:
            break
    return spans
