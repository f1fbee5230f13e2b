"""`/openai/v1/completions`: one prompt or many, as texts or as tokens, in one request and on one bill."""

from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import ConfigDict, Field, PlainValidator, field_validator
from pydantic_core import PydanticCustomError
from starlette.responses import Response

from models.errors import InvalidField, UnsupportedOption
from models.options.options import USED
from serve.chat.message_shapes import ResponseFormat, StreamOptions
from serve.chat.reply import ChatReply
from serve.chat.request import AskedChat, LogitBias, ManyStops, Penalty, Probability
from serve.chat.service import ChatService
from serve.dialects.documentation import GENERATING, OpenAICompletion, openai_operation, with_meanings
from serve.dialects.openai.chat_completions import (
    MAX_CHOICES,
    MAX_LISTED,
    MAX_TOKENS_BOUND,
    OpenAIChatForm,
    asks_for_usage,
    without_neutral,
)
from serve.http.auth import Authenticate, authenticated_request
from serve.http.openapi import BEARER
from serve.http.replies import PlainRoute
from serve.http.request_body import MAX_TOKEN_IDS, RequestShape

DEFAULT_MAX_TOKENS = 16
MAX_PROMPTS = 128
MAX_TOKEN_ID = 2**31 - 1
MAX_LOGPROBS = 20
# Of a prompt whose own tokens are scored: for each the engine needs a row of its vocabulary, beyond what it set aside.
MAX_SCORED, MAX_SCORED_BYTES = 4096, 16_384
# What only completions know, besides the prompts; everything else is an option of chats too.
FORM_OPTIONS = ("echo", "logprobs")
HANDLED = {"prompt", "model", "max_tokens", "stream", "suffix", "best_of", *FORM_OPTIONS}

Prompt = str | tuple[int, ...]


def _prompts(value: Any) -> list[Prompt]:
    """One prompt or a list of them, each a text or a list of token ids."""
    many = [value] if isinstance(value, str) or _is_tokens(value) else value
    if not isinstance(many, list) or not many:
        message = "Input should be a text, a list of token ids, or a list of at least one of these"
        raise PydanticCustomError("prompt_type", message)
    if len(many) > MAX_PROMPTS:
        bound = {"max_length": MAX_PROMPTS}
        raise PydanticCustomError("too_long", "A request can have at most {max_length} prompts", bound)
    return [_prompt(each) for each in many]


def _is_tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], int)


def _prompt(value: Any) -> Prompt:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list) and value:
        if all(type(token) is int and 0 <= token <= MAX_TOKEN_ID for token in value):
            return tuple(value)
        raise PydanticCustomError("prompt_type", "Token ids should be integers of at least 0")
    raise PydanticCustomError(
        "prompt_type", "A prompt should be a text or a list of token ids, and not empty"
    )


Prompts = Annotated[
    list[Prompt],
    PlainValidator(_prompts, json_schema_input_type=str | list[str] | list[int] | list[list[int]]),
]


class CompletionRequest(RequestShape):
    """Prompts to continue, as OpenAI's clients send them. `null` counts as absent."""

    model_config = ConfigDict(extra="allow", json_schema_extra=with_meanings)

    prompt: Prompts = Field(description="A text, a list of token ids, or up to 128 of them.")
    model: str | None = Field(default=None, max_length=256)
    max_tokens: int = Field(default=DEFAULT_MAX_TOKENS, ge=0, le=MAX_TOKENS_BOUND)
    stream: bool = False
    stream_options: StreamOptions | None = None
    echo: bool | None = None
    logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    suffix: str | None = None
    best_of: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: Probability | None = None
    top_k: int | None = Field(default=None, ge=-1, le=2**31 - 1)
    min_p: Probability | None = None
    n: int | None = Field(default=None, ge=1, le=MAX_CHOICES)
    stop: ManyStops | None = None
    seed: int | None = Field(default=None, ge=-(2**63), le=2**63 - 1)
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: float | None = Field(default=None, ge=0.01, le=10)
    logit_bias: LogitBias | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: dict[str, Any] | None = None
    min_tokens: int | None = Field(default=None, ge=0, le=MAX_TOKENS_BOUND)
    ignore_eos: bool | None = None

    @field_validator("stream_options")
    @classmethod
    def _only_in_a_stream(cls, value: StreamOptions, info: Any) -> StreamOptions:
        if info.data.get("stream") is False:
            raise PydanticCustomError("needs_stream", "Only allowed when stream is true")
        return value

    def asked(self) -> AskedChat:
        """Raises `InvalidField` or `UnsupportedOption` for what cannot be had together, or not at all."""
        _refuse(self)
        given = without_neutral(self.model_dump(exclude=HANDLED, exclude_unset=True))
        # A chat's options that a completion does not have are no options here, and count as unknown.
        others = {name for name in self.model_extra or () if name in USED - {"service_tier"}}
        form_options = {name: getattr(self, name) for name in FORM_OPTIONS if name in self.model_fields_set}
        return AskedChat(
            model=self.model,
            stream=self.stream,
            options={name: value for name, value in given.items() if name not in others},
            prompts=self.prompt,
            token_limit=self.max_tokens,
            takes_constraints=True,
            form="completion",
            form_options=form_options,
        )


