"""A customer's check of a real reply: it is recounted from its request and the tokenizer, and its promise is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import models.embedded
from billing.transparency import notes
from billing.transparency.leaves import digest
from serve.cli.main import app
from serve.money.ledger_setup import read_pepper

if TYPE_CHECKING:
    from tests.integration.running import Server

CHATS = "/v1/chat/completions"
TOKENIZER = Path(models.embedded.__file__).parent / "tokenizer"


@pytest.fixture(scope="module")
def promised(server: Server) -> str:
    """A key of a project whose replies carry promises."""
    return server.new_key("recounting", project=("--proof",))


@pytest.mark.parametrize("asked", [{}, {"n": 2, "temperature": 1.0}, {"stream": True}])
def test_a_reply_is_recounted_and_its_promise_is_signed(
    server: Server, promised: str, asked: dict[str, Any], tmp_path: Path
) -> None:
    body = {
        "messages": [{"role": "user", "content": "Say what a ledger is."}],
        "max_tokens": 20,
        "include": ["token_ids"],
        **asked,
    }
    with server.client(key=promised) as http:
        reply = http.post(CHATS, json=body)
    assert reply.status_code == 200, reply.text
    request, saved = tmp_path / "request.json", tmp_path / "reply"
    request.write_text(json.dumps(body))
    saved.write_text(reply.text)
    words = ["recount", str(request), str(saved), "--tokenizer", str(TOKENIZER), "--json"]
    run = CliRunner().invoke(app, words)
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)
    assert {one["what"]: one["fits"] for one in found if not one["fits"]} == {}
    assert {"prompt", "text of choice 0", "promised hash of the tokens"} <= {one["what"] for one in found}
    text = reply.text.split("data: ")[-2] if body.get("stream") else reply.text
    proof = json.loads(text)["service"]["metering"]["proof"]
    signer = notes.signer(read_pepper(server.state_dir))
    assert proof["note"] == signer.receipt(digest(proof["record"]))
