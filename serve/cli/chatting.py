"""`pith chat`: a conversation with a model of a running server, on a terminal or in a pipe."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serve.cli.access import KeyFile, Url, hints, url_and_key
from serve.cli.completion import chat_models
from serve.cli.compress import read_text
from serve.cli.options import Config
from serve.cli.output import printable
from serve.client import PithError
from serve.config.paths import DEFAULT_CONFIG, ConfigError

if TYPE_CHECKING:
    from serve.client.pith_client import PithClient


@dataclass(slots=True)
class Reply:
    """One reply so far, whole or stopped. Without `usage` it ended before the server said what it cost."""

    text: str = ""
    finish_reason: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    service: Mapping[str, Any] = field(default_factory=dict)

    def take(self, event: Mapping[str, Any]) -> str:
        """Add one event of the stream; returns the text that it brought."""
        self.usage = event.get("usage") or self.usage
        self.service = event.get("service") or self.service
        brought = ""
        for choice in event.get("choices") or ():
            brought += (choice.get("delta") or {}).get("content") or ""
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
        self.text += brought
        return brought

    @property
    def cost_usd(self) -> Decimal | None:
        """With what compressing its prompt cost; None where nothing is billed."""
        cost = (self.service.get("billing") or {}).get("request_cost_usd")
        return None if cost is None else Decimal(str(cost)) + _decimal(self.compression.get("cost_usd"))

    @property
    def compression(self) -> Mapping[str, Any]:
        return self.service.get("compression") or {}


@dataclass(slots=True)
class Conversation:
    """`model` None is the server's default. `system` None sends no system message."""

    model: str | None = None
    system: str | None = None
    max_tokens: int | None = None
    messages: list[dict[str, Any]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    turns: int = 0
    tokens: int = 0
    cost_usd: Decimal = Decimal(0)
    saved_usd: Decimal = Decimal(0)

    def message(self, text: str) -> dict[str, Any]:
        """The user's next message: each file as a part that may be compressed, and the text, which says for what."""
        if not self.files:
            return {"role": "user", "content": text}
        parts = [{"type": "text", "text": file, "compress": True} for file in self.files]
        return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}

    def body(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The request's body."""
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        given = {"model": self.model, "max_tokens": self.max_tokens}
        return {
            "messages": [*system, *self.messages, message],
            **{name: value for name, value in given.items() if value is not None},
        }

    def add(self, message: dict[str, Any], reply: Reply) -> None:
        """Keep a turn of which something came."""
        self.messages += [message, {"role": "assistant", "content": reply.text}]
        self.files = []
        self.turns += 1
        self.tokens += int(reply.usage.get("total_tokens", 0))
        self.cost_usd += reply.cost_usd or 0
        self.saved_usd += _decimal(reply.compression.get("net_usd"))

    def clear(self) -> None:
        """Forget what was said; what it cost stays."""
        self.messages, self.files = [], []

    def saved(self) -> list[dict[str, Any]]:
        """As `messages` of a request."""
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*system, *self.messages]


def _decimal(usd: Any) -> Decimal:
    return Decimal(str(usd)) if usd is not None else Decimal(0)


