"""API keys as values: mint, read and verify `pith_<id>_<secret>`, of which only an HMAC is ever stored."""

import hashlib
import hmac
import re
import secrets
import string
from dataclasses import dataclass, field

from billing.errors import InvalidKey

PREFIX = "pith"
ID_CHARS = 16
# 43 of 62 letters carry 256 bits. No "_", which is the separator, and no "-", at which a double click stops.
SECRET_CHARS = 43
TOKEN_CHARS = len(PREFIX) + 1 + ID_CHARS + 1 + SECRET_CHARS
MIN_PEPPER_BYTES = 16

_ID_ALPHABET = string.ascii_lowercase + string.digits
_SECRET_ALPHABET = string.ascii_letters + string.digits
_TOKEN = re.compile(rf"{PREFIX}_([a-z0-9]{{{ID_CHARS}}})_([A-Za-z0-9]{{{SECRET_CHARS}}})")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as its holder has it. The secret stays out of `repr`, and so out of logs."""

    key_id: str
    secret: str = field(repr=False)

    @property
    def token(self) -> str:
        return f"{PREFIX}_{self.key_id}_{self.secret}"


def mint() -> ApiKey:
    return ApiKey(_draw(_ID_ALPHABET, ID_CHARS), _draw(_SECRET_ALPHABET, SECRET_CHARS))


def parse(token: str) -> ApiKey:
    """Reads a token from a header. Raises `InvalidKey` for anything that `mint` cannot have made."""
    # The length first, so that no caller can make the pattern read megabytes.
    match = _TOKEN.fullmatch(token) if len(token) == TOKEN_CHARS else None
    if match is None:
        raise InvalidKey("malformed")
    return ApiKey(match[1], match[2])


def digest(key: ApiKey, pepper: bytes) -> str:
    """What the database stores: HMAC-SHA256 of id and secret under the server's pepper, in hex."""
    return hmac.new(pepper, f"pith-key-v1:{key.key_id}:{key.secret}".encode(), hashlib.sha256).hexdigest()


def matches(key: ApiKey, stored_digest: str, pepper: bytes) -> bool:
    return hmac.compare_digest(digest(key, pepper), stored_digest)


def check_pepper(pepper: bytes) -> bytes:
    if len(pepper) < MIN_PEPPER_BYTES:
        raise ValueError(f"the key pepper must have at least {MIN_PEPPER_BYTES} bytes, not {len(pepper)}")
    return pepper


def _draw(alphabet: str, count: int) -> str:
    return "".join(secrets.choice(alphabet) for _ in range(count))
