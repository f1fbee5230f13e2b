"""A message in Anthropic's form: a chat completion, which vLLM's own converters translate."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import orjson
from pydantic_core import from_json
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest, ChatCompletionResponse
from vllm.exceptions import GenerationError

from models.engine import EngineChunk, EngineFault, EngineRequest, TokenUsage
from models.vllm import insides
from models.vllm.chat_form import ChatForm
from models.vllm.prompts.options import vllm_fields
from models.vllm.reply_pieces import Meter, completed, reasoning_tokens, streamed, told_reasoning

ERROR_EVENT = "event: error\n"
START_EVENT = "event: message_start\n"
CLOSING_EVENTS = ("event: message_delta\n", "event: message_stop\n")
BLOCK_START = "event: content_block_start\n"
UNSIGNED, SIGNED = '"thinking":""}', '"thinking":"","signature":""}'
TOOL_USE = '"type":"tool_use"'
END_TURN, CALLS_TOOLS = '"stop_reason":"end_turn"', '"stop_reason":"tool_use"'
# vLLM ends a stream of messages by the usage that it asks the chat for.
WITH_USAGE = {"stream_options": {"include_usage": True}}


class MessageForm(ChatForm):
    """The `models.vllm.forms.Form` of messages."""

    def __init__(self, serving_chat: Any, client: Any, *, coalesce_s: float) -> None:
        super().__init__(serving_chat, client, coalesce_s=coalesce_s)
        self._converters = insides.message_converters()

    def pieces(self, request: EngineRequest, meter: Meter) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        fields = vllm_fields(request)
        if not request.stream:
            creating = self._serving.create_chat_completion(ChatCompletionRequest(**fields))
            return completed(creating, meter, write=self._writer(request, meter))
        creating = self._serving.create_chat_completion(ChatCompletionRequest(**fields, **WITH_USAGE))
        events = MessageEvents(request, meter, self._converters.message_stream_converter)
        return streamed(
            creating, meter, read=events.read, coalesce_s=self._coalesce_s, closing=events.closing
        )

    def _writer(self, request: EngineRequest, meter: Meter) -> Callable[[ChatCompletionResponse], bytes]:
        def write(reply: ChatCompletionResponse) -> bytes:
            for call in reply.choices[0].message.tool_calls:
                call.function.arguments = whole_object(call.function.arguments)
            meter.reasoning_tokens = reasoning_tokens(reply.usage.model_dump())
            message = self._converters.messages_full_converter(reply)
            return message_bytes(message.model_dump(exclude_none=True), request)

        return write


class MessageEvents:
    """The events of one message, of which the last two are kept for its last piece."""

    def __init__(
        self,
        request: EngineRequest,
        meter: Meter,
        convert: Callable[[AsyncGenerator[str, None]], AsyncGenerator[str, None]],
    ) -> None:
        self._request = request
        self._meter = meter
        self._convert = convert
        self._calls_tools = False
        self._closing: list[str] = []

    def closing(self) -> bytes:
        return "".join(self._closing).encode()

    async def read(self, reply: AsyncGenerator[str, None]) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._convert(told_reasoning(reply, self._meter))) as events:
            async for event in events:
                if event.startswith(ERROR_EVENT):
                    self._meter.failure = self._meter.failure or GenerationError(event)
                elif event.startswith(CLOSING_EVENTS):
                    self._closing.append(self._closed(event))
                elif event.startswith(START_EVENT):
                    yield self._started(event)
                else:
                    yield self._told(event).encode()

    def _told(self, event: str) -> str:
        if not event.startswith(BLOCK_START):
            return event
        self._calls_tools |= TOOL_USE in event
        # Anthropic's type has a signature from the first; vLLM tells it when the thoughts have ended.
        return event.replace(UNSIGNED, SIGNED, 1)

    def _started(self, event: str) -> bytes:
        """The first event, with the id of a message and what is known of the usage."""
        start = orjson.loads(event.partition("data: ")[2])
        start["message"] |= {"id": message_id(self._request), "usage": message_usage(self._meter.usage())}
        return f"{START_EVENT}data: ".encode() + orjson.dumps(start) + b"\n\n"

    def _closed(self, event: str) -> str:
        # vLLM says so of a call that the model was free to make, not of one that it was made to make.
        return event.replace(END_TURN, CALLS_TOOLS, 1) if self._calls_tools else event


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


def message_bytes(message: dict[str, Any], request: EngineRequest) -> bytes:
    """Anthropic's message object as JSON, without vLLM's own fields and without usage."""
    calls_tools = any(block["type"] == "tool_use" for block in message["content"])
    reason = message.get("stop_reason")
    # Not orjson: the integers in a call's input may be of any size.
    return json.dumps(
        {
            "id": message_id(request),
            "type": "message",
            "role": "assistant",
            "model": request.model_id,
            "content": message["content"],
            "stop_reason": "tool_use" if calls_tools and reason == "end_turn" else reason,
            "stop_sequence": message.get("stop_sequence"),
        }
    ).encode()


def whole_object(arguments: str) -> str:
    """The arguments of a call as a JSON object: as much of one as was generated before the limit."""
    try:
        value = json.loads(arguments, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        value = _beginning_of(arguments)
    text = json.dumps(value if isinstance(value, dict) else {}, ensure_ascii=False)
    # Half a surrogate pair is no character.
    return text.encode("utf-8", "replace").decode()


def _beginning_of(arguments: str) -> Any:
    try:
        return from_json(arguments, allow_partial=True)
    except ValueError:
        return {}
