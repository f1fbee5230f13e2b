"""The routes of the transparency log. They need no key: nobody learns anything from it who lacks a leaf's texts."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from billing.transparency import verify
from billing.transparency.tree import HASH_BYTES, TILE_WIDTH, hashes_of_entries, parted
from serve.http.openapi import REQUEST_ID_HEADER, error_responses
from serve.transparency.log_reader import LogReader

# `<L>/<N>[.p/<W>]`: a level, or `entries`; a number in groups of three digits, all but the last behind an x.
TILE = re.compile(r"(entries|[1-9]?[0-9])/((?:x[0-9]{3}/){0,6}[0-9]{3})(?:\.p/([1-9][0-9]{0,2}))?", re.ASCII)
HIGHEST_LEVEL = 63
ENTRIES = "entries"
# A tile of one path never changes, but where a backup was restored another log begins under the same paths.
FOR_A_DAY = {"Cache-Control": "public, max-age=86400, immutable"}
ANEW = {"Cache-Control": "no-cache"}
TEXT, BYTES = "text/plain; charset=utf-8", "application/octet-stream"


@dataclass(frozen=True, slots=True)
class AskedTile:
    """`level` is None for entries themselves."""

    level: int | None
    number: int
    width: int


def asked_tile(path: str) -> AskedTile | None:
    """None for a path that is not the one that a tile is written with."""
    found = TILE.fullmatch(path)
    if found is None:
        return None
    level, number, width = found.groups()
    groups = number.replace("x", "").split("/")
    if len(groups) > 1 and groups[0] == "000":
        return None
    wide = TILE_WIDTH if width is None else int(width)
    if (width is not None and wide >= TILE_WIDTH) or (level != ENTRIES and int(level) > HIGHEST_LEVEL):
        return None
    return AskedTile(None if level == ENTRIES else int(level), int("".join(groups)), wide)


def _responses(media_type: str, kind: str, description: str) -> dict[int | str, dict[str, Any]]:
    content = {media_type: {"schema": {"type": "string", "format": kind}}}
    errors = error_responses(404, 503)
    errors[404]["description"] = "The log has no such thing, or not yet."
    return {200: {"content": content, "description": description, "headers": REQUEST_ID_HEADER}, **errors}


_NOTE = _responses(TEXT, "signed note", "A signed note.")
_PIECES = _responses(BYTES, "binary", "Hashes of 32 bytes, or entries, each after its length in two bytes.")
_TILE_PARAMETER = {
    "name": "tile",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "description": "`LEVEL/NUMBER` or `entries/NUMBER`, the number as `x001/x234/067`, and `.p/WIDTH` behind it for a "
    "tile that is not full.",
}


def log_routes(log: LogReader) -> APIRouter:
    routes = APIRouter(tags=["log"])
    verifier = Path(verify.__file__).read_bytes()

    @routes.get("/log/checkpoint", responses=_NOTE, response_class=Response)
    async def read_checkpoint() -> Response:
        """How many leaves the transparency log has, and its root: signed by the operator (C2SP tlog-checkpoint)."""
        note = await log.checkpoint()
        if note is None:
            raise HTTPException(404, "Not Found")
        return Response(note, media_type=TEXT, headers=ANEW)

    @routes.get("/log/verify.py", include_in_schema=False)
    async def read_verifier() -> Response:
        """The program that checks a proof file, and needs nothing else of pith."""
        return Response(verifier, media_type=TEXT, headers=ANEW)

    @routes.get(
        "/log/tile/{tile:path}",
        responses=_PIECES,
        response_class=Response,
        openapi_extra={"parameters": [_TILE_PARAMETER]},
    )
    async def read_tile(request: Request) -> Response:
        """A tile of the log's tree, or a bundle of its entries (C2SP tlog-tiles)."""
        asked = asked_tile(request.path_params["tile"])
        found = None if asked is None else await _read(log, asked)
        if found is None:
            raise HTTPException(404, "Not Found")
        return Response(found, media_type=BYTES, headers=FOR_A_DAY)

    return routes


async def _read(log: LogReader, asked: AskedTile) -> bytes | None:
    found = await log.piece(asked.level or 0, asked.number, asked.width)
    if found is None or asked.level:
        return found
    if asked.level == 0:
        return hashes_of_entries(found)
    length = HASH_BYTES.to_bytes(2)
    return b"".join(length + entry for entry in parted(found))
