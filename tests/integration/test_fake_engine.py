"""`engine.kind: fake` through the whole server: an engine that starts itself, where Ray Serve LLM has no part."""

from __future__ import annotations

from pathlib import Path

import yaml

from models.fake_engine import SERVED_TEXT
from tests.integration.running import start_server, stop_server, write_config


def test_a_fake_engine_is_served_metered_and_named_at_the_start(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    given = yaml.safe_load(path.read_text())
    given["models"] = [{**given["models"][0], "engine": {"kind": "fake"}}]
    path.write_text(yaml.safe_dump(given))
    server = start_server(path, tmp_path)
    try:
        assert any("WARNING" in line and "fake engine" in line for line in server.lines)
        body = {"model": given["models"][0]["id"], "messages": [{"role": "user", "content": "hi there"}]}
        with server.client() as http:
            answer = http.post("/v1/chat/completions", json=body).raise_for_status().json()
            assert answer["choices"][0]["message"]["content"] == SERVED_TEXT
            assert answer["usage"]["completion_tokens"] == len(SERVED_TEXT.split())
            streamed = http.post("/v1/chat/completions", json={**body, "stream": True}).text
        assert SERVED_TEXT.split()[-1] in streamed and streamed.endswith("data: [DONE]\n\n")
        assert not server.engine_processes()
    finally:
        stop_server(server)
