"""How a route of the admin API documents its answers."""

from collections.abc import Iterable, Mapping
from typing import Any

from starlette.responses import Response

from serve.http.openapi import REQUEST_ID_HEADER
from serve.ops.refusals import error_responses
from serve.ops.shapes.fields import Answer


def answers(model: type[Answer], *errors: int, status: int = 200, **more: Any) -> dict[str, Any]:
    """The options of a route that answers with this shape; `more` is of the answer's documentation.

    The shape is documented, and not imposed: who changed money gets the answer, whatever its form.
    """
    said = {"model": model, "description": "Done.", "headers": REQUEST_ID_HEADER, **more}
    responses = {status: said, **error_responses(*errors)}
    return {"status_code": status, "response_model": None, "responses": responses}


def text_of(*media_types: str) -> dict[str, Any]:
    """The documentation of answers that are not JSON."""
    return {"content": {one: {"schema": {"type": "string"}} for one in media_types}}


def headers(said: Mapping[str, str]) -> dict[str, Any]:
    """The documentation of an answer's own headers."""
    own = {name: {"description": words, "schema": {"type": "string"}} for name, words in said.items()}
    return {"headers": {**REQUEST_ID_HEADER, **own}}


def files(media_types: Iterable[str], *errors: int, **said: str) -> dict[str, Any]:
    """The options of a route that answers with a file, and with these headers."""
    ok = {"description": "Done.", **text_of(*media_types), **headers(said)}
    return {
        "response_class": Response,
        "response_model": None,
        "responses": {200: ok, **error_responses(*errors)},
    }
