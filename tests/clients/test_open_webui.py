"""Open WebUI as its users install it, with pith as its only OpenAI connection, through the API that its page uses."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.clients.running import ClientRun
from tests.integration.running import free_port, wait_for

START_S = 300
MESSAGE_S = 120


@contextmanager
def open_webui(client_run: ClientRun) -> Iterator[httpx.Client]:
    """It runs with its data in the test's folder; the client is its first user, who is its administrator."""
    port = free_port()
    log = client_run.home / "open-webui.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [
                str(client_run.environment.programs / "open-webui"),
                "serve",
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
            ],
            cwd=client_run.home,
            env=client_run.variables()
            | {
                "DATA_DIR": str(client_run.home / "data"),
                "OPENAI_API_BASE_URLS": f"{client_run.url}/openai/v1",
                "OPENAI_API_KEYS": client_run.key,
                # Nothing is asked of the outside: no model of embeddings, no newer version, no statistics.
                "OFFLINE_MODE": "true",
                "HF_HUB_OFFLINE": "1",
                "ANONYMIZED_TELEMETRY": "false",
                "SCARF_NO_ANALYTICS": "true",
                "DO_NOT_TRACK": "true",
            },
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=MESSAGE_S) as client:
            wait_for(
                lambda: is_up(client, process),
                timeout_s=START_S,
                what=f"Open WebUI is up: {log}",
                every_s=0.5,
            )
            signed_up = client.post("/api/v1/auths/signup", json=USER)
            client.headers["Authorization"] = f"Bearer {signed_up.json()['token']}"
            yield client
    finally:
        process.terminate()
        process.wait(30)


USER = {"name": "A user", "email": "user@example.org", "password": "not-a-secret-1"}


def is_up(client: httpx.Client, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "Open WebUI ended"
    try:
        return client.get("/health").is_success
    except httpx.TransportError:
        return False


def first_message(model: dict[str, Any]) -> dict[str, Any]:
    """What its page posts for the first message of a new chat."""
    asked, answered = str(uuid.uuid4()), str(uuid.uuid4())
    message = {"role": "user", "content": "hi"}
    return {
        "stream": True,
        "model": model["id"],
        "messages": [message],
        "params": {},
        "features": {
            "voice": False,
            "image_generation": False,
            "code_interpreter": False,
            "web_search": False,
        },
        "model_item": model,
        "session_id": str(uuid.uuid4()),
        "parent_id": None,
        "user_message": message
        | {"id": asked, "parentId": None, "childrenIds": [answered], "timestamp": int(time.time())},
        "message_ids": [{"model_id": model["id"], "message_id": answered}],
        "background_tasks": {"title_generation": True, "tags_generation": True, "follow_up_generation": True},
    }


@pytest.mark.client(
    "open-webui", "its API: models listed, a chat, a stream; its page's first message, with 28 tools"
)
def test_open_webui_lists_chats_and_streams(
    client_run: ClientRun, models: dict[str, str], long_model: Callable[[], str]
) -> None:
    with open_webui(client_run) as ui:
        listed = {model["id"]: model for model in ui.get("/api/models").json()["data"]}
        assert models["chat"] in listed
        chat = {"model": models["chat"], "messages": [{"role": "user", "content": "hi"}], "max_tokens": 30}
        whole = ui.post("/api/chat/completions", json=chat).json()
        assert whole["choices"][0]["message"]["content"]
        streamed = ui.post("/api/chat/completions", json=chat | {"stream": True}).text
        assert streamed.count("data: {") > 5 and streamed.rstrip().endswith("data: [DONE]")
        started = ui.post("/api/chat/completions", json=first_message(listed[long_model()])).json()
        reply = wait_for(
            lambda: finished_reply(ui, started["chat_id"]),
            timeout_s=MESSAGE_S,
            what="the page's chat is answered",
        )
    assert not reply.get("error") and reply["content"], reply


def finished_reply(ui: httpx.Client, chat_id: str) -> dict[str, Any] | None:
    messages = ui.get(f"/api/v1/chats/{chat_id}").json()["chat"]["history"]["messages"]
    replies = [
        each
        for each in messages.values()
        if each["role"] == "assistant" and (each.get("done") or each.get("error"))
    ]
    return replies[0] if replies else None
