"""What the path and the query of a request name: which object, how many, and in which order."""

import re
from collections.abc import Mapping, Sequence

from serve.batches.form_data import refused

# What our ids are made of. PostgreSQL takes no text with a NUL.
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_id(given: str) -> bool:
    """Whether an object could have this id."""
    return _ID.fullmatch(given) is not None


def limit_of(asked: Mapping[str, str], *, default: int, most: int) -> int:
    """Raises `InvalidBody`."""
    given = asked.get("limit")
    if given is None:
        return default
    if not given.isdecimal() or not 1 <= int(given[:9]) <= most:
        raise refused("limit", f"limit: must be from 1 to {most}", "limit")
    return int(given[:9])


def one_of(asked: Mapping[str, str], name: str, allowed: Sequence[str]) -> str:
    """The first one by default. Raises `InvalidBody`."""
    given = asked.get(name, allowed[0])
    if given not in allowed:
        raise refused(name, f"{name}: must be one of {', '.join(allowed)}", name)
    return given
