"""vLLM's serving layers around an engine that generates a text that it is given, whatever it is asked."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy

from models.embedded.install import ensure_checkpoints
from models.engine import EngineRequest

if TYPE_CHECKING:
    from models.vllm.engine import Form

SALT = "salt"


def checkpoint_with(folder: Path, special: Sequence[str]) -> Path:
    """An embedded checkpoint whose tokenizer has these texts for tokens of their own."""
    made = ensure_checkpoints(folder)["pith-mini"]
    tokenizer = made / "tokenizer.json"
    fields = json.loads(tokenizer.read_text())
    added = fields["added_tokens"]
    free = max(fields["model"]["vocab"].values()) + 1
    known = {token["content"] for token in added}
    for number, text in enumerate(word for word in special if word not in known):
        added.append({**added[-1], "id": free + number, "content": text})
    tokenizer.write_text(json.dumps(fields))
    return made


class ReplayedEngine:
    """What vLLM's layers call an engine client. It hands out one token after the other, or `at_once` of them as a busy
    machine does, through vLLM's own output processor, until the text or the limit on tokens is reached."""

    errored = False

    def __init__(self, vllm_config: Any) -> None:
        from vllm.renderers import renderer_from_config
        from vllm.v1.engine.input_processor import InputProcessor
        from vllm.v1.engine.output_processor import OutputProcessor

        self.vllm_config, self.model_config = vllm_config, vllm_config.model_config
        self.renderer = renderer_from_config(vllm_config)
        self.input_processor = InputProcessor(vllm_config, self.renderer)
        self.output_processor = OutputProcessor(self.renderer.tokenizer, log_stats=False)
        self.tokens: list[int] = []
        self.at_once = 1
        self.handed_out = 0

    def will_say(self, text: str) -> int:
        """How many tokens that is, with the one that ends it."""
        tokenizer = self.renderer.tokenizer
        self.tokens = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
        return len(self.tokens)

    def check_admission(self, choices: int) -> None:
        """There is always room."""

    async def generate(
        self, prompt: Any, sampling_params: Any, request_id: str, **options: Any
    ) -> AsyncGenerator[Any, None]:
        from vllm.v1.engine import EngineCoreOutput, FinishReason

        processor = self.output_processor
        ids = self._added(processor, prompt, sampling_params, request_id)
        tokens = self.tokens[: sampling_params.max_tokens]
        for begin in range(0, len(tokens), self.at_once):
            some, reason = tokens[begin : begin + self.at_once], None
            if begin + len(some) == len(tokens):
                reason = FinishReason.STOP if len(tokens) == len(self.tokens) else FinishReason.LENGTH
            for each in ids:
                likely = None if sampling_params.logprobs is None else as_likely_as_any(some[0])
                made = EngineCoreOutput(each, some, new_logprobs=likely, finish_reason=reason)
                for output in processor.process_outputs([made]).request_outputs:
                    self.handed_out += 1
                    yield output

    def _added(self, processor: Any, prompt: Any, sampling_params: Any, request_id: str) -> list[str]:
        from vllm.v1.engine import EngineCoreRequest
        from vllm.v1.engine.parallel_sampling import ParentRequest

        request = EngineCoreRequest(
            request_id=request_id,
            prompt_token_ids=prompt["prompt_token_ids"],
            mm_features=None,
            sampling_params=sampling_params,
            pooling_params=None,
            arrival_time=0.0,
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
            external_req_id=request_id,
        )
        if sampling_params.n == 1:
            processor.add_request(request, None)
            return [request_id]
        parent, ids = ParentRequest(request), []
        for index in range(sampling_params.n):
            request.request_id, request.sampling_params = parent.get_child_info(index)
            processor.add_request(request, None, parent, index)
            ids.append(request.request_id)
        return ids


def as_likely_as_any(token: int) -> Any:
    from vllm.v1.outputs import LogprobsLists

    return LogprobsLists(numpy.array([[token]]), numpy.array([[-1.0]]), numpy.array([1]))


async def anything(*_: Any) -> None:
    """In the place of a grammar's trial."""


class ReplayedReplies:
    """Every form of reply to what a replayed engine says, read by the parsers of these names."""

    def __init__(self, engine: ReplayedEngine, *, tool_parser: str, reasoning_parser: str = "") -> None:
        from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
        from vllm.entrypoints.openai.models.protocol import BaseModelPath
        from vllm.entrypoints.openai.models.serving import OpenAIServingModels
        from vllm.renderers.online_renderer import OnlineRenderer

        from models.vllm.counting_client import CountingClient
        from models.vllm.engine import forms_of

        parsers = {"tool_parser": tool_parser, "reasoning_parser": reasoning_parser}
        template = {"chat_template": None, "chat_template_content_format": "auto", "enable_auto_tools": True}
        self.engine = engine
        self.client = CountingClient(engine, SimpleNamespace(check=anything))  # type: ignore[arg-type]
        serving = OpenAIServingChat(
            self.client,
            OpenAIServingModels(self.client, [BaseModelPath("m", "m")]),
            "assistant",
            online_renderer=OnlineRenderer(
                engine.model_config, engine.renderer, request_logger=None, **template, **parsers
            ),
            request_logger=None,
            **template,
            **parsers,
        )
        self.forms = forms_of(serving, self.client)

    async def data(self, request: EngineRequest) -> bytes:
        """All that a caller gets."""
        from models.vllm.counting_client import meters_of

        form: Form = self.forms[request.form]
        meter = meters_of(request, form.engine_ids(request), self.client, places=4)
        self.client.meters |= meter.parts
        self.client.requests |= dict.fromkeys(meter.parts, request)
        return b"".join([piece.data async for piece in form.pieces(request, meter)])
