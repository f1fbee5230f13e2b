"""The forms in which vLLM answers a request, each made by an implementation of vLLM's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from models.engine import EngineChunk, EngineFault, EngineRequest, ReplyFormName
from models.vllm import insides
from models.vllm.chat_form import ChatForm
from models.vllm.completion_form import CompletionForm
from models.vllm.message_form import MessageForm
from models.vllm.reply_pieces import Meter
from models.vllm.response_form import ResponseForm

if TYPE_CHECKING:
    from vllm.entrypoints.serve.engine.protocol import ErrorResponse


class Form(Protocol):
    """One form of reply. What `pieces` and `count_tokens` raise is vLLM's."""

    def engine_ids(self, request: EngineRequest) -> Sequence[str]:
        """What vLLM calls this request when it hands it to the engine: one id for each prompt."""

    def pieces(self, request: EngineRequest, meter: Meter) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        """The reply, as `models.engine.ReplicaEngine.generate` yields it."""

    async def count_tokens(
        self, request: EngineRequest, *, turns: asyncio.Lock | None
    ) -> int | ErrorResponse:
        """The prompt's tokens as `pieces` would have them read; `turns` as in `models.vllm.insides.prompt_tokens`."""


def forms_of(serving_chat: Any, client: Any, *, coalesce_s: float) -> Mapping[ReplyFormName, Form]:
    """The forms that this engine offers. `client` is what is called in the engine's place."""
    insides.read_right(serving_chat)
    insides.read_whole_replies(serving_chat)
    return {
        "chat": ChatForm(serving_chat, client, coalesce_s=coalesce_s),
        "completion": CompletionForm(serving_chat, client, coalesce_s=coalesce_s),
        "message": MessageForm(serving_chat, client, coalesce_s=coalesce_s),
        "response": ResponseForm(serving_chat, client, coalesce_s=coalesce_s),
    }
