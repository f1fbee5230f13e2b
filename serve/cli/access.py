"""The ways of a command to the ledger in its database, and to a server that runs."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from serve.client import PithError
from serve.config.paths import ConfigError

if TYPE_CHECKING:
    from billing.store.database import Database
    from serve.config.settings import Settings
    from serve.operator.operator import Operator

T = TypeVar("T")


def on_accounts(
    config: Path,
    work: Callable[[Operator], Awaitable[T]],
    *,
    makes_ledger: bool = False,
    makes_pepper: bool = False,
) -> T:
    """Run `work` on the ledger's accounts. Raises `ConfigError` if there is no ledger and it may not be made."""
    from serve.config.settings import load_anchored
    from serve.money.ledger_setup import open_accounts

    settings = load_anchored(config)

    async def run() -> T:
        database, _ = await open_accounts(settings, makes_ledger=makes_ledger, makes_pepper=makes_pepper)
        return await _done(settings, database, work)

    return asyncio.run(run())


def on_books(config: Path, work: Callable[[Operator], Awaitable[T]], *, makes_pepper: bool = False) -> T:
    """Run `work`, which may take minutes, on the ledger. Raises `ConfigError` if there is none."""
    from serve.config.settings import load_anchored
    from serve.money.ledger_setup import open_books, pepper_of

    settings = load_anchored(config)

    async def run() -> T:
        database = await open_books(settings)
        if makes_pepper:
            pepper_of(settings)
        return await _done(settings, database, work)

    return asyncio.run(run())


async def _done(settings: Settings, database: Database, work: Callable[[Operator], Awaitable[T]]) -> T:
    from billing.ledger.spool import Spool
    from billing.usage import now
    from serve.money.ledger_setup import operator
    from serve.operator.operator import Operator

    spool = Spool(settings.billing.spool_path)
    try:
        return await work(
            Operator(operator(), settings, database, database, spool, partial(_pepper, settings), now)
        )
    finally:
        await spool.close()
        await database.close()


def _pepper(settings: Settings) -> bytes:
    """The server's; where there is none, one that no command leaves behind."""
    from serve.money.ledger_setup import PEPPER, PEPPER_BYTES, pepper_of

    is_kept = (settings.state_dir / PEPPER).exists()
    return pepper_of(settings) if is_kept else secrets.token_bytes(PEPPER_BYTES)


async def tell_of_archive(operator: Operator, what: str, since: datetime | None = None) -> None:
    """On stderr: which months are not in the answer to `what`, from `since` on, and where they are."""
    months = await operator.archived_months()
    found = [one.month for one in months if since is None or one.last_settled_at >= since]
    if found:
        place = operator.settings.billing.archive.folder
        typer.echo(
            f"not among these: {what} of {', '.join(found)}, which are archived in {place} (pith archive --find)",
            err=True,
        )


KEY_VARIABLE = "PITH_API_KEY"

Url = Annotated[
    str | None,
    typer.Option(help="Where pith runs, such as http://127.0.0.1:8000; default: the file's address."),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        help=f"File with the API key; else {KEY_VARIABLE}, else the demo key of the file's own server."
    ),
]


def checked_url(url: str) -> str:
    """Without a slash or a dialect's path at the end. Raises `ConfigError`."""
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--url: must begin with http:// or https://, not {url!r}")
    return url.rstrip("/").removesuffix("/v1").removesuffix("/openai")


def url_and_key(url: str | None, key_file: Path | None, config: Path) -> tuple[str, str]:
    """Raises `ConfigError`. The demo key goes to the address of its own configuration alone."""
    if url is not None and (key_file is not None or os.environ.get(KEY_VARIABLE)):
        return checked_url(url), key_of(key_file)
    from serve.config.server_settings import NODE
    from serve.config.settings import load_anchored

    settings = load_anchored(config)
    if url is None and settings.server.host == NODE:
        raise ConfigError(
            f"server.host is {NODE}: name one of the cluster's nodes, or its balancer, with --url"
        )
    own = base_url(settings.server.host, settings.server.port)
    chosen = own if url is None else checked_url(url)
    if key_file is not None or os.environ.get(KEY_VARIABLE):
        return chosen, key_of(key_file)
    return chosen, _demo_key(settings, chosen == own)


def _demo_key(settings: Settings, is_own: bool) -> str:
    path = settings.demo.key_path
    if settings.demo.enabled and is_own and path.is_file():
        return key_of(path)
    raise ConfigError(
        f"no API key: set {KEY_VARIABLE} or give --key-file; pith key create WORKSPACE/PROJECT makes one"
    )


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


# Every address of a machine is one that it can reach itself by.
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def base_url(host: str, port: int) -> str:
    """An address that a server listens on, as a URL."""
    host = EVERYWHERE.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def key_of(file: Path | None) -> str:
    """The key in `file`, else in the environment. Raises `ConfigError`."""
    try:
        key = (os.environ.get(KEY_VARIABLE, "") if file is None else file.read_text("utf-8")).strip()
    except OSError as error:
        raise ConfigError(f"--key-file: {file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"--key-file: {file}: is not UTF-8") from error
    if not key or not key.isascii() or not key.isprintable():
        source = KEY_VARIABLE if file is None else f"--key-file: {file}"
        raise ConfigError(f"{source}: holds no API key; pith key create WORKSPACE/PROJECT makes one")
    return key
