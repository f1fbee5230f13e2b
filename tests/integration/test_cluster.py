"""pith on two Ray nodes that somebody else runs: what is started there is stopped, or left on purpose."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.integration.ray_nodes import HEAD, OTHER, RayNodes, ray_nodes
from tests.integration.running import PITH, ROOT, Server, start_server, stop_server, write_config

FAKE_MODEL = {
    "id": "fake",
    "name": "Fake",
    "blurb": "Made-up text.",
    "checkpoint": "none",
    "context_length": 4096,
    "price": {"input_usd_per_mtok": "1", "output_usd_per_mtok": "1", "minimum_request_usd": "0"},
    "engine": {"kind": "fake"},
    "replicas": {"min": 2, "max": 2},
}
ASKED = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    with ray_nodes(HEAD, OTHER) as started:
        yield started


@pytest.fixture(scope="module")
def config(nodes: RayNodes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    only = {"models": [FAKE_MODEL], "compression": {}, "ray": {"address": nodes.address}}
    return write_config(tmp_path_factory.mktemp("cluster"), also=only, ingress_replicas=1)


@pytest.fixture(scope="module")
def left(nodes: RayNodes, config: Path) -> Iterator[Server]:
    """What `pith serve --attach` has started and left."""
    server = start_server(config, config.parent, "--attach", environment=nodes.environment)
    stop_server(server)
    assert server.process is not None and server.process.returncode == 0
    yield server


def pith(nodes: RayNodes, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PITH, *arguments],
        cwd=ROOT,
        env=dict(nodes.environment),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def replicas(nodes: RayNodes) -> list[str]:
    """The names of Serve's processes on all nodes."""
    found = []
    for process in (process for ip in (HEAD, OTHER) for process in nodes.processes(ip)):
        # One may end meanwhile.
        with suppress(psutil.Error):
            found.append(process.name())
    return [name for name in found if name.startswith("ray::Serve")]


def test_what_is_left_on_purpose_says_so_and_goes_on_answering(left: Server) -> None:
    said = "".join(left.lines)
    assert "Ctrl-C leaves it running" in said and "left: pith runs on" in said
    with left.client() as http:
        assert http.post("/v1/chat/completions", json=ASKED).status_code == 200


def test_a_second_server_does_not_take_the_place_of_one_that_runs(
    nodes: RayNodes, left: Server, config: Path
) -> None:
    refused = pith(nodes, "serve", "--config", str(config))
    assert refused.returncode == 1
    assert "pith runs already" in refused.stderr and "--attach" in refused.stderr
    with left.client() as http:
        assert http.post("/v1/chat/completions", json=ASKED).status_code == 200


def test_pith_stop_stops_all_of_it_and_says_what(nodes: RayNodes, left: Server, config: Path) -> None:
    stopped = pith(nodes, "stop", "--config", str(config))
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


def test_ctrl_c_stops_what_was_started_there_and_nothing_of_others(nodes: RayNodes, config: Path) -> None:
    theirs(nodes, "start")
    server = start_server(config, config.parent, environment=nodes.environment)
    stop_server(server)
    said = "".join(server.lines)
    assert "Ctrl-C stops what this server has started" in said
    assert "stopped: 2 applications of pith; Ray Serve runs on, with applications of others" in said
    assert [name for name in replicas(nodes) if "Replica" in name] == ["ray::ServeReplica:theirs:Theirs"]
    theirs(nodes, "ask")
