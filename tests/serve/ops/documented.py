"""What the ops port answers, compared with what its own document says of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
from jsonschema import Draft202012Validator

Document = dict[str, Any]
# Every answer may have these: they are the server's.
COMMON = {"content-length", "content-type", "date", "transfer-encoding", "x-request-id", "cache-control"}


def checked(document: Document) -> Callable[[httpx.Response], None]:
    """A hook of a client, which fails on an answer that the document does not have."""
    strict = {"$defs": {name: _strict(one) for name, one in document["components"]["schemas"].items()}}

    def check(reply: httpx.Response) -> None:
        operation = operation_of(document, reply.request.method, reply.request.url.path)
        if operation is None:
            return
        reply.read()
        where = f"{reply.request.method} {reply.request.url}: {reply.status_code}"
        said = operation["responses"].get(str(reply.status_code))
        assert said is not None, f"{where} is not documented"
        headers = {name.lower() for name in said.get("headers", ())} | COMMON
        assert set(reply.headers) <= headers, (where, set(reply.headers) - headers)
        media_type = reply.headers["content-type"].partition(";")[0]
        of_type = {kind.partition(";")[0]: one for kind, one in said["content"].items()}
        assert media_type in of_type, (where, media_type)
        if media_type == "application/json":
            schema = {**_local(of_type[media_type]["schema"]), **strict}
            errors = sorted(Draft202012Validator(schema).iter_errors(reply.json()), key=str)
            assert not errors, f"{where}: {errors[0].json_path}: {errors[0].message}"

    return check


def operation_of(document: Document, method: str, path: str) -> Any:
    """The documented route that answers it; what has a name of its own comes before what is a parameter's."""
    for template in sorted(document["paths"], key=lambda one: one.count("{")):
        pattern = re.sub(r"\{\w+\}", "[^/]+", template)
        if re.fullmatch(pattern, path) and method.lower() in document["paths"][template]:
            return document["paths"][template][method.lower()]
    return None


def successes(document: Document) -> Iterator[tuple[str, Any]]:
    """Every answer of the admin API that is no error, by its route."""
    for path, each in document["paths"].items():
        for method, found in each.items() if path.startswith("/admin/") else ():
            for status, said in found["responses"].items():
                if status < "300":
                    yield f"{method} {path}", said


def _strict(schema: Any) -> Any:
    """Refuses what the document does not name, which clients must let pass."""
    schema = _local(schema)
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
    return schema


def _local(schema: Any) -> Any:
    if isinstance(schema, dict):
        found = {name: _local(one) for name, one in schema.items()}
        if "$ref" in found:
            found["$ref"] = found["$ref"].replace("#/components/schemas/", "#/$defs/")
        return found
    return [_local(one) for one in schema] if isinstance(schema, list) else schema
