"""Target: JSON bodies of every dialect through the whole service, with its real ledger and a fake engine."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from anthropic.types import Message, MessageTokensCount, RawMessageStreamEvent
from pydantic import TypeAdapter

from billing.caller import NO_LIMITS
from models.fake_engine import FakeEngine
from serve.compress.response import CompressMessagesResponse, CompressResponse
from tests.fuzzing.choices import Choices, changed
from tests.serve.compressing import ReadyModel, local_model
from tests.serve.dialects.test_wrong_types import BODIES, WRONG
from tests.serve.retrieval.serving import LEXICAL, MODELS, FakeRetrieval
from tests.serve.served import Client, Served, model_document, serving

MESSAGE = {"role": "user", "content": "Is the pump under warranty?"}
CONTEXT = (
    "The pump ships with a filter.\n\nThe warranty ends after two years.\n\nSpare parts are listed below."
)
MARKED = {"role": "user", "content": [{"type": "text", "text": CONTEXT * 9, "compress": True}]}
COMPRESSED = {
    "messages": [MARKED, MESSAGE],
    "compression": {"model": "lexical", "target_ratio": 0.3, "min_tokens": 1},
    "max_tokens": 3,
    "include": ["token_ids"],
}
BASES: tuple[tuple[str, dict[str, Any]], ...] = (
    *((path, body) for path, body in BODIES.items() if not path.endswith("batches")),
    ("/v1/chat/completions", BODIES["/openai/v1/chat/completions"]),
    ("/anthropic/v1/messages/count_tokens", BODIES["/anthropic/v1/messages"]),
    ("/openai/v1/embeddings", {"model": "small", "input": ["a b", "c"], "dimensions": 4}),
    ("/openai/v1/embeddings", {"model": "small", "input": [[1, 2], [3]], "encoding_format": "base64"}),
    (
        "/openai/v2/rerank",
        {
            "model": "order",
            "query": "a",
            "documents": ["a", {"text": "b"}],
            "top_n": 2,
            "return_documents": True,
        },
    ),
    ("/openai/v1/score", {"model": "order", "text_1": "a", "text_2": ["a", "b"]}),
    ("/v1/compress", {"query": "When?", "input": CONTEXT, "target_ratio": 0.5, "explain": True}),
    (
        "/v1/compress",
        {"messages": [MESSAGE, {"role": "tool", "content": CONTEXT}, MESSAGE], "target_ratio": 0.5},
    ),
    ("/v1/batch/compress", {"items": [{"query": "When?", "input": CONTEXT}], "target_ratio": 0.5}),
    ("/v1/chat/completions", COMPRESSED),
)
# Donors for `changed`: what is wrong anywhere, and whole parts of other dialects' bodies.
ODD = (*WRONG, *(part for _, body in BASES for part in body.values()))
EVENT: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)
COMPRESSED_FORMS: TypeAdapter[Any] = TypeAdapter(CompressResponse | CompressMessagesResponse)
ABLE = {
    "capabilities": {"tools": True, "reasoning_effort": True},
    "engine": {"enable_auto_tool_choice": True, "tool_call_parser": "hermes"},
}
# The ledger is looked at each time so many requests were sent, and at the end.
LOOK_AFTER = 500
MOST_TOKENS = 64


@contextmanager
def dialects() -> Iterator[Callable[[bytes], None]]:
    """Each is answered in its dialect's own form, never by a 5xx, and leaves no hold behind."""
    with asyncio.Runner() as runner, tempfile.TemporaryDirectory(prefix="pith-fuzzing-") as folder:
        asker = runner.run(Asker.opened(Path(folder)))
        try:
            yield lambda data: runner.run(asker.ask(Choices(data)))
            runner.run(asker.served.assert_nothing_is_left_open())
        finally:
            runner.run(asker.until.aclose())


class Asker:
    """Asks one service, whose answers it judges."""

    def __init__(self, served: Served, until: AsyncExitStack) -> None:
        self.served, self.until, self._asked = served, until, 0

    @classmethod
    async def opened(cls, folder: Path) -> Asker:
        until = AsyncExitStack()
        fields: dict[str, Any] = {
            "server": {"max_body_bytes": 2**16},
            "compression": {"models": [LEXICAL]},
            "models": [model_document("alpha", **ABLE), *MODELS],
        }
        retrievers = {found["id"]: FakeRetrieval() for found in MODELS}
        compressors = {"lexical": ReadyModel(local_model())}
        served = await until.enter_async_context(
            serving(folder, retrievers=retrievers, compressors=compressors, **fields)
        )
        served.key = await served.new_key(limits=NO_LIMITS)
        return cls(served, until)

    async def ask(self, choices: Choices) -> None:
        path, body = choices.choice(BASES)
        streams = choices.random() < 0.3
        body = changed(body, choices, ODD)
        if isinstance(body, dict) and streams:
            body["stream"] = True
        # Each reply may be as long as its context, and many: what is judged is their form.
        self.served.engine = FakeEngine(text="The quick brown fox.")
        client = await self.served.post(path, body).run()
        judge(path, client)
        for request in self.served.engine.requests:
            if request.messages:
                is_sound(request.messages)
        self._asked += 1
        if self._asked % LOOK_AFTER == 0:
            await self.served.assert_nothing_is_left_open()


def judge(path: str, client: Client) -> None:
    """OpenAI's replies were judged by the client, which knows the types of the `openai` package."""
    assert client.is_complete, client.sent[-1:]
    assert client.status < 500, client.body
    if client.status >= 400:
        judge_error(path, client)
    elif path.endswith("/count_tokens"):
        MessageTokensCount.model_validate_json(client.body)
    elif path.startswith("/anthropic/") and client.body.startswith(b"event: "):
        for found in client.body.split(b"\n\n")[:-1]:
            event = json.loads(found.split(b"\ndata: ")[1])
            assert event["type"] != "error", event
            EVENT.validate_python(event)
    elif path.startswith("/anthropic/"):
        Message.model_validate_json(client.body)
    elif path == "/v1/compress":
        COMPRESSED_FORMS.validate_json(client.body)


def judge_error(path: str, client: Client) -> None:
    found = client.json()
    error = found["error"]
    assert error["type"] and isinstance(error["message"], str) and error["message"], found
    if path.startswith("/anthropic/"):
        assert found.keys() == {"type", "error", "request_id"} and found["type"] == "error", found
        assert error.keys() == {"type", "message"}, found
    elif path.startswith("/openai/"):
        assert found.keys() == {"error"}, found
        assert error.keys() == {"message", "type", "param", "code"}, found
    else:
        assert found.keys() == {"error", "detail"}, found


def is_sound(messages: Any) -> None:
    """What an engine is given is text that can be written, in messages with a role."""
    json.dumps(messages, ensure_ascii=False, allow_nan=False).encode()
    assert all(isinstance(message["role"], str) for message in messages), messages
