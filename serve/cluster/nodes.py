"""Checks of a cluster's nodes before anything is started there: same code, same secret, open ports, room."""

from __future__ import annotations

import errno
import hashlib
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serve.cluster.progress import StartError
from serve.cluster.ray_insides.cluster_nodes import usable_nodes
from serve.cluster.replicas.port import Ports
from serve.config.capacity.fit import without_a_place
from serve.config.capacity.placement import bounds_of, demands_of
from serve.config.paths import ROOT
from serve.config.settings import Settings
from serve.config.values import Node
from serve.metrics.installed import version_of
from serve.money.ledger_setup import PEPPER, digest_of_pepper, read_pepper

# A node's first worker imports what its setup hook names.
ANSWER_S = 90.0
SHOWN_CHARS = 12
CONNECT_S = 3.0
TRIED_AT_ONCE = 64
PACKAGES = ("serve", "models", "compression", "billing")
PAGE = "docs/cluster.md#ports"
Listening = Sequence[tuple[str, int]]
KIND = "accelerator_type:"


@dataclass(frozen=True, slots=True)
class Code:
    """The pith on a node: the same wherever it is, in a checkout or installed from a wheel."""

    version: str
    digest: str
    folder: Path = field(compare=False)

    def __str__(self) -> str:
        return f"pith {self.version} (SHA-256 {self.digest[:SHOWN_CHARS]}) in {self.folder}"


@dataclass(frozen=True, slots=True)
class Marks:
    """Marks of the code on a node, and of the secret there; None where it has none."""

    code: Code
    pepper: str | None


def marks_of(state_dir: Path) -> Marks:
    """Marks of this machine."""
    return Marks(code_in(ROOT), digest_of_pepper(state_dir))


