"""Names of vLLM that vLLM does not promise to keep: the one module that uses them, with the reason for each.

`tests/models/vllm/test_insides.py` reads the pinned vLLM's source and says which of them no longer means what is relied
on here. Part of this rim are `prompts.py`, which reads the renderer's settings and tokenizes with it;
`core_imports.py`, which loads modules and uses nothing of them; `core_process.py`, which foresees what vLLM will set;
`reply_reading.py`, which stands before vLLM's parsers; `going_on.py`, which primes its detokenizer; and `plugin.py`,
which vLLM calls in its cores and workers.
"""

import asyncio
import copy
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from vllm import envs
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorProm
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion
from vllm.entrypoints.openai.models.protocol import LoRAModulePath
from vllm.entrypoints.openai.responses.serving import OpenAIServingResponses
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.entrypoints.serve.lora.protocol import LoadLoRAAdapterRequest, UnloadLoRAAdapterRequest
from vllm.exceptions import VLLMError
from vllm.parser.abstract_parser import DelegatingParser
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError
from vllm.v1.metrics import loggers
from vllm.v1.metrics.perf import PerfMetricsProm
from vllm.v1.spec_decode.metrics import SpecDecodingProm
from vllm.v1.structured_output.backend_types import StructuredOutputOptions
from vllm.v1.structured_output.request import get_structured_output_key

from models.errors import UnrenderablePrompt
from models.vllm.prompts import ShortAtOnce, one_at_a_time, without_a_limit
from models.vllm.reply_reading import read_reply, reading_right

__all__ = ["EngineDeadError", "EngineGenerateError", "StructuredOutputOptions"]

_logger = logging.getLogger("pith.engine")


def replace_engine_client(client: Any, serving_chat: Any) -> None:
    """Let vLLM's OpenAI layer call `client` where it would call its engine (`OpenAIServingChat.engine_client`).

    Without it no output is counted before it becomes text: a caller who leaves is billed for no completion tokens.
    """
    serving_chat.engine_client = client


def engine_id(request_id: str) -> str:
    """The id that vLLM's OpenAI layer gives a request for the engine. Without it no output finds its meter."""
    return f"chatcmpl-{request_id}"


def serving_completion(serving_chat: Any, client: Any) -> Any:
    """vLLM's completions around `client`, with what its chat has (`OpenAIServingChat.models`, `.online_renderer`).

    Ray Serve LLM has one of its own, which calls the engine itself. Without ours no completion is counted.
    """
    renderer = one_at_a_time(serving_chat.online_renderer)
    return OpenAIServingCompletion(client, serving_chat.models, online_renderer=renderer, request_logger=None)


def completion_engine_id(request_id: str, prompt: int) -> str:
    """The id that vLLM's OpenAI layer gives one prompt of a completion. Without it no output finds its meter."""
    return f"cmpl-{request_id}-{prompt}"


def message_converters() -> Any:
    """vLLM's translation of a chat completion into Anthropic's message, without the serving layer around it, which
    would render the prompt from Anthropic's request. Its two methods read `stop_reason_map` alone."""
    converters = AnthropicServingMessages.__new__(AnthropicServingMessages)
    converters.stop_reason_map = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
    return converters


def response_engine_id(response_id: str) -> str:
    """The same of `OpenAIServingResponses._generate_with_builtin_tools`, which numbers a response's turns; here each
    has one, since no tool of vLLM's own is offered."""
    return f"{response_id}_0"


class RenderedResponses(OpenAIServingResponses):  # type: ignore[misc]
    """vLLM's Responses API for requests that are rendered already, as chat completions are (`._make_request`,
    `._make_request_with_harmony`). Without it a prompt could differ from the one that was counted and held for."""

    chat: Any

    async def _make_request(self, request: Any, prev_response: Any) -> Any:
        return request.rendered

    def _make_request_with_harmony(self, request: Any, prev_response: Any) -> Any:
        return request.rendered

    def _make_response_parser(self, request: Any, tokenizer: Any, chat_template_kwargs: Any) -> Any:
        """The parser of the same request as a chat completion: some parsers know the tools of no other."""
        if self.parser is None:
            return None
        parser = reply_parser(self.chat, request.chat)
        read = parser.parse_delta
        parser.parse_delta = lambda **given: read(**{**given, "request": request.chat})
        return parser

    def _make_response_output_items(self, request: Any, *given: Any, **options: Any) -> Any:
        """The items are those that were streamed: vLLM reads the whole text again, and gives them other ids."""
        return []


