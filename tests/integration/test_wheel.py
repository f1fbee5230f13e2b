"""pith installed from its wheel, without a checkout: it serves, and so do nodes that have it at different places."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.faults.redis_server import OwnRedis
from tests.integration.load import asking
from tests.integration.ray_nodes import HEAD, OTHER, RayNodes, ray_nodes
from tests.integration.running import ROOT, free_port, start_server, stop_server
from tests.integration.test_cluster import ASKED, FAKE_MODEL

BUILD_S, INSTALL_S, RUN_S = 120, 120, 120
SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
# Of the checkout's own environment.
OURS = ("pith-", "__editable__", "__pycache__")
TEXT = "Marie Curie discovered radium in 1898. She was born in Warsaw. The weather is fine today."
RAY = "from ray.scripts.scripts import main; main()"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([ROOT / "scripts/wheel", folder], check=True, capture_output=True, timeout=BUILD_S)
    (built,) = folder.glob("pith-*.whl")
    return built


@pytest.fixture(scope="module")
def bin_folders(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of two environments, which have the same packages at different places."""
    return [installed(wheel, tmp_path_factory.mktemp(name)) for name in ("here", "there")]


def installed(wheel: Path, folder: Path) -> Path:
    """A new environment with the packages of the checkout's, linked, and pith from the wheel: pip finds there all that
    its metadata asks for."""
    venv.create(folder, symlinks=True)
    for entry in (Path(sys.prefix) / SITE).iterdir():
        if not entry.name.startswith(OURS):
            (folder / SITE / entry.name).symlink_to(entry)
    programs = folder / "bin"
    run(programs / "python", "-m", "pip", "install", "--no-index", wheel, folder=folder)
    (programs / "ray").write_text(f"#!{programs}/python\n{RAY}\n")
    (programs / "ray").chmod(0o755)
    return programs


def run(*command: Any, folder: Path, environment: Mapping[str, str] = os.environ) -> str:
    """What it prints, in that folder. Fails where it does not end with 0."""
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env=environment, capture_output=True, text=True, timeout=RUN_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder to start it in, which has modules by the names of pith's."""
    folder = tmp_path / "elsewhere"
    (folder / "serve").mkdir(parents=True)
    for module in ("serve/__init__.py", "models.py", "billing.py"):
        (folder / module).write_text("raise RuntimeError('this is not what is installed')\n")
    return folder


def test_an_installed_pith_serves_a_chat_and_a_compression_and_its_books_add_up(
    bin_folders: list[Path], elsewhere: Path, tmp_path: Path
) -> None:
    pith, own = bin_folders[0] / "pith", tmp_path / "own"
    assert "not installed" not in run(pith, "--version", folder=elsewhere)
    run(pith, "init", own, folder=elsewhere)
    config = own / "pith.yaml"
    server = start_server(config, own / "var", "--ops-port", str(free_port()), installed=(pith, elsewhere))
    try:
        with server.client() as http:
            chat = http.post("/v1/chat/completions", json=ASKED).raise_for_status().json()
            assert chat["model"] == "pith-mini" and chat["usage"]["completion_tokens"] == 4
            body = {"query": "who discovered radium?", "input": TEXT, "compression": {"target_ratio": 0.7}}
            small = http.post("/v1/compress", json=body).raise_for_status().json()
            assert 0 < len(small["output"]) < len(TEXT)
            for path in ("/", "/playground/main.js", "/docs", "/redoc", "/v1/catalog", "/openapi.json"):
                assert http.get(path).status_code == 200, path
    finally:
        stop_server(server)
    run(pith, "reconcile", "--config", config, folder=elsewhere)
    usage = run(pith, "usage", "--by", "model", "--config", config, folder=elsewhere)
    assert "pith-mini" in usage and "pith-lexical" in usage
    assert not (bin_folders[0].parent / SITE / "var").exists()


@pytest.fixture(scope="module")
def nodes(bin_folders: list[Path]) -> Iterator[RayNodes]:
    with ray_nodes(HEAD, OTHER, programs=dict(zip((HEAD, OTHER), bin_folders, strict=True))) as started:
        yield started


def test_nodes_with_the_same_wheel_at_different_places_work_together_and_another_is_refused(
    nodes: RayNodes, bin_folders: list[Path], elsewhere: Path, tmp_path: Path
) -> None:
    pith, limits = bin_folders[0] / "pith", OwnRedis()
    limits.start()
    try:
        run(pith, "init", tmp_path, folder=elsewhere)
        config = tmp_path / "pith.yaml"
        document = yaml.safe_load(config.read_text())
        words = [model for model in document["compression"]["models"] if model["kind"] == "lexical"]
        words[0]["replicas"] = {"min": 2, "max": 2}
        document |= {"models": [FAKE_MODEL], "compression": {"models": words}}
        document["ray"] = {"address": nodes.address}
        document["billing"]["rate_limit_storage"] = limits.url
        document["server"] = {"host": "node", "ingress_replicas": 2}
        document["ops"]["port"] = free_port()
        config.write_text(yaml.safe_dump(document))

        other = bin_folders[1].parent / SITE
        weights = other / "compression/weights/record.json"
        kept = weights.read_bytes()
        weights.write_bytes(kept + b"\n")
        refused = subprocess.run(
            [pith, "serve", "--config", config], cwd=elsewhere, env=nodes.environment, capture_output=True, text=True
        )  # fmt: skip
        assert refused.returncode == 1
        assert f"node {OTHER} has pith " in refused.stderr and str(other) in refused.stderr, refused.stderr
        assert f"this machine pith {version_in(bin_folders[0])} (SHA-256 " in refused.stderr

        weights.write_bytes(kept)
        server = start_server(
            config, tmp_path / "var", environment=nodes.environment, installed=(pith, elsewhere)
        )
        try:
            for ip in (HEAD, OTHER):
                with asking(server, ip) as http:
                    http.post("/v1/chat/completions", json=ASKED).raise_for_status()
                    body = {"query": "who?", "input": TEXT, "compression": {"target_ratio": 0.7}}
                    http.post("/v1/compress", json=body).raise_for_status()
        finally:
            stop_server(server)
    finally:
        limits.close()


def version_in(programs: Path) -> str:
    asked = "from importlib.metadata import version; print(version('pith'))"
    return run(programs / "python", "-c", asked, folder=programs).strip()
