"""pith installed from its wheel, without a checkout: its reload, and nodes that have it at different places.
`test_readme.py` has the server that is started so."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from billing.store.migration import newest_revision
from tests.faults.redis_server import OwnRedis
from tests.integration.installed import (
    RUN_S,
    SITE,
    folder_with_names_of_ours,
    install_as_the_image_does,
    run,
)
from tests.integration.load import asking
from tests.integration.ray_nodes import HEAD, OTHER, RayNodes, ray_nodes
from tests.integration.running import free_port, start_server, stop_server
from tests.integration.test_cluster import ASKED, FAKE_MODEL

TEXT = "Marie Curie discovered radium in 1898. She was born in Warsaw. The weather is fine today."
COMPRESSED = {"query": "who discovered radium?", "input": TEXT, "compression": {"target_ratio": 0.7}}


@pytest.fixture(scope="module")
def bin_folders(by_pip: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of two environments, at different places, which have the same packages and pith by two ways."""
    return [by_pip, install_as_the_image_does(tmp_path_factory.mktemp("there"))]


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    return folder_with_names_of_ours(tmp_path / "elsewhere")


def test_a_reload_imports_what_is_installed_and_not_what_lies_where_the_server_was_started(
    bin_folders: list[Path], elsewhere: Path
) -> None:
    asked = "from serve.cluster.reloader import newest_revision_on_disk as found; print(found())"
    assert newest_revision() in run(bin_folders[0] / "python", "-P", "-c", asked, folder=elsewhere)


@pytest.fixture(scope="module")
def nodes(bin_folders: list[Path]) -> Iterator[RayNodes]:
    with ray_nodes(HEAD, OTHER, programs=dict(zip((HEAD, OTHER), bin_folders, strict=True))) as started:
        yield started


@pytest.fixture
def config(nodes: RayNodes, bin_folders: list[Path], elsewhere: Path, tmp_path: Path) -> Iterator[Path]:
    """Two HTTP processes, two replicas of a fake engine and two of a compressor: one of each on a node."""
    limits = OwnRedis()
    run(bin_folders[0] / "pith", "init", tmp_path, folder=elsewhere)
    path = tmp_path / "pith.yaml"
    document = yaml.safe_load(path.read_text())
    (words,) = [model for model in document["compression"]["models"] if model["kind"] == "lexical"]
    document |= {
        "models": [FAKE_MODEL],
        "compression": {"models": [words | {"replicas": {"min": 2, "max": 2}}]},
        "ray": {"address": nodes.address},
        "server": {"host": "node", "ingress_replicas": 2},
        "ops": {"port": free_port()},
    }
    document["billing"]["rate_limit_storage"] = limits.url
    path.write_text(yaml.safe_dump(document))
    limits.start()
    try:
        yield path
    finally:
        limits.close()


def test_a_node_with_another_pith_is_refused_and_one_with_the_same_at_another_place_works(
    nodes: RayNodes, bin_folders: list[Path], elsewhere: Path, config: Path
) -> None:
    pith, other = bin_folders[0] / "pith", bin_folders[1].parent / SITE
    weights = other / "compression/weights/record.json"
    kept = weights.read_bytes()
    weights.write_bytes(kept + b"\n")
    refused = refusal(nodes, pith, config, elsewhere)
    assert f"node {OTHER} has pith " in refused and f" in {other}, and this machine pith " in refused, refused

    weights.write_bytes(kept)
    server = start_server(
        config, config.parent / "var", environment=nodes.environment, installed=(pith, elsewhere)
    )
    try:
        for ip in (HEAD, OTHER):
            with asking(server, ip) as http:
                http.post("/v1/chat/completions", json=ASKED).raise_for_status()
                http.post("/v1/compress", json=COMPRESSED).raise_for_status()
    finally:
        stop_server(server)


def refusal(nodes: RayNodes, pith: Path, config: Path, folder: Path) -> str:
    """What `pith serve` says that does not start."""
    done = subprocess.run(
        [pith, "serve", "--config", config],
        cwd=folder,
        env=dict(nodes.environment),
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr
