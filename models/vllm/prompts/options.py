"""A chat request in vLLM's words: what the contract allows and vLLM refuses, or reads otherwise."""

from collections.abc import Mapping
from typing import Any

from models.engine import CONTINUES, EngineRequest
from models.structured_outputs import constraint_of, engine_constraint

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
