"""`llm`, a command line for many models, told of pith by its own file of OpenAI-compatible models."""

from __future__ import annotations

import json

import pytest

from tests.clients.running import ClientRun

MODELS = """
- model_id: pith
  model_name: {model}
  api_base: "{url}/openai/v1"
  api_key_name: pith
  supports_schema: true
"""
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "enum": ["Elbe", "Rhine"]}},
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.client("llm", "`llm`: a prompt streamed, `--no-stream`, `--schema`")
def test_llm_prompts_streams_and_fills_a_schema(client_run: ClientRun, models: dict[str, str]) -> None:
    (client_run.home / "extra-openai-models.yaml").write_text(
        MODELS.format(model=models["chat"], url=client_run.url)
    )

    def llm(*options: str) -> str:
        done = client_run.program("llm", "-m", "pith", *options, LLM_USER_PATH=str(client_run.home))
        assert done.returncode == 0, done.stderr
        return done.stdout

    short = ("-o", "max_tokens", "30", "Tell me about the river.")
    assert llm(*short).strip()
    assert llm("--no-stream", *short).strip()
    assert json.loads(llm("--schema", json.dumps(SCHEMA), "Name a river."))["name"] in ("Elbe", "Rhine")
    logged = json.loads(llm_logs(client_run))
    assert len(logged) == 3 and all(entry["output_tokens"] for entry in logged)


def llm_logs(client_run: ClientRun) -> str:
    return client_run.program("llm", "logs", "--json", LLM_USER_PATH=str(client_run.home)).stdout
