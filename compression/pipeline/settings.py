"""Everything about the pipeline that is the same whatever scores its units."""

from dataclasses import dataclass, field, replace

from compression.choosing.protection import Protection, check_protections
from compression.choosing.selection import SelectionSettings
from compression.flags import FlagSettings
from compression.segmentation import SegmentationSettings


@dataclass(frozen=True, slots=True)
class CompressionSettings:
    """Input in bytes of UTF-8, query in characters. Ratios outside `[lowest_ratio, highest_ratio]` are refused;
    `lowest_ratio` 0 refuses 0 itself and nothing above it.
    """

    segmentation: SegmentationSettings = field(default_factory=SegmentationSettings)
    selection: SelectionSettings = field(default_factory=SelectionSettings)
    flags: FlagSettings = field(default_factory=FlagSettings)
    protections: frozenset[Protection] = frozenset()
    longest_input_bytes: int = 2 * 1024 * 1024
    longest_query_chars: int = 20_000
    lowest_ratio: float = 0.0
    highest_ratio: float = 1.0

    def __post_init__(self) -> None:
        check_protections(self.protections)
        if not 0 <= self.lowest_ratio < self.highest_ratio <= 1:
            raise ValueError(
                f"lowest_ratio and highest_ratio: must be 0 <= lowest < highest <= 1, "
                f"not {self.lowest_ratio} and {self.highest_ratio}"
            )
        for name in ("longest_input_bytes", "longest_query_chars"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: must be at least 1, not {getattr(self, name)}")

    @property
    def segmentation_of_records(self) -> SegmentationSettings:
        """Of a tool's result in JSON: each value may be needed alone."""
        return replace(self.segmentation, longest_record=40, fewest_members=1)
