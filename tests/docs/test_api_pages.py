"""The pages of docs/api and docs/configuration.md say of each route and key what the code does."""

from __future__ import annotations

from tests.docs.api_page import anchor, page, type_of
from tests.docs.api_pages import FOLDER, pages


def test_each_page_is_what_the_code_says() -> None:
    made = pages()
    assert set(made) >= set(FOLDER.glob("*.md"))
    differ = [path.name for path, text in made.items() if path.read_text() != text]
    assert not differ, "run `python -m tests.docs.api_pages` and read the difference"


def test_a_route_has_its_parameters_body_answers_and_errors() -> None:
    route = {
        "description": "Makes it.",
        "security": [{"Key": []}, {}],
        "parameters": [
            {"name": "limit", "in": "query", "schema": {"type": "integer", "default": 10, "maximum": 99}}
        ],
        "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Made"}}}},
        "responses": {"200": {"description": "Made."}, "404": {"description": "Unknown."}},
    }
    made = {
        "type": "object",
        "required": ["id"],
        "properties": {"id": {"type": "string", "description": "A|B."}},
    }
    text = page(
        "API", "About.", {"paths": {"/v1/a_b": {"post": route}}, "components": {"schemas": {"Made": made}}}
    )
    for line in (
        "| [`POST /v1/a_b`](#post-v1a_b) | optional | Makes it. |",
        "| `limit` | query | integer, at most 99 | `10` |  |",
        "Body: `application/json`: [Made](#made).",
        "| 200 | Made. |  |",
        "Errors: 404 Unknown.",
        "| `id` | string | required | A\\|B. |",
    ):
        assert line in text.splitlines()


def test_types_are_said_in_words() -> None:
    assert (
        type_of({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]})
        == "integer, at least 1 or null"
    )
    assert (
        type_of({"type": "array", "items": {"$ref": "#/x/Item"}, "maxItems": 3})
        == "array of [Item](#item), at most 3 items"
    )
    assert type_of({"enum": ["a", "b"]}) == "`a`, `b`"
    assert anchor("GET /v1/models/{model_id}") == "get-v1modelsmodel_id"
