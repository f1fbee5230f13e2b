"""The documentation of routes: their headers, errors and bodies in OpenAPI, and the pages that show it."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import fastapi_standalone_docs
from fastapi import APIRouter, FastAPI, Security
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import FileResponse, JSONResponse, Response


class ValidationIssue(BaseModel):
    """One thing that is wrong with a request, and where."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="Machine-readable kind of the issue.")
    loc: list[str | int] = Field(
        description='Path to what is wrong, such as `["body", "messages", 0, "role"]`.'
    )
    msg: str = Field(description="What is wrong, in words.")
    input: Any = Field(default=None, description="The value found, if it is short.")
    ctx: dict[str, Any] | None = Field(default=None, description="The bounds or choices that were not met.")


class OpenAIError(BaseModel):
    """The same error in the form that OpenAI's clients print."""

    message: str = Field(description="What went wrong.")
    type: str = Field(description="Class of error, such as `invalid_request_error`.")
    param: str | None = Field(default=None, description="The field at fault, if one is.")
    code: str | None = Field(default=None, description="Machine-readable code.")


class ErrorBody(BaseModel):
    """Every error. `detail` is a list of issues where fields are invalid, and else a sentence."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "detail": "store: stored completions are not offered here; omit it or send false",
                    "error": {
                        "message": "store: stored completions are not offered here; omit it or send false",
                        "type": "invalid_request_error",
                        "param": "store",
                        "code": "unsupported_option",
                    },
                }
            ]
        }
    )

    detail: str | list[ValidationIssue] = Field(description="What went wrong.")
    error: OpenAIError = Field(description="The same for OpenAI's clients.")


class OpenAIErrorBody(BaseModel):
    """Every error under `/openai/v1`."""

    model_config: ClassVar[ConfigDict] = ConfigDict(title="OpenAIErrorBody")

    error: OpenAIError = Field(description="What went wrong.")


REQUEST_ID_HEADER: dict[str, Any] = {
    "X-Request-ID": {
        "description": "The request's correlation id: the caller's where it was usable, else a new one.",
        "schema": {"type": "string", "maxLength": 128},
    }
}
_WHEN = {
    400: "Unsupported chat option.",
    401: "Missing bearer key.",
    402: "Workspace quota exceeded or billing disabled.",
    403: "Invalid or revoked key.",
    404: "No such original, or its time is over.",
    409: "The month cannot be proven, or not here.",
    422: "Malformed JSON, invalid fields, unsupported model, or request too large.",
    429: "Project rate limit exceeded.",
    500: "Unexpected server error.",
    502: "The inference service returned an invalid response.",
    503: "The service that this route needs is unavailable; `Retry-After` says when to try again.",
}
_WHEN_IN_A_DIALECT = {
    **_WHEN,
    400: "What is wrong with the request, a prompt or a text that does not fit the context included.",
    401: "No key, or a key that is wrong or revoked.",
    404: "No such model or object, or the key may not use it.",
    409: "The object is in a state in which this cannot be done.",
    413: "The body is too large.",
    507: "The server has no room for the file.",
    529: _WHEN[503],
}
RATE_LIMIT_HEADERS: dict[str, Any] = {
    f"x-ratelimit-{what}-{kind}": {
        "description": f"{words} of the project's {kind} a minute, or by the hour or day that refuses; present only if "
        "the project has this limit.",
        "schema": {"type": "string"},
    }
    for kind in ("requests", "tokens")
    for what, words in (
        ("limit", "The limit"),
        ("remaining", "What is left"),
        ("reset", "Seconds to the reset"),
    )
}
METERING_HEADER = "X-Service-Metering-Status"
_RETRY_AFTER = {
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}}
}
_CHALLENGE = {"WWW-Authenticate": {"description": "`Bearer`.", "schema": {"type": "string"}}}


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The documentation of a route's errors."""
    extra = {401: _CHALLENGE, 429: {**_RETRY_AFTER, **RATE_LIMIT_HEADERS}, 503: _RETRY_AFTER}
    return {
        status: {
            "model": ErrorBody,
            "description": _WHEN[status],
            "headers": {**REQUEST_ID_HEADER, **extra.get(status, {})},
        }
        for status in statuses
    }


def dialect_errors(body: type[BaseModel], *statuses: int) -> dict[int, dict[str, Any]]:
    """The documentation of the errors of a dialect's route, which have this body."""
    return {
        status: {"model": body, "description": _WHEN_IN_A_DIALECT[status], "headers": REQUEST_ID_HEADER}
        for status in sorted(statuses)
    }


def metering_header(description: str) -> dict[str, Any]:
    """The documentation of the header that says whether usage is on record."""
    schema = {"type": "string", "enum": ["persisted", "degraded", "not_applicable"]}
    return {METERING_HEADER: {"description": description, "schema": schema}}


def json_body(*shapes: str) -> dict[str, Any]:
    """The documentation of a body that the route reads itself, of any of these shapes; `document_request_models` adds
    them."""
    references = [{"$ref": f"#/components/schemas/{shape}"} for shape in shapes]
    schema = references[0] if len(references) == 1 else {"anyOf": references}
    return {"required": True, "content": {"application/json": {"schema": schema}}}


# The middleware reads it; declared as data, it adds no validation of its own to a route. No `maxLength`: a longer id is
# taken, and replaced.
REQUEST_ID_PARAMETER: dict[str, Any] = {
    "name": "X-Request-ID",
    "in": "header",
    "required": False,
    "description": "Correlation id of at most 128 printable ASCII characters; any other is replaced by a new one.",
    "schema": {"type": "string"},
}


# The scheme is for the documentation: `serve.http.auth` reads the header, so that its errors have the contract's shape.
BEARER = Security(HTTPBearer(auto_error=False, description="A project API key.", scheme_name="ProjectKey"))


