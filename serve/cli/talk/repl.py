"""The prompt of `pith chat`: what is typed, line by line, and its /commands."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from serve.cli.compress import read_text
from serve.cli.talk.chatting import note, save, say
from serve.cli.talk.hints import hints
from serve.cli.talk.session import Conversation
from serve.client.errors import PithError
from serve.config.errors import ConfigError

if TYPE_CHECKING:
    from serve.client.pith_client import PithClient

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
