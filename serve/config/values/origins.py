"""Origins of web pages as a configuration names them, in the form in which browsers send them."""

import re
from collections.abc import Iterable

ANY = "*"
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(\d{1,5}))?")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def origins(given: Iterable[str]) -> list[str]:
    """Raises `ValueError` for what no browser sends, such as an origin with a path."""
    found = [origin(each) for each in given]
    if ANY in found and len(found) > 1:
        raise ValueError("'*' allows every origin, so no other may stand beside it")
    return found


def origin(given: str) -> str:
    """One origin, or `*` for all. In lower case and without the scheme's own port, as browsers send it."""
    if given == ANY:
        return given
    parts = _ORIGIN.fullmatch(given.lower())
    port = int(parts[3]) if parts and parts[3] else None
    if parts is None or (port is not None and not 1 <= port <= 65535):
        raise ValueError(
            f"{given!r} is not an origin: scheme://host or scheme://host:port, without a path, a slash at the end or a "
            "wildcard, such as https://chat.example.com; '*' allows every origin"
        )
    scheme, host = parts[1], parts[2]
    return f"{scheme}://{host}" if port in (None, _DEFAULT_PORTS.get(scheme)) else f"{scheme}://{host}:{port}"
