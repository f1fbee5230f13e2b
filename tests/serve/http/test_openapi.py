"""`/openapi.json` documents every route, status and header of the contract (sections 2, 4 and 7), and is valid."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest
from fastapi import FastAPI
from jsonschema import Draft202012Validator

from billing.batches.batch import (
    BatchEnded,
    FileInUse,
    FilesFull,
    ResultsFull,
    StorageFull,
    UnknownBatch,
    UnknownFile,
)
from billing.errors import UnknownOriginal
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.store.database import open_database
from models.fake_engine import FakeEngine
from serve.api import INTERFACE_VERSION
from serve.app import build_api
from serve.chat.request import ChatCompletionRequest
from serve.config.settings import Settings
from serve.http.errors import STATUSES
from serve.http.request_body import InvalidBody, parse_body
from tests.serve.served import HI, Client, settings_document

# Each route at `/v1` that this server has, and its probes, their statuses, and whether it needs a key.
ROUTES = {
    ("GET", "/v1/catalog"): ({200, 503}, False),
    ("GET", "/v1/models"): ({200, 401, 403, 429, 500, 503}, True),
    ("GET", "/v1/usage"): ({200, 401, 403, 422, 429, 500, 503}, True),
    ("GET", "/v1/limits"): ({200, 401, 403, 429, 500, 503}, True),
    ("POST", "/v1/chat/completions"): ({200, 400, 401, 402, 403, 422, 429, 500, 502, 503}, True),
    ("GET", "/health"): ({200}, False),
    ("GET", "/ready"): ({200, 503}, False),
}
CHAT = ("POST", "/v1/chat/completions")
# Of formats that others have defined.
LOG_ROUTES = (("GET", "/log/checkpoint"), ("GET", "/log/tile/{tile}"))


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Any:
    settings = Settings.model_validate(settings_document(tmp_path_factory.mktemp("served")))
    # Never asked: no ledger is needed to describe the service.
    database = open_database(settings.billing.database_url)
    ledger = Ledger(database, Spool(settings.billing.spool_path))
    engines = {model.id: FakeEngine() for model in settings.models}
    return build_api(settings, engines=engines, database=database, ledger=ledger)


@pytest.fixture(scope="module")
def document(api: Any) -> Any:

    client = asyncio.run(Client(api, "/openapi.json").run())
    assert client.status == 200 and client.reply_headers["content-type"] == "application/json"
    return client.json()


def operation(document: Any, route: tuple[str, str]) -> Any:
    method, path = route
    return document["paths"][path][method.lower()]


def schema(document: Any, name: str) -> Draft202012Validator:
    """A validator for one of the document's schemas."""
    return Draft202012Validator({**document, "$ref": f"#/components/schemas/{name}"})


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every mapping in a document, but not those that are examples of data."""
    if isinstance(value, dict):
        yield value
        for name, inner in value.items():
            if name not in ("examples", "example", "default"):
                yield from nodes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from nodes(inner)


def test_the_document_says_what_it_is(document: Any) -> None:
    assert document["openapi"].startswith("3.1")
    assert document["info"]["title"] == "pith" and document["info"]["version"] == INTERFACE_VERSION == "1.2.1"
    assert document["info"]["summary"] == f"interface 1.2.1 · pith {version('pith')}"
    assert document["info"]["description"]


def test_every_reference_leads_somewhere(document: Any) -> None:
    references = {node["$ref"] for node in nodes(document) if isinstance(node.get("$ref"), str)}
    assert references
    for reference in references:
        place = document
        assert reference.startswith("#/")
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]


def test_every_schema_is_a_json_schema(document: Any) -> None:
    schemas = document["components"]["schemas"]
    for found in schemas.values():
        Draft202012Validator.check_schema(found)
    assert {"ChatCompletionRequest", "ChatCompletionResponse", "Catalog", "ErrorBody", "Message"} <= set(
        schemas
    )


DIALECTS = ("/openai/v1/", "/anthropic/v1/")


def test_the_routes_are_those_of_the_contract_and_of_the_dialects(document: Any) -> None:
    found = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    others = {route for route in found if not route[1].startswith(DIALECTS)}
    assert others == {*ROUTES, *LOG_ROUTES}


@pytest.mark.parametrize("route", LOG_ROUTES, ids=" ".join)
def test_the_log_is_documented_as_open_to_everybody(document: Any, route: tuple[str, str]) -> None:
    found = operation(document, route)
    assert {int(status) for status in found["responses"]} == {200, 404, 503}
    assert found["description"] and found["tags"] == ["log"] and not found.get("security")


def test_every_route_of_a_dialect_is_documented_with_its_errors(document: Any) -> None:
    for path, methods in document["paths"].items():
        for method, each in methods.items() if path.startswith(DIALECTS) else ():
            assert each["description"] and each["tags"], path
            responses = each["responses"]
            assert {"200", "401", "500"} <= set(responses) and "422" not in responses, (method, path)
            for status, response in responses.items():
                schema = response["content"]["application/json"]["schema"]
                assert status == "200" or "/ErrorBody" not in str(schema), (method, path)


def test_every_operation_has_a_name_of_its_own_and_a_description(document: Any) -> None:
    operations = [operation(document, route) for route in ROUTES]
    assert len({each["operationId"] for each in operations}) == len(ROUTES)
    assert all(each["description"] and each["tags"] for each in operations)


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
def test_a_routes_statuses_are_the_contracts(document: Any, route: tuple[str, str]) -> None:
    assert {int(status) for status in operation(document, route)["responses"]} == ROUTES[route][0]


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
def test_every_response_has_a_description_a_body_and_the_request_id(
    document: Any, route: tuple[str, str]
) -> None:
    for status, response in operation(document, route)["responses"].items():
        assert response["description"], status
        assert response["headers"]["X-Request-ID"]["schema"]["maxLength"] == 128
        assert "application/json" in response["content"], status
        if int(status) >= 400 and route[1].startswith("/v1/"):
            assert response["content"]["application/json"]["schema"] == {
                "$ref": "#/components/schemas/ErrorBody"
            }


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
def test_the_headers_of_errors_are_documented(document: Any, route: tuple[str, str]) -> None:
    for status, response in operation(document, route)["responses"].items():
        if route[1].startswith("/v1/"):
            assert ("Retry-After" in response["headers"]) == (status in ("429", "503")), status
            assert ("WWW-Authenticate" in response["headers"]) == (status == "401"), status


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
def test_the_key_and_the_request_id_are_documented_where_they_count(
    document: Any, route: tuple[str, str]
) -> None:
    found, needs_key = operation(document, route), ROUTES[route][1]
    assert bool(found.get("security")) == needs_key
    given = [each for each in found.get("parameters", []) if each["in"] != "query"]
    names = [(each["name"].lower(), each["in"], each["required"]) for each in given]
    assert names == ([("x-request-id", "header", False)] if needs_key else [])


@pytest.mark.parametrize("path", ["/openai/v1/models", "/openai/v1/models/{model_id}"])
def test_where_a_key_may_be_left_out_none_is_one_of_the_ways_to_ask(document: Any, path: str) -> None:
    assert operation(document, ("GET", path))["security"] == [{"ProjectKey": []}, {}]


def test_the_scheme_of_keys_is_bearer(document: Any) -> None:
    (scheme,) = document["components"]["securitySchemes"].values()
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")


OF_OTHER_ROUTES = {
    BatchEnded,
    FileInUse,
    FilesFull,
    ResultsFull,
    StorageFull,
    UnknownBatch,
    UnknownFile,
    UnknownOriginal,
}


def test_every_status_of_the_table_is_documented_for_chat(document: Any) -> None:
    documented = {int(status) for status in operation(document, CHAT)["responses"]}
    others = {row.status for kind, row in STATUSES.items() if kind not in OF_OTHER_ROUTES}
    assert others <= documented


def test_a_completion_is_json_or_a_stream_with_its_metering_status(document: Any) -> None:
    found = operation(document, CHAT)["responses"]["200"]
    assert set(found["content"]) == {"application/json", "text/event-stream"}
    assert "data: [DONE]" in found["content"]["text/event-stream"]["example"]
    assert found["headers"]["X-Service-Metering-Status"]["schema"]["enum"] == [
        "persisted",
        "degraded",
        "not_applicable",
    ]


def test_the_chat_request_has_the_contracts_fields_defaults_and_bounds(document: Any) -> None:
    body = operation(document, CHAT)["requestBody"]
    assert body["required"] is True
    assert body["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/ChatCompletionRequest"
    }
    found = document["components"]["schemas"]["ChatCompletionRequest"]
    fields = found["properties"]
    assert found["required"] == ["messages"]
    assert (fields["messages"]["minItems"], fields["messages"]["maxItems"]) == (1, 256)
    bounds = [fields["max_tokens"][name] for name in ("minimum", "maximum", "default")]
    assert bounds == [1, 16_384, 512]
    assert [fields["temperature"][name] for name in ("minimum", "maximum", "default")] == [0, 2, 0]
    assert fields["stream"]["default"] is False
    assert all(field.get("description") for field in fields.values())
    assert found.get("additionalProperties", True) is True


@pytest.mark.parametrize(
    ("body", "fits"),
    [
        ({"messages": HI}, True),
        ({"messages": HI, "max_tokens": 16_384, "temperature": 2, "anything": {"else": 1}}, True),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}], "extra": 1}]}, True),
        ({}, False),
        ({"messages": []}, False),
        ({"messages": [{"role": "king", "content": "hi"}]}, False),
        ({"messages": HI, "max_tokens": 0}, False),
        ({"messages": HI, "max_tokens": 16_385}, False),
        ({"messages": HI, "temperature": 2.1}, False),
        ({"messages": HI, "stream": "yes"}, False),
    ],
)
def test_the_documented_request_takes_what_the_service_takes(document: Any, body: Any, fits: bool) -> None:
    assert schema(document, "ChatCompletionRequest").is_valid(body) is fits


def test_every_example_of_a_schema_fits_it(document: Any) -> None:
    examples = [
        (name, example)
        for name, found in document["components"]["schemas"].items()
        for example in found.get("examples", [])
    ]
    assert {"ChatCompletionRequest", "ChatCompletionResponse", "ErrorBody"} <= {name for name, _ in examples}
    for name, example in examples:
        schema(document, name).validate(example)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        (
            "Model",
            "id name context_length input_price_per_mtok output_price_per_mtok minimum_request_charge_usd",
        ),
        ("Catalog", "pricing_version collection_threshold_cents models"),
        ("Usage", "prompt_tokens completion_tokens total_tokens"),
        ("Metering", "persisted status"),
        (
            "Billing",
            "input_price_per_mtok output_price_per_mtok minimum_request_charge_usd minimum_applied "
            "request_cost_usd",
        ),
        ("ServiceBlock", "billing metering"),
        ("ChatCompletionResponse", "id object created model choices usage service"),
        ("ErrorBody", "detail error"),
    ],
)
def test_what_a_response_holds_is_required_and_described(document: Any, name: str, fields: str) -> None:
    found = document["components"]["schemas"][name]
    assert set(found["required"]) == set(fields.split())
    assert all(field.get("description") for field in found["properties"].values())


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("Model", "cached_input_price_per_mtok"),
        ("CatalogModel", "cached_input_price_per_mtok"),
        ("Billing", "cached_input_price_per_mtok"),
        ("Usage", "prompt_tokens_details"),
    ],
)
def test_what_tells_of_cached_input_is_described_and_not_required(
    document: Any, name: str, field: str
) -> None:
    found = document["components"]["schemas"][name]
    assert found["properties"][field]["description"] and field not in found["required"]


def test_a_catalogs_model_has_the_models_fields_and_two_more(document: Any) -> None:
    schemas = document["components"]["schemas"]
    assert set(schemas["CatalogModel"]["required"]) == {*schemas["Model"]["required"], "blurb", "is_default"}


def test_the_document_is_made_once(api: Any, document: Any) -> None:
    inner = api
    while not isinstance(inner, FastAPI):
        inner = inner._app
    assert inner.openapi() == inner.openapi() == document


def test_every_model_that_a_document_names_is_served(document: Any) -> None:
    """The ids are those of the running catalog, in the shapes and in every example."""
    schemas = document["components"]["schemas"]
    served = ["alpha", "beta", "gamma", "delta"]
    (text,) = [
        kind for kind in schemas["ChatCompletionRequest"]["properties"]["model"]["anyOf"] if "enum" in kind
    ]
    assert text["enum"] == served
    assert schemas["Model"]["properties"]["id"]["enum"] == served
    assert schemas["CatalogModel"]["properties"]["id"]["enum"] == served
    assert schemas["ChatCompletionResponse"]["properties"]["model"]["enum"] == served
    examples = [example for found in schemas.values() for example in found.get("examples", [])]
    named = {example["model"] for example in examples if isinstance(example, dict) and "model" in example}
    assert named and named <= set(served)
    assert "example-" not in json.dumps(document)


def test_an_example_of_a_request_is_answered(api: Any, document: Any) -> None:
    """By the same parse that the route uses: what the document shows can be sent as it stands."""
    for example in document["components"]["schemas"]["ChatCompletionRequest"]["examples"]:
        parse_body(json.dumps(example).encode(), "application/json", ChatCompletionRequest)


@pytest.mark.parametrize("name", ["Tool", "NamedToolChoice"])
def test_a_tool_without_its_function_is_refused_by_the_document_and_by_the_service(
    document: Any, name: str
) -> None:
    for tool in ({"type": "function"}, {"type": "function", "function": None}):
        assert not schema(document, name).is_valid(tool)
        body = {"messages": HI, **({"tools": [tool]} if name == "Tool" else {"tool_choice": tool})}
        assert not schema(document, "ChatCompletionRequest").is_valid(body)
        with pytest.raises(InvalidBody):
            parse_body(json.dumps(body).encode(), "application/json", ChatCompletionRequest)
    assert schema(document, name).is_valid({"type": "function", "function": {"name": "f"}})


@pytest.mark.parametrize(
    ("form", "fits"),
    [
        ({"type": "text"}, True),
        ({"type": "text", "json_schema": None}, True),
        ({"type": "json_schema"}, False),
        ({"type": "json_schema", "json_schema": None}, False),
        ({"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}, True),
    ],
)
def test_a_response_format_needs_its_schema_in_the_document_and_in_the_service(
    document: Any, form: Any, fits: bool
) -> None:
    assert schema(document, "ResponseFormat").is_valid(form) is fits
    raw = json.dumps({"messages": HI, "response_format": form}).encode()
    if fits:
        parse_body(raw, "application/json", ChatCompletionRequest)
    else:
        with pytest.raises(InvalidBody):
            parse_body(raw, "application/json", ChatCompletionRequest)


def test_a_long_request_id_is_documented_as_the_service_takes_it(api: Any, document: Any) -> None:
    """A longer one is taken and replaced, so no document may stop a client; none longer is sent back."""
    (parameter,) = operation(document, CHAT)["parameters"]
    assert "maxLength" not in parameter["schema"] and "replaced" in parameter["description"]
    reply = asyncio.run(Client(api, "/health", headers={"X-Request-ID": "x" * 129}).run())
    assert reply.status == 200 and len(reply.reply_headers["x-request-id"]) <= 128
