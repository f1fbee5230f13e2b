"""API keys as values: `pith_<id>_<secret>`, of which only an HMAC is stored, and their terms: end, powers, limits."""

import hashlib
import hmac
import json
import re
import secrets
import string
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from billing.caller import ALL_POWERS, NO_LIMITS, RATES, Caller, KeyPowers, ProjectLimits
from billing.errors import BillingError, InvalidAccount, InvalidKey

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
    """HMAC-SHA256 of id and secret under the server's pepper, in hex: all that the database stores."""
    return hmac.new(pepper, f"pith-key-v1:{key.key_id}:{key.secret}".encode(), hashlib.sha256).hexdigest()


def matches(key: ApiKey, stored_digest: str, pepper: bytes) -> bool:
    return hmac.compare_digest(digest(key, pepper), stored_digest)


def check_pepper(pepper: bytes) -> bytes:
    if len(pepper) < MIN_PEPPER_BYTES:
        raise ValueError(f"the key pepper must have at least {MIN_PEPPER_BYTES} bytes, not {len(pepper)}")
    return pepper


def _draw(alphabet: str, count: int) -> str:
    return "".join(secrets.choice(alphabet) for _ in range(count))


RouteName = Literal[
    "chat",
    "completions",
    "responses",
    "messages",
    "compress",
    "embeddings",
    "rerank",
    "score",
    "files",
    "batches",
    "models",
    "usage",
]
ROUTE_NAMES: tuple[RouteName, ...] = get_args(RouteName)


class ModelNotAllowed(BillingError):
    """The key is restricted to other models."""

    def __init__(self, model_id: str) -> None:
        super().__init__(f"the model {model_id!r} does not exist or this API key may not use it")
        self.model_id = model_id


class RouteNotAllowed(BillingError):
    """The key is restricted to other routes."""

    def __init__(self, route: str) -> None:
        super().__init__(f"this API key may not be used for {route}")
        self.route = route


def require_models(caller: Caller, model_ids: Iterable[str]) -> None:
    """Raises `ModelNotAllowed` for the first that the caller's key may not use."""
    if caller.powers.models is not None:
        for model_id in model_ids:
            if not caller.powers.allows_model(model_id):
                raise ModelNotAllowed(model_id)


def require_route(caller: Caller, route: RouteName | None) -> None:
    """Raises `RouteNotAllowed`; for a route without a name, where the key is restricted at all."""
    if not caller.powers.allows_route(route or ""):
        raise RouteNotAllowed(route or "this route")


MAX_MODELS = 100
MAX_MODEL_CHARS = 256
MAX_LIMIT_NANO_USD = 2**63 - 1


@dataclass(frozen=True, slots=True)
class KeyTerms:
    """Terms of a key; the default has no limits, allows everything and never ends. Money is in nano-USD."""

    expires_at: datetime | None = None
    powers: KeyPowers = ALL_POWERS
    limits: ProjectLimits = NO_LIMITS
    spend_limit_nano_usd: int | None = None
    monthly_limit_nano_usd: int | None = None

    @property
    def has_spend_limit(self) -> bool:
        return self.spend_limit_nano_usd is not None or self.monthly_limit_nano_usd is not None

    def columns(self) -> dict[str, object]:
        """As the key's row has them: all but what is counted on the row of another key."""
        return {
            "expires_at": None if self.expires_at is None else self.expires_at.timestamp(),
            "allowed_models": _stored(self.powers.models),
            "allowed_routes": _stored(self.powers.routes),
        }

    def limit_columns(self) -> dict[str, object]:
        """As the row has them on which its limits are: the key's own, or that of the first of rotated keys."""
        return {
            **{name: getattr(self.limits, name) for name in RATES},
            "spend_limit_nano_usd": self.spend_limit_nano_usd,
            "monthly_limit_nano_usd": self.monthly_limit_nano_usd,
        }


NO_TERMS = KeyTerms()