def code_in(root: Path) -> Code:
    """Every file of the packages counts, weights and templates too, but for what Python compiled."""
    digest = hashlib.sha256()
    for file in sorted(file for package in PACKAGES for file in (root / package).rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            content = hashlib.sha256(file.read_bytes()).digest()
            digest.update(file.relative_to(root).as_posix().encode() + b"\0" + content)
    return Code(version_of("pith") or "not installed", digest.hexdigest(), root)


class NodeProbe:
    """Runs on the node that has this address, and ends with the check."""

    def __init__(self, host: str) -> None:
        self._host = host
        self.listening: list[socket.socket] = []

    def marks(self, state_dir: Path) -> Marks:
        return marks_of(state_dir)

    def listen(self, ports: Ports) -> Listening:
        """On the first and on the last free port of `ports`, or on any. Raises `OSError`."""
        first, last = ports or (0, 0)
        for turn in (range(first, last + 1), range(last, first, -1)):
            if (found := _first_free(self._host, turn)) is not None:
                self.listening.append(found)
        if not self.listening:
            raise OSError(errno.EADDRINUSE, f"no port of {self._host} is free from {first} to {last}")
        return [found.getsockname()[:2] for found in self.listening]

    def unreachable(self, addresses: Listening) -> list[str]:
        """Addresses that cannot be connected to, with the reason. All are tried at the same time."""
        with ThreadPoolExecutor(TRIED_AT_ONCE) as tries:
            return [problem for problem in tries.map(_tried, addresses) if problem]


def _first_free(host: str, ports: range) -> socket.socket | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in ports:
        try:
            return socket.create_server((host, port), family=family)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    return None


def _tried(address: tuple[str, int]) -> str:
    """What went wrong; "" where it answered."""
    try:
        socket.create_connection(address, CONNECT_S).close()
    except OSError as error:
        return f"{address[0]}:{address[1]} ({error})"
    return ""


def differences(own: Marks, others: Mapping[str, Marks], state_dir: Path) -> Iterator[str]:
    """A sentence for each node, by its address, that has other code or another secret than this machine."""
    for node, marks in others.items():
        if marks.code != own.code:
            yield f"node {node} has {marks.code}, and this machine {own.code}: install the same wheel on both"
        if marks.pepper is None:
            yield f"node {node} has no {state_dir / PEPPER}: copy this machine's there (mode 0600)"
        elif marks.pepper != own.pepper:
            yield f"node {node} has another {state_dir / PEPPER} than this machine: it would know none of its keys"


def check_room(settings: Settings) -> None:
    """That this machine, on which all runs, has what is asked for by all that is kept up: Ray would wait for it without
    end. Raises `StartError`. To a cluster of others nodes may still be added."""
    from serve.cluster.nodes import nodes_of
    from serve.cluster.ray_insides.cluster_nodes import usable_nodes

    for node in nodes_of(usable_nodes()):
        if homeless := without_a_place(settings, node):
            kind = f" of type {node.gpu_type}" if node.gpu_type else ""
            counted = f"Ray counts {node.gpus} GPUs{kind} and {node.cpus} CPUs"
            raise StartError(f"no room on this machine, where {counted}: {'; '.join(homeless)}")


def check_nodes(settings: Settings, *, tries_ports: bool = True) -> None:
    """Every node that can run a replica has this code and this secret, and reaches the port of a replica on every
    other, which `tries_ports`. Raises `StartError`, which names what does not."""
    # Made here, if it has not been: it is to be copied from this machine.
    read_pepper(settings.state_dir)
    probes = _Probes()
    closed: Mapping[str, Sequence[str]] = {}
    try:
        marks = probes.ask("marks", settings.state_dir)
        if tries_ports:
            listening = probes.ask("listen", settings.ray.replica_ports)
            closed = probes.ask("unreachable", [address for each in listening.values() for address in each])
    finally:
        probes.end()
    wrong = [*differences(marks_of(settings.state_dir), marks, settings.state_dir)]
    for node, problems in closed.items():
        wrong += [f"node {node} cannot reach {one}: open it between the nodes ({PAGE})" for one in problems]
    if wrong:
        raise StartError("ray.address: " + "; ".join(wrong))


class _Probes:
    """One on each node that may have a replica."""

    def __init__(self) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from serve.cluster.ray_insides.cluster_nodes import usable_nodes

        self._by_node = {
            node["NodeManagerAddress"]: ray.remote(num_cpus=0)(NodeProbe)
            .options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False))
            .remote(node["NodeManagerAddress"])
            for node in usable_nodes()
            if node["Resources"].get("CPU", 0) >= 1
        }

    def ask(self, method: str, argument: Any) -> dict[str, Any]:
        """Answers of all, by the address of its node. Raises `StartError` for one that says nothing."""
        import ray
        from ray.exceptions import GetTimeoutError, RayError

        asked = {node: getattr(probe, method).remote(argument) for node, probe in self._by_node.items()}
        said = {}
        for node, answer in asked.items():
            try:
                said[node] = ray.get(answer, timeout=ANSWER_S)
            except GetTimeoutError as error:
                raise StartError(
                    f"ray.address: node {node} has not answered within {ANSWER_S:g} s: it is busy, or Ray can start no "
                    "worker there"
                ) from error
            except (RayError, OSError) as error:
                reason = [line for line in str(error).splitlines() if line.strip()]
                raise StartError(
                    f"ray.address: node {node} cannot work for pith: {reason[-1] if reason else error!r}; Ray's "
                    f"Python there needs the same wheel as this machine's {code_in(ROOT)}, and the ports of {PAGE}"
                ) from error
        return said

    def end(self) -> None:
        import ray

        for probe in self._by_node.values():
            ray.kill(probe)


def spread_over_nodes(settings: Settings) -> dict[str, int]:
    """By application, how many of its replicas a node may have. A cluster of our own is one machine."""
    import ray

    if not settings.ray.address or not ray.is_initialized():
        return {}
    return bounds_of(demands_of(settings), nodes_of(usable_nodes()), cpus=0)


def nodes_of(found: Iterable[Mapping[str, Any]]) -> list[Node]:
    """Those that can have a replica, with what Ray may give of each."""
    resources = [node["Resources"] for node in found]
    return [
        Node(
            gpus=int(each.get("GPU", 0)),
            gpu_type=next((name.removeprefix(KIND) for name in each if name.startswith(KIND)), None),
            cpus=int(each["CPU"]),
        )
        for each in resources
        if each.get("CPU", 0) >= 1
    ]
