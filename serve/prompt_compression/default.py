"""A project's default as the ledger keeps it, JSON text, and as each request of the project finds it."""

import json
import logging
from functools import lru_cache

from pydantic import ValidationError

from serve.prompt_compression.options import ProjectCompression

# More different defaults than a server's projects have; each takes about a kilobyte.
REMEMBERED = 4096

logger = logging.getLogger("pith.compression")


def default_of(compression: str | None) -> ProjectCompression | None:
    """How the project's chats are compressed unless a request says otherwise; None: not at all.

    A default that cannot be read, since another release wrote it or it was changed by hand, also gives None: nothing
    is compressed in a way that was not asked for, and no chat fails. It is logged once by each process, and
    `pith project list` marks it.
    """
    return None if compression is None else _read(compression)


def is_readable(compression: str | None) -> bool:
    """Whether this release knows what the default means."""
    return compression is None or _read(compression) is not None


def stored_default(options: ProjectCompression) -> str:
    """The same JSON for the same options, so that the audit log shows only real changes."""
    given = options.model_dump(exclude_none=True)
    return json.dumps(given, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@lru_cache(maxsize=REMEMBERED)
def _read(compression: str) -> ProjectCompression | None:
    try:
        return ProjectCompression.model_validate_json(compression)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        reasons = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found)
        logger.warning("a project's compression cannot be read and is off: %s (%s)", compression, reasons)
        return None
