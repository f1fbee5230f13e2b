"""Secrets of webhooks: made, sealed in the ledger, and signed with."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from billing.webhooks.endpoint import SecretUnreadable

PREFIX = "whsec_"
SECRET_BYTES = 32
NONCE_BYTES = 12
# Changes with anything about how a secret is sealed.
PURPOSE = b"pith webhooks 1"


def mint() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


class SecretBox:
    """Seals and opens the secrets of one ledger's webhooks. A sealed one is bound to its endpoint's id."""

    def __init__(self, pepper: bytes) -> None:
        self._cipher = AESGCM(HKDF(SHA256(), 32, salt=None, info=PURPOSE).derive(pepper))

    def seal(self, endpoint_id: str, secret: str) -> bytes:
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, secret.encode(), endpoint_id.encode())

    def open(self, endpoint_id: str, sealed: bytes) -> str:
        """Raises `SecretUnreadable`."""
        nonce, rest = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
        try:
            return self._cipher.decrypt(nonce, rest, endpoint_id.encode()).decode()
        except (InvalidTag, ValueError) as error:
            raise SecretUnreadable(endpoint_id) from error


def signature(given: Sequence[str], *, message_id: str, timestamp: int, body: bytes) -> str:
    """The header `webhook-signature`: a signature with each of these secrets, of which one is enough."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return " ".join(f"v1,{_hmac(secret, signed)}" for secret in given)


def _hmac(secret: str, signed: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(PREFIX))
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
