"""The catalog and the model list against sections 2, 4, 8 and 9 of the contract, on the real server."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml

from tests.integration.contract_shapes import CATALOG, CATALOG_MODEL, ERROR, MODEL, mismatches, rows

if TYPE_CHECKING:
    from tests.integration.running import Server


@pytest.fixture(scope="module")
def configured(server: Server) -> list[dict[str, Any]]:
    """The chat models as the server's configuration names them."""
    models = yaml.safe_load(server.config.read_text())["models"]
    # An adapter has the context of its base, which is the first.
    context = {"context_length": models[0]["context_length"]}
    return [context | model for model in models if model.get("kind", "chat") == "chat"]


@pytest.fixture(scope="module")
def catalog_reply(server: Server) -> httpx.Response:
    return httpx.get(f"{server.url}/v1/catalog")


@pytest.fixture(scope="module")
def catalog(catalog_reply: httpx.Response) -> dict[str, Any]:
    found = catalog_reply.json(parse_float=Decimal)
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def listing_reply(server: Server) -> httpx.Response:
    with server.client() as client:
        return client.get("/v1/models")


@pytest.fixture(scope="module")
def listing(listing_reply: httpx.Response) -> list[dict[str, Any]]:
    found = listing_reply.json(parse_float=Decimal)
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize(("field", "kind"), rows("Catalog", CATALOG))
def test_the_catalog_has(field: str, kind: Any, catalog: dict[str, Any]) -> None:
    assert mismatches(catalog, {field: kind}) == []


@pytest.mark.parametrize(("field", "kind"), rows("CatalogModel", CATALOG_MODEL))
def test_each_catalog_model_has(field: str, kind: Any, catalog: dict[str, Any]) -> None:
    for model in catalog["models"]:
        assert mismatches(model, {field: kind}) == []


@pytest.mark.parametrize(("field", "kind"), rows("Model", MODEL))
def test_each_listed_model_has(field: str, kind: Any, listing: list[dict[str, Any]]) -> None:
    for model in listing:
        assert mismatches(model, {field: kind}) == []


def test_the_four_ids_stand_in_the_configured_order(
    catalog: dict[str, Any], listing: list[dict[str, Any]], configured: list[dict[str, Any]]
) -> None:
    """2 Model: id is one of four values, in order."""
    expected = [model["id"] for model in configured]
    # Those of the shipped file; the tests' server has an adapter too.
    assert len(set(expected)) == len(expected) == 5 and "adapter" in configured[-1]
    assert [model["id"] for model in catalog["models"]] == expected
    assert [model["id"] for model in listing] == expected


def test_the_first_model_and_no_other_is_the_default(catalog: dict[str, Any]) -> None:
    """2 CatalogModel: is_default; 2 ChatCompletionRequest: the default is the first model."""
    assert [model["is_default"] for model in catalog["models"]] == [True, False, False, False, False]


@pytest.mark.parametrize(
    ("field", "key"),
    [
        ("input_price_per_mtok", "input_usd_per_mtok"),
        ("output_price_per_mtok", "output_usd_per_mtok"),
        ("minimum_request_charge_usd", "minimum_request_usd"),
    ],
    ids=lambda name: f"2 Model: {name}" if name.endswith(("mtok", "charge_usd")) else "",
)
def test_prices_are_those_of_the_configuration(
    field: str, key: str, catalog: dict[str, Any], configured: list[dict[str, Any]]
) -> None:
    shown = [Decimal(str(model[field])) for model in catalog["models"]]
    assert shown == [Decimal(model["price"][key]) for model in configured]


@pytest.mark.parametrize(
    ("field", "key"), [("name", "name"), ("blurb", "blurb"), ("context_length", "context_length")]
)
def test_what_describes_a_model_is_what_the_configuration_says(
    field: str, key: str, catalog: dict[str, Any], configured: list[dict[str, Any]]
) -> None:
    """2 Model: name, context_length; 2 CatalogModel: blurb."""
    assert [model[field] for model in catalog["models"]] == [model[key] for model in configured]


def test_the_collection_threshold_is_at_least_one_cent(catalog: dict[str, Any], server: Server) -> None:
    """8 Limits: collection_threshold_cents is an integer, minimum 1."""
    configured = yaml.safe_load(server.config.read_text())["billing"]["collection_threshold_cents"]
    assert catalog["collection_threshold_cents"] == configured >= 1


def test_the_list_tells_of_each_model_what_the_catalog_tells(
    catalog: dict[str, Any], listing: list[dict[str, Any]]
) -> None:
    """4 GET /v1/models: a JSON array of Model; 2 CatalogModel: all Model fields plus two."""
    assert listing == [{field: model[field] for field in MODEL} for model in catalog["models"]]


def test_the_pricing_version_stays_while_prices_do(catalog: dict[str, Any], server: Server) -> None:
    """9 Versioning: pricing_version identifies the price list in force."""
    assert httpx.get(f"{server.url}/v1/catalog").json()["pricing_version"] == catalog["pricing_version"] >= 1


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer no-such-key"}, {"Authorization": "nonsense"}], ids=str
)
def test_the_catalog_needs_no_key(headers: dict[str, str], server: Server) -> None:
    """4 GET /v1/catalog: public, no key; 5 Authentication: none."""
    assert httpx.get(f"{server.url}/v1/catalog", headers=headers).status_code == 200


def test_both_lists_are_json(catalog_reply: httpx.Response, listing_reply: httpx.Response) -> None:
    """4 GET /v1/catalog: content type JSON; 4 GET /v1/models: 200 is a JSON array."""
    for reply in (catalog_reply, listing_reply):
        assert reply.status_code == 200
        assert reply.headers["content-type"].partition(";")[0] == "application/json"
        assert reply.headers["x-request-id"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/catalogue", 404),
        ("GET", "/v1/catalog/", 404),
        ("GET", "/v1/models/pith-mini", 404),
        ("GET", "/v2/models", 404),
        ("GET", "/catalog", 404),
        ("POST", "/v1/catalog", 405),
        ("DELETE", "/v1/models", 405),
        ("GET", "/v1/chat/completions", 405),
    ],
)
def test_no_other_path_or_method_answers(method: str, path: str, status: int, http: httpx.Client) -> None:
    """7 Errors: every error body is an Error object; 9: route paths carry the prefix /v1."""
    reply = http.request(method, path)
    assert reply.status_code == status
    assert mismatches(reply.json(), ERROR) == []
    assert path in reply.json()["detail"]
