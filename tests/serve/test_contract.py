"""The shapes against the contract's tables: fields, defaults, bounds (sections 2 and 8)."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from models.options.options import CONDITIONAL, DEFAULT_TEMPERATURE, FORWARDED, USED
from serve.catalog.route import Catalog, CatalogModel, Model
from serve.chat.message_shapes import Message
from serve.chat.request import ChatCompletionRequest
from serve.chat.route import Billing, ChatCompletionResponse, Metering, ServiceBlock, Usage
from serve.http.openapi import ErrorBody, OpenAIError, ValidationIssue

HI = {"role": "user", "content": "hi"}

MODEL = {
    "id",
    "name",
    "context_length",
    "input_price_per_mtok",
    "output_price_per_mtok",
    "minimum_request_charge_usd",
}
BILLING = {
    "input_price_per_mtok",
    "output_price_per_mtok",
    "minimum_request_charge_usd",
    "minimum_applied",
    "request_cost_usd",
}

REQUIRED_AND_OPTIONAL: list[tuple[type[BaseModel], set[str], set[str]]] = [
    (Model, MODEL, set()),
    (CatalogModel, MODEL | {"blurb", "is_default"}, set()),
    (Catalog, {"pricing_version", "collection_threshold_cents", "models"}, set()),
    (Message, {"role"}, {"content", "tool_calls"}),
    (Usage, {"prompt_tokens", "completion_tokens", "total_tokens"}, set()),
    (Metering, {"persisted", "status"}, set()),
    (Billing, BILLING, set()),
    (ServiceBlock, {"billing", "metering"}, set()),
    (ChatCompletionResponse, {"id", "object", "created", "model", "choices", "usage", "service"}, set()),
    (ErrorBody, {"detail", "error"}, set()),
    (ValidationIssue, {"type", "loc", "msg"}, {"input", "ctx"}),
    (OpenAIError, {"message", "type"}, {"param", "code"}),
]


def request(**fields: Any) -> ChatCompletionRequest:
    return ChatCompletionRequest.model_validate({"messages": [HI], **fields})


@pytest.mark.parametrize(("shape", "required", "optional"), REQUIRED_AND_OPTIONAL)
def test_a_shape_has_the_contracts_fields_and_no_others(
    shape: type[BaseModel], required: set[str], optional: set[str]
) -> None:
    fields = shape.model_fields
    assert {name for name, field in fields.items() if field.is_required()} == required
    assert {name for name, field in fields.items() if not field.is_required()} == optional


def test_the_request_has_the_contracts_fields_and_the_options_that_are_used() -> None:
    fields = ChatCompletionRequest.model_fields
    assert [name for name, field in fields.items() if field.is_required()] == ["messages"]
    assert set(fields) == (USED - {"chat_template_kwargs"}) | {"compression", "include"}


def test_the_defaults_are_the_contracts() -> None:
    least = request()
    assert (least.model, least.max_tokens, least.temperature, least.stream) == (None, 512, 0, False)
    assert least.temperature == DEFAULT_TEMPERATURE
    assert least.option_fields() == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [HI]},
        {"messages": [HI] * 256},
        {"max_tokens": 1},
        {"max_tokens": 16_384},
        {"temperature": 0},
        {"temperature": 2},
        {"temperature": 2.0},
        {"stream": True},
        {"model": "m" * 256},
        {"max_completion_tokens": 16_384},
        {"top_p": 0},
        {"top_p": 1},
        {"top_k": -1},
        {"min_p": 1},
        {"n": 1},
        {"n": 8},
        {"stop": "x" * 1024},
        {"stop": []},
        {"stop": ["a", "b", "c", "d"]},
        {"seed": 2**63 - 1},
        {"seed": -(2**63)},
        {"presence_penalty": -2, "frequency_penalty": 2.0},
        {"repetition_penalty": 0.01},
        {"logit_bias": {"0": -100, "50256": 100}},
        {"logit_bias": {str(token): 1 for token in range(1024)}},
        {"logprobs": True, "top_logprobs": 20},
        {"top_logprobs": 0},
        {"response_format": {"type": "text"}},
        {"response_format": {"type": "json_object"}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "a", "schema": {}, "strict": None},
            }
        },
        {"tools": []},
        {"tools": [{"type": "custom", "custom": {"name": "f"}}]},
        {"tool_choice": "none"},
        {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": None}},
        {"reasoning_effort": "low"},
        {"min_tokens": 512},
        {"min_tokens": 600, "max_completion_tokens": 600},
        {"ignore_eos": True, "parallel_tool_calls": False},
        {"anything": {"else": [1, None]}},
    ],
)
def test_what_stands_on_a_bound_is_taken(fields: dict[str, Any]) -> None:
    request(**fields)


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool", "function"])
@pytest.mark.parametrize(
    "rest",
    [{}, {"content": None}, {"content": ""}, {"content": []}, {"content": [{"type": "text"}]}, {"x": 1}],
)
def test_every_role_is_taken_with_any_content_and_extra_properties(role: str, rest: dict[str, Any]) -> None:
    message = request(messages=[{"role": role, **rest}]).messages[0]
    assert message.fields() == {"role": role, **rest}


@pytest.mark.parametrize("name", sorted(USED - {"messages"}))
def test_null_counts_as_absent(name: str) -> None:
    assert request(**{name: None}) == request()


def test_options_are_what_was_set_beyond_the_services_own_fields() -> None:
    schema = {"properties": {"a": {"const": None}}}
    sent: dict[str, Any] = {
        "temperature": 1,
        "seed": None,
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "user": "me",
        "store": True,
    }
    fields = request(model="m", stream=True, max_tokens=9, **sent).option_fields()
    assert fields == {name: value for name, value in sent.items() if value is not None}


def test_one_stop_string_is_a_list_of_one() -> None:
    assert request(stop="a").stop == ["a"]


def test_the_newer_name_of_the_token_limit_wins() -> None:
    assert request().token_limit == 512
    assert request(max_tokens=7).token_limit == 7
    assert request(max_tokens=7, max_completion_tokens=9).token_limit == 9


def test_the_collection_threshold_is_at_least_one() -> None:
    with pytest.raises(ValidationError):
        Catalog(pricing_version=1, collection_threshold_cents=0, models=[])


@pytest.mark.parametrize("status", ["persisted", "degraded", "not_applicable"])
def test_metering_has_three_statuses(status: str) -> None:
    assert Metering.model_validate({"persisted": False, "status": status}).status == status
    with pytest.raises(ValidationError):
        Metering.model_validate({"persisted": False, "status": status.upper()})


@pytest.mark.parametrize("shape", [shape for shape, _, _ in REQUIRED_AND_OPTIONAL] + [ChatCompletionRequest])
def test_the_published_schema_describes_every_field(shape: type[BaseModel]) -> None:
    schema = shape.model_json_schema()
    for published in [schema, *schema.get("$defs", {}).values()]:
        assert published["description"]
        assert all(field.get("description") for field in published["properties"].values()), published["title"]


def test_the_published_bounds_are_the_contracts() -> None:
    properties = ChatCompletionRequest.model_json_schema()["properties"]
    assert (properties["messages"]["minItems"], properties["messages"]["maxItems"]) == (1, 256)
    limit = properties["max_tokens"]
    assert (limit["type"], limit["minimum"], limit["maximum"], limit["default"]) == (
        "integer",
        1,
        16_384,
        512,
    )
    heat = properties["temperature"]
    assert (heat["type"], heat["minimum"], heat["maximum"], heat["default"]) == ("number", 0, 2, 0)
    assert (properties["stream"]["type"], properties["stream"]["default"]) == ("boolean", False)


def test_published_examples_are_valid() -> None:
    for shape in (ChatCompletionRequest, ChatCompletionResponse, ErrorBody, Message):
        for example in shape.model_json_schema()["examples"]:
            shape.model_validate(example)


def test_every_typed_option_is_in_one_table_of_options() -> None:
    assert not FORWARDED & CONDITIONAL
