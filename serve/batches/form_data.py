"""Reads `multipart/form-data` as it comes in: small fields into memory, the parts of one name handed on in pieces."""

from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass, field

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from serve.http.request_body import InvalidBody, Issue

MAX_FIELD_BYTES = 4096
MAX_PARTS = 16
MAX_NAME_BYTES = 256
FILE = b"file"


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
        async for chunk in body:
            if not chunk:
                continue
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