# What the examples of shapes say for a model that each server calls by its own name.
EXAMPLE_MODEL = "example-model"
EXAMPLE_COMPRESSOR = "example-compressor"
# Their `model` may be any other name too.
OPEN_SHAPES = frozenset(
    {
        "CompressMessagesRequest",
        *("OpenAIChatRequest", "CompletionRequest", "ResponseRequest", "AnthropicRequest"),
        *("OpenAICompletion", "OpenAIResponse", "AnthropicMessage"),
        *("EmbeddingRequest", "RerankRequest", "ScoreRequest"),
        *("EmbeddingList", "RerankResponse", "ScoreResponse"),
    }
)
CHAT_SHAPES = frozenset({"Model", "CatalogModel", "ChatCompletionRequest", "ChatCompletionResponse"})


@dataclass(frozen=True, slots=True)
class ServedModels:
    """The ids that this server knows, its defaults first."""

    chat: tuple[str, ...]
    compressors: tuple[str, ...]

    def of_shape(self, name: str) -> tuple[str, ...]:
        """Those that the `model` of a request or a response of this name can be."""
        return self.chat if name in CHAT_SHAPES else self.compressors

    @property
    def examples(self) -> dict[str, str]:
        first = {EXAMPLE_MODEL: self.chat[:1], EXAMPLE_COMPRESSOR: self.compressors[:1]}
        return {name: ids[0] for name, ids in first.items() if ids}


def document_request_models(api: FastAPI, served: ServedModels, *models: type[BaseModel]) -> None:
    """Add to the schema the request shapes that routes read themselves, for one strict parse of the raw bytes; and name
    this server's own models in every shape and example."""
    generate = api.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        for model in models:
            schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(schema.pop("$defs", {}))
            schemas[model.__name__] = schema
        _name_models(schemas, served)
        return document

    api.openapi = openapi  # type: ignore[method-assign]


def _name_models(schemas: dict[str, Any], served: ServedModels) -> None:
    for name, schema in schemas.items():
        if "examples" in schema:
            schema["examples"] = _renamed(schema["examples"], served.examples)
        if name in OPEN_SHAPES:
            continue
        for field in ("model", "id") if name in ("Model", "CatalogModel") else ("model",):
            found = schema.get("properties", {}).get(field)
            # Of `string or null` the string is narrowed.
            for kind in found.get("anyOf", [found]) if found else ():
                if kind.get("type") == "string":
                    kind["enum"] = list(served.of_shape(name))


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _renamed(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [_renamed(inner, names) for inner in value]
    return names.get(value, value) if isinstance(value, str) else value


class Health(BaseModel):
    """`ok`, or why not."""

    status: str
    unavailable: list[str] = Field(
        default=[], description="Models that cannot be started now; not there where all can."
    )


def health_routes(
    ready: Callable[[], Awaitable[bool]], away: Callable[[], Awaitable[Collection[str]]]
) -> APIRouter:
    routes = APIRouter(tags=["health"])

    # Load tools look for it below the address that they are given.
    @routes.get("/openai/health", include_in_schema=False)
    @routes.head("/health", include_in_schema=False)
    @routes.get("/health", response_model=Health, responses={200: {"headers": REQUEST_ID_HEADER}})
    async def health() -> Response:
        """The HTTP server answers."""
        return JSONResponse({"status": "ok"})

    @routes.head("/ready", include_in_schema=False)
    @routes.get(
        "/ready",
        response_model=Health,
        responses={
            200: {"headers": REQUEST_ID_HEADER},
            503: {
                "model": Health,
                "description": "The default model is not up, or it cannot be started and no other is up.",
                "headers": REQUEST_ID_HEADER,
            },
        },
    )
    async def readiness() -> Response:
        """The default model has a replica that answers; where it cannot be started, any other has."""
        is_ready = await ready()
        gone = sorted(await away())
        body = {"status": "ok" if is_ready else "starting", **({"unavailable": gone} if gone else {})}
        if is_ready:
            return JSONResponse(body)
        return JSONResponse(body, status_code=503, headers={"Retry-After": "5"})

    return routes


_PAGES = Path(__file__).parent / "pages"
# The package is used for the viewers' files alone; its own pages allow scripts within the page.
_VIEWERS = Path(fastapi_standalone_docs.__path__[0]) / "static"

PAGES = {"/docs": _PAGES / "swagger.html", "/redoc": _PAGES / "redoc.html"}
FILES = {
    "/docs/start.js": _PAGES / "swagger.js",
    "/docs/swagger-ui-bundle.js": _VIEWERS / "swagger/swagger-ui-bundle.js",
    "/docs/swagger-ui.css": _VIEWERS / "swagger/swagger-ui.css",
    "/redoc/start.js": _PAGES / "redoc.js",
    "/redoc/redoc.standalone.js": _VIEWERS / "redoc/redoc.standalone.js",
    "/redoc/logo-mini.svg": _VIEWERS / "redoc/logo-mini.svg",
}
HEADERS = {
    # Both viewers put style rules into the page, and Redoc searches in a worker that it makes from a blob. Otherwise
    # only what this server sends is run or fetched.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; worker-src blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def docs_routes() -> APIRouter:
    """One route per file, so that no caller's path ever names a file."""
    routes = APIRouter(include_in_schema=False)
    for path, file in {**PAGES, **FILES}.items():
        routes.add_api_route(path, _sends(file), methods=["GET", "HEAD"])
    return routes


def _sends(file: Path) -> Callable[[], Awaitable[Response]]:
    async def send_file() -> Response:
        return FileResponse(file, headers=HEADERS)

    return send_file
