"""Coding assistants: one turn each, without a terminal. Their instructions and tools are most of what they send."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.clients.running import ClientRun

ASK = "Say hello."
CODEX = """
model = "{model}"
model_provider = "pith"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.pith]
name = "pith"
base_url = "{url}/openai/v1"
env_key = "PITH_KEY"
wire_api = "responses"
"""


@pytest.mark.client("aider", "`aider --message`: a turn, streamed")
def test_aider_takes_a_turn(client_run: ClientRun, models: dict[str, str]) -> None:
    options = [
        "--no-git",
        "--yes",
        "--no-check-update",
        "--model",
        f"openai/{models['chat']}",
        "--message",
        ASK,
    ]
    done = client_run.program("aider", *options, OPENAI_API_BASE=f"{client_run.url}/openai/v1")
    assert done.returncode == 0, done.stderr
    assert "Tokens:" in done.stdout and "received" in done.stdout, done.stdout


@pytest.mark.client("codex", "`codex exec`: a turn (Responses API, its own tools)")
def test_codex_takes_a_turn(client_run: ClientRun, long_model: Callable[[], str]) -> None:
    settings = client_run.home / ".codex/config.toml"
    settings.parent.mkdir()
    settings.write_text(CODEX.format(model=long_model(), url=client_run.url))
    done = client_run.program("codex", "exec", "--skip-git-repo-check", "--json", ASK)
    assert done.returncode == 0, done.stdout + done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    said = [each["item"] for each in events if each["type"] == "item.completed"]
    assert any(item["type"] == "agent_message" and item["text"] for item in said), said
    assert events[-1]["type"] == "turn.completed"
    assert events[-1]["usage"]["input_tokens"] > 5000 and events[-1]["usage"]["output_tokens"] > 0


@pytest.mark.client("claude-code", "`claude -p`: a turn, streamed, with its own tools")
def test_claude_code_takes_a_turn(client_run: ClientRun, long_model: Callable[[], str]) -> None:
    options = ["-p", ASK, "--output-format", "stream-json", "--verbose", "--include-partial-messages"]
    found = client_run(
        "turn.mjs",
        *options,
        ANTHROPIC_API_KEY="",
        ANTHROPIC_AUTH_TOKEN=client_run.key,
        ANTHROPIC_MODEL=long_model(),
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        DISABLE_AUTOUPDATER="1",
        # Nonsense need not end by itself.
        CLAUDE_CODE_MAX_OUTPUT_TOKENS="100",
    )
    assert found["status"] == 0, found
    streamed = [each["event"]["type"] for each in found["events"] if each["type"] == "stream_event"]
    assert streamed[0] == "message_start" and "content_block_delta" in streamed
    result = found["events"][-1]
    assert result["type"] == "result" and not result["is_error"], result
    assert result["result"]
    # What the engine had read before, for a request that was sent again, counts apart.
    used = result["usage"]
    assert (
        used["input_tokens"] + (used.get("cache_read_input_tokens") or 0) > 5000 and used["output_tokens"] > 0
    )
