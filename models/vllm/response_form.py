"""A response of OpenAI's Responses API, made by vLLM's `OpenAIServingResponses`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
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
from models.vllm.prompts.options import vllm_fields
from models.vllm.reply_pieces import Meter, completed, read_to_its_end, streamed
from models.vllm.response_events import ResponseEvents, ResponseObject

# vLLM tells them before it gives its engine the prompt, which may be refused there.
BEGINNINGS = frozenset({"response.created", "response.in_progress"})
LOGPROBS = "message.output_text.logprobs"


class ResponseForm:
    """The `models.vllm.forms.Form` of responses.

    Of a request's `form_options`, `response` is what the reply repeats of the request, and `namespaces` has the
    functions that are called otherwise in the prompt: that name, to `[namespace, name]`.
    """

    def __init__(self, serving_chat: Any, client: Any, *, coalesce_s: float) -> None:
        self._serving_chat = serving_chat
        self._layer = insides.responses_layer(serving_chat, client)
        self._coalesce_s = coalesce_s

    def engine_ids(self, request: EngineRequest) -> Sequence[str]:
        return [insides.response_engine_id(_id(request))]

    def pieces(self, request: EngineRequest, meter: Meter) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        creating, events = self._created(replace(request, stream=True)), ResponseEvents(_object(request))

        def read(reply: AsyncGenerator[Any, None]) -> AsyncGenerator[bytes, None]:
            return _written(reply, meter, events)

        if not request.stream:
            reading = read_to_its_end(creating, read, lambda _: None)
            return completed(reading, meter, write=lambda _: orjson.dumps(events.ended))
        return streamed(
            creating, meter, read=read, coalesce_s=self._coalesce_s, closing=lambda: events.closing
        )

    async def count_tokens(
        self, request: EngineRequest, *, turns: asyncio.Lock | None
    ) -> int | ErrorResponse:
        """The prompt is that of the same request as a chat completion."""
        asked = ChatCompletionRequest(**vllm_fields(request))
        return await insides.prompt_tokens(self._serving_chat, asked, turns=turns)

    async def _created(self, request: EngineRequest) -> Any:
        chat = ChatCompletionRequest(**vllm_fields(request))
        asked = await rendered_request(chat, self._serving_chat, _id(request))
        return asked if isinstance(asked, ErrorResponse) else await self._layer.create_responses(asked)


async def _written(
    reply: AsyncGenerator[Any, None], meter: Meter, events: ResponseEvents
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


def _object(request: EngineRequest) -> ResponseObject:
    repeated: Mapping[str, Any] = request.form_options.get("response", {})
    return ResponseObject(
        request.request_id,
        request.model_id,
        repeated,
        namespaces=request.form_options.get("namespaces", {}),
        parallel_calls=request.options.get("parallel_tool_calls") is not False,
    )


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