def _refuse(body: CompletionRequest) -> None:
    choices = body.n or 1
    if body.suffix:
        raise UnsupportedOption("suffix", "no model here inserts text before a suffix")
    if body.best_of is not None and body.best_of < choices:
        raise InvalidField(("best_of",), f"must not be less than n, which is {choices}")
    if body.best_of is not None and body.best_of > choices:
        raise UnsupportedOption(
            "best_of", "every completion that is generated is returned: omit it, or send n"
        )
    if not body.max_tokens and not body.echo:
        raise InvalidField(("max_tokens",), "must be at least 1, unless echo is true")
    if body.min_tokens is not None and body.min_tokens > body.max_tokens:
        raise InvalidField(("min_tokens",), f"must not exceed max_tokens, which is {body.max_tokens}")
    if body.stream and body.echo and body.logprobs is not None and choices > 1:
        raise UnsupportedOption("echo", "a stream of several choices has no log probabilities of the prompt")
    if body.echo and body.logprobs is not None and any(map(_is_long, body.prompt)):
        message = (
            f"with echo, the log probabilities of a prompt of at most {MAX_SCORED} tokens, or "
            f"{MAX_SCORED_BYTES} bytes of text, can be had: the engine computes them all at once"
        )
        raise InvalidField(("logprobs",), message, kind="too_much")
    if _listed(body) > MAX_LISTED:
        field = "echo" if body.logprobs is None else "logprobs"
        message = f"the reply could repeat or list more than {MAX_LISTED} values; ask for less, or in several requests"
        raise InvalidField((field,), message, kind="too_much")


def _is_long(prompt: Prompt) -> bool:
    return len(prompt.encode()) > MAX_SCORED_BYTES if isinstance(prompt, str) else len(prompt) > MAX_SCORED


def _listed(body: CompletionRequest) -> int:
    """An upper bound of what a reply lists beyond what it generates; a byte of a text counts as a token."""
    choices, at_each = body.n or 1, 1 if body.logprobs is None else body.logprobs + 1
    sizes = [len(prompt.encode() if isinstance(prompt, str) else prompt) for prompt in body.prompt]
    repeated = sum(sizes) * choices if body.echo else 0
    generated = body.max_tokens * len(sizes) * choices if body.logprobs is not None else 0
    return (repeated + generated) * at_each


def completion_routes(service: ChatService, authenticate: Authenticate) -> APIRouter:
    """The route; what it does is `ChatService`'s."""
    routes = APIRouter(prefix="/openai/v1", tags=["openai"], dependencies=[BEARER], route_class=PlainRoute)

    @routes.post(
        "/completions",
        **openai_operation(
            "completions/create", *GENERATING, 503, body=CompletionRequest, reply=OpenAICompletion
        ),
    )
    async def create_completion(request: Request) -> Response:
        """Continues up to 128 prompts, `n` times each. All of them are one request and one bill."""
        caller, body = await authenticated_request(
            request, authenticate, CompletionRequest, most=MAX_TOKEN_IDS
        )
        chat = service.prepare(caller, body.asked())
        form = OpenAIChatForm(includes_usage=asks_for_usage(body.stream_options))
        return ChatReply(service, caller, chat, request.state.request_id, form)

    return routes
