"""pith on two Ray nodes that somebody else runs, installed at different places: spread over both, one of which may be
lost; and stopped, or left on purpose. No node has a checkout."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from billing.store.migration import newest_revision
from serve.cluster.ray_insides.ray_serve import LOOPBACK_ADDRESSES
from tests.faults.redis_server import OwnRedis
from tests.integration.installed import SITE, folder_with_names_of_ours, install_as_the_image_does, run
from tests.integration.load import Load, asking
from tests.integration.ray_nodes import HEAD, OTHER, THIRD, RayNodes, ray_nodes
from tests.integration.running import ROOT, Server, start_server, stop_server, wait_for, write_config
from tests.serve.cluster.ports import neighbours

FAKE_MODEL = {
    "id": "fake",
    "name": "Fake",
    "blurb": "Made-up text.",
    "checkpoint": "none",
    "context_length": 4096,
    "price": {"input_usd_per_mtok": "1", "output_usd_per_mtok": "1", "minimum_request_usd": "0"},
    "engine": {"kind": "fake", "options": {"token_s": 0.05}},
    "replicas": {"min": 2, "max": 2},
}
ASKED = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
# Ten seconds with this engine.
LONG = {**ASKED, "max_tokens": 200, "ignore_eos": True}
# Each node's share of two HTTP processes and two replicas.
SHARE = ["ray::ServeReplica:ingress:ingress", "ray::ServeReplica:model:fake:fake"]
CLIENTS = 8
PLACED_S = 120


@pytest.fixture(scope="module")
def bin_folders(by_pip: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of two environments, which have the same packages and pith by two ways."""
    return [by_pip, install_as_the_image_does(tmp_path_factory.mktemp("there"))]


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pith is started."""
    return folder_with_names_of_ours(tmp_path_factory.mktemp("start") / "elsewhere")


@pytest.fixture(scope="module")
def nodes(bin_folders: list[Path]) -> Iterator[RayNodes]:
    here, there = bin_folders
    with ray_nodes(HEAD, OTHER, programs={HEAD: here, OTHER: there, THIRD: there}) as started:
        yield started


@pytest.fixture(scope="module")
def ports() -> tuple[int, int]:
    return neighbours(8)


@pytest.fixture(scope="module")
def config(
    nodes: RayNodes, ports: tuple[int, int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    folder, limits = tmp_path_factory.mktemp("cluster"), OwnRedis()
    books = {"database_url": f"sqlite:///{folder}/pith.db", "spool_path": str(folder / "spool.db")}
    only = {
        "models": [FAKE_MODEL],
        "compression": {},
        "ray": {"address": nodes.address, "replica_ports": list(ports)},
        "billing": {**books, "rate_limit_storage": limits.url},
    }
    limits.start()
    try:
        yield write_config(folder, also=only, ingress_replicas=2, host="node")
    finally:
        limits.close()


@dataclass(frozen=True)
class Installed:
    """pith on the machine of the first node."""

    nodes: RayNodes
    program: Path
    folder: Path
    config: Path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program, *arguments, "--config", self.config],
            cwd=self.folder,
            env=dict(self.nodes.environment),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def start(self, *options: str) -> Server:
        place = (self.program, self.folder)
        environment = self.nodes.environment
        return start_server(
            self.config, self.config.parent, *options, environment=environment, installed=place
        )


@pytest.fixture(scope="module")
def pith(nodes: RayNodes, bin_folders: list[Path], elsewhere: Path, config: Path) -> Installed:
    return Installed(nodes, bin_folders[0] / "pith", elsewhere, config)


@pytest.fixture(scope="module")
def left(pith: Installed) -> Iterator[Server]:
    """What `pith serve --attach` has started and left."""
    server = pith.start("--attach")
    stop_server(server)
    assert server.process is not None and server.process.returncode == 0
    yield server


def processes_of_serve(nodes: RayNodes, ip: str) -> list[psutil.Process]:
    """Those on one node."""
    found = []
    for process in nodes.processes(ip):
        # One may end meanwhile.
        with suppress(psutil.Error):
            if process.name().startswith("ray::Serve"):
                found.append(process)
    return found


def replicas(nodes: RayNodes, *ips: str) -> list[str]:
    """The names of Serve's replicas and other processes on these nodes, or on all."""
    return sorted(process.name() for ip in ips or nodes.ips for process in processes_of_serve(nodes, ip))


def listening(process: psutil.Process) -> set[tuple[str, int]]:
    return {tuple(one.laddr) for one in process.net_connections("inet") if one.status == "LISTEN"}


def has_its_share(nodes: RayNodes, ip: str) -> bool:
    return [name for name in replicas(nodes, ip) if "Replica" in name] == SHARE


def answers(left: Server, ip: str) -> bool:
    """Whether the HTTP process of that node does."""
    with asking(left, ip) as http:
        return http.post("/v1/chat/completions", json=ASKED).status_code == 200


def test_what_is_installed_is_imported_and_not_what_lies_where_it_is_started(
    bin_folders: list[Path], elsewhere: Path
) -> None:
    asked = "from serve.cluster.reloader import newest_revision_on_disk as found; print(found())"
    assert newest_revision() in run(bin_folders[0] / "python", "-P", "-c", asked, folder=elsewhere)


def test_what_the_image_installs_compresses(bin_folders: list[Path], elsewhere: Path) -> None:
    there = bin_folders[1]
    (elsewhere / "text").write_text(
        "Marie Curie discovered radium in 1898. She was born in Warsaw. The weather is fine today."
    )
    config = there.parents[1] / "pith.yaml"
    asked = ["--query", "who discovered radium?", "--ratio", "0.7", "--config", config]
    assert "radium" in run(there / "pith", "compress", "text", *asked, folder=elsewhere)


