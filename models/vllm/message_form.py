"""A message in Anthropic's form: a chat completion, which vLLM's own converters translate."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import orjson
from pydantic_core import from_json
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.exceptions import GenerationError

from models.engine import EngineChunk, EngineFault, EngineRequest, TokenUsage
from models.vllm import insides
from models.vllm.counting_client import PromptMeters
from models.vllm.openai_forms import ChatForm
from models.vllm.prompts import vllm_fields
from models.vllm.reply_pieces import completed, read_to_its_end, streamed, told_reasoning

ERROR_EVENT = "event: error\n"
START_EVENT = "event: message_start\n"
DELTA_EVENT = "event: message_delta\n"
CLOSING_EVENTS = (DELTA_EVENT, "event: message_stop\n")
BLOCK_START = "event: content_block_start\n"
UNSIGNED, SIGNED = '"thinking":""}', '"thinking":"","signature":""}'
TOOL_USE = '"type":"tool_use"'
# Clients read the first block of any message.
EMPTY_TEXT = (
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
    b'"content_block":{"type":"text","text":""}}\n\n'
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
)
# Where a delta, and where a block, has its text.
DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
INPUTS = {"text": "text", "thinking": "thinking", "tool_use": "input"}
# vLLM ends a stream of messages by the usage that it asks the chat for.
WITH_USAGE = {"stream_options": {"include_usage": True}}


class MessageForm(ChatForm):
    """The `models.vllm.engine.Form` of messages."""

    def __init__(self, serving_chat: Any, client: Any) -> None:
        super().__init__(serving_chat, client)
        self._converters = insides.message_converters()

    def pieces(
        self, request: EngineRequest, meter: PromptMeters
    ) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        fields = vllm_fields(replace(request, stream=True))
        creating = self._serving.create_chat_completion(ChatCompletionRequest(**fields, **WITH_USAGE))
        events = MessageEvents(request, meter, self._converters.message_stream_converter)
        if not request.stream:
            message = WholeMessage(request)
            reading = read_to_its_end(creating, events.read, message.add)
            return completed(reading, meter, write=lambda _: message.written(events.closing()))
        return streamed(creating, meter, read=events.read, closing=events.closing)


class MessageEvents:
    """The events of one message, of which the last two are kept for its last piece."""

    def __init__(
        self,
        request: EngineRequest,
        meter: PromptMeters,
        convert: Callable[[AsyncGenerator[str, None]], AsyncGenerator[str, None]],
    ) -> None:
        self._request = request
        self._meter = meter
        self._convert = convert
        self._is_empty = True
        self._calls_tools = False
        self._closing: list[bytes] = []

    def closing(self) -> bytes:
        return b"".join(self._closing)

    async def read(self, reply: AsyncGenerator[str, None]) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._convert(told_reasoning(reply, self._meter))) as events:
            async for event in events:
                if event.startswith(ERROR_EVENT):
                    self._meter.failure = self._meter.failure or GenerationError(event)
                elif event.startswith(CLOSING_EVENTS):
                    if self._is_empty and event.startswith(DELTA_EVENT):
                        yield EMPTY_TEXT
                    self._closing.append(self._closed(event))
                elif event.startswith(START_EVENT):
                    yield self._started(event)
                else:
                    yield self._told(event).encode()

    def _told(self, event: str) -> str:
        if not event.startswith(BLOCK_START):
            return event
        self._is_empty = False
        self._calls_tools |= TOOL_USE in event
        # Anthropic's type has a signature from the first; vLLM tells it when the thoughts have ended.
        return event.replace(UNSIGNED, SIGNED, 1)

    def _started(self, event: str) -> bytes:
        """The first event, with the id of a message and what is known of the usage."""
        start = fields_of(event.encode())
        start["message"] |= {"id": message_id(self._request), "usage": message_usage(self._meter.usage())}
        return _event(START_EVENT, start)

    def _closed(self, event: str) -> bytes:
        if not event.startswith(DELTA_EVENT):
            return event.encode()
        ended = fields_of(event.encode())
        delta = ended["delta"]
        # vLLM says so of a call that the model was free to make, not of one that it was made to make.
        if self._calls_tools and delta["stop_reason"] == "end_turn":
            delta["stop_reason"] = "tool_use"
        # It is never missing in Anthropic's.
        delta.setdefault("stop_sequence", None)
        return _event(DELTA_EVENT, ended)


class WholeMessage:
    """Anthropic's message object, put together from the events of its stream, without usage."""

    def __init__(self, request: EngineRequest) -> None:
        self._request = request
        self._blocks: list[dict[str, Any]] = []
        # Of each block, the text, the thoughts or the JSON of its input.
        self._parts: list[list[str]] = []

    def add(self, events: bytes) -> None:
        for event in events.split(b"\n\n")[:-1]:
            fields = fields_of(event)
            if fields["type"] == "content_block_start":
                self._blocks.append(fields["content_block"])
                self._parts.append([])
            elif fields["type"] == "content_block_delta":
                self._add_delta(fields["delta"])

    def _add_delta(self, delta: dict[str, Any]) -> None:
        if delta["type"] == "signature_delta":
            self._blocks[-1]["signature"] = delta["signature"]
        else:
            self._parts[-1].append(delta[DELTAS[delta["type"]]])

    def written(self, closing: bytes) -> bytes:
        """The message as JSON, with the end that its closing events tell."""
        for block, parts in zip(self._blocks, self._parts, strict=True):
            whole = "".join(parts)
            block[INPUTS[block["type"]]] = whole_object(whole) if block["type"] == "tool_use" else whole
        # Not orjson: the integers in a call's input may be of any size.
        return json.dumps(
            {
                "id": message_id(self._request),
                "type": "message",
                "role": "assistant",
                "model": self._request.model_id,
                "content": self._blocks,
                **fields_of(closing.partition(b"\n\n")[0])["delta"],
            }
        ).encode()


def fields_of(event: bytes) -> dict[str, Any]:
    """The data of one server-sent event."""
    fields: dict[str, Any] = orjson.loads(event.partition(b"data: ")[2])
    return fields


def _event(line: str, fields: dict[str, Any]) -> bytes:
    return line.encode() + b"data: " + orjson.dumps(fields) + b"\n\n"


def message_id(request: EngineRequest) -> str:
    return f"msg_{request.request_id}"


def message_usage(usage: TokenUsage) -> dict[str, int]:
    """Anthropic's count: what was read from the prefix cache is not in `input_tokens`."""
    cached = min(usage.cached_tokens, usage.prompt_tokens)
    return {
        "input_tokens": usage.prompt_tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.completion_tokens,
    }


def whole_object(arguments: str) -> dict[str, Any]:
    """The arguments of a call as a JSON object: as much of one as was generated before the limit."""
    try:
        value = json.loads(arguments, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        value = _beginning_of(arguments)
    # Half a surrogate pair is no character.
    return value if isinstance(value, dict) else {}


def _beginning_of(arguments: str) -> Any:
    try:
        return from_json(arguments, allow_partial=True)
    except ValueError:
        return {}
