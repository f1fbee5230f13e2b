"""The way of commands to a server, and `pith chat` in a pipe and on a terminal, and where the server refuses."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from models.fake_engine import TEXT, FakeEngine
from serve.cli.access import KEY_VARIABLE, url_and_key
from serve.cli.main import main
from serve.cli.serve import announce
from serve.cluster.progress import Progress
from serve.config.paths import ConfigError
from serve.config.settings import load_settings
from serve.money.ledger_setup import open_accounts
from tests.integration.running import free_port
from tests.serve.cli.commands import Done
from tests.serve.compressing import QUERY, SENTENCES, ReadyModel, local_model
from tests.serve.loopback_service import Running, service
from tests.serve.served import settings_document


@pytest.fixture
def on_nodes(tmp_path: Path) -> Path:
    """A file whose HTTP processes listen on the nodes of a cluster."""
    document = settings_document(tmp_path, ray={"address": "127.0.0.1:6379"})
    document["server"] = {"host": "node", "port": 8000, "ingress_replicas": 1}
    file = tmp_path / "pith.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def test_a_command_does_not_take_node_for_a_host(on_nodes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="with --url"):
        url_and_key(None, None, on_nodes)
    monkeypatch.setenv("PITH_API_KEY", "pith_a_b")
    assert url_and_key("http://10.0.0.3:8000/v1", None, on_nodes) == ("http://10.0.0.3:8000", "pith_a_b")


def test_a_start_on_nodes_says_where_they_listen(on_nodes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    progress = Progress()
    monkeypatch.setattr(progress, "say", lines.append)
    announce(load_settings(on_nodes), None, progress, "")
    said = "\n".join(lines)
    assert "ready: http://NODE:8000" in said and "NODE is the address of any node" in said
    assert "//node" not in said


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_demo_key_is_shown_on_a_terminal_alone_and_else_the_path_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_terminal: bool
) -> None:
    file = tmp_path / "pith.yaml"
    file.write_text(yaml.safe_dump(settings_document(tmp_path / "a folder")))
    settings = load_settings(file)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    announce(settings, "pith_id_secret", Progress(), "Ctrl-C stops everything.")
    said = capsys.readouterr()
    assert ("pith_id_secret" in said.out) == is_terminal
    assert "pith_id_secret" not in said.err
    # The page takes it from there: parts/key.js.
    assert ("/#key=pith_id_secret\n" in said.out) == is_terminal
    assert str(settings.demo.key_path) in said.out
    if not is_terminal:
        # In a shell the quoted path is one word again.
        assert f"Bearer $(cat '{settings.demo.key_path}')" in said.out


ROOT = Path(__file__).parents[3]
PITH = "from serve.cli.main import main; main()"
Chat = Callable[..., Done]


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def running(tmp_path: Path, engine: FakeEngine) -> Iterator[Running]:
    with service(tmp_path, engine, compressor=ReadyModel(local_model())) as found:
        yield found


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], running: Running) -> Chat:
    """Runs `pith chat` in this process; `typed` is what the pipe brings."""

    def run(*arguments: str, typed: str = "", url: str = running.url, key: str = running.key) -> Done:
        monkeypatch.setattr(sys, "argv", ["pith", "chat", "--url", url, *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
        monkeypatch.setenv(KEY_VARIABLE, key)
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        return Done(code, *capsys.readouterr())

    return run


def test_a_pipe_gets_the_reply_alone_and_standard_error_what_it_cost(chat: Chat, engine: FakeEngine) -> None:
    done = chat("--model", "pith-small", "--system", "Be brief.", typed="hi\n")
    assert (done.code, done.out) == (0, f"{TEXT}\n")
    (line,) = done.err.splitlines()
    assert re.fullmatch(
        r"\d+ tokens in, 19 out, \$0\.0000\d+; session: 1 turn, \d+ tokens, \$0\.0000\d+", line
    )
    (asked,) = engine.requests
    assert asked.model_id == "pith-small"
    assert [message["role"] for message in asked.messages] == ["system", "user"]


def test_a_message_may_be_an_argument_and_be_cut_off(chat: Chat) -> None:
    done = chat("hi", "--max-tokens", "3")
    assert (done.code, done.out) == (0, "The quick brown\n")
    assert "3 out" in done.err and "cut off by the limit of tokens" in done.err


def test_a_file_goes_along_compressed_for_what_is_asked(
    chat: Chat, engine: FakeEngine, tmp_path: Path
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("\n\n".join(SENTENCES * 8))
    done = chat(QUERY, "--compress", str(file))
    assert done.code == 0
    found = re.match(r"compressed: ([\d,]+) tokens to ([\d,]+) \(\d+% less\), saved \$[\d.]+ net\n", done.err)
    assert found and int(found[1].replace(",", "")) > int(found[2].replace(",", ""))
    (asked,) = engine.requests
    parts: Any = asked.messages[-1]["content"]
    assert len(parts) == 2 and parts[1]["text"] == QUERY
    assert len(parts[0]["text"]) < file.stat().st_size


def test_what_goes_wrong_is_one_line_that_says_what_to_do(chat: Chat, running: Running) -> None:
    away = chat("hi", url=f"http://127.0.0.1:{free_port()}")
    assert away.code == 1 and "cannot be reached" in away.complaint() and "pith serve" in away.complaint()
    wrong = chat("hi", key="pith_0123456789abcdef_" + "x" * 43)
    assert wrong.code == 1 and "(403)" in wrong.complaint() and "--key-file" in wrong.complaint()
    unknown = chat("hi", "--model", "nothing")
    assert unknown.code == 1 and "choose one of: pith-mini" in unknown.complaint()
    silent = chat(typed=" \n")
    assert silent.code == 2 and "nothing to say" in silent.complaint()
    asyncio.run(take_the_money(running))
    poor = chat("hi")
    assert poor.code == 1 and "(402)" in poor.complaint() and "--limit-usd" in poor.complaint()


async def take_the_money(running: Running) -> None:
    database, accounts = await open_accounts(running.settings)
    await accounts.change_workspace("demo", {"spend_limit_nano_usd": 0, "monthly_limit_nano_usd": None})
    await database.close()


def test_without_a_key_the_demo_key_goes_to_its_own_server_alone(
    chat: Chat, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = chat("hi", key="")
    assert done.code == 2 and "no API key" in done.complaint()


def _take_the_terminal() -> None:
    """So that Ctrl-C reaches it, as a shell does; also from tests that run in the background, which ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.close(os.open(os.ttyname(0), os.O_RDWR))


