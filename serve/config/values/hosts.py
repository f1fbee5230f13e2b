"""Names that requests may give a server in their `Host` header, as a configuration lists them."""

import re
from collections.abc import Iterable

ANY = "*"
LOCALHOST = "localhost"
_NAME = re.compile(r"[0-9a-z_-][0-9a-z._-]{0,252}")


def host_names(given: Iterable[str]) -> list[str]:
    """In lower case. Raises `ValueError` for what is no name, such as one with a port."""
    names = [name.lower().removesuffix(".") for name in given]
    for name in names:
        if name != ANY and _NAME.fullmatch(name) is None:
            raise ValueError(
                f"{name!r} is no host's name; write it without a scheme and a port, or {ANY!r} for all"
            )
    return names
