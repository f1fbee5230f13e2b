"""What holds for every segmentation, whatever the source."""

from __future__ import annotations

import re
from collections.abc import Callable

from compression.source.units import Segmentation


def check(text: Segmentation, is_said: Callable[[str], bool] = str.isalnum) -> None:
    """Units in order and apart, every frame and document made of units, and nothing that is said outside of them."""
    at, gaps = 0, []
    for unit in text.units:
        assert at <= unit.start < unit.end <= len(text.source)
        gaps.append(text.source[at : unit.start])
        at = unit.end
    gaps.append(text.source[at:])
    # Nothing but rules, commas and colons of JSON, escapes and a page's marks lies between units: no word is lost.
    assert not any(is_said(letter) for gap in gaps for letter in re.sub(r"\\[nrt]|</?\w+>", "", gap))
    assert [unit for document in text.documents for unit in range(*document.units)] == list(
        range(len(text.units))
    )
    for number, document in enumerate(text.documents):
        assert {text.units[unit].document for unit in range(*document.units)} == {number}
        assert document.title is None or document.units[0] <= document.title < document.units[1]
    paragraphs = [unit.paragraph for unit in text.units]
    assert paragraphs == sorted(paragraphs)
    for number, frame in enumerate(text.frames):
        assert frame.parent is None or frame.parent < number
        assert text.units[frame.open].frame == frame.parent
        assert frame.close is None or frame.close > frame.open
