"""Signed notes as C2SP defines them: a text, then lines that each name a key and hold its Ed25519 signature.

A checkpoint is such a note: the log's origin, the number of its leaves, and its root. So is the promise that a reply
carries, under a first line of its own: signed by the same key, neither can be taken for the other.
"""

import base64
import binascii
import hashlib
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

ED25519 = 1
COSIGNATURE = 4
SIGNATURE_PREFIX = "— "
PURPOSE = b"pith transparency log 1"
RECEIPT = "/receipt"


class BadNote(ValueError):
    """A note that is malformed, or that the key has not signed; the message says which."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    origin: str
    size: int
    root: bytes

    def text(self) -> str:
        return f"{self.origin}\n{self.size}\n{_base64(self.root)}\n"


@dataclass(frozen=True, slots=True)
class Verifier:
    """A public key by its name. `kind` is the algorithm's number: a log's own key, or a witness's for cosignatures."""

    name: str
    public_key: bytes
    kind: int = ED25519

    @property
    def id(self) -> bytes:
        """The four bytes before each signature."""
        return hashlib.sha256(f"{self.name}\n".encode() + bytes([self.kind]) + self.public_key).digest()[:4]

    def __str__(self) -> str:
        """As it is given to others: `name+id+key`."""
        return f"{self.name}+{self.id.hex()}+{_base64(bytes([self.kind]) + self.public_key)}"


def verifier(text: str) -> Verifier:
    """Raises `BadNote` for a key that is not written as a verifier's."""
    try:
        # Base64 may have a plus sign too.
        name, key_id, key = text.strip().split("+", 2)
        decoded = base64.b64decode(key, validate=True)
        found = Verifier(name, decoded[1:], decoded[0])
        if found.id.hex() != key_id or len(decoded) != 33 or found.kind not in (ED25519, COSIGNATURE):
            raise ValueError("its id is not that of its key")
    except (ValueError, IndexError, binascii.Error) as error:
        raise BadNote(f"not a verifier key (name+id+key): {error}") from error
    return found


class Signer:
    """The log's own key."""

    def __init__(self, origin: str, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.verifier = Verifier(origin, key.public_key().public_bytes_raw())

    @property
    def origin(self) -> str:
        return self.verifier.name

    def signed(self, text: str) -> str:
        """The note with this text, which ends with a line feed."""
        signature = self.verifier.id + self._key.sign(text.encode())
        return f"{text}\n{SIGNATURE_PREFIX}{self.origin} {_base64(signature)}\n"

    def checkpoint(self, size: int, root: bytes) -> str:
        return self.signed(Checkpoint(self.origin, size, root).text())

    def receipt(self, digest: bytes) -> str:
        """The promise that a record with this SHA-256 will be in the log."""
        return self.signed(f"{self.origin}{RECEIPT}\n{_base64(digest)}\n")


def signer(secret: bytes, origin: str | None = None) -> Signer:
    """The signer whose key follows from a server's secret: servers with the same one have the same key. Without an
    origin the log is named by its key."""
    seed = HKDF(SHA256(), 32, salt=None, info=PURPOSE).derive(secret)
    key = Ed25519PrivateKey.from_private_bytes(seed)
    name = origin or f"pith/{hashlib.sha256(key.public_key().public_bytes_raw()).hexdigest()[:16]}"
    return Signer(name, key)


def opened(note: str, by: Verifier) -> str:
    """The text of a note that this key has signed. Raises `BadNote`."""
    text, signatures = _parted(note)
    for name, signature in signatures:
        if name == by.name and signature[:4] == by.id:
            _check(by, text, signature[4:])
            return text
    raise BadNote(f"no signature of {by.name}")


def checkpoint(text: str) -> Checkpoint:
    """Raises `BadNote` for a text that is no checkpoint."""
    try:
        origin, size, root = text.split("\n")[:3]
        found = Checkpoint(origin, int(size), base64.b64decode(root, validate=True))
        if found.size < 0 or str(found.size) != size or len(found.root) != 32 or not origin:
            raise ValueError("a size or a root is wrong")
    except (ValueError, binascii.Error) as error:
        raise BadNote(f"not a checkpoint: {error}") from error
    return found


def cosigned_text(text: str, time_s: int) -> bytes:
    """The bytes that a witness signs for a checkpoint's text (cosignature/v1)."""
    return f"cosignature/v1\ntime {time_s}\n{text}".encode()


def _check(by: Verifier, text: str, signature: bytes) -> None:
    signed = text.encode()
    if by.kind == COSIGNATURE:
        signed, signature = cosigned_text(text, int.from_bytes(signature[:8])), signature[8:]
    try:
        Ed25519PublicKey.from_public_bytes(by.public_key).verify(signature, signed)
    except InvalidSignature as error:
        raise BadNote(f"the signature of {by.name} is wrong") from error


def _parted(note: str) -> tuple[str, list[tuple[str, bytes]]]:
    text, _, lines = note.rpartition("\n\n")
    found = []
    if not text or not lines.startswith(SIGNATURE_PREFIX) or not lines.endswith("\n"):
        raise BadNote("not a signed note: no signature after an empty line")
    for line in lines.removesuffix("\n").split("\n"):
        name, _, signature = line.removeprefix(SIGNATURE_PREFIX).partition(" ")
        try:
            found.append((name, base64.b64decode(signature, validate=True)))
        except (ValueError, binascii.Error) as error:
            raise BadNote(f"not a signed note: the signature of {name!r} is not base64") from error
    return f"{text}\n", found


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
