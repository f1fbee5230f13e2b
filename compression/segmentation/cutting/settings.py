"""Bounds of segmentation, given once and shared by all its parts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SegmentationSettings:
    """Lengths in characters. `longest_unit` bounds a sentence, `longest_dense` one in a script without spaces.

    `longest_block` bounds what is better kept whole: a code block, a stack trace, a JSON value, a short turn;
    `longest_record` a JSON value of `fewest_members` or more, of which an agent may need but one.
    Beyond `most_units` units or `most_lines` lines, which two megabytes of text have where a line has twenty
    characters, neighbours are joined: each costs its time and memory, however short it is.
    """

    longest_unit: int = 600
    longest_dense: int = 200
    longest_block: int = 400
    longest_record: int = 120
    fewest_members: int = 4
    most_units: int = 32_768
    most_lines: int = 100_000
    conversations: bool = True

    def __post_init__(self) -> None:
        for name in ("longest_unit", "longest_dense", "longest_block", "longest_record"):
            if getattr(self, name) < 40:
                raise ValueError(f"{name}: must be at least 40 characters, not {getattr(self, name)}")
        for name in ("most_units", "most_lines", "fewest_members"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: must be at least 1, not {getattr(self, name)}")
