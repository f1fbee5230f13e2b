"""Ids that cannot be guessed, drawn many at a time: each system call for random bytes hands the interpreter to another
thread, and to get it back takes longer than all else that an id needs."""

import os

ID_BYTES = 16
IDS_PER_DRAW = 256

_drawn: list[str] = []
# A forked child must not give out its parent's ids.
os.register_at_fork(after_in_child=_drawn.clear)


def fresh_id() -> str:
    """32 hexadecimal digits, 128 random bits. Safe in any thread."""
    try:
        return _drawn.pop()
    except IndexError:
        digits = os.urandom(ID_BYTES * IDS_PER_DRAW).hex()
        first, *others = (digits[at : at + 2 * ID_BYTES] for at in range(0, len(digits), 2 * ID_BYTES))
        _drawn.extend(others)
        return first
