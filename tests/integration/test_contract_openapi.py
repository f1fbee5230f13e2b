"""What the service says of itself: `/health`, `/ready`, `/docs`, and an `/openapi.json` that keeps to the contract."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from jsonschema import Draft202012Validator

if TYPE_CHECKING:
    from tests.integration.running import Server

CHAT_PATH = "/v1/chat/completions"
CHAT = {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 2}

# Sections 4 and 7: every status that a route may answer, and no other.
STATUSES: dict[tuple[str, str], set[str]] = {
    ("/v1/catalog", "get"): {"200", "503"},
    ("/v1/models", "get"): {"200", "401", "403", "429", "500", "503"},
    (CHAT_PATH, "post"): {"200", "400", "401", "402", "403", "422", "429", "500", "502", "503"},
}
ROUTES = sorted([*STATUSES, ("/health", "get"), ("/ready", "get")])
every_route = pytest.mark.parametrize(("path", "method"), ROUTES, ids=[path for path, _ in ROUTES])


@pytest.fixture(scope="module")
def document(server: Server) -> dict[str, Any]:
    return dict(httpx.get(f"{server.url}/openapi.json").json())


def operation(document: dict[str, Any], path: str, method: str) -> dict[str, Any]:
    return dict(document["paths"][path][method])


def header_names(response: dict[str, Any]) -> set[str]:
    return {name.lower() for name in response.get("headers", {})}


@pytest.mark.parametrize(("path", "kind"), [("/health", "json"), ("/ready", "json"), ("/docs", "html")])
def test_a_public_page_answers(path: str, kind: str, server: Server) -> None:
    reply = httpx.get(server.url + path)
    assert reply.status_code == 200
    assert kind in reply.headers["content-type"]
    if kind == "json":
        assert reply.json() == {"status": "ok"}


def test_the_document_states_the_interface_version(document: dict[str, Any]) -> None:
    """9 Versioning: interface version 1.2.1."""
    assert document["info"]["version"] == "1.2.1"
    assert document["openapi"].startswith("3.")


def test_every_route_is_documented_and_no_other(document: dict[str, Any]) -> None:
    """4 Endpoints: the catalog, the model list, chat completions."""
    found = {(path, method) for path, methods in document["paths"].items() for method in methods}
    assert found >= set(ROUTES)


@pytest.mark.parametrize(("path", "method"), list(STATUSES), ids=[path for path, _ in STATUSES])
def test_the_documented_statuses_are_those_of_the_contract(
    path: str, method: str, document: dict[str, Any]
) -> None:
    """4 Endpoints and 7 Errors: the statuses of each route."""
    assert set(operation(document, path, method)["responses"]) == STATUSES[path, method]


@every_route
def test_every_documented_response_carries_the_request_id(
    path: str, method: str, document: dict[str, Any]
) -> None:
    """4: every response carries X-Request-ID."""
    for status, response in operation(document, path, method)["responses"].items():
        assert "x-request-id" in header_names(response), status


@pytest.mark.parametrize("path", ["/v1/models", CHAT_PATH])
def test_the_request_id_is_a_documented_request_header(path: str, document: dict[str, Any]) -> None:
    """4 Common request header: X-Request-ID, not required."""
    (found,) = (route for method, route in document["paths"][path].items() if method in {"get", "post"})
    headers = {each["name"].lower(): each for each in found["parameters"] if each["in"] == "header"}
    assert headers["x-request-id"]["required"] is False


@pytest.mark.parametrize(("path", "method"), list(STATUSES), ids=[path for path, _ in STATUSES])
def test_errors_are_documented_with_the_error_body_and_their_headers(
    path: str, method: str, document: dict[str, Any]
) -> None:
    """7: every error body is an Error object; 401 names the scheme, 429 and 503 when to come back."""
    for status, response in operation(document, path, method)["responses"].items():
        if status == "200":
            continue
        schema = response["content"]["application/json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/ErrorBody"}, status
        names = header_names(response)
        assert ("www-authenticate" in names) is (status == "401")
        assert ("retry-after" in names) is (status in {"429", "503"}), status


@pytest.mark.parametrize("path", ["/v1/models", CHAT_PATH])
def test_the_headers_of_rate_limits_are_documented(path: str, document: dict[str, Any]) -> None:
    """8 Limits: what a limited project is told, on success and with a 429."""
    (found,) = (route for method, route in document["paths"][path].items() if method in {"get", "post"})
    for status in ("200", "429"):
        assert "x-ratelimit-limit-requests" in header_names(found["responses"][status]), status


def test_the_metering_header_is_documented_with_its_values(document: dict[str, Any]) -> None:
    """4 POST /v1/chat/completions: X-Service-Metering-Status."""
    headers = operation(document, CHAT_PATH, "post")["responses"]["200"]["headers"]
    assert headers["X-Service-Metering-Status"]["schema"]["enum"] == [
        "persisted",
        "degraded",
        "not_applicable",
    ]


def test_both_forms_of_a_completion_are_documented(document: dict[str, Any]) -> None:
    """4 POST /v1/chat/completions: JSON, or text/event-stream."""
    content = operation(document, CHAT_PATH, "post")["responses"]["200"]["content"]
    assert set(content) == {"application/json", "text/event-stream"}


@every_route
def test_keys_are_documented_where_they_are_asked_for(
    path: str, method: str, document: dict[str, Any]
) -> None:
    """5 Authentication: bearer key for the models and for chat, none for the catalog."""
    security = operation(document, path, method).get("security", [])
    schemes = document["components"]["securitySchemes"]
    asked = [schemes[name]["scheme"] for each in security for name in each]
    assert asked == (["bearer"] if path in {"/v1/models", CHAT_PATH} else [])


@pytest.mark.parametrize(
    ("field", "facts"),
    [
        ("messages", {"type": "array", "minItems": 1, "maxItems": 256}),
        ("max_tokens", {"type": "integer", "minimum": 1, "maximum": 16384, "default": 512}),
        ("temperature", {"type": "number", "minimum": 0, "maximum": 2, "default": 0}),
        ("stream", {"type": "boolean", "default": False}),
    ],
)
def test_the_request_is_documented_with_bounds_and_defaults(
    field: str, facts: dict[str, Any], document: dict[str, Any]
) -> None:
    """2 ChatCompletionRequest and 8 Limits."""
    schema = document["components"]["schemas"]["ChatCompletionRequest"]
    assert {name: schema["properties"][field].get(name) for name in facts} == facts
    assert schema["required"] == ["messages"]
    assert schema.get("additionalProperties", True) is True


def test_the_six_roles_are_documented(document: dict[str, Any]) -> None:
    """2 Message: role."""
    role = document["components"]["schemas"]["Message"]["properties"]["role"]
    assert role["enum"] == ["system", "developer", "user", "assistant", "tool", "function"]


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, member in value.items():
            if name == "$ref" and isinstance(member, str):
                yield member
            yield from references(member)
    elif isinstance(value, list):
        for member in value:
            yield from references(member)


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) <= known


def test_every_schema_is_json_schema(document: dict[str, Any]) -> None:
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def validate(value: Any, name: str, document: dict[str, Any]) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    Draft202012Validator(schema).validate(value)


def test_documented_examples_keep_to_their_schemas(document: dict[str, Any]) -> None:
    """Every route, status and header has an example that is one."""
    count = 0
    for name, schema in document["components"]["schemas"].items():
        for example in schema.get("examples", []):
            validate(example, name, document)
            count += 1
    assert count >= 4


def test_what_is_answered_keeps_to_the_document(document: dict[str, Any], http: httpx.Client) -> None:
    """2: the shapes, as the document states them and as the server sends them."""
    validate(http.get("/v1/catalog").json(), "Catalog", document)
    for model in http.get("/v1/models").json():
        validate(model, "Model", document)
    validate(CHAT, "ChatCompletionRequest", document)
    validate(http.post(CHAT_PATH, json=CHAT).json(), "ChatCompletionResponse", document)
    for body in ({}, {**CHAT, "echo": True}, {**CHAT, "model": "x"}, {**CHAT, "max_tokens": 0}):
        validate(http.post(CHAT_PATH, json=body).json(), "ErrorBody", document)
