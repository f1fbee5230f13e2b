"""The `openai` npm client against the real server, through a small script that prints what it got as JSON."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.environments import CannotInstall, Environment, environment
from tests.integration.missing import cannot_run
from tests.integration.running import Server
from tests.integration.test_prompt_compression import agent

SCRIPT = Path(__file__).parent / "openai_node/contract.mjs"
RUN_S = 90

Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def node() -> Environment:
    try:
        return environment("openai-node")
    except CannotInstall as error:
        cannot_run(str(error))


@pytest.fixture
def run(server: Server, node: Environment) -> Run:
    def run(action: str, *, key: str = server.key, messages: Any = None) -> dict[str, Any]:
        given = {} if messages is None else {"PITH_MESSAGES": json.dumps(messages)}
        done = subprocess.run(
            [*node.command(SCRIPT), action],
            env={**os.environ, "PITH_URL": server.url, "PITH_KEY": key, **given},
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return run


def test_a_stream_makes_the_plain_reply_with_its_usage_and_service(run: Run) -> None:
    plain, stream = run("plain"), run("stream")
    assert plain["text"]
    assert stream["text"] == plain["text"]
    assert stream["chunks"] > 10
    assert stream["choices"] == []
    assert stream["usage"] == plain["usage"]
    assert plain["usage"]["completion_tokens"] > 0
    assert stream["service"] == plain["service"]
    assert plain["service"]["metering"] == {"persisted": True, "status": "persisted"}


def test_a_projects_default_serves_the_client_as_it_is(run: Run, server: Server) -> None:
    name = f"node-{secrets.token_hex(4)}"
    key = server.new_key(name, project=("--compression", '{"target_ratio": 0.3}'))
    whole = run("plain", messages=agent())
    plain, stream, headers = (run(each, key=key, messages=agent()) for each in ("plain", "stream", "headers"))
    assert headers["compression"] == "applied"
    assert (
        stream["text"] == plain["text"]
        and stream["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"]
    )
    for reply in (plain, stream):
        told = reply["service"]["compression"]
        assert told["original_tokens"] == whole["usage"]["prompt_tokens"]
        assert told["sent_tokens"] == reply["usage"]["prompt_tokens"] < 0.5 * told["original_tokens"]