def responses_layer(serving_chat: Any, client: Any) -> RenderedResponses:
    """With the settings of vLLM's chat completions; Ray Serve LLM keeps none of the Responses API at hand."""
    layer = RenderedResponses(
        client,
        serving_chat.models,
        serving_chat.online_renderer,
        request_logger=None,
        chat_template=serving_chat.chat_template,
        chat_template_content_format=serving_chat.chat_template_content_format,
        enable_auto_tools=serving_chat.enable_auto_tools,
        default_chat_template_kwargs=serving_chat.default_chat_template_kwargs,
    )
    layer.parser, layer.chat = serving_chat.parser_cls, serving_chat
    return layer


def read_whole_replies(serving_chat: Any) -> None:
    """Let `read_reply` stand before `OpenAIServingChat.chat_completion_full_generator`. Without it a reply in one piece
    is read by other code than a stream of the same tokens, and has its calls where that finds none."""
    answer = type(serving_chat).chat_completion_full_generator.__get__(serving_chat)
    new_parser = partial(reply_parser, serving_chat)
    serving_chat.chat_completion_full_generator = partial(read_reply, answer, new_parser)


def read_right(serving_chat: Any) -> None:
    """Let parsers of `models.vllm.reply_reading` take the place of vLLM's (`.parser_cls`). Without it a
    reply has broken calls where vLLM misreads its stream."""
    if serving_chat.parser_cls is not None:
        serving_chat.parser_cls = reading_right(serving_chat.parser_cls)


def reply_parser(serving_chat: Any, request: Any) -> Any:
    """The reader of one choice of a stream (`OpenAIServingChat.parser_cls`, `._effective_chat_template_kwargs`).
    Without it none could read a reply in one piece."""
    return serving_chat.parser_cls(
        serving_chat.renderer.tokenizer,
        request.tools,
        chat_template_kwargs=serving_chat._effective_chat_template_kwargs(request),
        model_config=serving_chat.model_config,
    )


def has_markup(serving_chat: Any, request: Any) -> bool:
    """True where a reply to this request may be more than its text (`DelegatingParser`, which passes on what it has no
    parser for). Without it every reply in one piece is read token by token."""
    parser = serving_chat.parser_cls
    if parser is None or request.tools:
        return parser is not None
    engine_based = getattr(parser.tool_parser_cls, "engine_based_streaming", False)
    return bool(parser.reasoning_parser_cls or engine_based or not issubclass(parser, DelegatingParser))


def tells_reasoning(serving_chat: Any) -> bool:
    """True where a reasoning parser counts what is no answer (`OpenAIServingChat._include_reasoning_tokens_details`).
    Without it `completion_tokens_details` would be missing, or a stream of any model have an event more."""
    return bool(serving_chat._include_reasoning_tokens_details)


def refuse_what_cannot_be_rendered(serving_chat: Any) -> None:
    """Let whatever a template, a tokenizer or a tool parser raises over a conversation refuse that request
    (`OpenAIServingChat.online_renderer`). Without it a `TypeError` looks like an engine that has died.

    vLLM logs each template's error with its traceback before it raises it: the caller is told, so nobody else is.
    """
    renderer = copy.copy(serving_chat.online_renderer)
    kind: Any = type(renderer)
    # Of the class, so that a copy with another tokenizer (`prompts.without_a_limit`) renders with its own.
    methods = {
        "render_chat": _refusing(kind.render_chat, "messages"),
        "render_completion": _refusing(kind.render_completion, "prompt"),
    }
    renderer.__class__ = type(kind.__name__, (kind,), methods)
    serving_chat.online_renderer = renderer
    logging.getLogger("vllm.renderers.hf").addFilter(_is_no_template_error)


def render_short_prompts_at_once(serving_chat: Any) -> None:
    """Let short prompts be rendered and tokenized in the event loop (`BaseRenderer._executor`). Without it each changes
    threads three times."""
    serving_chat.online_renderer.renderer._executor.__class__ = ShortAtOnce


def _refusing(render: Callable[..., Any], field: str) -> Callable[..., Any]:
    async def rendered(*given: Any, **options: Any) -> Any:
        try:
            return await render(*given, **options)
        except (ValueError, VLLMError, OSError, MemoryError):
            # Told already, or nothing that the request has done.
            raise
        except Exception as error:
            if type(error) is RuntimeError:
                # As of a tokenizer that is in use, or of threads that have ended.
                raise
            _logger.warning("a prompt could not be rendered: %s: %.200s", type(error).__name__, error)
            raise UnrenderablePrompt(field) from None

    return rendered


