"""What to do about a server's refusal, in the words of the command line."""

from collections.abc import Iterator
from contextlib import contextmanager

from serve.client.errors import PithError

_BY_STATUS = {
    401: "give another key with --key-file or PITH_API_KEY; pith key create WORKSPACE/PROJECT makes one",
    403: "give another key with --key-file or PITH_API_KEY; pith key create WORKSPACE/PROJECT makes one",
    402: "pith workspace set NAME --limit-usd or --monthly-limit-usd raises a limit, --billing allows charges",
}
_UNREACHED = "is `pith serve` running there? --url names another address"


@contextmanager
def hints() -> Iterator[None]:
    """Adds to a `PithError` what its reader can do about it."""
    try:
        yield
    except PithError as error:
        hint = _BY_STATUS.get(error.status) if error.status else _UNREACHED if _is_away(error) else None
        # The command's own name comes before the line.
        said = str(error).removeprefix("pith at ").removeprefix("pith ")
        raise PithError(f"{said}; {hint}" if hint else said, error.status) from error


def _is_away(error: PithError) -> bool:
    return "cannot be reached" in str(error)
