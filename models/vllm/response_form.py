"""A response of OpenAI's Responses API, made by vLLM's `OpenAIServingResponses`."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import orjson
from pydantic import PrivateAttr
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.exceptions import GenerationError

from models.engine import EngineChunk, EngineFault, EngineRequest
from models.vllm import insides
from models.vllm.counting_client import PromptMeters
from models.vllm.openai_forms import ChatForm
from models.vllm.prompts import vllm_fields
from models.vllm.reply_pieces import completed, read_to_its_end, streamed

# vLLM tells them before it gives its engine the prompt, which may be refused there.
BEGINNINGS = frozenset({"response.created", "response.in_progress"})
LOGPROBS = "message.output_text.logprobs"


class ResponseForm(ChatForm):
    """The `models.vllm.engine.Form` of responses. Their prompt is that of the same request as a chat completion.

    Of a request's `form_options`, `response` is what the reply repeats of the request, and `namespaces` has the
    functions that are called otherwise in the prompt: that name, to `[namespace, name]`.
    """

    def __init__(self, serving_chat: Any, client: Any) -> None:
        super().__init__(serving_chat, client)
        self._layer = insides.responses_layer(serving_chat, client)

    def engine_ids(self, request: EngineRequest) -> Sequence[str]:
        return [insides.response_engine_id(_id(request))]

    def pieces(
        self, request: EngineRequest, meter: PromptMeters
    ) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        creating, events = (
            self._created(replace(request, stream=True)),
            ResponseEvents(ResponseObject(request)),
        )

        def read(reply: AsyncGenerator[Any, None]) -> AsyncGenerator[bytes, None]:
            return _written(reply, meter, events)

        if not request.stream:
            reading = read_to_its_end(creating, read, lambda _: None)
            return completed(reading, meter, write=lambda _: orjson.dumps(events.ended))
        return streamed(creating, meter, read=read, closing=lambda: events.closing)

    async def _created(self, request: EngineRequest) -> Any:
        chat = ChatCompletionRequest(**vllm_fields(request))
        asked = await rendered_request(chat, self._serving, _id(request))
        return asked if isinstance(asked, ErrorResponse) else await self._layer.create_responses(asked)


async def _written(
    reply: AsyncGenerator[Any, None], meter: PromptMeters, events: ResponseEvents
) -> AsyncGenerator[bytes, None]:
    """The events but for the closing one; the first once something was generated."""
    beginning = b""
    try:
        async with aclosing(reply):
            async for event in reply:
                written = events.of(event.model_dump(mode="json", by_alias=True))
                if event.type in BEGINNINGS:
                    beginning += written
                    continue
                yield beginning + written
                beginning = b""
    except Exception as error:
        # An engine's failure has been noted; another is vLLM's own, such as of a parser.
        meter.failure = meter.failure or GenerationError(str(error))
        return
    if beginning:
        yield beginning


def _id(request: EngineRequest) -> str:
    return f"resp_{request.request_id}"


class RenderedRequest(ResponsesRequest):  # type: ignore[misc]
    """A response to a prompt that is rendered already: its `input` is not read."""

    _chat: ChatCompletionRequest = PrivateAttr()
    _rendered: Any = PrivateAttr()

    @property
    def rendered(self) -> Any:
        return self._rendered

    @property
    def chat(self) -> ChatCompletionRequest:
        """The same request as a chat completion."""
        return self._chat

    def to_sampling_params(self, default_max_tokens: int, default_sampling_params: Any = None) -> Any:
        """Those of the same request as a chat completion."""
        return self._chat.to_sampling_params(default_max_tokens, default_sampling_params or {})


async def rendered_request(
    chat: ChatCompletionRequest, serving_chat: Any, response_id: str
) -> RenderedRequest | ErrorResponse:
    """The request for a response to what a chat completion would answer."""
    rendered = await serving_chat.render_chat_request(chat)
    if isinstance(rendered, ErrorResponse):
        return rendered
    request = RenderedRequest(
        model=chat.model,
        input="",
        request_id=response_id,
        stream=chat.stream,
        store=False,
        tools=[_function(tool.function) for tool in chat.tools or ()],
        tool_choice=_choice(chat),
        max_output_tokens=chat.max_completion_tokens or chat.max_tokens,
        include=[LOGPROBS] if chat.logprobs else None,
        top_logprobs=chat.top_logprobs or 0,
        chat_template_kwargs=chat.chat_template_kwargs,
        reasoning={"effort": chat.reasoning_effort} if chat.reasoning_effort else None,
    )
    request._chat, request._rendered = chat, rendered
    return request


def _function(function: Any) -> dict[str, Any]:
    named = {"name": function.name, "description": function.description, "parameters": function.parameters}
    return {"type": "function", "strict": None, **named}


def _choice(chat: ChatCompletionRequest) -> Any:
    choice = chat.tool_choice or "none"
    if isinstance(choice, str):
        return choice
    return {"type": "function", "name": choice.function.name}


PREFIXES = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_"}
# Of a gpt-oss model's call vLLM says more than its type has.
CALL_FIELDS = frozenset({"id", "type", "status", "call_id", "name", "namespace", "arguments"})
# vLLM's own names for events that OpenAI has another for.
RENAMED = {
    "response.reasoning_part.added": "response.content_part.added",
    "response.reasoning_part.done": "response.content_part.done",
}
ITEM_ADDED, ITEM_DONE = "response.output_item.added", "response.output_item.done"
ARGUMENTS_DONE = "response.function_call_arguments.done"
TEXT_DELTA, TEXT_DONE = "response.output_text.delta", "response.output_text.done"
PART_DONE = "response.content_part.done"
CLOSING = "response.completed"


class ResponseEvents:
    """One stream. `of` takes each of vLLM's events; afterwards `closing` has the event that ends the stream."""

    def __init__(self, response: ResponseObject) -> None:
        self._response = response
        self._sequence = 0
        self._items: list[dict[str, Any]] = []
        # The item that is being written, with whatever of its parts are done.
        self._open: dict[str, Any] | None = None
        self._passed_over = False
        self._has_arguments = False
        self._logprobs: list[dict[str, Any]] = []
        # The end of an item waits for the next event, which may say that it was cut off.
        self._done: dict[str, Any] | None = None
        self.closing = b""
        # The response as the closing event has it, which is the reply in one piece.
        self.ended: dict[str, Any] = {}

    def of(self, event: dict[str, Any]) -> bytes:
        """Server-sent events, none or several; their numbers are those of what is sent."""
        return b"".join(map(self._written, self._events(event)))

    def _events(self, event: dict[str, Any]) -> Iterator[dict[str, Any]]:
        kind = event["type"] = RENAMED.get(event["type"], event["type"])
        if kind == CLOSING:
            yield from self._close(event["response"])
            return
        yield from self._held_back()
        if kind in ("response.created", "response.in_progress"):
            yield {"type": kind, "response": self._response.begun(event["response"])}
        elif kind == ITEM_ADDED:
            yield from self._begin_item(event)
        elif not self._passed_over:
            event |= {"output_index": len(self._items)}
            if "item_id" in event:
                event["item_id"] = self._open_item["id"]
            yield from self._within_item(event)
        elif kind == ITEM_DONE:
            self._passed_over = False

    def _begin_item(self, event: dict[str, Any]) -> Iterator[dict[str, Any]]:
        item = self._response.item(event["item"], len(self._items))
        self._passed_over = self._response.passes_over(item, self._items)
        if self._passed_over:
            return
        self._open, self._has_arguments, self._logprobs = item, False, []
        yield {**event, "item": item, "output_index": len(self._items)}

    def _within_item(self, event: dict[str, Any]) -> Iterator[dict[str, Any]]:
        kind = event["type"]
        if kind == ITEM_DONE:
            yield from self._end_item(event)
            return
        if kind == TEXT_DELTA:
            self._logprobs += event["logprobs"]
        elif kind == TEXT_DONE:
            event["logprobs"] = self._logprobs
        elif kind == PART_DONE:
            event["part"] = self._part(event["part"])
        self._has_arguments = self._has_arguments or kind == ARGUMENTS_DONE
        yield event

    def _end_item(self, event: dict[str, Any]) -> Iterator[dict[str, Any]]:
        item = self._response.item(event["item"], len(self._items))
        if item["type"] == "function_call":
            item["call_id"] = self._open_item["call_id"]
            if not self._has_arguments:
                yield {
                    "type": ARGUMENTS_DONE,
                    "item_id": item["id"],
                    "output_index": len(self._items),
                    "name": item["name"],
                    "arguments": item["arguments"],
                }
        elif item["type"] == "message":
            item["content"] = [self._part(part) for part in item["content"]]
        self._items.append(item)
        self._done = {**event, "item": item, "output_index": len(self._items) - 1}

    def _part(self, part: dict[str, Any]) -> dict[str, Any]:
        if part["type"] != "output_text":
            return part
        return {**part, "logprobs": [with_bytes(each) for each in self._logprobs]}

    def _held_back(self) -> Iterator[dict[str, Any]]:
        if self._done is not None:
            yield self._done
            self._done = None

    def _close(self, response: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        self.ended = self._response.ended(response, self._items)
        yield from self._held_back()
        kind = CLOSING if self.ended["status"] == "completed" else "response.incomplete"
        self.closing = self._written({"type": kind, "response": self.ended})

    @property
    def _open_item(self) -> dict[str, Any]:
        assert self._open is not None
        return self._open

    def _written(self, event: dict[str, Any]) -> bytes:
        event["sequence_number"] = self._sequence
        self._sequence += 1
        return written(event)


class ResponseObject:
    """The `response` of one request, around vLLM's output."""

    def __init__(self, request: EngineRequest) -> None:
        self._request_id = request.request_id
        self._model_id = request.model_id
        self._repeated = request.form_options.get("response", {})
        self._namespaces = request.form_options.get("namespaces", {})
        self._parallel_calls = request.options.get("parallel_tool_calls") is not False

    def begun(self, response: Mapping[str, Any]) -> dict[str, Any]:
        return self._object(response, status="in_progress", output=[])

    def ended(self, response: Mapping[str, Any], output: list[dict[str, Any]]) -> dict[str, Any]:
        """The last item of an answer that was cut off is marked as incomplete. `usage` waits for the settlement, but
        for the tokens that vLLM alone can tell from others."""
        status = response["status"]
        if status == "incomplete" and output:
            output[-1]["status"] = "incomplete"
        ended = self._object(response, status=status, output=output)
        if status == "completed":
            ended["completed_at"] = int(time.time())
        details = (response.get("usage") or {}).get("output_tokens_details") or {}
        ended["usage"] = {"output_tokens_details": {"reasoning_tokens": details.get("reasoning_tokens", 0)}}
        return ended

    def item(self, item: Mapping[str, Any], number: int) -> dict[str, Any]:
        """One of vLLM's output items, without what its type does not have; its id tells the response and its number."""
        found = {name: value for name, value in item.items() if value is not None}
        found["id"] = f"{PREFIXES.get(found['type'], 'item_')}{self._request_id}_{number}"
        if found["type"] == "message":
            found.pop("summary", None)
            found["content"] = [_with_logprobs(part) for part in found["content"]]
        elif found["type"] == "function_call":
            found = {name: value for name, value in found.items() if name in CALL_FIELDS}
            if found["name"] in self._namespaces:
                found["namespace"], found["name"] = self._namespaces[found["name"]]
        elif found["type"] == "reasoning":
            found.setdefault("status", "completed")
        return found

    def passes_over(self, item: Mapping[str, Any], output: list[dict[str, Any]]) -> bool:
        """True for a second call of an answer that may have one."""
        is_call = item["type"] == "function_call"
        return is_call and not self._parallel_calls and any(each["type"] == item["type"] for each in output)

    def _object(self, response: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
        named = ("id", "object", "created_at", "temperature", "top_p")
        return {
            **{name: response[name] for name in named},
            "model": self._model_id,
            "background": False,
            "error": None,
            "incomplete_details": response.get("incomplete_details"),
            "usage": None,
            **self._repeated,
            **fields,
        }


def written(event: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), orjson.dumps(event))


def with_bytes(logprob: Mapping[str, Any]) -> dict[str, Any]:
    """A token of a stream as a whole text has it."""
    top = [{**each, "bytes": list(each["token"].encode())} for each in logprob.get("top_logprobs") or ()]
    return {**logprob, "bytes": list(logprob["token"].encode()), "top_logprobs": top}


def _with_logprobs(part: Mapping[str, Any]) -> dict[str, Any]:
    return {**part, "logprobs": part.get("logprobs") or []}
