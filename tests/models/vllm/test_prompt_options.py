"""Options that the contract allows and vLLM refuses, or reads otherwise, as vLLM is given them."""

from __future__ import annotations

from typing import Any

from models.catalog import Capabilities
from models.engine import EngineRequest
from models.options.options import select_options
from models.vllm.prompts import vllm_fields, vllm_options


def phrased(*, stream: bool = False, capable: bool = False, **fields: Any) -> dict[str, Any]:
    """What vLLM is given for a caller's fields."""
    options = select_options(fields, capabilities=Capabilities(tools=capable))
    return vllm_options(EngineRequest("1", "m", (), 5, stream, "ws", options))


def test_several_greedy_choices_are_sampled_among_the_one_likeliest_token() -> None:
    assert phrased(n=3) == {"n": 3, "temperature": 0.01, "top_k": 1}
    warm = {"n": 3, "temperature": 0.4}
    assert phrased(**warm) == warm
    assert phrased(n=1) == {"n": 1, "temperature": 0}


def test_a_top_p_of_zero_is_the_least_that_engines_take() -> None:
    assert 0 < phrased(top_p=0)["top_p"] < 1e-5


def test_a_seed_of_minus_one_is_a_seed_and_not_vllms_word_for_none() -> None:
    assert phrased(seed=-1)["seed"] not in (None, -1)


def test_usage_within_chunks_is_asked_for_only_where_there_are_chunks() -> None:
    asked = {"continuous_usage_stats": True}
    assert phrased(stream=True, stream_options=asked)["stream_options"] == {"include_usage": True, **asked}
    assert "stream_options" not in phrased(stream_options=asked)


def test_a_demanded_call_is_held_to_the_functions_schema_strict_or_not() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}

    def function(**given: Any) -> dict[str, Any]:
        tools = [{"type": "function", "function": {"name": "f", **given}}]
        sent: dict[str, Any] = phrased(capable=True, tools=tools)["tools"][0]["function"]
        return sent

    held = {"name": "f", "parameters": schema}
    assert function(parameters=schema, strict=False) == function(parameters=schema, strict=None) == held
    assert function(parameters=schema, strict=True) == {**held, "strict": True}
    nothing = {"name": "f", "parameters": {"type": "object", "properties": {}}}
    assert function() == function(parameters=None) == function(parameters={}) == nothing


def test_a_requests_own_options_are_left_as_they_were() -> None:
    request = EngineRequest("1", "m", (), 5, False, "ws", {"top_p": 0, "seed": -1})
    vllm_options(request)
    assert request.options == {"top_p": 0, "seed": -1}


def test_a_limit_goes_by_the_name_that_the_caller_gave_it_and_else_not_at_all() -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        assert vllm_fields(EngineRequest("1", "m", (), 5, False, "ws", max_tokens_field=name))[name] == 5
    left = vllm_fields(EngineRequest("1", "m", (), 5, False, "ws", max_tokens_field=None))
    assert not {"max_tokens", "max_completion_tokens"} & left.keys()
    assert (left["request_id"], left["cache_salt"]) == ("1", "ws")
