"""The chat options that no model here offers, with the reason given to the caller; and those without effect."""

from collections.abc import Mapping
from typing import Any

from models.errors import InvalidField, UnsupportedOption

ACCEPTED_WITHOUT_EFFECT = frozenset(
    {"user", "metadata", "safety_identifier", "prompt_cache_key", "store", "service_tier", "modalities"}
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
    """Why an option of this name is not offered; None for one that is, or is unknown."""
    reason = REFUSED.get(name)
    if reason is None:
        reason = next((why for prefix, why in REFUSED_PREFIXES.items() if name.startswith(prefix)), None)
    return reason


def _check_accepted(given: Mapping[str, Any]) -> None:
    """Of the options without effect, three ask for something at one value and for nothing at another."""
    store, tier = given.get("store", False), given.get("service_tier", "auto")
    if not isinstance(store, bool):
        raise InvalidField(("store",), "must be true or false", kind="bool_type")
    if store:
        raise UnsupportedOption("store", "completions are not stored; omit it or send false")
    if not isinstance(tier, str):
        raise InvalidField(("service_tier",), "must be a string", kind="string_type")
    if tier not in {"auto", "default"}:
        raise UnsupportedOption("service_tier", "only auto and default are offered")
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
