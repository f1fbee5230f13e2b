"""vLLM as the engine of a replica: runs chat requests on an engine that was started in this process.

It builds on vLLM's own OpenAI layer (templates, structured outputs, tool parsers, logprobs) and reads usage from
the typed outputs beneath it, so no event is parsed to be counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Literal, Protocol

from pydantic import ValidationError
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.exceptions import GenerationError, GracefulHTTPError, VLLMClientError

from models.engine import (
    EngineChunk,
    EngineFault,
    EngineRequest,
    PromptMaking,
    ReplyFormName,
    ScoredReply,
    Turn,
)
from models.errors import GrammarTrialsBusy
from models.grammar.trials import TrialTerms, TrialTurns
from models.vllm import insides
from models.vllm.counting_client import CountingClient, PromptMeters, gathering_of, meters_of, trials_of
from models.vllm.faults import constrained_by, fault_of, located, refusal, unknown_form
from models.vllm.going_on import go_on_from_what_was_said
from models.vllm.message_form import MessageForm
from models.vllm.openai_forms import ChatForm, CompletionForm
from models.vllm.prompts import note_length, prompt_making, prompt_source, vllm_fields
from models.vllm.response_form import ResponseForm
from models.vllm.scoring import NotScored, ReplyScorer, cannot_score

logger = logging.getLogger("pith.engine")
RESTART_S = 10
WARM_UP = ({"role": "user", "content": "Hello."},)
WARM_UP_OPTIONS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 1.0, "n": 2, "response_format": {"type": "json_object"}},
)


class VLLMEngine:
    """The `models.engine.ReplicaEngine` of one vLLM engine."""

    def __init__(
        self,
        model_id: str,
        serving_chat: Any,
        engine_client: Any,
        *,
        coalesce_s: float,
        trial_turns: TrialTurns,
        trial_terms: TrialTerms,
    ) -> None:
        self._model_id = model_id
        self._client = CountingClient(engine_client, trials_of(engine_client, trial_turns, trial_terms))
        self._serving = serving_chat
        self._source = prompt_source(serving_chat)
        insides.refuse_what_cannot_be_rendered(serving_chat)
        insides.render_short_prompts_at_once(serving_chat)
        go_on_from_what_was_said()
        self._forms = forms_of(serving_chat, self._client)
        self._coalesce_s = coalesce_s
        self._counting_turns = asyncio.Lock()
        self._telling: set[asyncio.Task[None]] = set()

    @property
    def places(self) -> int:
        return insides.places(self._client)

    @property
    def cache_tokens(self) -> int | None:
        return insides.cache_tokens(self._client)

    @property
    def prompt_making(self) -> PromptMaking | None:
        return prompt_making(self._serving)

    @property
    def dead(self) -> bool:
        """True once the engine's own process has died: it never comes back by itself."""
        return bool(self._client.errored)

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        if self.dead:
            yield EngineFault(
                "unavailable", "the engine has died and is being replaced", retry_after_s=RESTART_S
            )
            return
        form = self._forms.get(request.form)
        if form is None:
            yield unknown_form(request)
            return
        if (fault := await self._load_adapter(request)) is not None:
            yield fault
            return
        request = within_its_adapter(request)
        note_length(request)
        external_ids = form.engine_ids(request)
        gathering = gathering_of(request, len(self._client.meters), self._coalesce_s)
        meter = meters_of(
            request,
            external_ids,
            self._client,
            places=self.places,
            gathering=gathering,
            source=self._source(request),
        )
        self._client.meters |= meter.parts
        self._client.requests |= dict.fromkeys(external_ids, request)
        try:
            async with aclosing(form.pieces(request, meter)) as items:
                async for item in items:
                    if isinstance(item, EngineFault):
                        yield located(item, request)
                    else:
                        yield meter.told(item)
        except (VLLMClientError, ValidationError, ValueError) as error:
            yield refusal(error, request)
        except (GracefulHTTPError, GrammarTrialsBusy) as error:
            yield EngineFault("unavailable", str(error))
        except (insides.EngineDeadError, insides.EngineGenerateError, GenerationError):
            yield self._broken(request, meter)
        finally:
            for external_id in external_ids:
                self._client.meters.pop(external_id, None)
                self._client.requests.pop(external_id, None)
                self._client.paused.discard(external_id)

    def _broken(self, request: EngineRequest, meter: PromptMeters) -> EngineFault:
        """The meaning of vLLM's exception, which is the same for its own death, for a grammar that it cannot handle,
        and for one that `models.vllm.plugin` has given up."""
        field = constrained_by(request)
        if not self.dead and field is not None:
            begun = meter.usage().completion_tokens > 0
            reason = "to the end: its grammar takes too long to follow" if begun else "to this schema"
            return EngineFault("rejected", f"the engine cannot hold a reply {reason}", field)
        kind: Literal["died", "failed"] = "died" if self.dead else "failed"
        return EngineFault(kind, "the engine failed while it worked on this request")

    def pause(self, request: EngineRequest, paused: bool) -> None:
        form = self._forms.get(request.form)
        if form is None or self.dead:
            return
        telling = asyncio.create_task(self._client.pause(form.engine_ids(request), paused))
        self._telling.add(telling)
        telling.add_done_callback(self._told)

    def _told(self, telling: asyncio.Task[None]) -> None:
        self._telling.discard(telling)
        if not telling.cancelled() and (error := telling.exception()) and not self.dead:
            logger.error("vLLM could not be told whose places are owed: %s", error)

    async def count_tokens(
        self, request: EngineRequest, *, beyond_context: bool = False
    ) -> int | EngineFault:
        """The prompt's tokens, rendered and tokenized as for a generation."""
        form = self._forms.get(request.form)
        if form is None:
            return unknown_form(request)
        if (fault := await self._load_adapter(request)) is not None:
            return fault
        turns = self._counting_turns if beyond_context else None
        try:
            counted = await form.count_tokens(request, turns=turns)
        except (VLLMClientError, ValidationError, ValueError) as error:
            return refusal(error, request)
        return located(fault_of(counted), request) if isinstance(counted, ErrorResponse) else counted

    async def score(
        self, request: EngineRequest, reply: Sequence[int], turn: Turn
    ) -> ScoredReply | EngineFault:
        client = self._client.uncounted
        if (fault := cannot_score(client, request) or await self._load_adapter(request)) is not None:
            return fault
        request = replace(
            within_its_adapter(request), max_tokens=1, max_tokens_field="max_tokens", stream=False
        )
        try:
            asked = ChatCompletionRequest(**vllm_fields(request))
            prompt = await insides.prompt_ids(self._serving, asked)
            if isinstance(prompt, ErrorResponse):
                return located(fault_of(prompt), request)
            if prompt is None:
                return EngineFault("rejected", "its prompt is more than tokens")
            room = int(client.model_config.max_model_len) - len(prompt) - 1
            if room < 1:
                return EngineFault("rejected", "the prompt leaves no room for a reply", is_too_long=True)
            adapter = insides.adapter_of(self._serving, asked)
            return await ReplyScorer(client, request, adapter, turn).score(prompt, reply[:room])
        except NotScored as error:
            return EngineFault("unavailable", str(error))
        except (VLLMClientError, ValidationError, ValueError) as error:
            return refusal(error, request)
        except (GracefulHTTPError, insides.EngineDeadError, insides.EngineGenerateError) as error:
            return EngineFault("failed", f"the engine failed while it scored a reply: {error}")

    async def _load_adapter(self, request: EngineRequest) -> EngineFault | None:
        """The request's adapter, where the engine was started without it; a fault where it cannot be."""
        if not request.adapter_folder:
            return None
        folder = request.adapter_folder
        error = await insides.load_adapter(self._serving, request.model_id, folder)
        if error is None:
            return None
        said = error.error.message
        logger.error("%s: the adapter in %s cannot be loaded: %s", request.model_id, folder, said)
        return EngineFault("unavailable", f"{request.model_id} cannot be started here at the moment")

    async def warm_up(self) -> None:
        """Answer once greedily and once sampled under a grammar, so that no caller waits for what loads lazily."""
        for number, options in enumerate(WARM_UP_OPTIONS):
            request = EngineRequest(
                f"warm-up-{number}", self._model_id, WARM_UP, 4, False, "warm-up", options
            )
            async for _ in self.generate(request):
                pass

    async def sleep(self) -> None:
        """Of an engine that was started with `enable_sleep_mode`. Weights go to the machine's memory; what runs stays,
        without its KV cache; the prefix cache is lost."""
        await self._client.sleep(level=1, mode="keep")

    async def wake(self) -> None:
        await self._client.wake_up()

    async def stop(self) -> None:
        await self._client.close()


