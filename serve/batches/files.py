"""Files of projects: the form that one is uploaded in, and their bytes on disk."""

import asyncio
import logging
import re
import unicodedata
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from billing.batches.batch import (
    FileBounds,
    FilePage,
    StorageUnavailable,
    StoredElsewhere,
    StoredFile,
    UnknownFile,
)
from billing.batches.file_store import FileFolder, FileStore, delete_expired, discard, take_in, written_file
from billing.caller import Caller
from serve.http.middleware import fresh_id
from serve.http.request_body import InvalidBody, Issue

# What our ids are made of.
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
MAX_FIELD_BYTES = 4096
MAX_PARTS = 16
MAX_NAME_BYTES = 256
MOST_DIGITS = 18
FILE = b"file"


def is_id(given: str) -> bool:
    """True for what could be an object's id."""
    return _ID.fullmatch(given) is not None


@dataclass(slots=True)
class FormData:
    """A form as far as it was read. `filename` is None until the file's part begins."""

    fields: dict[str, str] = field(default_factory=dict)
    filename: str | None = None


class FormReader:
    """Iterate `file_pieces`; what stands before and after the file is in `data` then."""

    def __init__(self, content_type: str | None) -> None:
        """Raises `InvalidBody` where that is no form."""
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary")
        if kind != b"multipart/form-data" or not boundary:
            raise refused("content_type", "The content type should be multipart/form-data with a boundary")
        self.data = FormData()
        self._parts = 0
        self._header = (bytearray(), bytearray())
        self._name = b""
        self._value = bytearray()
        self._file: list[bytes] = []
        self._ended = False
        self._parser = self._made(boundary)

    def _made(self, boundary: bytes) -> MultipartParser:
        try:
            return MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin_part,
                    "on_part_data": self._take,
                    "on_part_end": self._end_part,
                    "on_header_field": lambda data, start, end: self._header[0].extend(data[start:end]),
                    "on_header_value": lambda data, start, end: self._header[1].extend(data[start:end]),
                    "on_header_end": self._end_header,
                    "on_headers_finished": self._name_part,
                    "on_end": self._end,
                },
            )
        except FormParserError as error:
            raise refused("multipart_invalid", str(error)) from None

    async def file_pieces(self, body: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        """The file's content, in the pieces in which it came. Raises `InvalidBody`."""
        has_begun = False
        async for chunk in body:
            # After a line break the parser takes any text before the first boundary, where both come in one piece.
            chunk = chunk if has_begun else chunk.lstrip(b"\r\n")
            if not chunk:
                continue
            has_begun = True
            try:
                self._parser.write(chunk)
            except FormParserError as error:
                raise refused("multipart_invalid", f"Malformed form data: {error}") from None
            pieces, self._file = self._file, []
            for piece in pieces:
                yield piece

    def check_ended(self) -> None:
        """Raises `InvalidBody` where the form was cut short."""
        if not self._ended:
            raise refused("multipart_invalid", "Malformed form data: it ends before its last boundary")

    def _begin_part(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise refused("multipart_invalid", f"The form has more than {MAX_PARTS} parts")
        self._name, self._value = b"", bytearray()

    def _end_header(self) -> None:
        if bytes(self._header[0]).lower() == b"content-disposition":
            _, options = parse_options_header(bytes(self._header[1]))
            self._name = options.get(b"name", b"")[:MAX_NAME_BYTES]
            if self._name == FILE:
                self._name_file(options.get(b"filename", b""))
        self._header = (bytearray(), bytearray())

    def _name_file(self, filename: bytes) -> None:
        if self.data.filename is not None:
            raise refused("multipart_invalid", "One file is taken at a time", "file")
        self.data.filename = filename.decode("utf-8", "replace")

    def _name_part(self) -> None:
        if not self._name:
            raise refused("multipart_invalid", "A part of the form has no name")

    def _take(self, data: bytes, start: int, end: int) -> None:
        if self._name == FILE:
            self._file.append(data[start:end])
        elif len(self._value) + end - start > MAX_FIELD_BYTES:
            raise refused("too_long", f"A field has more than {MAX_FIELD_BYTES} bytes")
        else:
            self._value += data[start:end]

    def _end_part(self) -> None:
        if self._name != FILE:
            self.data.fields[self._name.decode("utf-8", "replace")] = self._value.decode("utf-8", "replace")

    def _end(self) -> None:
        self._ended = True


def refused(kind: str, message: str, *where: str) -> InvalidBody:
    """The refusal of a form or a query, of which `where` names the part at fault."""
    return InvalidBody((Issue(kind, ("body", *where), message),))


log = logging.getLogger("pith.files")
# Its parser warns of each form that it cannot read, which the caller is told.
logging.getLogger("python_multipart").setLevel(logging.ERROR)

READ_BYTES: Final = 2**18
MAX_FILENAME = 255
# Seconds for which a file may be kept on request, as OpenAI has it.
LEAST_LIFETIME_S, MOST_LIFETIME_S = 3600, 2_592_000
# What a form may have around its file.
FORM_BYTES: Final = 2**16


@dataclass(frozen=True, slots=True)
class FileTerms:
    """Bounds on files. `lifetime_s` is how long one is kept unless its upload says otherwise."""

    max_bytes: int
    bounds: FileBounds
    lifetime_s: float


class Files:
    """Every method raises `LedgerUnavailable`."""

    def __init__(self, store: FileStore, folder: FileFolder, terms: FileTerms) -> None:
        self.store = store
        self.folder = folder
        self.terms = terms
        # The store that this server reached when it last looked for files from before there were stores.
        self._taken_in_by: str | None = None

    async def upload(
        self, caller: Caller, form: FormReader, body: AsyncIterable[bytes], size: int
    ) -> StoredFile:
        """A form of `size` bytes at the most, of which the file goes to disk as it comes.

        Raises `InvalidBody`, `FilesFull`, `StorageFull`, `StorageUnavailable`, and what `body` raises; then nothing of
        it is left.
        """
        new = StoredFile(
            f"file-{fresh_id()}", caller.project_id, "", "batch", min(size, self.terms.max_bytes), 0, 0
        )
        async with written_file(self.store, self.folder, new, self.terms.bounds) as writer:
            async for piece in form.file_pieces(body):
                if writer.size + len(piece) > self.terms.max_bytes:
                    raise too_large(self.terms.max_bytes)
                await writer.write(piece)
            form.check_ended()
            filename, lifetime_s = self._asked(form)
            await writer.close()
            return await self.store.finish(new.id, size=writer.size, lifetime_s=lifetime_s, filename=filename)

    def _asked(self, form: FormReader) -> tuple[str, float]:
        fields, filename = form.data.fields, form.data.filename
        if filename is None:
            raise refused("missing", "The form has no file", "file")
        if fields.get("purpose") != "batch":
            raise refused("purpose", "The purpose of a file that is uploaded here is batch", "purpose")
        return _plain(filename)[:MAX_FILENAME] or "file", lifetime_of(fields, self.terms.lifetime_s)

    async def find(self, caller: Caller, file_id: str) -> StoredFile:
        """Raises `UnknownFile`."""
        _check_id(file_id)
        return await self.store.find(caller.project_id, file_id)

    async def listed(self, caller: Caller, page: FilePage) -> list[StoredFile]:
        """One more than `page.limit` where there are more. Raises `UnknownFile` of `page.after`."""
        if page.after is not None:
            _check_id(page.after)
        if page.purpose not in (None, "batch", "batch_output"):
            return []
        return await self.store.listed(caller.project_id, page)

    async def store_id(self) -> str:
        """The file store that this server reaches. Raises `StorageUnavailable`."""
        return await asyncio.to_thread(self.folder.store)

    async def open(self, file: StoredFile) -> BinaryIO:
        """Raises `StorageUnavailable`, and `StoredElsewhere` where another server may have it."""
        own = await self.store_id()
        if file.store not in (own, ""):
            raise StoredElsewhere(file.id, file.store, own)
        return await asyncio.to_thread(self.folder.open, file.id)

    async def delete(self, caller: Caller, file_id: str) -> None:
        """Raises `UnknownFile` or `FileInUse`."""
        _check_id(file_id)
        file = await self.store.forget(caller.project_id, file_id)
        # Nobody finds it any more: what is left now is deleted with the files that expire, by who has them.
        with suppress(StorageUnavailable):
            if file.store == await self.store_id():
                await discard(self.store, self.folder, file_id)

    async def delete_expired(self) -> None:
        """Deletes all that are over, and says that this server reaches its store. Raises `StorageUnavailable` too."""
        own = await self.store_id()
        if own != self._taken_in_by:
            count = await take_in(self.store, self.folder)
            log.info("files are kept in file store %s; %d of before were taken in", own, count)
            self._taken_in_by = own
        if count := await delete_expired(self.store, self.folder):
            log.info("deleted %d files that were over", count)


async def pieces_of(file: BinaryIO, size: int) -> AsyncIterator[bytes]:
    """The first `size` bytes of a file, and its end. Raises `StorageUnavailable` where there are fewer."""
    try:
        left = size
        while left:
            piece = await asyncio.to_thread(file.read, min(READ_BYTES, left))
            if not piece:
                raise StorageUnavailable("a file is shorter than it was")
            left -= len(piece)
            yield piece
    finally:
        file.close()


def lifetime_of(fields: dict[str, str], default_s: float) -> float:
    """Seconds that a file is kept, of OpenAI's `expires_after`. Raises `InvalidBody`."""
    seconds, anchor = fields.get("expires_after[seconds]"), fields.get("expires_after[anchor]")
    if seconds is None and anchor is None:
        return default_s
    if anchor != "created_at":
        raise refused("expires_after", "A file expires after created_at", "expires_after", "anchor")
    kept_s = whole_number(seconds or "")
    if kept_s is None or not LEAST_LIFETIME_S <= kept_s <= MOST_LIFETIME_S:
        message = f"A file is kept for {LEAST_LIFETIME_S} to {MOST_LIFETIME_S} seconds"
        raise refused("expires_after", message, "expires_after", "seconds")
    return float(kept_s)


def whole_number(text: str) -> int | None:
    """None for what is no number, or is written with more digits than any has that is asked for here."""
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else None


def _check_id(file_id: str) -> None:
    """Raises `UnknownFile` of what is no id at all."""
    if not is_id(file_id):
        raise UnknownFile(file_id[:MAX_FILENAME])


def _plain(filename: str) -> str:
    """Without control characters, which a terminal would obey, and a NUL, which PostgreSQL refuses."""
    return "".join(character for character in filename if unicodedata.category(character) != "Cc")


def too_large(max_bytes: int) -> Exception:
    """The refusal of a file; a 413 in OpenAI's dialect."""
    return refused("request_too_large", f"a file may have {max_bytes} bytes at the most", "file")
