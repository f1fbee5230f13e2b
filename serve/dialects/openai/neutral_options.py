"""Options at a value that asks for nothing: clients send them unasked, and are refused only what they want."""

from collections.abc import Mapping
from typing import Any

from models.options.options import reason_to_refuse

# An empty one asks for a search with OpenAI's defaults, and 0 for the likelihood of the prompt's own tokens.
ASKS_ALWAYS = frozenset({"web_search_options", "prompt_logprobs"})


def without_neutral(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options without those that are refused elsewhere and ask for nothing as they are. Nothing is stored whatever
    `store` says, and no model here takes a `verbosity`."""
    return {name: value for name, value in options.items() if not _is_neutral(name, value)}


def _is_neutral(name: str, value: Any) -> bool:
    if name == "verbosity" or (name == "store" and value is True):
        return True
    if name in ASKS_ALWAYS or reason_to_refuse(name) is None:
        return False
    return not value or (name == "function_call" and value == "none")
