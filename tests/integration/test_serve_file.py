"""A Ray cluster that pith did not start, to which Serve's config file goes over the dashboard, as KubeRay sends it."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from serve.cluster.lineup import first_lineup
from serve.cluster.ray_insides.ray_serve import RAY_ENVIRONMENT
from serve.config.settings import load_settings
from tests.deploy.chart import manifests
from tests.integration.running import ROOT, free_port, wait_for

START_S = 120
FAKE = {
    "id": "fake",
    "name": "Fake",
    "blurb": "Says a fixed text.",
    "checkpoint": "embedded:pith-mini",
    "context_length": 2048,
    "price": {"input_usd_per_mtok": "0.1", "output_usd_per_mtok": "0.4", "minimum_request_usd": "0.00001"},
    "engine": {"kind": "fake"},
}
LEXICAL = {"id": "pith-lexical", "name": "Lexical", "blurb": "By words.", "kind": "lexical"}


@dataclass(frozen=True)
class Cluster:
    """A Ray node with its dashboard, and what its clients need to know."""

    dashboard: str
    environment: dict[str, str]
    folder: Path


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # Not pytest's folder: the paths of Ray's sockets would be too long in it.
    folder = Path(tempfile.mkdtemp(prefix="pith-ray-"))
    port, dashboard, agent = free_port(), free_port(), free_port()
    environment = {**os.environ, **RAY_ENVIRONMENT, "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    environment |= {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", f"--port={port}"]
    command += ["--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}"]
    command += [f"--dashboard-agent-listen-port={agent}", "--num-cpus=8", "--object-store-memory=128000000"]
    command += [f"--temp-dir={folder / 'ray'}"]
    log = (folder / "log").open("wb")
    node = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        yield Cluster(f"http://127.0.0.1:{dashboard}", environment, folder)
    finally:
        stop(node)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def stop(node: subprocess.Popen[bytes]) -> None:
    """At once: nothing on it is worth a graceful end."""
    processes = psutil.Process(node.pid).children(recursive=True)
    node.kill()
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    node.wait(10)
    psutil.wait_procs(processes, 10)


def values(state: Path) -> dict[str, Any]:
    billing = {"database_url": f"sqlite:///{state / 'pith.db'}", "rate_limit_storage": "memory://"}
    config = {"billing": billing, "models": [FAKE], "compression": {"models": [LEXICAL]}}
    demo = {"enabled": True, "key_path": str(state / "demo-key")}
    return {"mode": "ray", "replicas": 1, "config": {**config, "demo": demo}}


def test_what_the_chart_tells_serve_becomes_a_server_that_answers_and_bills(cluster: Cluster) -> None:
    port, ops_port, state = free_port(), free_port(), cluster.folder / "var"
    found = manifests(values(state))
    config = cluster.folder / "pith.yaml"
    # What is another in a pod: its folder, and the ports that its containers have to themselves.
    text = found["ConfigMap", "pith"]["data"]["pith.yaml"].replace("/opt/pith/var", str(state))
    text = text.replace("0.0.0.0", "127.0.0.1").replace("8000", str(port)).replace("9464", str(ops_port))
    config.write_text(text)
    document = found["RayService", "pith"]["spec"]["serveConfigV2"].replace(
        "/etc/pith/pith.yaml", str(config)
    )
    apply(cluster, yaml.safe_load(document))

    wanted = {"ingress", "ops", *first_lineup(load_settings(config)).places}
    assert set(running(cluster, wanted)) == wanted
    url, ops = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{ops_port}"
    wait_for(lambda: httpx.get(f"{url}/ready").status_code == 200, what="it is ready")
    key = {"Authorization": f"Bearer {(state / 'demo-key').read_text().strip()}"}
    body = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    reply = httpx.post(f"{url}/v1/chat/completions", json=body, headers=key, timeout=120).json()
    assert reply["service"]["metering"] == {"persisted": True, "status": "persisted"}
    metrics = httpx.get(f"{ops}/metrics", timeout=120).text
    assert 'pith_chat_requests_total{model="fake",outcome="completed"} 1.0' in metrics
    assert 'pith_replicas_running{model="fake"} 1.0' in metrics


def apply(cluster: Cluster, document: Any) -> None:
    """As KubeRay's operator does when the node is up."""
    headers = {"Authorization": f"Bearer {cluster.environment['RAY_AUTH_TOKEN']}"}
    url = f"{cluster.dashboard}/api/serve/applications/"

    def taken() -> bool:
        try:
            return httpx.put(url, json=document, headers=headers, timeout=120).is_success
        except httpx.TransportError:
            return False

    wait_for(taken, timeout_s=START_S, what="Ray's dashboard takes the file", every_s=0.25)


def running(cluster: Cluster, wanted: set[str]) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {cluster.environment['RAY_AUTH_TOKEN']}"}
    found: dict[str, Any] = {}

    def all_run() -> bool:
        reply = httpx.get(f"{cluster.dashboard}/api/serve/applications/", headers=headers, timeout=120).json()
        found.clear()
        found.update(reply["applications"])
        states = {name: found[name]["status"] for name in wanted if name in found}
        assert "DEPLOY_FAILED" not in states.values(), [each["message"] for each in found.values()]
        return len(states) == len(wanted) and set(states.values()) == {"RUNNING"}

    wait_for(all_run, timeout_s=START_S, what=f"{wanted} run", every_s=0.25)
    return found
