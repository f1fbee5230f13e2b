"""What the checks look at: the source, what of it was kept, and how that was decided."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from compression.calibration.estimate import Estimate
from compression.flags.flag import CODES, Example, Flag, FlagSettings, Severity
from compression.source.units import Segmentation

_LONGEST_EXAMPLE = 120


@dataclass(frozen=True)
class Evidence:
    """One compression. `slices` are the spans of the source that make up `output`, in any order. Where the source is a
    view of the input, so is `output`; flags have offsets into the input.

    `scores` is None where nothing was scored, because all was kept; `estimate` where the model has no calibration.
    `is_promised`: a probability was asked for in place of a ratio.
    """

    query: str
    text: Segmentation
    slices: Sequence[tuple[int, int]]
    output: str
    scores: Sequence[float] | None
    target_ratio: float
    budget: int
    original_tokens: int
    output_tokens: int
    settings: FlagSettings
    estimate: Estimate | None = None
    is_promised: bool = False

    @property
    def source(self) -> str:
        return self.text.source

    @cached_property
    def mask(self) -> bytearray:
        """One byte a code point of the source: 1 where it was kept."""
        mask = bytearray(len(self.source))
        for start, end in self.slices:
            mask[start:end] = b"\x01" * (end - start)
        return mask

    def kept_length(self, start: int, end: int) -> int:
        return self.mask.count(1, start, end)

    def is_whole(self, start: int, end: int) -> bool:
        return self.kept_length(start, end) == end - start

    @cached_property
    def kept_units(self) -> list[int]:
        """Units of which anything was kept."""
        return [
            index
            for index, unit in enumerate(self.text.units)
            if self.mask.find(1, unit.start, unit.end) >= 0
        ]

    @cached_property
    def cut_units(self) -> list[int]:
        """Units of which a part was kept and a part was not."""
        return [
            index
            for index in self.kept_units
            if self.mask.find(0, self.text.units[index].start, self.text.units[index].end) >= 0
        ]

    def flag(
        self,
        code: str,
        spans: Iterable[tuple[int, int]] = (),
        *,
        count: int | None = None,
        severity: Severity | None = None,
    ) -> Flag:
        """A flag with the first three of `spans` as examples; it counts the spans unless told otherwise.

        Its severity is the code's, unless given.
        """
        found = list(spans)
        examples = tuple(self._example(start, end) for start, end in found[:3])
        return Flag(code, severity or CODES[code], len(found) if count is None else count, examples)

    def _example(self, start: int, end: int) -> Example:
        origin = self.text.origin
        raw = self.source if origin is None else origin.raw
        first, last = self.text.raw_span(start, end)
        return Example(first, last, raw[first : min(last, first + _LONGEST_EXAMPLE)])
