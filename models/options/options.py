"""Chat options: those that reach an engine, those without effect, and those that are refused.

Only what the tables name is ever forwarded: engines take many options that cross a boundary between callers.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from models.catalog import Capabilities
from models.errors import InvalidField, UnsupportedOption
from models.options.schemas import check_schemas
from models.structured_outputs import OPTIONS, constraint_of, select_constraint

# The service acts on these itself: they are fields of the engine request, or of its own events.
HANDLED_BY_THE_SERVICE = frozenset(
    {"messages", "model", "max_tokens", "max_completion_tokens", "stream", "service_tier"}
)

FORWARDED = frozenset(
    {
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "n",
        "stop",
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "min_tokens",
        "ignore_eos",
    }
)

# Judged by a rule of their own below before anything of them is forwarded.
CONDITIONAL = frozenset(
    {
        "response_format",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "stream_options",
        "reasoning_effort",
        "chat_template_kwargs",
    }
)

USED = HANDLED_BY_THE_SERVICE | FORWARDED | CONDITIONAL

MAX_VARIABLE_CHARS = 256

# The contract's default; an engine's own is 1, or what a model's generation config says.
DEFAULT_TEMPERATURE = 0.0


def select_options(
    fields: Mapping[str, Any],
    *,
    capabilities: Capabilities,
    default_temperature: float | None = DEFAULT_TEMPERATURE,
    drops_effort: bool = False,
    takes_constraints: bool = False,
) -> dict[str, Any]:
    """Select from a request's properties the options that may reach an engine; `None` counts as absent. Without a
    default the engine has its own. `drops_effort`: one of reasoning has no effect on a model that takes none, and is
    not refused. `takes_constraints`: `structured_outputs` and `guided_*` are, which the contract refuses.

    Fields that the contract types have its types; of others nothing is assumed. Raises `UnsupportedOption`
    for what is refused here or by this model, and `InvalidField` for a value that could harm an engine.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    if drops_effort and not capabilities.reasoning_effort:
        given.pop("reasoning_effort", None)
    constraint = select_constraint(given) if takes_constraints else {}
    refuse_unsupported({name: given[name] for name in given if not (takes_constraints and name in OPTIONS)})
    options = {name: value for name, value in given.items() if name in FORWARDED}
    for rule in (_response_format, _tools, _stream_options, _reasoning_effort, _template_kwargs):
        options |= rule(given, capabilities)
    options |= constraint
    if default_temperature is not None:
        options.setdefault("temperature", default_temperature)
    return options


def _response_format(given: Mapping[str, Any], _: Capabilities) -> dict[str, Any]:
    wanted = given.get("response_format", {"type": "text"})
    if wanted["type"] == "text":
        return {}
    return {"response_format": wanted}


def check_grammars(options: Mapping[str, Any]) -> None:
    """Check the schemas among selected options. Apart from the selection, since this is work for a request that was
    let in. Raises `InvalidField`."""
    check_schemas(_schemas(options))


def _schemas(options: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], tuple[str | int, ...]]]:
    """Every schema among the options, with its place in the request."""
    wanted = options.get("response_format", {})
    if wanted.get("type") == "json_schema":
        yield wanted["json_schema"]["schema"], ("response_format", "json_schema", "schema")
    constraint = constraint_of(options)
    if constraint is not None and constraint.kind == "json":
        yield constraint.value, constraint.loc
    for index, tool in enumerate(options.get("tools", [])):
        yield tool["function"].get("parameters") or {}, ("tools", index, "function", "parameters")


def _tools(given: Mapping[str, Any], capabilities: Capabilities) -> dict[str, Any]:
    """An empty list counts as no tools, and without tools only a choice that requires one is wrong."""
    tools, choice = given.get("tools", []), given.get("tool_choice", "auto")
    if tools and capabilities.leaves_out_tools(choice):
        return _ignored_tools(choice)
    refuse_custom_tools(tools, choice)
    if not tools:
        if choice not in ("none", "auto"):
            raise InvalidField(("tool_choice",), "requires a tool, but tools is empty")
        return {}
    if not capabilities.tools:
        raise UnsupportedOption("tools", "this model does not call tools")
    names = {tool["function"]["name"] for tool in tools}
    if isinstance(choice, Mapping) and choice["function"]["name"] not in names:
        raise InvalidField(("tool_choice", "function", "name"), "is not one of the functions in tools")
    choices = {name: given[name] for name in ("tool_choice", "parallel_tool_calls") if name in given}
    return {"tools": tools, **choices}


def _ignored_tools(choice: Any) -> dict[str, Any]:
    """Whoever leaves the choice to the model gets a reply without a call; a call that was demanded cannot be made."""
    if choice not in ("none", "auto"):
        raise UnsupportedOption("tool_choice", "this model does not call tools; it takes auto and none alone")
    return {}


