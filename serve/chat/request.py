"""The body of `POST /v1/chat/completions`: the contract's fields and the options that we use.

Options that are refused or ignored are no fields here; `models.options.options` judges them, because a refusal is a 400
and not a 422.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    PlainValidator,
    TypeAdapter,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from models.catalog import ChatModel
from models.engine import MAX_STOP_STRINGS, EngineRequest, ReplyFormName
from models.errors import InvalidField
from models.options.options import DEFAULT_TEMPERATURE
from serve.chat.message_shapes import STRICT, Message, NamedToolChoice, ResponseFormat, StreamOptions, Tool
from serve.http.request_body import RequestShape
from serve.money.held_request import MostTokens
from serve.prompt_compression.compressed_chat import PreparedPrompt
from serve.prompt_compression.options import PromptCompressionOptions

DEFAULT_MAX_TOKENS = 512
MAX_TOKENS_BOUND = 16_384
MAX_MESSAGES = 256
MAX_BIASED_TOKENS = 1024
MAX_TOOLS = 128

TokenLimit = Annotated[int, Field(ge=1, le=MAX_TOKENS_BOUND)]
Probability = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
StopString = Annotated[str, Field(min_length=1, max_length=1024)]
# The contract takes four at most, as OpenAI does; other dialects take what engines take.
StopStrings = Annotated[list[StopString], Field(max_length=4, fail_fast=True)]
ManyStopStrings = Annotated[list[StopString], Field(max_length=MAX_STOP_STRINGS, fail_fast=True)]
TokenId = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]
Bias = Annotated[float, Field(ge=-100, le=100)]
ToolChoiceWord = Literal["none", "auto", "required"]

_STOP_STRING: TypeAdapter[str] = TypeAdapter(StopString, config=STRICT)
_STOP_STRINGS: TypeAdapter[list[str]] = TypeAdapter(StopStrings, config=STRICT)
_MANY_STOP_STRINGS: TypeAdapter[list[str]] = TypeAdapter(ManyStopStrings, config=STRICT)
_BIASES: TypeAdapter[dict[str, float]] = TypeAdapter(dict[TokenId, Bias], config=STRICT)
_TOOL_CHOICE_WORD: TypeAdapter[str] = TypeAdapter(ToolChoiceWord, config=STRICT)


def _stop_strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [_STOP_STRING.validate_python(value)]
    if isinstance(value, list):
        return _STOP_STRINGS.validate_python(value)
    raise PydanticCustomError("stop_type", "Input should be a string or a list of at most 4 strings")


def _many_stop_strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [_STOP_STRING.validate_python(value)]
    if isinstance(value, list):
        return _MANY_STOP_STRINGS.validate_python(value)
    most = {"most": MAX_STOP_STRINGS}
    raise PydanticCustomError(
        "stop_type", "Input should be a string or a list of at most {most} strings", most
    )


def _biases(value: Any) -> dict[str, float]:
    # Counted before any entry is read, so that a million bad ones cost one issue.
    if isinstance(value, dict) and len(value) > MAX_BIASED_TOKENS:
        bound = {"max_length": MAX_BIASED_TOKENS}
        raise PydanticCustomError("too_long", "At most {max_length} tokens can be biased", bound)
    return _BIASES.validate_python(value)


def read_tool_choice(value: Any) -> str | dict[str, Any]:
    """A word, or the function that it names. Raises pydantic's `ValidationError`."""
    if isinstance(value, dict):
        return NamedToolChoice.model_validate(value).model_dump(exclude_unset=True)
    return _TOOL_CHOICE_WORD.validate_python(value)


Stop = Annotated[list[str], PlainValidator(_stop_strings, json_schema_input_type=StopString | StopStrings)]
ManyStops = Annotated[
    list[str], PlainValidator(_many_stop_strings, json_schema_input_type=StopString | ManyStopStrings)
]
_DocumentedBiases = Annotated[
    dict[TokenId, Bias],
    Field(max_length=MAX_BIASED_TOKENS, json_schema_extra={"additionalProperties": False}),
]
LogitBias = Annotated[dict[str, float], PlainValidator(_biases, json_schema_input_type=_DocumentedBiases)]
ToolChoice = Annotated[
    ToolChoiceWord | dict[str, Any],
    PlainValidator(read_tool_choice, json_schema_input_type=ToolChoiceWord | NamedToolChoice),
]