def within_its_adapter(request: EngineRequest) -> EngineRequest:
    """The same, apart in the prefix cache from an adapter that had its name before: vLLM's cache knows it by that."""
    if not request.adapter_folder:
        return request
    return replace(request, cache_salt=f"{request.cache_salt}:{request.adapter_folder}")


class Form(Protocol):
    """One form of reply. What `pieces` and `count_tokens` raise is vLLM's."""

    def engine_ids(self, request: EngineRequest) -> Sequence[str]:
        """vLLM's ids of this request when it hands it to the engine: one for each prompt."""

    def pieces(
        self, request: EngineRequest, meter: PromptMeters
    ) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        """The reply, as `models.engine.ReplicaEngine.generate` yields it."""

    async def count_tokens(
        self, request: EngineRequest, *, turns: asyncio.Lock | None
    ) -> int | ErrorResponse:
        """The prompt's tokens as `pieces` would have them read; `turns` as in `models.vllm.insides.prompt_tokens`."""


def forms_of(serving_chat: Any, client: Any) -> Mapping[ReplyFormName, Form]:
    """The forms that this engine offers. `client` is what is called in the engine's place."""
    insides.read_right(serving_chat)
    insides.read_whole_replies(serving_chat)
    return {
        "chat": ChatForm(serving_chat, client),
        "completion": CompletionForm(serving_chat, client),
        "message": MessageForm(serving_chat, client),
        "response": ResponseForm(serving_chat, client),
    }