def test_a_node_with_another_pith_is_refused(pith: Installed, bin_folders: list[Path]) -> None:
    other = bin_folders[1].parent / SITE
    weights = other / "compression/weights/record.json"
    kept = weights.read_bytes()
    weights.write_bytes(kept + b"\n")
    try:
        refused = pith.run("serve")
    finally:
        weights.write_bytes(kept)
    assert refused.returncode == 1, refused.stdout + refused.stderr
    said = refused.stderr
    assert f"node {OTHER} has pith " in said and f" in {other}, and this machine pith " in said, said


def test_what_is_left_on_purpose_says_so_and_goes_on_answering(left: Server) -> None:
    said = "".join(left.lines)
    assert "Ctrl-C leaves it running" in said and "left: pith runs on" in said
    assert answers(left, HEAD)


def test_a_second_server_does_not_take_the_place_of_one_that_runs(left: Server, pith: Installed) -> None:
    refused = pith.run("serve")
    assert refused.returncode == 1
    assert "pith runs already" in refused.stderr and "--attach" in refused.stderr
    assert answers(left, HEAD)


def test_each_node_has_its_share_and_answers_at_its_own_address(nodes: RayNodes, left: Server) -> None:
    for ip in (HEAD, OTHER):
        assert has_its_share(nodes, ip), replicas(nodes, ip)
        assert answers(left, ip)


def test_replicas_are_open_to_other_machines_on_the_ports_that_are_named(
    nodes: RayNodes, left: Server, ports: tuple[int, int]
) -> None:
    named = {left.port, *range(ports[0], ports[1] + 1)}
    for ip in (HEAD, OTHER):
        for process in processes_of_serve(nodes, ip):
            beyond = {at for at in listening(process) if at[0] not in LOOPBACK_ADDRESSES}
            own = {port for host, port in beyond if host == ip}
            # And Ray's own port of each worker, on every interface.
            assert own <= named and len(beyond) - len(own) == 1, (process.name(), beyond)
            assert len(own) == ("Replica" in process.name()), (process.name(), beyond)


def test_a_node_lost_under_load_costs_only_the_requests_that_it_carried(
    nodes: RayNodes, left: Server, config: Path
) -> None:
    with Load(left, HEAD, ASKED, clients=CLIENTS) as load:
        wait_for(lambda: load.count() >= 5 * CLIENTS, what="requests are answered")
        nodes.kill(OTHER)
        load.part = "after"
        wait_for(lambda: load.count("after") >= 10 * CLIENTS, what="they are answered again")
    print(load.said())
    assert len(load.failed()) <= CLIENTS and load.failed("after") == []
    left.pith("reconcile", "--full")


def test_a_node_that_comes_back_has_its_share_again(nodes: RayNodes, left: Server) -> None:
    nodes.start(OTHER)
    wait_for(lambda: has_its_share(nodes, OTHER), timeout_s=PLACED_S, what="it has its share")
    wait_for(lambda: nodes.listens(OTHER, left.port), timeout_s=PLACED_S, what="it takes requests")
    assert has_its_share(nodes, HEAD) and answers(left, OTHER)


def test_a_node_is_drained_without_a_failed_request(nodes: RayNodes, left: Server, pith: Installed) -> None:
    nodes.start(THIRD)
    with (
        Load(left, HEAD, ASKED, clients=CLIENTS) as load,
        asking(left, OTHER) as there,
        ThreadPoolExecutor(1) as pool,
    ):
        long = pool.submit(there.post, "/v1/chat/completions", json=LONG)
        wait_for(lambda: load.count() >= CLIENTS, what="requests are answered")
        drained = pith.run("drain", OTHER, "--within", str(PLACED_S))
        load.part = "after"
        assert drained.returncode == 0, drained.stderr
        wait_for(lambda: load.count("after") >= CLIENTS, what="requests are answered")
        assert long.result().status_code == 200
    print(drained.stdout, load.said())
    assert load.failed() == [] and "no room" not in drained.stdout
    assert has_its_share(nodes, THIRD) and answers(left, THIRD)
    left.pith("reconcile", "--full")


def test_pith_stop_stops_all_of_it_and_says_what(nodes: RayNodes, left: Server, pith: Installed) -> None:
    stopped = pith.run("stop")
    assert stopped.returncode == 0, stopped.stderr
    assert "2 applications of pith, and Ray Serve; Ray runs on" in stopped.stdout
    assert not replicas(nodes)


# Another team's: pith knows nothing of it, and neither starts Serve nor stops it.
THEIRS = """
import sys
import ray
from ray import serve

@serve.deployment
class Theirs:
    async def answer(self):
        return 42

ray.init(address=sys.argv[1], namespace="serve", log_to_driver=False)
if sys.argv[2] == "start":
    serve.start(proxy_location="Disabled")
    serve.run(Theirs.bind(), name="theirs", route_prefix=None)
print(serve.get_app_handle("theirs").answer.remote().result())
"""


def theirs(nodes: RayNodes, what: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", THEIRS, nodes.address, what],
        env=dict(nodes.environment),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.strip().endswith("42"), done.stderr


@pytest.mark.long
def test_ctrl_c_stops_what_was_started_there_and_nothing_of_others(nodes: RayNodes, pith: Installed) -> None:
    theirs(nodes, "start")
    server = pith.start()
    stop_server(server)
    said = "".join(server.lines)
    assert "Ctrl-C stops what this server has started" in said
    assert "stopped: 2 applications of pith; Ray Serve runs on, with applications of others" in said
    assert [name for name in replicas(nodes) if "Replica" in name] == ["ray::ServeReplica:theirs:Theirs"]
    theirs(nodes, "ask")
