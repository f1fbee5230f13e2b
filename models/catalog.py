"""The chat models on offer, in the operator's order, and what each can do. The first is the default."""

from dataclasses import dataclass, field
from typing import Literal

from models.errors import UnknownModel

TEMPLATE_ROLES = frozenset({"system", "user", "assistant", "tool"})
MEDIA_KINDS = frozenset({"image_url", "input_audio", "video_url"})

# What becomes of a request's tools: the model gets them, the request is refused, or they are left out without a word.
# `demanded`: they are left out where the model may choose; a call that is demanded is made, held to its schema.
ToolUse = bool | Literal["ignore", "demanded"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Features that one model's weights and chat template support.

    `media` holds content part types besides `text`; `chat_template_kwargs` the template variables that callers
    may set. Raises `ValueError` for a kind of media that no engine request can carry.
    """

    tools: ToolUse = False
    reasoning_effort: bool = False
    media: frozenset[str] = frozenset()
    template_roles: frozenset[str] = TEMPLATE_ROLES
    chat_template_kwargs: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        unknown = sorted(self.media - MEDIA_KINDS)
        if unknown:
            raise ValueError(f"media: unknown kinds {unknown}; choose from {sorted(MEDIA_KINDS)}")

    @property
    def tells_calls_as_text(self) -> bool:
        """True where the template has no form for earlier calls and their results: the model reads them as text."""
        return self.tools in ("ignore", "demanded") and "tool" not in self.template_roles

    def leaves_out_tools(self, choice: object) -> bool:
        """True where a request's tools do not reach the model, by its `tool_choice`."""
        return self.tools == "ignore" or (self.tools == "demanded" and choice in ("none", "auto"))


@dataclass(frozen=True, slots=True)
class ChatModel:
    """One model of the catalog. Prices are whole micro-USD per million tokens, the minimum whole nano-USD."""

    id: str
    name: str
    blurb: str
    context_length: int
    input_micro_usd_per_mtok: int
    output_micro_usd_per_mtok: int
    minimum_nano_usd: int
    is_default: bool
    # Of prompt tokens found in the prefix cache; None: input's.
    cached_input_micro_usd_per_mtok: int | None = None
    capabilities: Capabilities = field(default_factory=Capabilities)
    # The model whose engines serve it, where it is an adapter.
    adapter_of: str | None = None
    # The adapter's, from which an engine loads it that was started without it.
    adapter_folder: str = ""


@dataclass(frozen=True, slots=True)
class Catalog:
    """The models in order. Raises `ValueError` unless ids differ and exactly the first is the default."""

    models: tuple[ChatModel, ...]

    def __post_init__(self) -> None:
        if not self.models:
            raise ValueError("a catalog needs at least one model")
        if len(set(self.ids)) != len(self.models):
            raise ValueError(f"two models share an id: {', '.join(self.ids)}")
        defaults = [model.id for model in self.models if model.is_default]
        if defaults != [self.models[0].id]:
            raise ValueError(f"the first model must be the only default, not {defaults}")

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(model.id for model in self.models)

    @property
    def default(self) -> ChatModel:
        return self.models[0]

    def get(self, model_id: str) -> ChatModel:
        """Raises `UnknownModel`, which names what there is."""
        for model in self.models:
            if model.id == model_id:
                return model
        raise UnknownModel(model_id, self.ids)