SHOWN_S = 120


class Terminal:
    """`pith chat` on a terminal of its own."""

    def __init__(self, running: Running) -> None:
        self._master, slave = pty.openpty()
        command = [sys.executable, "-c", PITH, "chat", "--url", running.url]
        environment = os.environ | {KEY_VARIABLE: running.key, "TERM": "dumb", "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True,
            preexec_fn=_take_the_terminal,
        )  # fmt: skip
        os.close(slave)
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, text: str) -> str:
        """Read until `text` is shown; returns all up to there and drops it."""
        while text not in self.shown:
            is_ready, _, _ = select.select([self._master], [], [], SHOWN_S)
            assert is_ready, f"{text!r} is not shown:\n{self.shown}"
            try:
                piece = os.read(self._master, 4096)
            except OSError:
                piece = b""
            assert piece, f"ended before {text!r}:\n{self.shown}"
            self.shown += piece.decode(errors="replace")
        before, _, self.shown = self.shown.partition(text)
        return before

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.fixture
def terminal(running: Running) -> Iterator[Terminal]:
    made = Terminal(running)
    yield made
    made.close()


def test_a_conversation_on_a_terminal(terminal: Terminal, engine: FakeEngine, tmp_path: Path) -> None:
    terminal.wait_for("> ")
    terminal.type("hi\r")
    terminal.wait_for(TEXT)
    terminal.wait_for("session: 1 turn,")
    terminal.type("again \\\rand again\r")
    terminal.wait_for("session: 2 turns,")
    assert [message["role"] for message in engine.requests[-1].messages] == ["user", "assistant", "user"]
    assert engine.requests[-1].messages[-1]["content"] == "again \nand again"
    terminal.type("/model nothing\r")
    terminal.wait_for("no model 'nothing'; there are pith-mini")
    terminal.type("/model pith-base\r")
    terminal.wait_for("pith-base replies")
    terminal.type(f"/save {tmp_path / 'talk.json'}\r")
    terminal.wait_for("4 messages in")
    assert [one["role"] for one in json.loads((tmp_path / "talk.json").read_text())] == [
        "user",
        "assistant",
    ] * 2
    terminal.type("/clear\r")
    terminal.wait_for("forgotten")
    terminal.type("/nothing\r")
    terminal.wait_for("is no command")
    terminal.type("hi\r")
    terminal.wait_for("session: 3 turns,")
    assert engine.requests[-1].model_id == "pith-base" and len(engine.requests[-1].messages) == 1
    terminal.type("/quit\r")
    assert terminal.process.wait(30) == 0


def test_a_terminal_does_not_obey_what_a_model_says(terminal: Terminal, engine: FakeEngine) -> None:
    engine.text = "before \x1b]0;title\x07 after"
    terminal.wait_for("> ")
    terminal.type("hi\r")
    shown = terminal.wait_for("after")
    assert "before \N{MIDDLE DOT}]0;title\N{MIDDLE DOT}" in shown and "\x07" not in shown


def test_ctrl_c_stops_a_reply_and_not_the_program(terminal: Terminal, engine: FakeEngine) -> None:
    terminal.wait_for("> ")
    engine.token_s = 0.2
    terminal.type("hi\r")
    terminal.wait_for("The quick")
    terminal.type("\x03")
    terminal.wait_for("stopped")
    terminal.wait_for("> ")
    engine.token_s = 0
    terminal.type("\x03")
    terminal.wait_for("/quit or Ctrl-D ends")
    terminal.type("more\r")
    terminal.wait_for(TEXT)
    # The part of the reply that had come stays in the conversation.
    said = engine.requests[-1].messages
    assert [message["role"] for message in said] == ["user", "assistant", "user"]
    assert said[1]["content"].startswith("The quick") and len(said[1]["content"]) < len(TEXT)
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.process.wait(30) == 0
