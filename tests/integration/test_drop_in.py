"""What others have released, unmodified, on a running pith: LiteLLM's Headroom guardrail, and the adapters of
docs/recipes in the frameworks that they are for. Each runs in a process of its own, with packages that clash with
pith's."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.environments import CannotInstall, environment
from tests.command_blocks import fences
from tests.integration.missing import cannot_run
from tests.integration.running import ROOT, Server

HERE = Path(__file__).parent / "drop_in"
RUN_S = 90
QUERY = "When does the warranty end?"
TEXTS = [
    "The pump ships with a filter. The filter is blue and made in Norway. A second filter is in the box.",
    "The warranty of the pump ends after two years. Its colour is a matter of taste and of the season.",
    "Paris is the capital of France. It has many bridges, and some of them are old.",
    "Spare parts are listed below in the order of their use. Their names are in English and in French.",
]

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def python() -> Path:
    try:
        return environment("recipes").programs / "python"
    except CannotInstall as error:
        cannot_run(str(error))


@pytest.fixture
def run(server: Server, python: Path) -> Run:
    """Runs a script with something as JSON on its input, and returns the JSON that it prints."""

    def run(script: str, given: Any, **environment: str) -> Any:
        done = subprocess.run(
            [str(python), str(HERE / script)],
            input=json.dumps(given),
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT / "docs/recipes"),
                "PITH_URL": server.url,
                "PITH_KEY": server.key,
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def assert_fails_clearly(found: dict[str, Any], key: str) -> None:
    assert "pith refused (422)" in found["both"] and "keep cannot be given together" in found["both"]
    assert "pith refused (403)" in found["wrong key"]
    assert found["nowhere"].startswith("pith at http://127.0.0.1:1 cannot be reached: ")
    assert key not in found["shown"]


def test_langchain_compresses_documents(run: Run, server: Server) -> None:
    found = run("langchain_documents.py", [QUERY, TEXTS])
    kept = {one["id"]: one for one in found["found"]}
    assert "The warranty of the pump ends after two years." in kept["d1"]["text"]
    assert len(kept) < len(TEXTS), "what has nothing to say goes"
    for number, text in enumerate(TEXTS):
        one = kept.get(f"d{number}")
        assert one is None or one["text"] in text
        assert one is None or one["metadata"]["page"] == number
        assert one is None or one["metadata"]["compression_id"].startswith("cmp_")
    assert found["async"] == [one["text"] for one in found["found"]]
    assert (found["empty"], found["blank"]) == (0, 1)
    assert_fails_clearly(found, server.key)


def test_llamaindex_compresses_nodes(run: Run, server: Server) -> None:
    found = run("llamaindex_nodes.py", [QUERY, TEXTS])
    *texts, image = found["found"]
    kept = {one["id"]: one for one in texts}
    assert "The warranty of the pump ends after two years." in kept["n1"]["text"]
    assert len(kept) < len(TEXTS) and image["id"] == "image"
    assert kept["n1"]["score"] == 0.9 and kept["n1"]["metadata"] == {"page": 1}
    assert found["async"] == found["found"] and found["untouched"] and found["empty"] == []
    assert "needs the query" in found["no query"]
    assert_fails_clearly(found, server.key)


FLIGHTS = "\n\n".join(
    f"Flight {number} from Oslo to Paris leaves at {number % 24} o'clock, and its price is {number * 7} dollars."
    for number in range(60)
)


def test_chat_clients_ask_for_compression_as_the_page_shows(run: Run) -> None:
    page = (ROOT / "docs/recipes/README.md").read_text().split("\n## Chat clients\n")[1].split("\n## ")[0]
    code = [body for _, language, body in fences(page) if language == "python"]
    given = {
        "code": ["\n".join(body) for body in code],
        "passages": FLIGHTS,
        "question": "How much is flight 17?",
    }
    openai, langchain = run("page_code.py", given)
    sent, saved = re.fullmatch(r"(\d+) tokens sent, (\d+) saved\n", openai).groups()  # type: ignore[union-attr]
    assert int(saved) > int(sent)
    assert langchain == "applied\n"


CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"to": "Paris"}'}}
CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "You book flights."},
    {"role": "user", "content": "What is the price of flight 17 from Oslo to Paris?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": FLIGHTS},
    {"role": "assistant", "content": "119 dollars."},
    {"role": "user", "content": "Book it."},
]


@pytest.mark.long
def test_litellms_guardrail_compresses_a_conversation(run: Run, server: Server) -> None:
    """The class that its proxy loads for `guardrail: headroom`, from its own configuration to its spend log."""
    key = server.new_key("drop-in")
    lone = [{"role": "tool", "tool_call_id": "c9", "content": FLIGHTS}, *CONVERSATION[4:]]
    anthropic = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "Hello."}, {"type": "text", "text": "What now?"}],
        },
        {"role": "assistant", "content": "Ask."},
        {"role": "user", "content": "Nothing."},
    ]
    given = [
        {"messages": CONVERSATION, "model": "gpt-4o"},
        {"messages": CONVERSATION, "model": "pith-mini"},
        {"messages": lone, "model": "vertex_ai/gemini-9"},
        {"messages": anthropic, "model": "claude"},
    ]
    found = run("litellm_guardrail.py", given, PITH_KEY=key, LITELLM_LOCAL_MODEL_COST_MAP="True")
    first, again, orphan, short = found["applied"]
    messages = first["messages"]
    assert [messages[index] for index in (0, 1, 2, 4, 5)] == [
        CONVERSATION[index] for index in (0, 1, 2, 4, 5)
    ]
    assert {**messages[3], "content": FLIGHTS} == CONVERSATION[3]
    assert (
        "Flight 17 from Oslo to Paris leaves at 17 o'clock, and its price is 119 dollars."
        in messages[3]["content"]
    )
    assert len(messages[3]["content"]) < 0.6 * len(FLIGHTS)
    (log,) = first["log"]
    assert (log["guardrail_status"], first["tools"]) == ("success", None)
    said = log["guardrail_response"]
    assert first["saved"] == said["tokens_saved"] == said["tokens_before"] - said["tokens_after"] > 500
    assert (again["messages"], again["saved"]) == (messages, first["saved"])
    assert len(orphan["messages"][0]["content"]) < 0.6 * len(FLIGHTS)
    assert (short["messages"], short["saved"]) == (anthropic, 0)
    assert found["named model"]["messages"] == messages
    assert found["wrong key"]["status"] == 502 and found["wrong key"]["detail"]["status_code"] == 403
    assert found["fail open"]["messages"] == CONVERSATION
    (usage,) = server.pith("usage", "--workspace", "drop-in", "--by", "model")
    assert (usage["model"], usage["requests"]) == ("pith-lexical", 2), "what came again was free"