def _compression(value: Any) -> PromptCompressionOptions | Literal[False]:
    if value is False:
        return False
    if not isinstance(value, dict):
        raise PydanticCustomError("compression_type", "Input should be an object, or false or null for none")
    return PromptCompressionOptions.model_validate(value)


def null_turns_compression_off(body: Any) -> Any:
    """Elsewhere null counts as absent; here, absent means the project's default."""
    if isinstance(body, dict) and "compression" in body and body["compression"] is None:
        return {**body, "compression": False}
    return body


Compression = Annotated[
    PromptCompressionOptions | Literal[False],
    PlainValidator(_compression, json_schema_input_type=PromptCompressionOptions | Literal[False] | None),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedChat:
    """A conversation to answer, or prompts to continue, in whatever dialect: of the right types, and not yet held
    against a model. `form_options` are those that only the reply's form knows."""

    model: str | None
    stream: bool
    options: Mapping[str, Any]
    messages: Sequence[Mapping[str, Any]] = ()
    prompts: Sequence[str | tuple[int, ...]] = ()
    # For each choice; None: what the prompt leaves of the context.
    token_limit: int | None
    # The name under which the caller gave the limit; None where the limit only caps what is left.
    token_limit_field: Literal["max_tokens", "max_completion_tokens"] | None = "max_tokens"
    compression: PromptCompressionOptions | Literal[False] | None = False
    # Where none is asked for; None: the engine's own, which is 1 or what the model's makers say.
    default_temperature: float | None = None
    # An effort of reasoning has no effect on a model that takes none, and is not refused.
    drops_effort: bool = False
    # `structured_outputs` and `guided_*` are options.
    takes_constraints: bool = False
    # Its reply has the token ids.
    tells_tokens: bool = False
    form: ReplyFormName = "chat"
    form_options: Mapping[str, Any] = field(default_factory=dict)


# The service itself acts on these; everything else is an option for `models.options.options` to judge.
_NOT_OPTIONS = {"messages", "model", "max_tokens", "max_completion_tokens", "stream", "compression"}


class ChatCompletionRequest(RequestShape):
    """A chat to complete. `null` counts as absent; properties unknown to us have no effect."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 64},
                {"messages": [{"role": "user", "content": "Say hello."}], "temperature": 0.7, "stream": True},
            ]
        },
    )

    messages: list[Message] = Field(
        min_length=1, max_length=MAX_MESSAGES, description="The conversation so far, oldest first."
    )
    model: str | None = Field(
        default=None, max_length=256, description="A catalog id. Default: the catalog's first model."
    )
    max_tokens: TokenLimit = Field(
        default=DEFAULT_MAX_TOKENS, description="Maximum tokens to generate for each choice."
    )
    max_completion_tokens: TokenLimit | None = Field(
        default=None,
        description="OpenAI's newer name for `max_tokens`; it takes precedence if both are given.",
    )
    temperature: float = Field(
        default=0, ge=0, le=2, description="Randomness of the sampling; 0 always takes the likeliest token."
    )
    stream: bool = Field(default=False, description="True answers with server-sent events.")
    stream_options: StreamOptions | None = Field(default=None, description="Needs `stream: true`.")
    top_p: Probability | None = Field(
        default=None, description="Samples among the likeliest tokens that hold this share of probability."
    )
    top_k: int | None = Field(
        default=None, ge=-1, le=2**31 - 1, description="Samples among this many tokens; 0 or -1: among all."
    )
    min_p: Probability | None = Field(
        default=None, description="Drops tokens below this share of the likeliest one's probability."
    )
    n: int | None = Field(default=None, ge=1, le=8, description="Choices to generate; each is billed.")
    stop: Stop | None = Field(
        default=None, description="A text, or up to 4, at which generation ends; 1 to 1024 characters each."
    )
    seed: int | None = Field(
        default=None, ge=-(2**63), le=2**63 - 1, description="Makes sampling repeatable on the same server."
    )
    presence_penalty: Penalty | None = Field(default=None, description="Makes used tokens less likely.")
    frequency_penalty: Penalty | None = Field(
        default=None, description="Makes tokens less likely by how often they were used."
    )
    repetition_penalty: float | None = Field(
        default=None, ge=0.01, le=10, description="Divides the score of tokens already seen; 1 has no effect."
    )
    logit_bias: LogitBias | None = Field(
        default=None, description="Token id (as a string) to a bias of -100 to 100; at most 1024 tokens."
    )
    logprobs: bool | None = Field(default=None, description="True returns each token's log probability.")
    top_logprobs: int | None = Field(
        default=None,
        ge=0,
        le=20,
        description="Likeliest tokens to list at a position; needs `logprobs: true`.",
    )
    response_format: ResponseFormat | None = Field(default=None, description="The form of the reply.")
    tools: list[Tool] | None = Field(
        default=None, max_length=MAX_TOOLS, description="Functions to offer, if the model supports tools."
    )
    tool_choice: ToolChoice | None = Field(
        default=None, description="Whether the model may, must or must not call a tool, or which one it must."
    )
    parallel_tool_calls: bool | None = Field(
        default=None, description="Whether the model may make several tool calls."
    )
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = Field(
        default=None, description="How much to reason before the reply, if the model supports it."
    )
    min_tokens: int | None = Field(
        default=None, ge=0, le=MAX_TOKENS_BOUND, description="Generates at least this many tokens."
    )
    ignore_eos: bool | None = Field(
        default=None, description="Keeps generating past the model's end of text; for load tests."
    )
    service_tier: str | None = Field(default=None, description="`flex` or `priority`, if offered.")
    compression: Compression | None = Field(
        default=None,
        description="Compresses long parts of the prompt on their way to the model: tool results, and text parts with "
        "`compress: true`. `null` or `false` turns the project's default off.",
    )
    include: list[Literal["token_ids"]] | None = Field(
        default=None,
        max_length=8,
        description="`token_ids` has the reply's `service` tell `tokens`: the ids and what the usage event commits to.",
    )

    _null_turns_compression_off = model_validator(mode="before")(null_turns_compression_off)

    @field_validator("stream_options")
    @classmethod
    def _only_in_a_stream(cls, value: StreamOptions, info: ValidationInfo) -> StreamOptions:
        if info.data.get("stream") is False:
            raise PydanticCustomError("needs_stream", "Only allowed when stream is true")
        return value

    @field_validator("top_logprobs")
    @classmethod
    def _only_with_logprobs(cls, value: int, info: ValidationInfo) -> int:
        if value and not info.data.get("logprobs", "invalid"):
            raise PydanticCustomError("needs_logprobs", "Only allowed when logprobs is true")
        return value

    @field_validator("min_tokens")
    @classmethod
    def _within_the_limit(cls, value: int, info: ValidationInfo) -> int:
        limit = info.data.get("max_completion_tokens") or info.data.get("max_tokens")
        if limit is not None and value > limit:
            message = "Must not exceed the token limit of {limit}"
            raise PydanticCustomError("above_max_tokens", message, {"limit": limit})
        return value

    @property
    def token_limit(self) -> int | None:
        """The most tokens for each choice: `max_completion_tokens`, else `max_tokens`. None: what is left."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def token_limit_field(self) -> Literal["max_tokens", "max_completion_tokens"] | None:
        """The name under which the caller gave the limit; None if the caller gave none, and the default applies."""
        if self.max_completion_tokens is not None:
            return "max_completion_tokens"
        return "max_tokens" if "max_tokens" in self.model_fields_set else None

    def asked(self) -> AskedChat:
        """The chat that it asks for. Raises what `option_fields` raises."""
        return AskedChat(
            model=self.model,
            stream=self.stream,
            options=self.option_fields(),
            messages=self.message_fields(),
            token_limit=self.token_limit,
            token_limit_field=self.token_limit_field,
            compression=self.compression,
            default_temperature=DEFAULT_TEMPERATURE,
            tells_tokens=bool(self.include),
        )

    def option_fields(self) -> dict[str, Any]:
        """The fields that the caller set beyond the conversation, the model, the token limit and `stream`."""
        return self.model_dump(exclude=_NOT_OPTIONS | {"include"}, exclude_unset=True)

    def message_fields(self) -> list[dict[str, Any]]:
        """The messages as the caller sent them, extra properties included."""
        return [message.fields() for message in self.messages]


# What usage events call the request, by the form of its reply.
_ROUTES: Mapping[ReplyFormName, str] = {
    "chat": "chat",
    "completion": "completions",
    "response": "responses",
    "message": "messages",
}
# A log probability in a reply's JSON: the shortest there is of each form, and more than nearly any has.
_SHORTEST = len('{"token":"","logprob":0.0,"bytes":[]}')
LEAST_LISTED_BYTES: Mapping[ReplyFormName, int] = {
    "chat": _SHORTEST,
    "completion": len('"":0.0,'),
    "response": _SHORTEST,
    "message": _SHORTEST,
}
LIKELY_LISTED_BYTES = 128


@dataclass(frozen=True, slots=True)
class PreparedChat:
    """A request that passed every check that needs no ledger and no engine."""

    model: ChatModel
    request: EngineRequest
    # A count that the prompt's tokens cannot pass, and the one that they have at least.
    prompt_tokens_bound: int
    asked: AskedChat
    # None if compression was not asked for.
    prompt: PreparedPrompt | None = None
    # Those of a reply that is written down.
    most_bytes: int | None = None

    @property
    def route(self) -> str:
        return _ROUTES[self.request.form]

    @property
    def bound(self) -> MostTokens:
        """The worst case of any prompt within the bound: the shortest one leaves most room for the reply."""
        return MostTokens(self.prompt_tokens_bound, self._completion(1))

    @property
    def least(self) -> MostTokens:
        """The tokens that it asks for with the shortest of prompts; of a default, one token is enough."""
        sequences = self.request.sequences
        asked = self._completion(1) if self.request.max_tokens_field is not None else sequences
        return MostTokens(max(1, len(self.request.prompts)), asked)

    def counted(self, prompt_tokens: int) -> MostTokens:
        """The worst case of a prompt of that many tokens."""
        return MostTokens(prompt_tokens, self._completion(prompt_tokens))

    @property
    def enough(self) -> int | None:
        """The reply that a caller who gave no limit gets where more cannot be paid for, or is over the limits."""
        if self.request.max_tokens < self.model.context_length or self.request.max_tokens_field is not None:
            return None
        return DEFAULT_MAX_TOKENS * self.request.sequences

    def held_to(self, most: MostTokens) -> EngineRequest:
        """The request for the engine, which generates no more than is held."""
        held = max(1, most.completion // self.request.sequences)
        return replace(self.request, max_tokens=min(held, self.request.max_tokens))

    def kept_within(self, most_bytes: int) -> "PreparedChat":
        """Without a limit of the caller's, the reply ends before what it lists can have more bytes. Raises
        `InvalidField` where the tokens that the caller asks for could not be listed in so many."""
        request, listed = self.request, self.request.listed_at_each
        if not listed:
            return self
        if request.max_tokens_field is None:
            most = max(1, most_bytes // (listed * LIKELY_LISTED_BYTES))
            return replace(self, request=replace(request, max_tokens=min(request.max_tokens, most)))
        tokens = min(request.max_tokens, self.model.context_length)
        if tokens * listed * LEAST_LISTED_BYTES[request.form] > most_bytes:
            message = f"the reply could list more than the {most_bytes} bytes kept; ask for fewer tokens"
            raise InvalidField(("logprobs",), message, kind="too_much")
        return self

    @property
    def longest(self) -> int:
        """The most prompt tokens that the engine takes: each prompt has the whole context."""
        return self.model.context_length * max(1, len(self.request.prompts))

    def _completion(self, prompt_tokens: int) -> int:
        # Of several prompts, what each of them leaves is not known from what they have together.
        left = max(1, self.model.context_length - (0 if self.request.prompts else prompt_tokens))
        return min(self.request.max_tokens, left) * self.request.sequences
