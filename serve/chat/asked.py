"""What the service is asked for, in whatever dialect: of the right types, and not yet held against a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from serve.prompt_compression.options import PromptCompressionOptions


class AskedChat(Protocol):
    """A conversation to answer. `ChatCompletionRequest` is one; its messages and options have the contract's types."""

    @property
    def model(self) -> str | None: ...

    @property
    def stream(self) -> bool: ...

    @property
    def compression(self) -> PromptCompressionOptions | Literal[False] | None: ...

    @property
    def default_temperature(self) -> float | None:
        """Where none is asked for; None: the engine's own."""

    @property
    def drops_effort(self) -> bool:
        """Whether an effort of reasoning has no effect on a model that takes none, and is not refused."""

    @property
    def takes_constraints(self) -> bool:
        """Whether `structured_outputs` and `guided_*` are options."""

    @property
    def token_limit(self) -> int | None:
        """For each choice; None: what the prompt leaves of the context."""

    @property
    def token_limit_field(self) -> Literal["max_tokens", "max_completion_tokens"] | None:
        """The name under which the caller gave the limit; None where the limit only caps what is left."""

    def option_fields(self) -> dict[str, Any]: ...

    def message_fields(self) -> list[dict[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class AskedCompletion:
    """Prompts to continue, as texts or as tokens. `form_options` are those that only completions know."""

    model: str | None
    prompts: Sequence[str | tuple[int, ...]]
    max_tokens: int
    stream: bool
    options: Mapping[str, Any]
    form_options: Mapping[str, Any]
