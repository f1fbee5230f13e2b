"""A request's prompt in vLLM's words: fields and options, template and tokenizer, and prompts that are only counted."""

import asyncio
import copy
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache
from vllm.renderers.hf import HfRenderer, resolve_chat_template, resolve_chat_template_content_format

from models.counted_tokens import PromptSource
from models.engine import CONTINUES, EngineRequest, PromptMaking
from models.structured_outputs import OPTIONS, constraint_of, engine_constraint

# vLLM takes temperatures below 1e-5 for greedy sampling, and lifts those below 0.01 to that.
GREEDY_BELOW = 1e-5
COLDEST = 0.01
# vLLM wants top_p above 0; the likeliest token is kept however small it is.
SMALLEST_TOP_P = 1e-6
# vLLM reads -1 as "no seed"; the contract's seed repeats whatever it is, so -1 is mapped to another number.
NO_SEED = -1
STAND_IN_SEED = 2**62 + 1
# What no parameters mean: vLLM would let a call have any JSON for arguments, a string too.
NO_PARAMETERS = {"type": "object", "properties": {}}
# A few hundredths of a second: what another prompt waits at most.
PIECE_CHARS = 64 * 1024
# A prompt of so many characters takes a few tenths of a millisecond: the event loop can spare that, and its thread need
# not change places with another three times.
SHORT_CHARS = 1024
PLAIN_FIELDS = frozenset({"role", "content"})
TOKENIZER_FILE = "tokenizer.json"
_WEIGHTY = OPTIONS | {"tools", "response_format", "logit_bias"}
# Where a piece may end: this far from its end, or anywhere if there is no good place.
SEARCHED_CHARS = 4096
# After a line, or before a space between words. Byte-level tokenizers split there before they merge anything: their
# pieces have exactly the tokens of the whole. For others a cut may cost a token.
_BOUNDARY = re.compile(r"(?<=\S\n)(?=\w)|(?<=\w)(?= \w)")


def vllm_fields(request: EngineRequest) -> dict[str, Any]:
    """The fields of vLLM's `ChatCompletionRequest`."""
    fields: dict[str, Any] = {
        "model": request.model_id,
        "messages": [dict(message) for message in request.messages],
        "stream": request.stream,
        "cache_salt": request.cache_salt,
        "request_id": request.request_id,
    }
    # Without a limit the engine takes what the prompt leaves, and its meter holds it to the default.
    if request.max_tokens_field is not None:
        fields[request.max_tokens_field] = request.max_tokens
    if request.form_options.get(CONTINUES):
        fields |= {"continue_final_message": True, "add_generation_prompt": False}
    return fields | vllm_options(request)


def vllm_options(request: EngineRequest) -> dict[str, Any]:
    """A request's options as vLLM takes them; what is sampled stays the same."""
    options = dict(request.options)
    if not request.stream:
        options.pop("stream_options", None)
    if options.get("top_p") == 0:
        options["top_p"] = SMALLEST_TOP_P
    if options.get("n", 1) > 1 and options.get("temperature", 1) < GREEDY_BELOW:
        # vLLM samples no two choices greedily, but does sample them among the one likeliest token.
        options |= {"temperature": COLDEST, "top_k": 1}
    if options.get("seed") == NO_SEED:
        options["seed"] = STAND_IN_SEED
    if (constraint := constraint_of(options)) is not None:
        options.pop(constraint.loc[0])
        options["structured_outputs"] = engine_constraint(constraint)
    if "tools" in options:
        options["tools"] = [
            {**tool, "function": _held_to_its_schema(tool["function"])} for tool in options["tools"]
        ]
    return options


def _held_to_its_schema(function: Mapping[str, Any]) -> dict[str, Any]:
    """A call that the caller demands fits the function's schema. `strict: false` would let vLLM make it any JSON."""
    kept = {name: value for name, value in function.items() if name != "strict" or value}
    return {**kept, "parameters": function.get("parameters") or NO_PARAMETERS}


def prompt_making(serving_chat: Any) -> PromptMaking | None:
    """Template and tokenizer of plain requests; None where vLLM uses more than a template and a fast tokenizer."""
    online = serving_chat.online_renderer
    renderer = online.renderer
    if online.use_harmony or online.default_chat_template_kwargs or type(renderer) is not HfRenderer:
        return None
    tokenizer = renderer.get_tokenizer()
    backend = getattr(tokenizer, "backend_tokenizer", None)
    template = resolve_chat_template(
        tokenizer, chat_template=online.chat_template, tools=None, model_config=online.model_config
    )
    if backend is None or template is None:
        return None
    content_format = resolve_chat_template_content_format(
        online.chat_template,
        None,
        online.chat_template_content_format,
        tokenizer,
        model_config=online.model_config,
    )
    special = {name: str(value) for name, value in tokenizer.special_tokens_map.items() if value}
    return PromptMaking(template, content_format == "openai", special, backend.to_str())


