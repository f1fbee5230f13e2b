"""The playground's routes: its files, each with its type and validator, and what it is told of its server."""

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from billing.ledger.price_list import PriceList
from compression.pipeline.compression_model import LONGEST_SIZED_BYTES, MAX_SIZES, as_requests
from compression.scorers.kinds import KINDS
from models.catalog import Catalog, ChatModel
from serve.config.compression_models import CompressionModelSettings
from serve.config.retrieval_models import RetrievalModelSettings
from serve.config.settings import Settings
from serve.money.prices import PriceBook, price_fields, price_of

# What the page asks of one compression; `pages/compress/sizes.js` has it.
PAGE_SIZES = 40


@dataclass(frozen=True, slots=True)
class About:
    """The public facts of a server. Where it does not compress, `compressors` and `demo` are empty. `running` says of
    models, by id, whether they answer now."""

    catalog: Catalog
    compressors: Sequence[CompressionModelSettings]
    retrievers: Sequence[RetrievalModelSettings]
    demo: dict[str, int]
    max_body_bytes: int
    running: Callable[[], Awaitable[Mapping[str, bool]]]


def about_of(
    settings: Settings,
    catalog: Catalog,
    *,
    compresses: bool,
    running: Callable[[], Awaitable[Mapping[str, bool]]],
) -> About:
    """`compresses`: whether this server has compression models that run."""
    compression = settings.compression
    demo = {
        "max_chars": compression.demo.max_chars,
        "requests_per_minute": max(
            1, compression.demo.requests_per_minute_per_address // as_requests(PAGE_SIZES)
        ),
    }
    return About(
        catalog=catalog,
        compressors=compression.models if compresses else (),
        retrievers=settings.retrieval_models,
        demo=demo if compresses else {},
        max_body_bytes=settings.server.max_body_bytes,
        running=running,
    )


def about_fields(about: About, prices: PriceList) -> dict[str, Any]:
    """As JSON. Prices are USD, as `/v1/catalog` has them. Raises `PricesUnavailable`."""
    return {
        "object": "playground",
        "pricing_version": prices.version,
        "max_body_bytes": about.max_body_bytes,
        "demo": about.demo,
        "sizes": {"most": MAX_SIZES, "longest_bytes": LONGEST_SIZED_BYTES},
        "chat": [_chat_fields(model, prices) for model in about.catalog.models],
        "compression": [_compressor_fields(model, prices) for model in about.compressors],
        "retrieval": [_retriever_fields(model, prices) for model in about.retrievers],
    }


def _chat_fields(model: ChatModel, prices: PriceList) -> dict[str, Any]:
    can = model.capabilities
    return {
        **_named(model.id, model.name, model.blurb),
        "kind": "chat",
        "context_length": model.context_length,
        "is_default": model.is_default,
        "tools": can.tools is True,
        "reasoning_effort": can.reasoning_effort,
        "media": sorted(can.media),
        **price_fields(price_of(prices, model.id)),
    }


def _compressor_fields(model: CompressionModelSettings, prices: PriceList) -> dict[str, Any]:
    kind = KINDS[model.kind]
    return {
        **_named(model.id, model.name, model.blurb),
        "kind": "compression",
        "ratio": {"min": model.ratio.min, "max": model.ratio.max, "default": model.ratio.default},
        "max_input_bytes": model.max_input_bytes,
        "max_query_chars": model.max_query_chars,
        "offers_sizes": not kind.chooses_words,
        "offers_keep": not kind.chooses_words,
        **price_fields(price_of(prices, model.id)),
    }


def _retriever_fields(model: RetrievalModelSettings, prices: PriceList) -> dict[str, Any]:
    return {
        **_named(model.id, model.name, model.blurb),
        "kind": model.kind,
        "context_length": model.context_length,
        **price_fields(price_of(prices, model.id)),
    }


def _named(id_: str, name: str, blurb: str) -> dict[str, Any]:
    return {"id": id_, "name": name, "blurb": blurb}


FOLDER = Path(__file__).parent / "pages"
PAGE = FOLDER / "index.html"
# A file of another kind is not sent.
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file as it is sent. `etag` is quoted, and changes with the contents."""

    path: str
    media_type: str
    etag: str
    body: bytes


def page_files() -> Iterator[PageFile]:
    """The page at `/`, and each other file at `/playground/…`."""
    yield _read("/", PAGE)
    for file in sorted(FOLDER.rglob("*")):
        if file.suffix in _TYPES and file != PAGE:
            yield _read(f"/playground/{file.relative_to(FOLDER).as_posix()}", file)


def _read(path: str, file: Path) -> PageFile:
    body = file.read_bytes()
    return PageFile(path, _TYPES[file.suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"', body)


ABOUT = "/playground/about.json"
RUNNING = "/playground/running.json"
ANY_FILE = "/playground/{name:path}"
# Only what this server sends is run, shown or asked. Scripts can make no HTML of text, whatever they are given.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    # Asked for again each time: after an upgrade no old module meets a new one.
    "Cache-Control": "no-cache",
}


def page_routes(about: About, prices: PriceBook) -> APIRouter:
    """The files stand in a table that is made at the start: a caller's path is looked up there, and names no file."""
    routes = APIRouter(include_in_schema=False)
    files = {file.path: file for file in page_files()}

    @routes.api_route(ABOUT, methods=["GET", "HEAD"])
    async def read_about() -> Response:
        """The facts that the page shows of models, prices and the demo: nothing that is not public."""
        body = orjson.dumps(about_fields(about, await prices.current()))
        return Response(body, media_type="application/json", headers=HEADERS)

    @routes.api_route(RUNNING, methods=["GET", "HEAD"])
    async def read_running() -> Response:
        """The models that answer now: one that starts on its first request lets the page say so."""
        body = orjson.dumps({"object": "running", "models": dict(await about.running())})
        return Response(body, media_type="application/json", headers=HEADERS)

    @routes.api_route("/", methods=["GET", "HEAD"])
    async def send_page(request: Request) -> Response:
        return _sent(files["/"], request)

    @routes.api_route(ANY_FILE, methods=["GET", "HEAD"])
    async def send_file(request: Request) -> Response:
        file = files.get(request.url.path)
        if file is None:
            raise HTTPException(404, "Not Found")
        return _sent(file, request)

    return routes


def _sent(file: PageFile, request: Request) -> Response:
    headers = {**HEADERS, "ETag": file.etag}
    if _has(request.headers.get("if-none-match", ""), file.etag):
        return Response(status_code=304, headers=headers)
    return Response(file.body, media_type=file.media_type, headers=headers)


def _has(if_none_match: str, etag: str) -> bool:
    """A proxy that compresses may have made the validator a weak one."""
    known = [one.strip().removeprefix("W/") for one in if_none_match.split(",")]
    return etag in known or "*" in known