def _stream_options(given: Mapping[str, Any], _: Capabilities) -> dict[str, Any]:
    # The service ends every stream with usage; only usage within chunks is passed on to the engine.
    if (given.get("stream_options") or {}).get("continuous_usage_stats"):
        return {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    return {}


def _reasoning_effort(given: Mapping[str, Any], capabilities: Capabilities) -> dict[str, Any]:
    if "reasoning_effort" not in given:
        return {}
    if not capabilities.reasoning_effort:
        raise UnsupportedOption("reasoning_effort", "this model does not take it")
    return {"reasoning_effort": given["reasoning_effort"]}


def _template_kwargs(given: Mapping[str, Any], capabilities: Capabilities) -> dict[str, Any]:
    variables = given.get("chat_template_kwargs", {})
    if not isinstance(variables, Mapping):
        raise InvalidField(("chat_template_kwargs",), "must be an object", kind="dict_type")
    for name, value in variables.items():
        if name not in capabilities.chat_template_kwargs:
            where = f"chat_template_kwargs.{name}"[:MAX_NAMED_CHARS]
            raise UnsupportedOption(where, "callers cannot set this template variable for this model")
        # A template may loop over what it is given; a scalar ends.
        if not isinstance(value, (bool, int, float)) and not _is_short_text(value):
            message = f"must be a number, true, false or a string of at most {MAX_VARIABLE_CHARS} characters"
            raise InvalidField(("chat_template_kwargs", name), message)
    return {"chat_template_kwargs": dict(variables)} if variables else {}


def _is_short_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_VARIABLE_CHARS


ACCEPTED_WITHOUT_EFFECT = frozenset(
    {"user", "metadata", "safety_identifier", "prompt_cache_key", "store", "modalities"}
)

_ENGINE_INTERNAL = "is internal to the engine and cannot be set by callers"
_HELD_ELSEWHERE = (
    "use response_format; chats and completions under /openai/v1 take regex, choice, grammar and json"
)
_TEMPLATE = "the chat template belongs to the model and cannot be set by callers"

REFUSED: Mapping[str, str] = {
    "functions": "superseded by tools",
    "function_call": "superseded by tool_choice",
    "audio": "replies are text only",
    "prediction": "predicted outputs are not offered",
    "verbosity": "no model here takes it",
    "web_search_options": "the service does not search the web",
    "chat_template": _TEMPLATE,
    "documents": "no model here takes documents apart from messages",
    "echo": "a reply never repeats the prompt",
    "structured_outputs": _HELD_ELSEWHERE,
    "use_beam_search": "beam search is not offered",
    "prompt_logprobs": "log probabilities are given for generated tokens only",
    "mm_processor_kwargs": _ENGINE_INTERNAL,
    "media_io_kwargs": _ENGINE_INTERNAL,
    "priority": _ENGINE_INTERNAL,
    "request_id": "is set by the service; send the header X-Request-ID",
    "cache_salt": "is set by the service, for each workspace",
    "kv_transfer_params": _ENGINE_INTERNAL,
    "ec_transfer_params": _ENGINE_INTERNAL,
    "vllm_xargs": _ENGINE_INTERNAL,
    "allowed_token_ids": _ENGINE_INTERNAL,
}

REFUSED_PREFIXES: Mapping[str, str] = {
    "guided_": _HELD_ELSEWHERE,
    "return_": "token ids and other internals of the engine are not returned",
}

MAX_NAMED_CHARS = 64


def refuse_unsupported(given: Mapping[str, Any]) -> None:
    """Raises `UnsupportedOption` for an option that is not offered, `InvalidField` for a value that is not allowed."""
    for name in given:
        reason = reason_to_refuse(name)
        if reason is not None:
            raise UnsupportedOption(name[:MAX_NAMED_CHARS], reason)
    _check_accepted(given)


def reason_to_refuse(name: str) -> str | None:
    """The reason to refuse an option of this name; None for one that is offered, or is unknown."""
    reason = REFUSED.get(name)
    if reason is None:
        reason = next((why for prefix, why in REFUSED_PREFIXES.items() if name.startswith(prefix)), None)
    return reason


def _check_accepted(given: Mapping[str, Any]) -> None:
    """Two options without effect ask for something at one value and for nothing at another."""
    store = given.get("store", False)
    if not isinstance(store, bool):
        raise InvalidField(("store",), "must be true or false", kind="bool_type")
    if store:
        raise UnsupportedOption("store", "completions are not stored; omit it or send false")
    _check_modalities(given.get("modalities", ["text"]))


def _check_modalities(modalities: Any) -> None:
    if not isinstance(modalities, list):
        raise InvalidField(("modalities",), "must be a list", kind="list_type")
    for index, modality in enumerate(modalities):
        if modality == "audio":
            raise UnsupportedOption("modalities", "replies are text only")
        if modality != "text":
            raise InvalidField(("modalities", index), "must be text", kind="literal_error")


def refuse_custom_tools(tools: list[Any], choice: Any) -> None:
    if isinstance(choice, Mapping) and choice["type"] != "function":
        raise UnsupportedOption("tool_choice.type", "only function is offered")
    for index, tool in enumerate(tools):
        if tool["type"] != "function":
            raise UnsupportedOption(f"tools[{index}].type", "only function is offered")