def summary(reply: Reply, so_far: Conversation) -> list[str]:
    """Lines about a turn: what its compression saved, what it took, and the session."""
    lines = [_compressed(reply.compression)] if reply.compression else []
    took = "stopped before its cost was known"
    if reply.usage:
        cached = (reply.usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        took = f"{reply.usage.get('prompt_tokens', 0):,} tokens in" + (
            f" ({cached:,} cached)" if cached else ""
        )
        took += f", {reply.usage.get('completion_tokens', 0):,} out, {_usd(reply.cost_usd)}"
    if reply.finish_reason == "length":
        took += " (cut off by the limit of tokens)"
    turns = f"{so_far.turns} turn{'s' if so_far.turns != 1 else ''}"
    return [*lines, f"{took}; session: {turns}, {so_far.tokens:,} tokens, {_usd(so_far.cost_usd)}"]


def _compressed(found: Mapping[str, Any]) -> str:
    original, sent = found.get("original_tokens"), found.get("sent_tokens")
    if found.get("status") != "applied" or original is None or sent is None:
        reasons = sorted({str(block["reason"]) for block in found.get("blocks") or () if block.get("reason")})
        return f"compression {found.get('status')}" + (f": {', '.join(reasons)}" if reasons else "")
    share = f" ({1 - sent / original:.0%} less)" if original else ""
    return f"compressed: {original:,} tokens to {sent:,}{share}, saved {_usd(_decimal(found.get('net_usd')))} net"


def _usd(usd: Decimal | None) -> str:
    return "not billed" if usd is None else f"${usd.normalize():f}" if usd else "$0"


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


HELP = """/model [ID]     which model replies; with an id: another one
/system [TEXT]  what the model is told first; without a text: nothing
/compress FILE  the next message takes the file along, compressed
/clear          forget what was said
/cost           what this session has cost, and what compression saved
/save FILE      write the messages as JSON
/quit           end; so does Ctrl-D. Ctrl-C stops a reply. A line that ends in \\ goes on in the next"""


class Repl:
    """Reads lines until /quit or the end of input."""

    def __init__(self, client: PithClient, talk: Conversation) -> None:
        self._client = client
        self._talk = talk
        self._commands: dict[str, Callable[[str], None]] = {
            "/help": lambda _: note(HELP),
            "/model": self._model,
            "/system": self._system,
            "/compress": self._compress,
            "/clear": self._clear,
            "/cost": self._cost,
            "/save": self._save,
        }

    def run(self) -> None:
        # Arrow keys and the lines before, where the platform has it.
        with suppress(ImportError):
            import readline  # noqa: F401
        note(f"{self._talk.model or 'the default model'}; /help lists what can be typed")
        while True:
            try:
                line = self._read()
            except EOFError:
                sys.stdout.write("\n")
                return
            except KeyboardInterrupt:
                note("\n/quit or Ctrl-D ends")
                continue
            if line.strip() == "/quit":
                return
            self._obey(line)

    def _read(self) -> str:
        line = _ask("> ")
        while line.endswith("\\"):
            line = f"{line[:-1]}\n{_ask('… ')}"
        return line

    def _obey(self, line: str) -> None:
        """A failure is said, and the conversation goes on as it was."""
        name, _, rest = line.strip().partition(" ")
        try:
            if not name:
                return
            if name.startswith("/"):
                self._command(name)(rest.strip())
            else:
                say(self._client, self._talk, line)
        except (PithError, ConfigError) as error:
            note(f"pith: {error}")
        except KeyboardInterrupt:
            note("stopped")

    def _command(self, name: str) -> Callable[[str], None]:
        if name not in self._commands:
            raise PithError(f"{name} is no command; /help lists them")
        return self._commands[name]

    def _model(self, model: str) -> None:
        with hints():
            found = asyncio.run(self._client.models())
        ids = [one["id"] for one in found if one.get("kind", "chat") == "chat"]
        if model and model not in ids:
            raise PithError(f"no model {model!r}; there are {', '.join(ids)}")
        self._talk.model = model or self._talk.model
        note(f"{self._talk.model or ids[0]} replies; there are {', '.join(ids)}")

    def _system(self, text: str) -> None:
        self._talk.system = text or None
        note(f"system: {text}" if text else "no system message")

    def _compress(self, file: str) -> None:
        if not file:
            raise PithError("/compress needs a file")
        self._talk.files.append(read_text(file))
        note(f"the next message takes {file} along, compressed for what it asks")

    def _clear(self, _: str) -> None:
        self._talk.clear()
        note("forgotten")

    def _cost(self, _: str) -> None:
        talk = self._talk
        note(
            f"{talk.turns} turns, {talk.tokens:,} tokens, ${talk.cost_usd:f}; compression saved ${talk.saved_usd:f}"
        )

    def _save(self, file: str) -> None:
        if not file:
            raise PithError("/save needs a file")
        save(self._talk, file)
        note(f"{len(self._talk.saved())} messages in {file}")


def _ask(prompt: str) -> str:
    """A line. The prompt is no part of what goes into a file."""
    if sys.stdout.isatty():
        return input(prompt)
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return input()
