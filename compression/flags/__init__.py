"""Says what a compression may have cost its reader: risk flags, each counted, with examples from the source."""

from compression.flags.check import check
from compression.flags.flag import CODES, Evidence, Example, Flag, FlagSettings, Severity

__all__ = ["CODES", "Evidence", "Example", "Flag", "FlagSettings", "Severity", "check"]