def _is_no_template_error(record: logging.LogRecord) -> bool:
    return "applying chat template" not in str(record.msg)


def states_of(engine_client: Any, external_id: str) -> Iterator[Any]:
    """The running choices of a request in `AsyncLLM.output_processor`.

    Without it a reply that is not streamed has no usage until it ends.
    """
    processor = engine_client.output_processor
    # `get`, since the first is a `defaultdict`, which would grow.
    for internal_id in processor.external_req_ids.get(external_id, ()):
        state = processor.request_states.get(internal_id)
        if state is not None and state.detokenizer is not None:
            yield state


def ended_choices(state: Any) -> Iterator[Any]:
    """Choices that have ended wait with their parent for the last one (`ParentRequest.output_aggregator`), and are
    nowhere else. Without it they would not be billed when a client leaves."""
    aggregated = state.parent_req.output_aggregator if state.parent_req is not None else ()
    return (choice for choice in aggregated if choice is not None)


async def prompt_tokens(
    serving: Any, request: ChatCompletionRequest | CompletionRequest, *, turns: asyncio.Lock | None
) -> int | ErrorResponse:
    """The length of a request's prompts as a generation would have them (`.online_renderer`, `._extract_prompt_len` of
    vLLM's chat completions and completions).

    `turns` is what those share that count prompts of any length; None: one that is too long is refused. Without it
    nothing can be held for exactly what a prompt costs.
    """
    renderer = serving.online_renderer
    if turns is not None:
        renderer = without_a_limit(renderer, turns)
    rendered = await _rendered(renderer, request)
    if isinstance(rendered, ErrorResponse):
        return rendered
    return sum(map(serving._extract_prompt_len, rendered))


async def prompt_ids(serving: Any, request: ChatCompletionRequest) -> Sequence[int] | ErrorResponse | None:
    """The tokens of a chat's prompt, rendered as `prompt_tokens` does; None where it is more than tokens. Without it no
    reply could be scored after another prompt."""
    rendered = await _rendered(serving.online_renderer, request)
    if isinstance(rendered, ErrorResponse):
        return rendered
    (prompt,) = rendered
    return prompt["prompt_token_ids"] if prompt.get("type") == "token" else None


async def _rendered(renderer: Any, request: ChatCompletionRequest | CompletionRequest) -> Any:
    """The prompts. `skip_mm_cache`: media that were only counted must not stand in the cache as sent to the engine."""
    is_chat = isinstance(request, ChatCompletionRequest)
    render = renderer.render_chat if is_chat else renderer.render_completion
    rendered = await render(request, skip_mm_cache=True)
    return rendered[1] if is_chat and not isinstance(rendered, ErrorResponse) else rendered


def adapter_of(serving: Any, request: ChatCompletionRequest) -> Any:
    """The adapter that vLLM's OpenAI layer runs a request with (`._maybe_get_adapters`); None: the model itself.
    Without it an adapter's reply would be scored by another model."""
    return serving._maybe_get_adapters(request, supports_default_mm_loras=True)


def block_tokens(engine_client: Any) -> int:
    """Tokens of a block of the prefix cache, which has whole blocks alone. Without it pieces of a prompt would be
    computed again and again."""
    return int(engine_client.vllm_config.cache_config.block_size)


def scores_are_log_probs(engine_client: Any) -> bool:
    """False where the engine was told to give logits in their place (`logprobs_mode`)."""
    return str(engine_client.model_config.logprobs_mode).endswith("_logprobs")


def places(engine_client: Any) -> int:
    """Sequences that the engine works on at once. Without it projects could not be given their shares of them."""
    return int(engine_client.vllm_config.scheduler_config.max_num_seqs)


def cache_tokens(engine_client: Any) -> int | None:
    """Tokens that the prefix cache holds, as the engine's core has measured its memory. Without it a replica would take
    for cached what has long made way."""
    config = engine_client.vllm_config.cache_config
    return config.kv_cache_size_tokens if config.enable_prefix_caching else 0


def any_whitespace(engine_client: Any) -> bool:
    """True where vLLM's JSON grammars allow free whitespace: a trial that does otherwise tries another grammar."""
    return not engine_client.vllm_config.structured_outputs_config.disable_any_whitespace


