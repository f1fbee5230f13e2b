"""A machine in a few letters, as `pith config check --node` takes it: `8xH100-80GB`, `cpu:16`, `cpu:16-64GB`."""

import re
from dataclasses import dataclass

_GPUS = re.compile(r"(?:(\d{1,3})x)?([A-Za-z][A-Za-z0-9_]*)-(\d{1,4})GB")
_CPUS = re.compile(r"cpu:(\d{1,4})(?:-(\d{1,5})GB)?")
GRAMMAR = "write 8xH100-80GB, cpu:16, cpu:16-64GB, or 8xH100-80GB,cpu:64-1000GB"


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
