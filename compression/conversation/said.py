"""Which values the whole parts of a conversation have: a tool's result need not repeat them to be understood."""

import re
from collections.abc import Iterator

# What looks like an identifier, a date or an amount: in a piece of four characters or more, a digit or two capitals.
_VALUE = re.compile(r"\w[\w.@:/+-]{2,78}\w")
_TELLS = re.compile(r"\d|[A-Z].{0,78}[A-Z]")
# Only the first ones count, so that a long conversation does not make each of its blocks ever more expensive.
MOST_VALUES = 8192
# What is looked through of one conversation: it is the event loop that does it, for a tenth of a second at the most.
MOST_CHARS = 2**20


class Said:
    """Reads the texts that are sent whole, in the conversation's order."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._chars_left = MOST_CHARS

    def read(self, text: str) -> None:
        for value in self._values_in(text):
            if len(self._values) >= MOST_VALUES:
                return
            self._values.add(value)

    def known_in(self, text: str) -> tuple[str, ...]:
        """The values of `text` that were said before, in one order whatever the order in which they were said."""
        return tuple(sorted(self._values.intersection(self._values_in(text)))) if self._values else ()

    def _values_in(self, text: str) -> Iterator[str]:
        read = text[: self._chars_left]
        self._chars_left -= len(read)
        return (found[0] for found in _VALUE.finditer(read) if _TELLS.search(found[0]))
