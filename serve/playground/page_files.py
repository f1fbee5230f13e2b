"""The playground's files, each with its type and its validator. They are read once: no caller's path names a file."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