def prompt_source(serving_chat: Any) -> Callable[[EngineRequest], PromptSource]:
    """Says of a request by which tokenizer and template its prompt is made."""
    online = serving_chat.online_renderer
    tokenizer = _tokenizer_sha256(online.model_config)
    if online.use_harmony or type(online.renderer) is not HfRenderer:
        return lambda request: PromptSource(tokenizer)
    # Some models have another template for requests with tools.
    templates = _template_sha256(online, None), _template_sha256(online, [{}])

    def source(request: EngineRequest) -> PromptSource:
        has_tools = bool(request.options.get("tools"))
        return PromptSource(tokenizer, None if request.prompts else templates[has_tools])

    return source


def _tokenizer_sha256(model_config: Any) -> str | None:
    name, revision = model_config.tokenizer, model_config.tokenizer_revision
    file = Path(name) / TOKENIZER_FILE
    if not Path(name).is_dir():
        cached = try_to_load_from_cache(name, TOKENIZER_FILE, revision=revision)
        if not isinstance(cached, str):
            return None
        file = Path(cached)
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None


def _template_sha256(online: Any, tools: list[dict[str, Any]] | None) -> str | None:
    template = resolve_chat_template(
        online.renderer.get_tokenizer(),
        chat_template=online.chat_template,
        tools=tools,
        model_config=online.model_config,
    )
    return None if template is None else hashlib.sha256(template.encode()).hexdigest()


# True in the task of a request whose prompt is short.
_SHORT: ContextVar[bool] = ContextVar("short_prompt", default=False)


def note_length(request: EngineRequest) -> None:
    """From here on the task of this request has its prompt rendered and tokenized at once if it is short."""
    _SHORT.set(_is_short(request))


def _is_short(request: EngineRequest) -> bool:
    """True for plain text alone: what media and these options cost is not seen from its length."""
    if request.prompts or request.options.keys() & _WEIGHTY:
        return False
    left = SHORT_CHARS
    for message in request.messages:
        content = message.get("content")
        # Calls, or reasoning, which has no bound of its own: some templates render it.
        if not isinstance(content, str) or message.keys() - PLAIN_FIELDS:
            return False
        left -= len(content)
        if left < 0:
            return False
    return True


class ShortAtOnce(ThreadPoolExecutor):
    """Threads that vLLM gives prompts to, which a short one need not wait for."""

    def submit(self, work: Callable[..., Any], /, *given: Any, **options: Any) -> Future[Any]:
        if not _SHORT.get():
            return super().submit(work, *given, **options)
        done: Future[Any] = Future()
        try:
            done.set_result(work(*given, **options))
        except Exception as error:
            done.set_exception(error)
        return done


def without_a_limit(online_renderer: Any, turns: asyncio.Lock) -> Any:
    """vLLM's `OnlineRenderer`, for prompts of any length whose tokens are only counted.

    `turns` is shared by all that count: a piece of each in turn.
    """
    whole = online_renderer.renderer.tokenize_prompt_async

    async def tokenized(prompt: Any, params: Any) -> Any:
        params = replace(params, max_total_tokens=None)
        text = prompt.get("prompt")
        if not isinstance(text, str) or prompt.keys() - {"prompt"}:
            # Media, or tokens already.
            return await whole(prompt, params)
        tokens = 0
        for piece in pieces_of(text):
            async with turns:
                tokens += len((await whole({"prompt": piece}, params))["prompt_token_ids"])
        return {"prompt_token_ids": range(tokens)}

    return _tokenizing_with(tokenized, online_renderer)


def one_at_a_time(online_renderer: Any) -> Any:
    """vLLM's `OnlineRenderer`, for requests of many prompts: it tokenizes one after the other, and another request's
    prompt has its turn between two of them."""
    tokenize, turns = online_renderer.renderer.tokenize_prompt_async, asyncio.Lock()

    async def tokenized(prompt: Any, params: Any) -> Any:
        async with turns:
            return await tokenize(prompt, params)

    return _tokenizing_with(tokenized, online_renderer)


def _tokenizing_with(tokenize: Callable[[Any, Any], Awaitable[Any]], online_renderer: Any) -> Any:
    """A copy with another `tokenize_prompt_async`."""
    found, renderer = copy.copy(online_renderer), copy.copy(online_renderer.renderer)
    found.renderer, renderer.tokenize_prompt_async = renderer, tokenize
    return found


def pieces_of(text: str, *, chars: int = PIECE_CHARS) -> Iterator[str]:
    """The text in pieces of at most so many characters; at least one."""
    start = 0
    while len(text) - start > chars:
        end = _boundary(text, start, start + chars)
        yield text[start:end]
        start = end
    yield text[start:]


def _boundary(text: str, start: int, end: int) -> int:
    """The last good place to cut before `end`; else `end`."""
    places = _BOUNDARY.finditer(text, max(start + 1, end - SEARCHED_CHARS), end)
    return max((place.start() for place in places), default=end)
