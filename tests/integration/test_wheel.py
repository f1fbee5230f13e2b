"""pith installed from its wheel, without a checkout: it serves, and so do nodes that have it at different places."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from billing.store.migration import newest_revision
from tests.faults.redis_server import OwnRedis
from tests.integration.load import asking
from tests.integration.ray_nodes import HEAD, OTHER, RayNodes, ray_nodes
from tests.integration.running import ROOT, free_port, start_server, stop_server
from tests.integration.test_cluster import ASKED, FAKE_MODEL

BUILD_S, RUN_S = 120, 180
SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
# Of the checkout's own environment.
OURS = ("pith-", "__editable__", "__pycache__")
TEXT = "Marie Curie discovered radium in 1898. She was born in Warsaw. The weather is fine today."
COMPRESSED = {"query": "who discovered radium?", "input": TEXT, "compression": {"target_ratio": 0.7}}
PROGRAMS = {
    "ray": "from ray.scripts.scripts import main; main()",
    "pip": "from pip._internal.cli.main import main; raise SystemExit(main())",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([ROOT / "scripts/wheel", folder], check=True, capture_output=True, timeout=BUILD_S)
    (built,) = folder.glob("pith-*.whl")
    return built


@pytest.fixture(scope="module")
def bin_folders(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of two environments, at different places, which have the same packages and pith by two ways."""
    by_pip, by_image = (environment_in(tmp_path_factory.mktemp(name)) for name in ("here", "there"))
    # pip finds there all that the wheel's metadata asks for.
    run(by_pip / "python", "-m", "pip", "install", "--no-index", wheel, folder=by_pip.parent)
    install_as_the_image_does(by_image.parents[1])
    return [by_pip, by_image]


def environment_in(folder: Path) -> Path:
    """A new one with the packages of the checkout's, linked, and without pith; returns its folder of programs."""
    venv.create(folder / ".venv", symlinks=True)
    for entry in (Path(sys.prefix) / SITE).iterdir():
        if not entry.name.startswith(OURS):
            (folder / ".venv" / SITE / entry.name).symlink_to(entry)
    programs = folder / ".venv/bin"
    for name, program in PROGRAMS.items():
        (programs / name).write_text(f"#!{programs}/python\n{program}\n")
        (programs / name).chmod(0o755)
    return programs


def install_as_the_image_does(folder: Path) -> None:
    """What `deploy/Dockerfile.cpu` does with the source, by its own lines."""
    build = (ROOT / "deploy/Dockerfile.cpu").read_text()
    (folder / "source").mkdir()
    for sources, target in re.findall(r"^COPY (?!--)(.+) (source/\S*)$", build, re.MULTILINE):
        run("cp", "-R", *(ROOT / source for source in sources.split()), folder / target, folder=folder)
    (step,) = re.findall(r"^RUN (.*pip wheel (?:.*\\\n)*.*)$", build, re.MULTILINE)
    run("bash", "-euo", "pipefail", "-c", step.replace("/opt/pith", str(folder)), folder=folder)
    assert (folder / "pith.yaml").is_file() and not (folder / "source").exists()


def run(*command: Any, folder: Path) -> str:
    """What it prints, in that folder. Fails where it does not end with 0."""
    done = subprocess.run(
        [*map(str, command)], cwd=folder, capture_output=True, text=True, timeout=RUN_S, check=False
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
    run(pith, "init", own, "--profile", "tiny", folder=elsewhere)
    config = own / "pith.yaml"
    server = start_server(config, own / "var", "--ops-port", str(free_port()), installed=(pith, elsewhere))
    try:
        with server.client() as http:
            chat = http.post("/v1/chat/completions", json=ASKED).raise_for_status().json()
            assert chat["model"] == "pith-mini" and chat["usage"]["completion_tokens"] == 4
            small = http.post("/v1/compress", json=COMPRESSED).raise_for_status().json()
            assert 0 < len(small["output"]) < len(TEXT)
            for path in ("/", "/playground/main.js", "/docs", "/redoc", "/v1/catalog", "/openapi.json"):
                assert http.get(path).status_code == 200, path
    finally:
        stop_server(server)
    run(pith, "reconcile", "--config", config, folder=elsewhere)
    usage = run(pith, "usage", "--by", "model", "--config", config, folder=elsewhere)
    assert "pith-mini" in usage and "pith-lexical" in usage
    assert not (bin_folders[0].parent / SITE / "var").exists()


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
