"""The address of a replica, and what it reads of a request there, which may be of another version of pith.

While a server changes its code, its HTTP processes and its replicas differ. Fields of a request are added at its end,
and have defaults: what the other version lacks is left out there, and has its default here.
"""

from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any

from models.engine import EngineRequest
from models.errors import EngineUnavailable

# Under these keys Ray's handles know a replica's address, and which fields of a request it reads.
ADDRESS_KEY, READS_KEY = "pith_port", "pith_reads"
_FIELDS = {field.name: field for field in fields(EngineRequest)}
READS = frozenset(_FIELDS)
# By a replica that does not say what it reads: of a version before any said so.
READ_BY_ALL = READS - {"survives", "said", "tier"}
# These ask for what a reply can do without.
OFFERS = frozenset({"survives"})


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a replica's port, its token, and the fields of a request that it reads."""

    host: str
    port: int
    token: str
    reads: frozenset[str] = READ_BY_ALL

    def metadata(self) -> dict[str, Any]:
        """As every handle's process gets to know it, whichever version that is of."""
        told = {"host": self.host, "port": self.port, "token": self.token}
        return {ADDRESS_KEY: told, READS_KEY: sorted(self.reads)}


def address_of(metadata: Mapping[str, Any]) -> Address:
    """The address in what a replica says of itself."""
    return Address(**metadata[ADDRESS_KEY], reads=frozenset(metadata.get(READS_KEY, READ_BY_ALL)))


def readable(request: EngineRequest, reads: Collection[str]) -> dict[str, Any]:
    """The fields of the request, for a replica that reads these. Raises `EngineUnavailable` where it would answer
    another request without the rest."""
    if lacks := sorted(needed(request).difference(reads)):
        raise EngineUnavailable(
            f"{request.model_id}: the replica is of a version of pith that knows no {lacks[0]}",
            retry_after_s=1,
        )
    return {name: getattr(request, name) for name in _FIELDS if name in reads}


def needed(request: EngineRequest) -> frozenset[str]:
    """The fields without which a replica would answer another request."""
    given = (name for name, field in _FIELDS.items() if getattr(request, name) != _default(field))
    return frozenset(given) - OFFERS


def request_of(given: Mapping[str, Any]) -> EngineRequest:
    """What an ingress of this version or of one before asked. Raises `TypeError` or `KeyError` if it is no request."""
    prompts = tuple(tuple(one) if isinstance(one, list) else one for one in given["prompts"])
    listed = {name: tuple(given.get(name, ())) for name in ("messages", "score", "said")}
    return EngineRequest(**{**given, **listed, "prompts": prompts})


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
