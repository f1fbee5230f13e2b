"""An engine on a pretend GPU of a Ray cluster that others run, from a file of Ray Serve."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from serve.cluster.lineup import first_lineup
from serve.config.settings import load_settings
from tests.integration.ray_nodes import HEAD, RayNodes, ray_nodes
from tests.integration.running import free_port, wait_for
from tests.pretend_gpu.configuration import with_gpus, write_gpu_config
from tests.pretend_gpu.processes import Found, engine_processes, gone, nothing_is_left_of, shared_by

START_S = 900
pytestmark = pytest.mark.timeout(3 * START_S)
# With a part of a GPU.
MODEL = "qwen3-30b-a3b"
ASKED = {"messages": [{"role": "user", "content": "Tell me about the river."}], "max_tokens": 4}


@pytest.fixture(scope="module")
def dashboard() -> int:
    return free_port()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, dashboard: int) -> Iterator[RayNodes]:
    gpus = with_gpus({}, tmp_path_factory.mktemp("plugin"))
    with ray_nodes(HEAD, also=gpus, dashboard=dashboard) as started:
        yield started


def found(nodes: RayNodes) -> Found:
    return engine_processes(nodes.processes(HEAD)[0], MODEL)


def asks(url: str, key: str) -> Callable[[], int]:
    """What asks the model and returns the status."""

    def ask() -> int:
        with suppress(httpx.TransportError):
            headers = {"Authorization": f"Bearer {key}"}
            body = {**ASKED, "model": MODEL}
            return httpx.post(
                f"{url}/v1/chat/completions", json=body, headers=headers, timeout=START_S
            ).status_code
        return 0

    return ask


def of_pith(nodes: RayNodes) -> list[str]:
    """Replicas and engines on the node."""
    names = []
    for process in nodes.processes(HEAD):
        with suppress(psutil.Error):
            names.append(process.name())
    return [
        name for name in names if any(kind in name for kind in ("ServeReplica", "EngineCore", "WorkerProc"))
    ]


def test_an_engine_that_serve_deploys_from_a_file_answers_and_leaves_nothing_when_it_is_killed(
    nodes: RayNodes, tmp_path: Path, dashboard: int
) -> None:
    port = free_port()
    server = {"port": port, "ingress_replicas": 1}
    config = write_gpu_config(tmp_path, [MODEL], ray={"address": nodes.address}, server=server)
    names = ("ingress", *first_lineup(load_settings(config)).places)
    build = {"import_path": "serve.cluster.import_path:build", "route_prefix": None}
    applications = [{**build, "name": name, "args": {"config": str(config), "app": name}} for name in names]
    deploy(nodes, dashboard, applications)
    url = f"http://127.0.0.1:{port}"
    key = tmp_path / "demo-key"
    wait_for(key.exists, timeout_s=START_S, what="the ledger is there")
    ask = asks(url, key.read_text().strip())
    wait_for(lambda: ask() == 200, timeout_s=START_S, what="it answers", every_s=0.5)
    before = found(nodes)
    assert len(before.workers) == 1
    shared = shared_by(before.all)
    assert shared
    before.replicas[0].send_signal(signal.SIGKILL)
    gone(before.all)
    # Under what takes its place, which `test_pretend_gpu` waits for.
    deploy(nodes, dashboard, [])
    wait_for(lambda: not of_pith(nodes), what="nothing of pith is left")
    nothing_is_left_of(shared)


def deploy(nodes: RayNodes, dashboard: int, applications: list[dict[str, Any]]) -> None:
    """As KubeRay's operator does, or `serve deploy`."""
    headers = {"Authorization": f"Bearer {nodes.environment['RAY_AUTH_TOKEN']}"}
    document = {"proxy_location": "Disabled", "applications": applications}
    reply = httpx.put(
        f"http://127.0.0.1:{dashboard}/api/serve/applications/", json=document, headers=headers, timeout=60
    )
    assert reply.is_success, reply.text
