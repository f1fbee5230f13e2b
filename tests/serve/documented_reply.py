"""Replies of the public port, compared with the shape that `/openapi.json` has of them."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator

from tests.serve.served import Client


async def assert_documented(api: Any, client: Client) -> None:
    """The body of a reply that has come has the fields of its route's shape."""
    document = (await Client(api, "/openapi.json").run()).json()
    said = document["paths"][client.path][client.method.lower()]["responses"][str(client.status)]
    reference = said["content"]["application/json"]["schema"]["$ref"]
    schema = {"$ref": reference, "components": document["components"]}
    errors = sorted(Draft202012Validator(schema).iter_errors(client.json()), key=str)
    assert not errors, f"{client.path}: {errors[0].json_path}: {errors[0].message}"
