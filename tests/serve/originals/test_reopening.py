"""docs/originals.md's example, as it stands there: a chat whose model opens a gap by a tool call."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from models.engine import EngineChunk, EngineRequest
from models.fake_engine import FakeEngine
from tests.serve.compressing import ReadyModel, local_model
from tests.serve.loopback_service import Running, service

PAGE = Path(__file__).parents[3] / "docs/originals.md"


# Only its middle is about the question.
NOTES = "\n\n".join(
    [
        f"The weather of day {day} was as dull as that of the day before, and nobody wrote more."
        for day in range(20)
    ]
    + ["The warranty of the pump ends after two years."]
    + [
        f"Parcel {number} went to the harbour by the afternoon cart, as all parcels do."
        for number in range(20)
    ]
)
FOOTER = re.compile(r"\[… (cmp_\w+)\]$")


@dataclass(kw_only=True)
class FakeCallingEngine(FakeEngine):
    """A fake that calls `open_original` with each of `wanted` in turn, for the id that its prompt names unless they
    name another, and then says its text."""

    wanted: list[dict[str, Any]] = field(default_factory=list)

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        async with aclosing(super().generate(request)) as chunks:
            async for chunk in chunks:
                yield replace(chunk, data=self._calling(request, chunk.data)) if chunk.finished else chunk

    def _calling(self, request: EngineRequest, data: bytes) -> bytes:
        if not self.wanted:
            return data
        body = json.loads(data)
        named = FOOTER.search(text_of(request.messages[0]))
        arguments = {"id": named and named[1], **self.wanted.pop(0)}
        called = {"name": "open_original", "arguments": json.dumps(arguments)}
        calls = [{"id": f"call_{len(self.wanted)}", "type": "function", "function": called}]
        (choice,) = body["choices"]
        choice["message"] |= {"content": None, "tool_calls": calls}
        choice["finish_reason"] = "tool_calls"
        return json.dumps(body).encode()


def example(running: Running, folder: Path) -> dict[str, Any]:
    """What the page's block defines, for this server."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len([line for line in block.splitlines() if line]) <= 32
    (folder / "key").write_text(running.key)
    code = block.replace("http://127.0.0.1:8000", running.url).replace("var/demo-key", str(folder / "key"))
    defined: dict[str, Any] = {}
    exec(code, defined)
    return defined


def test_a_model_reads_what_was_left_out_of_its_prompt(tmp_path: Path) -> None:
    at = NOTES.index("Parcel 17")
    engine = FakeCallingEngine(wanted=[{"start": at, "end": at + 9}, {}, {"id": "cmp_none"}])
    question = "When does the warranty of the pump end?"
    messages = [
        {"role": "user", "content": [{"type": "text", "text": NOTES, "compress": True}]},
        {"role": "user", "content": question},
    ]
    with service(tmp_path, engine, compressor=ReadyModel(local_model()), tools=True) as running:
        defined = example(running, tmp_path)
        assert defined["answer"](messages).startswith("The quick")
        defined["pith"].close()
    sent = text_of(engine.requests[0].messages[0])
    assert len(sent) < len(NOTES) / 2 and "Parcel 17 " not in sent and FOOTER.search(sent)
    # The same in each turn, so the engine's prefix cache has it.
    assert {text_of(request.messages[0]) for request in engine.requests} == {sent}
    results = [
        json.loads(text_of(message)) for message in engine.requests[-1].messages if message["role"] == "tool"
    ]
    assert [result.get("text") for result in results] == ["Parcel 17", NOTES, None]
    assert results[2]["error"]["code"] == "original_not_found"


def text_of(message: Any) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
