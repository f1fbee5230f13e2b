"""Sampled chats that were sent whole as their size: of these nothing was changed, and there is nothing to score.

They are counted in memory and written together every few seconds. What is not written is lost, and makes sizes larger.
"""

from collections import Counter
from collections.abc import Callable
from datetime import datetime

from billing.background.upkeep import Round
from billing.preservation.sizes import SizedFor, SizeStore
from serve.prompt_compression.compressed_chat import PreparedPrompt

WRITE_EVERY_S = 5.0
MOST_PROJECTS = 4096
# A text with so many bytes for each of `min_tokens` would have been compressed, whatever it is.
BYTES_PER_TOKEN = 8


def could_be_compressed(prompt: PreparedPrompt) -> bool:
    """Whether it has a part that is long enough without doubt."""
    least = BYTES_PER_TOKEN * prompt.settings.min_tokens
    return any(len(block.text.encode(errors="replace")) >= least for block in prompt.blocks)


class WholeChats:
    """Of one HTTP process."""

    def __init__(self, store: SizeStore, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock
        self._counts: Counter[SizedFor] = Counter()

    def add(self, sized: SizedFor) -> None:
        if sized in self._counts or len(self._counts) < MOST_PROJECTS:
            self._counts[sized] += 1

    @property
    def round(self) -> Round:
        return Round("whole_chats", self.write, WRITE_EVERY_S)

    async def write(self) -> None:
        """Raises `LedgerUnavailable`; what it was about is lost, since it may have been written."""
        while self._counts:
            sized, count = self._counts.popitem()
            await self._store.add_whole(sized, count, self._clock())
