"""The table of chat options, name by name (contract, section 7: 400 is an unsupported chat option)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.catalog import Capabilities
from models.errors import InvalidField, UnsupportedOption
from models.options.options import (
    ACCEPTED_WITHOUT_EFFECT,
    CONDITIONAL,
    FORWARDED,
    HANDLED_BY_THE_SERVICE,
    REFUSED,
    REFUSED_PREFIXES,
    USED,
    check_grammars,
    select_options,
)

PLAIN = Capabilities()
ABLE = Capabilities(tools=True, reasoning_effort=True, chat_template_kwargs=frozenset({"enable_thinking"}))
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
NAMED = {"type": "function", "function": {"name": "f"}}


def selected(capabilities: Capabilities = PLAIN, /, **fields: Any) -> dict[str, Any]:
    """What is forwarded beside the temperature that always is."""
    options = select_options({"temperature": 0.5, **fields}, capabilities=capabilities)
    check_grammars(options)
    assert options.pop("temperature") == 0.5
    return options


def unsupported(capabilities: Capabilities = PLAIN, /, **fields: Any) -> str:
    with pytest.raises(UnsupportedOption) as caught:
        select_options(fields, capabilities=capabilities)
    assert caught.value.reason
    return caught.value.option


def invalid(capabilities: Capabilities = PLAIN, /, **fields: Any) -> tuple[str | int, ...]:
    with pytest.raises(InvalidField) as caught:
        check_grammars(select_options(fields, capabilities=capabilities))
    return caught.value.loc


VALUES: dict[str, Any] = {
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 40,
    "min_p": 0.1,
    "n": 2,
    "stop": ["x"],
    "seed": 7,
    "presence_penalty": 1,
    "frequency_penalty": -1,
    "repetition_penalty": 1.1,
    "logit_bias": {"1": 5},
    "logprobs": True,
    "top_logprobs": 3,
    "min_tokens": 4,
    "ignore_eos": True,
}


@pytest.mark.parametrize("name", sorted(FORWARDED))
def test_a_used_option_is_forwarded_as_it_is(name: str) -> None:
    assert select_options({name: VALUES[name], "temperature": 0.7}, capabilities=PLAIN)[name] == VALUES[name]


@pytest.mark.parametrize("name", sorted(HANDLED_BY_THE_SERVICE | ACCEPTED_WITHOUT_EFFECT - {"store"}))
def test_what_the_service_handles_or_ignores_is_never_forwarded(name: str) -> None:
    assert selected(**{name: ["text"]}) == {}


@pytest.mark.parametrize("name", sorted(REFUSED))
@pytest.mark.parametrize("value", [False, 0, "", [], {}, "x"])
def test_a_refused_option_is_refused_whatever_it_holds(name: str, value: Any) -> None:
    assert unsupported(ABLE, **{name: value}) == name


@pytest.mark.parametrize(
    "name",
    [
        "guided_json",
        "guided_regex",
        "guided_choice",
        "guided_grammar",
        "guided_decoding_backend",
        "return_token_ids",
        "return_tokens_as_token_ids",
        "return_prompt_text",
    ],
)
def test_a_name_with_a_refused_prefix_is_refused(name: str) -> None:
    assert unsupported(**{name: "x"}) == name


def test_a_long_refused_name_is_cut() -> None:
    assert len(unsupported(**{"guided_" + "x" * 100_000: 1})) == 64


@pytest.mark.parametrize(
    "name", sorted({*REFUSED, *USED, *ACCEPTED_WITHOUT_EFFECT, "guided_json", "return_x"})
)
def test_null_counts_as_absent(name: str) -> None:
    assert selected(**({name: None} if name != "temperature" else {})) == {}


def test_every_option_that_the_design_names_is_in_one_table() -> None:
    used = """messages model max_tokens max_completion_tokens temperature top_p n stop seed presence_penalty
        frequency_penalty logit_bias logprobs top_logprobs response_format tools tool_choice parallel_tool_calls
        stream stream_options reasoning_effort ignore_eos min_tokens top_k min_p repetition_penalty service_tier"""
    accepted = "user metadata safety_identifier prompt_cache_key store modalities"
    refused = """functions function_call audio prediction verbosity web_search_options chat_template
        mm_processor_kwargs media_io_kwargs priority request_id cache_salt kv_transfer_params vllm_xargs
        structured_outputs prompt_logprobs echo documents allowed_token_ids use_beam_search"""
    assert set(used.split()) | {"chat_template_kwargs"} == USED
    assert set(accepted.split()) == ACCEPTED_WITHOUT_EFFECT
    assert set(refused.split()) <= set(REFUSED)
    assert set(REFUSED_PREFIXES) == {"guided_", "return_"}
    assert not USED & set(REFUSED) and not ACCEPTED_WITHOUT_EFFECT & (USED | set(REFUSED))
    assert set(VALUES) == FORWARDED


@pytest.mark.parametrize(
    "name",
    ["foo", "bad_words", "stop_token_ids", "add_generation_prompt", "best_of", "__class__", "Priority"],
)
def test_a_name_in_no_table_has_no_effect(name: str) -> None:
    assert selected(**{name: {"x": 1}}) == {}


@given(st.dictionaries(st.text(max_size=12), st.none() | st.integers() | st.text(max_size=5), max_size=8))
def test_only_names_of_the_tables_are_ever_forwarded(fields: dict[str, Any]) -> None:
    unknown = {name: value for name, value in fields.items() if name not in USED | ACCEPTED_WITHOUT_EFFECT}
    try:
        assert set(select_options(unknown, capabilities=ABLE)) == {"temperature"}
    except UnsupportedOption as error:
        assert error.option in REFUSED or error.option.startswith(tuple(REFUSED_PREFIXES))


def test_store_is_refused_only_when_it_asks_for_storage() -> None:
    assert selected(store=False) == {}
    assert unsupported(store=True) == "store"
    assert invalid(store="yes") == ("store",)


def test_text_is_the_only_modality() -> None:
    assert selected(modalities=["text"]) == selected(modalities=[]) == {}
    assert unsupported(modalities=["text", "audio"]) == "modalities"
    assert invalid(modalities=["text", "smell"]) == ("modalities", 1)
    assert invalid(modalities=[["text"]]) == ("modalities", 0)
    assert invalid(modalities="text") == ("modalities",)


def test_a_text_format_is_no_format() -> None:
    assert selected(response_format={"type": "text"}) == {}


def test_json_formats_are_forwarded() -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    for wanted in ({"type": "json_object"}, schema):
        assert selected(response_format=wanted) == {"response_format": wanted}


def test_a_harmful_schema_is_refused_where_it_stands() -> None:
    bad = {"properties": {"a": {"type": "string", "pattern": 5}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": bad}}
    place = ("properties", "a", "pattern")
    assert invalid(response_format=wanted) == ("response_format", "json_schema", "schema", *place)
    tools = [TOOL, {"type": "function", "function": {"name": "g", "parameters": bad}}]
    assert invalid(ABLE, tools=tools) == ("tools", 1, "function", "parameters", *place)


def test_the_schemas_of_all_tools_and_of_the_format_share_one_bound() -> None:
    large = {"type": "object", "enum": [None] * 4000}
    tools = [{"type": "function", "function": {"name": f"f{at}", "parameters": large}} for at in range(3)]
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": large}}
    assert selected(ABLE, tools=tools[:2])
    assert invalid(ABLE, tools=tools) == ("tools", 2, "function", "parameters")
    assert invalid(ABLE, tools=tools[:2], response_format=wanted) == ("tools", 1, "function", "parameters")


def test_tools_reach_models_that_call_them_and_are_refused_by_others() -> None:
    fields: dict[str, Any] = {"tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": False}
    assert selected(ABLE, **fields) == fields
    assert selected(ABLE, tools=[TOOL], tool_choice=NAMED) == {"tools": [TOOL], "tool_choice": NAMED}
    assert unsupported(PLAIN, tools=[TOOL]) == "tools"
    assert unsupported(PLAIN, tools=[TOOL], tool_choice="none") == "tools"


def test_tools_that_a_model_ignores_leave_no_trace_unless_a_call_is_demanded() -> None:
    ignoring, tools = Capabilities(tools="ignore"), [TOOL, {"type": "custom"}]
    assert selected(ignoring, tools=tools) == {}
    for choice in ("auto", "none"):
        assert selected(ignoring, tools=tools, tool_choice=choice, parallel_tool_calls=False) == {}
    for demanded in ("required", NAMED):
        assert unsupported(ignoring, tools=tools, tool_choice=demanded) == "tool_choice"


def test_a_model_that_makes_demanded_calls_alone_gets_tools_with_such_a_demand() -> None:
    demanded = Capabilities(tools="demanded")
    for choice in ("auto", "none"):
        assert selected(demanded, tools=[TOOL], tool_choice=choice) == {}
    assert selected(demanded, tools=[TOOL]) == {}
    for choice in ("required", NAMED):
        assert selected(demanded, tools=[TOOL], tool_choice=choice) == {
            "tools": [TOOL],
            "tool_choice": choice,
        }
    assert demanded.tells_calls_as_text is False
    assert Capabilities(tools="demanded", template_roles=frozenset({"user"})).tells_calls_as_text


@pytest.mark.parametrize("capabilities", [PLAIN, ABLE, Capabilities(tools="ignore")])
def test_without_tools_a_choice_that_demands_none_has_no_effect(capabilities: Capabilities) -> None:
    assert selected(capabilities, tools=[]) == {}
    assert selected(capabilities, tools=[], tool_choice="none", parallel_tool_calls=True) == {}
    assert selected(capabilities, tool_choice="auto") == {}
    assert invalid(capabilities, tool_choice="required") == ("tool_choice",)
    assert invalid(capabilities, tool_choice=NAMED) == ("tool_choice",)


def test_a_choice_must_name_an_offered_function() -> None:
    other = {"type": "function", "function": {"name": "g"}}
    assert invalid(ABLE, tools=[TOOL], tool_choice=other) == ("tool_choice", "function", "name")


def test_custom_tools_are_refused_by_name() -> None:
    assert unsupported(ABLE, tools=[TOOL, {"type": "custom"}]) == "tools[1].type"
    assert unsupported(PLAIN, tools=[{"type": "custom"}]) == "tools[0].type"
    assert unsupported(ABLE, tools=[TOOL], tool_choice={"type": "allowed_tools"}) == "tool_choice.type"


def test_a_function_without_parameters_is_fine() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": None}}
    assert selected(ABLE, tools=[tool]) == {"tools": [tool]}


def test_only_usage_within_chunks_is_asked_of_the_engine() -> None:
    assert selected(stream_options={}) == selected(stream_options={"include_usage": True}) == {}
    asked = selected(stream_options={"continuous_usage_stats": True, "include_usage": False})
    assert asked == {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}


def test_reasoning_effort_needs_a_model_that_takes_it() -> None:
    assert selected(ABLE, reasoning_effort="low") == {"reasoning_effort": "low"}
    assert unsupported(PLAIN, reasoning_effort="low") == "reasoning_effort"


def test_template_variables_need_to_be_on_the_models_list_and_scalar() -> None:
    allowed = {"chat_template_kwargs": {"enable_thinking": False}}
    assert selected(ABLE, **allowed) == allowed
    assert selected(PLAIN, chat_template_kwargs={}) == {}
    assert unsupported(PLAIN, **allowed) == "chat_template_kwargs.enable_thinking"
    assert unsupported(ABLE, chat_template_kwargs={"add_generation_prompt": False}).startswith(
        "chat_template_kwargs."
    )
    assert invalid(ABLE, chat_template_kwargs={"enable_thinking": [1]}) == (
        "chat_template_kwargs",
        "enable_thinking",
    )
    assert invalid(ABLE, chat_template_kwargs={"enable_thinking": "x" * 257})
    assert invalid(ABLE, chat_template_kwargs=[1]) == ("chat_template_kwargs",)


def test_the_temperature_is_the_contracts_default_and_not_the_engines() -> None:
    assert select_options({}, capabilities=PLAIN) == {"temperature": 0}


def test_the_given_fields_are_left_as_they_were() -> None:
    fields: dict[str, Any] = {"n": 3, "top_p": 0}
    select_options(fields, capabilities=PLAIN)
    assert fields == {"n": 3, "top_p": 0}


def test_the_tables_of_the_engines_options_hold_nothing_that_crosses_a_boundary() -> None:
    assert not (FORWARDED | CONDITIONAL) & {"cache_salt", "priority", "request_id", "kv_transfer_params"}
