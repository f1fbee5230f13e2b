"""Check of a configuration's arguments by vLLM's own class of them: names, types, and its help."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, get_type_hints

import vllm.config
import vllm.config.quantization
from pydantic import ConfigDict, TypeAdapter, ValidationError
from vllm.config.speculative import SpeculativeConfig
from vllm.config.utils import get_attr_docs
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.model_executor.layers.quantization import QuantizationMethods
from vllm.version import __version__


def check(given: Mapping[str, Any]) -> None:
    """Raises `ValueError` for what vLLM does not take."""
    if problems := list(problems_of(given)):
        raise ValueError("; ".join(problems))


def problems_of(given: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each of `engine.args` that vLLM does not take, with its path."""
    for name, value in given.items():
        for problem in _problems(f"engine.args.{name}", name, value, _types()):
            said = _help().get(name)
            yield f"{problem} (vLLM: {said})" if said else problem
    speculation = given.get("speculative_config")
    if isinstance(speculation, Mapping):
        # The class of arguments takes any mapping there.
        types = get_type_hints(SpeculativeConfig)
        for name, value in speculation.items():
            yield from _problems(f"engine.args.speculative_config.{name}", name, value, types)


@cache
def _types() -> dict[str, Any]:
    names = vars(vllm.config.quantization)
    types = get_type_hints(AsyncEngineArgs, localns=names, include_extras=True)
    # To avoid an import, the class itself says that any text is a method.
    return {**types, "quantization": QuantizationMethods | None}


def _problems(where: str, name: str, value: Any, types: Mapping[str, Any]) -> Iterator[str]:
    if name not in types:
        near = get_close_matches(name, types, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        yield f"{where}: vLLM {__version__} has no such argument{meant}"
        return
    try:
        # A configuration is a document of the same kinds of values as JSON, and "8" is no number in either.
        config = ConfigDict(arbitrary_types_allowed=True) if _is_plain(types[name]) else None
        TypeAdapter(types[name], config=config).validate_json(json.dumps(value), strict=True)
    except (TypeError, ValueError) as error:
        for place, message in _issues(error):
            yield f"{'.'.join([where, *place])}: {message}"


def _is_plain(kind: Any) -> bool:
    """Whether the type may be configured from outside: a dataclass of vLLM's brings its own configuration."""
    return not hasattr(kind, "__pydantic_config__")


def _issues(error: TypeError | ValueError) -> list[tuple[list[str], str]]:
    if not isinstance(error, ValidationError):
        return [([], str(error))]
    found = error.errors(include_url=False, include_input=False, include_context=False)
    return [
        ([str(part) for part in issue["loc"]], issue["msg"].removeprefix("Value error, ")) for issue in found
    ]


@cache
def _help() -> dict[str, str]:
    """The first sentence of vLLM's help on each argument, from the classes that it goes into by the same name."""
    classes = [each for each in vars(vllm.config).values() if is_dataclass(each) and isinstance(each, type)]
    texts = {name: " ".join(text.split()) for each in classes for name, text in get_attr_docs(each).items()}
    return {name: text.split(". ")[0].rstrip(".") for name, text in texts.items()}
