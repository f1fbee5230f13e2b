"""Values of a configuration, and the strict base of its sections."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

ANY = "*"
LOCALHOST = "localhost"
_NAME = re.compile(r"[0-9a-z_-][0-9a-z._-]{0,252}")
LOOPBACK = ("127.0.0.0/8", "::1/128")
Network = IPv4Network | IPv6Network
_GPUS = re.compile(r"(?:(\d{1,3})x)?([A-Za-z][A-Za-z0-9_]*)-(\d{1,4})GB")
_CPUS = re.compile(r"cpu:(\d{1,4})(?:-(\d{1,5})GB)?")
GRAMMAR = "write 8xH100-80GB, cpu:16, cpu:16-64GB, or 8xH100-80GB,cpu:64-1000GB"
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(\d{1,5}))?")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def host_names(given: Iterable[str]) -> list[str]:
    """In lower case. Raises `ValueError` for what is no name, such as one with a port."""
    names = [name.lower().removesuffix(".") for name in given]
    for name in names:
        if name != ANY and _NAME.fullmatch(name) is None:
            raise ValueError(
                f"{name!r} is no host's name; write it without a scheme and a port, or {ANY!r} for all"
            )
    return names


def parse_networks(given: Iterable[str]) -> tuple[Network, ...]:
    """Raises `ValueError` for an invalid network."""
    return tuple(ip_network(each, strict=False) for each in given)


@dataclass(frozen=True, slots=True)
class Node:
    """`cpus` and `memory_gb` are None where they were not said. A gigabyte is 10^9 bytes."""

    gpus: int = 0
    gpu_type: str | None = None
    gpu_gb: float = 0.0
    cpus: int | None = None
    memory_gb: float | None = None


def parse_node(text: str) -> Node:
    """Raises `ValueError`, which says how a machine is written."""
    gpus: tuple[int, str, float] | None = None
    cpus: tuple[int, float | None] | None = None
    for part in text.split(","):
        if (found := _CPUS.fullmatch(part)) and cpus is None and int(found[1]):
            cpus = int(found[1]), float(found[2]) if found[2] else None
        elif (found := _GPUS.fullmatch(part)) and gpus is None and found[1] != "0":
            gpus = int(found[1] or 1), found[2], float(found[3])
        else:
            raise ValueError(f"{text!r} is not a valid machine: {GRAMMAR}")
    count, kind, each_gb = gpus or (0, None, 0.0)
    cores, memory_gb = cpus or (None, None)
    return Node(count, kind, each_gb, cores, memory_gb)


def parse_origins(given: Iterable[str]) -> list[str]:
    """Raises `ValueError` for what no browser sends, such as an origin with a path."""
    found = [origin(each) for each in given]
    if ANY in found and len(found) > 1:
        raise ValueError("'*' allows every origin, so no other may stand beside it")
    return found


def origin(given: str) -> str:
    """One origin, or `*` for all. In lower case and without the scheme's own port, as browsers send it."""
    if given == ANY:
        return given
    parts = _ORIGIN.fullmatch(given.lower())
    port = int(parts[3]) if parts and parts[3] else None
    if parts is None or (port is not None and not 1 <= port <= 65535):
        raise ValueError(
            f"{given!r} is not an origin: scheme://host or scheme://host:port, without a path, a slash at the end or a "
            "wildcard, such as https://chat.example.com; '*' allows every origin"
        )
    scheme, host = parts[1], parts[2]
    return f"{scheme}://{host}" if port in (None, _DEFAULT_PORTS.get(scheme)) else f"{scheme}://{host}:{port}"


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_boolean_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        # YAML reads `on` and `yes` as true, which pydantic would take for 1.
        annotation = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and annotation is not bool and bool not in get_args(annotation):
            raise ValueError("must not be true or false")
        return value

    def __setstate__(self, state: dict[Any, Any]) -> None:
        """`pith serve` may be of a version before its processes, and not know all keys: those have their defaults."""
        super().__setstate__(state)
        for name, key in type(self).model_fields.items():
            if name not in self.__dict__ and not key.is_required():
                self.__dict__[name] = key.get_default(call_default_factory=True, validated_data=self.__dict__)


class ReplicaCounts(Section):
    """The keys that every kind of model has of its replicas."""

    min: int = Field(1, ge=0, description="Replicas kept up; 0 starts the model on its first request.")
    max: int = Field(1, ge=1, description="Maximum number of replicas.")
    per_node: int | None = Field(
        None,
        ge=1,
        le=100,
        description="Most replicas on one node of a cluster; default: as few as hold `max`, by the nodes at the start.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min ({self.min}) is above max ({self.max})")
        return self


S = TypeVar("S", bound=Section)


def with_files(section: S, folder: Path, *names: str) -> S:
    """The same with the files of these keys under `folder`, where they begin with a dot."""
    files = {name: getattr(section, name) for name in names}
    found = {name: str(folder / file) for name, file in files.items() if file and file.startswith(".")}
    return section.model_copy(update=found)