@dataclass(frozen=True, slots=True)
class KeyChange:
    """New values of some terms, by their names; those that are not named stay."""

    values: dict[str, Any] = field(default_factory=dict)

    def applied_to(self, terms: KeyTerms) -> KeyTerms:
        """Raises `InvalidAccount` for a value that no key may have."""
        given = dict(self.values)
        limits = {name: given.pop(name) for name in RATES if name in given}
        powers = {name: given.pop(f"allowed_{name}") for name in _POWERS if f"allowed_{name}" in given}
        old = {name: getattr(terms.limits, name) for name in RATES}
        may = {name: getattr(terms.powers, name) for name in _POWERS}
        fields = {name: given.pop(name, getattr(terms, name)) for name in _PLAIN}
        if given:
            raise InvalidAccount(f"{min(given)}: a key has no such term")
        return checked_terms(
            KeyTerms(powers=_powers(**(may | powers)), limits=_limits(**(old | limits)), **fields)
        )


_POWERS = ("models", "routes")
SPEND_LIMITS = ("spend_limit_nano_usd", "monthly_limit_nano_usd")
_PLAIN = ("expires_at", *SPEND_LIMITS)


def check_spend_limit(name: str, nano_usd: int | None) -> None:
    """Raises `InvalidAccount`; None is no limit."""
    if nano_usd is not None and not 0 <= nano_usd <= MAX_LIMIT_NANO_USD:
        raise InvalidAccount(f"{name}: must be between 0 and {MAX_LIMIT_NANO_USD}, not {nano_usd}")


def checked_terms(terms: KeyTerms) -> KeyTerms:
    """Raises `InvalidAccount`, which names the field."""
    for name in SPEND_LIMITS:
        check_spend_limit(name, getattr(terms, name))
    for route in terms.powers.routes or ():
        if route not in ROUTE_NAMES:
            raise InvalidAccount(f"allowed_routes: {route!r} is not one of {', '.join(ROUTE_NAMES)}")
    models = terms.powers.models or frozenset()
    if len(models) > MAX_MODELS or any(not 1 <= len(one) <= MAX_MODEL_CHARS for one in models):
        raise InvalidAccount(
            f"allowed_models: at most {MAX_MODELS} names of 1 to {MAX_MODEL_CHARS} characters"
        )
    if any(not one.isprintable() for one in models):
        raise InvalidAccount("allowed_models: a name must be printable")
    for named, allowed in (("allowed_models", terms.powers.models), ("allowed_routes", terms.powers.routes)):
        if allowed is not None and not allowed:
            raise InvalidAccount(f"{named}: name at least one, or leave it out to allow all")
    return terms


def terms_of_row(row: Any) -> KeyTerms:
    """The terms of a key's row, with the limits of the row that has them."""
    return KeyTerms(
        expires_at=moment_of(row.expires_at),
        powers=KeyPowers(_read(row.allowed_models), _read(row.allowed_routes)),
        limits=ProjectLimits(**{name: getattr(row, name) for name in RATES}),
        spend_limit_nano_usd=row.spend_limit_nano_usd,
        monthly_limit_nano_usd=row.monthly_limit_nano_usd,
    )


def moment_of(seconds: float | None) -> datetime | None:
    """A time that is stored as seconds since 1970."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _powers(models: Iterable[str] | None, routes: Iterable[str] | None) -> KeyPowers:
    return KeyPowers(
        None if models is None else frozenset(models), None if routes is None else frozenset(routes)
    )


def _limits(**limits: Any) -> ProjectLimits:
    try:
        return ProjectLimits(**limits)
    except ValueError as error:
        raise InvalidAccount(str(error)) from error


def _stored(names: frozenset[str] | None) -> str | None:
    return None if names is None else json.dumps(sorted(names))


def _read(stored: str | None) -> frozenset[str] | None:
    return None if stored is None else frozenset(json.loads(stored))