def grammar_key(structured_outputs: Any) -> tuple[StructuredOutputOptions, str]:
    """The kind and the text of the grammar that the engine would compile. Without it none is tried beforehand."""
    kind, spec = get_structured_output_key(structured_outputs)
    return kind, spec


def start_cores_with(context: Callable[[], Any]) -> None:
    """Let `context` give the `multiprocessing` context from which engine cores are started
    (`vllm.v1.engine.utils.get_mp_context`). Without it a core that died is back in half a minute, not in seconds."""
    from vllm.v1.engine import utils

    if not callable(getattr(utils, "get_mp_context", None)):
        raise RuntimeError("vllm.v1.engine.utils.get_mp_context is gone: engine cores cannot be forked")
    utils.get_mp_context = context


def read_environment_once() -> None:
    """vLLM looks its settings up in the process's environment each time it needs one, dozens of times a request, until
    it is told that they stay (`vllm.envs.enable_envs_cache`), as its cores are."""
    envs.enable_envs_cache()


def inspect_models_here() -> None:
    """Look at a model's class in this process (`vllm.model_executor.models.registry._run_in_subprocess`). vLLM has an
    interpreter of its own import vLLM and the class, so as not to touch a GPU, and keeps what it saw in the user's
    folder of caches. Without this the first start of an installation, and each with such a folder that is empty or
    cannot be written, takes six seconds longer."""
    from vllm.model_executor.models import registry

    if not callable(getattr(registry, "_run_in_subprocess", None)):
        raise RuntimeError("vllm.model_executor.models.registry._run_in_subprocess is gone")
    registry._run_in_subprocess = lambda look: look()


def lora_modules(folders: Mapping[str, Path]) -> list[LoRAModulePath]:
    """The argument by which vLLM's OpenAI layer loads adapters when it starts (`.init_static_loras`), and finds each by
    its name, which is what a request asks for as `model`. Without it there are no adapters."""
    return [LoRAModulePath(name=name, path=str(folder)) for name, folder in folders.items()]


async def load_adapter(serving_chat: Any, name: str, folder: str) -> ErrorResponse | None:
    """Let vLLM's OpenAI layer find this adapter by its name from now on (`OpenAIServingModels.lora_requests`, `.load_`
    and `.unload_lora_adapter`); an error where it cannot be loaded.

    One that comes back under a name from another folder gets another number: requests under way keep theirs.
    """
    models = serving_chat.models
    known = models.lora_requests.get(name)
    if known is not None and known.lora_path == folder:
        return None
    if known is not None:
        await models.unload_lora_adapter(UnloadLoRAAdapterRequest(lora_name=name))
    asked = LoadLoRAAdapterRequest(lora_name=name, lora_path=folder)
    failed = await models.load_lora_adapter(asked)
    loaded = models.lora_requests.get(name)
    # Another request may have had it loaded meanwhile.
    if loaded is not None and loaded.lora_path == folder:
        return None
    return failed if isinstance(failed, ErrorResponse) else None


class MetricFamilies(Protocol):
    """Makes what vLLM counts in: the arguments and methods are those of `prometheus_client`'s classes."""

    @property
    def counter(self) -> Callable[..., Any]: ...

    @property
    def gauge(self) -> Callable[..., Any]: ...

    @property
    def histogram(self) -> Callable[..., Any]: ...


def count_with(families: MetricFamilies) -> None:
    """Let the engines that this process starts from now on count in `families`, where their statistics are on: in the
    place of the logger that every engine has for Prometheus (`vllm.v1.metrics.loggers.PrometheusStatLogger`).

    Ray Serve LLM passes on no other than its own, whose names are not vLLM's. Without it an engine counts in
    `prometheus_client`, which takes microseconds for each token.
    """
    classes = {
        "_gauge_cls": staticmethod(families.gauge),
        "_counter_cls": staticmethod(families.counter),
        "_histogram_cls": staticmethod(families.histogram),
    }
    inner = {
        "_spec_decoding_cls": type("SpecDecoding", (SpecDecodingProm,), classes),
        "_kv_connector_cls": type("KVConnector", (KVConnectorProm,), classes),
        "_perf_metrics_cls": type("PerfMetrics", (PerfMetricsProm,), classes),
    }
    logger = type("CountingStatLogger", (loggers.PrometheusStatLogger,), classes | inner)
    loggers.PrometheusStatLogger = logger
