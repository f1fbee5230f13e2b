"""`pith chat`: a conversation with a model of a running server, on a terminal or in a pipe."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serve.cli.compress import read_text
from serve.cli.options import Config
from serve.cli.output.terminal import printable
from serve.cli.talk.address import KeyFile, Url, url_and_key
from serve.cli.talk.hints import hints
from serve.cli.talk.session import Conversation, Reply, summary
from serve.cli.verbs.completion import chat_models
from serve.client.errors import PithError
from serve.config.errors import ConfigError
from serve.config.paths import DEFAULT_CONFIG

if TYPE_CHECKING:
    from serve.client.pith_client import PithClient

INTERRUPTED = 130


def chat(
    message: Annotated[
        str | None,
        typer.Argument(help="Say this, print the reply and end; else what stands on standard input."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model; default: the server's.", autocompletion=chat_models)
    ] = None,
    system: Annotated[str | None, typer.Option(help="What the model is told first.")] = None,
    compress: Annotated[
        list[str] | None,
        typer.Option(help="A file that the first message takes along, compressed; - is standard input."),
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Most tokens of a reply.")] = None,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = DEFAULT_CONFIG,
) -> None:
    """Chat with a model of a running server. Ctrl-C stops a reply; /help lists what else can be typed.

    The reply alone goes to standard output where that is no terminal; what it cost goes to standard error.
    """
    from serve.client.pith_client import PithClient

    client = PithClient(*url_and_key(url, key_file, config))
    talk = Conversation(model, system, max_tokens, files=[read_text(file) for file in compress or ()])
    if message is None and sys.stdin.isatty():
        from serve.cli.talk.repl import Repl

        Repl(client, talk).run()
        return
    text = message if message is not None else read_text("-").rstrip("\r\n")
    if not text.strip():
        raise ConfigError("nothing to say: give a message, or text on standard input")
    try:
        say(client, talk, text)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def say(client: PithClient, talk: Conversation, text: str) -> None:
    """One turn: print the reply as it comes, and what it took.

    Raises `PithError`, and `KeyboardInterrupt` after what had come until then was kept.
    """
    said, reply = talk.message(text), Reply()
    try:
        with hints():
            asyncio.run(_stream(client, talk.body(said), reply))
    finally:
        if reply.text:
            sys.stdout.write("\n")
            sys.stdout.flush()
        if reply.text or reply.usage:
            talk.add(said, reply)
            for line in summary(reply, talk):
                note(line)


async def _stream(client: PithClient, body: dict[str, object], reply: Reply) -> None:
    is_terminal = sys.stdout.isatty()
    async with aclosing(client.chat(body)) as events:
        async for event in events:
            brought = reply.take(event)
            sys.stdout.write(printable(brought) if is_terminal else brought)
            sys.stdout.flush()


def note(line: str) -> None:
    """A line about the chat, not of it."""
    typer.secho(line, dim=True, err=True)


def save(talk: Conversation, file: str) -> None:
    """Raises `PithError` where it cannot be written."""
    import json

    try:
        Path(file).expanduser().write_text(
            json.dumps(talk.saved(), ensure_ascii=False, indent=2) + "\n", "utf-8"
        )
    except OSError as error:
        raise PithError(f"{file}: cannot be written: {error.strerror}") from error
