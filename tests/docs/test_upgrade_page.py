"""The upgrade page: its units for systemd, and what is stopped before an upgrade."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

from serve.config.server_settings import ServerSettings
from tests.command_blocks import fences

PAGE = (Path(__file__).parents[2] / "docs/operations/upgrade.md").read_text(encoding="utf-8")
[BLOCK] = [body for _, language, body in fences(PAGE) if language == "ini"]


def unit(name: str) -> ConfigParser:
    """The unit, which is one of the block's two columns."""
    second = BLOCK[0].rindex("#")
    columns = (slice(0, second), slice(second, None))
    [lines] = [
        found for column in columns if (found := [line[column].strip() for line in BLOCK])[0] == f"# {name}"
    ]
    parsed = ConfigParser()
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read_string("\n".join(lines))
    return parsed


def test_the_socket_is_one_that_a_server_takes_by_default() -> None:
    server = ServerSettings()
    assert unit("pith.socket")["Socket"]["ListenStream"] == f"{server.host}:{server.port}"


def test_systemd_stops_the_server_and_leaves_its_engines_to_it() -> None:
    assert unit("pith.service")["Service"]["KillMode"] == "mixed"


def test_no_client_starts_the_server_during_an_upgrade() -> None:
    forward = PAGE.split("## Forward", 1)[1].split("\n## ", 1)[0]
    commands = next(body for _, language, body in fences(forward) if language == "console")
    [stop] = [number for number, line in enumerate(commands) if "systemctl stop" in line]
    assert {"pith.socket", "pith.service"} <= set(commands[stop].split())
    assert stop < next(number for number, line in enumerate(commands) if "git checkout" in line)
