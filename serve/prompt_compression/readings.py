"""Values of the texts that were read lately, so that a turn of a conversation reads its new texts alone."""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from compression.conversation.queries import values_in

# Some 25 MB in all: the results of an agent's conversation of a million tokens have half as many.
MOST_VALUES = 2**18
DIGEST_BYTES = 16
# Of a text, whatever it has: its digest and place.
OF_A_TEXT = 4


@dataclass(slots=True)
class Readings:
    """The values of texts by their digest, those that were not asked for longest dropped first; safe in one thread.

    A project's are its own: how long an answer takes must not say whether another project has sent a text.
    """

    most_values: int = MOST_VALUES
    _found: OrderedDict[bytes, tuple[str, ...]] = field(default_factory=OrderedDict)
    _size: int = 0

    def values(self, project_id: str, text: str) -> Sequence[str]:
        data = text.encode("utf-8", "surrogatepass")
        key = hashlib.blake2b(data, digest_size=DIGEST_BYTES, person=_person(project_id)).digest()
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = values_in(text)
            self._size += len(found) + OF_A_TEXT
            while self._size > self.most_values:
                _, dropped = self._found.popitem(last=False)
                self._size -= len(dropped) + OF_A_TEXT
        else:
            self._found.move_to_end(key)
        return found


def _person(project_id: str) -> bytes:
    return hashlib.blake2b(project_id.encode(), digest_size=hashlib.blake2b.PERSON_SIZE).digest()
