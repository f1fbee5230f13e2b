"""Encrypts the chunks of an original: AES-256-GCM, a key for each writing of one, zlib before it.

docs/adr/0016-originals-on-demand.md says why each of these is safe here.
"""

import zlib
from collections.abc import Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from billing.originals.original_sql import Chunk, Head

# 64 KiB of UTF-8 at the most. By characters, so that a slice is found without reading what is before it.
CHUNK_CHARACTERS = 16_384
KEY_BYTES = 32
NONCE_BYTES = 12
# Changes with anything about how a chunk is made.
PURPOSE = b"pith originals 1"
# The fastest, and nearly as small as the best (docs/adr/0016-originals-on-demand.md).
ZLIB_LEVEL = 1
# Lone surrogates are in no text that came as JSON; should one come another way, it is still a text.
SURROGATES = "surrogatepass"


class Unreadable(Exception):
    """A chunk is not the one that was written here: another pepper, or a changed database."""


def chunks_of(characters: int) -> int:
    """How many chunks a text has; an empty one has one."""
    return max(1, -(-characters // CHUNK_CHARACTERS))


class Sealer:
    """Seals and opens the chunks of one original. Both are work for a thread."""

    def __init__(self, pepper: bytes, head: Head) -> None:
        self._head = head
        # The generation is 128 random bits, so no two writings share a key, and chunks may be numbered for nonces.
        info = PURPOSE + b"\0" + head.project_id.encode()
        key = HKDF(SHA256(), KEY_BYTES, salt=head.generation.encode(), info=info).derive(pepper)
        self._cipher = AESGCM(key)

    def seal(self, text: str, first: int, most: int, enough_bytes: int) -> list[Chunk]:
        """The chunks of `text` from number `first` on: until they have `enough_bytes` together, and `most` at most."""
        sealed: list[Chunk] = []
        size = 0
        for number in range(first, min(first + most, self._head.chunks)):
            chunk = text[number * CHUNK_CHARACTERS : (number + 1) * CHUNK_CHARACTERS]
            packed = zlib.compress(chunk.encode(errors=SURROGATES), ZLIB_LEVEL)
            sealed.append((number, self._cipher.encrypt(_nonce(number), packed, self._bound_to(number))))
            size += len(sealed[-1][1])
            if size >= enough_bytes:
                break
        return sealed

    def open(self, first: int, chunks: list[bytes]) -> Iterator[str]:
        """The texts of chunks, the first of which has number `first`. Raises `Unreadable`."""
        for number, sealed in enumerate(chunks, first):
            try:
                packed = self._cipher.decrypt(_nonce(number), sealed, self._bound_to(number))
            except InvalidTag as error:
                raise Unreadable(f"chunk {number} of original {self._head.id} cannot be decrypted") from error
            yield zlib.decompress(packed).decode(errors=SURROGATES)

    def _bound_to(self, number: int) -> bytes:
        """What a chunk is authenticated with: moved to another place, it cannot be opened."""
        head = self._head
        # No NUL is in an id, so no two names come to the same bytes.
        parts = (head.project_id, head.id, head.generation, str(head.characters), str(number))
        return b"\0".join(part.encode() for part in parts)


def _nonce(number: int) -> bytes:
    return number.to_bytes(NONCE_BYTES, "big")
