"""Which chat options reach an engine, and on what terms.

Only what the tables name is ever forwarded: engines take many options that cross a boundary between callers.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from models.catalog import Capabilities
from models.errors import InvalidField, UnsupportedOption
from models.options.schemas import check_schemas
from models.options.unsupported import MAX_NAMED_CHARS, refuse_custom_tools, refuse_unsupported
from models.structured_outputs import OPTIONS, constraint_of, select_constraint

# The service acts on these itself: they are fields of the engine request, or of its own events.
HANDLED_BY_THE_SERVICE = frozenset({"messages", "model", "max_tokens", "max_completion_tokens", "stream"})

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
    """Of a request's properties, the options that may reach an engine; `None` counts as absent. Without a default the
    engine has its own. `drops_effort`: one of reasoning has no effect on a model that takes none, and is not refused.
    `takes_constraints`: `structured_outputs` and `guided_*` are, which the contract refuses.

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
    if tools and capabilities.tools == "ignore":
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
