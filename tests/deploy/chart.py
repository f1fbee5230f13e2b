"""The Helm chart as Helm's own engine renders it, for tests."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/chart"
# Of Kubernetes, whose schemas the manifests are held to.
KUBERNETES = "1.34"
# All that a container of pith may write: the rest of its root is read-only.
WRITABLE = {"/opt/pith/var", "/models", "/tmp", "/dev/shm"}


def need(module: str) -> Any:
    """A module that CI installs from constraints/tests.txt; without it the test is skipped, but not in CI."""
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        if os.environ.get("CI"):
            pytest.fail(f"{module} is not installed")
        pytest.skip("not installed: .venv/bin/python -m pip install --no-deps -r constraints/tests.txt")
    return importlib.import_module(module)


def rendered(values: Mapping[str, Any]) -> str:
    """Every manifest, in the order of their files."""
    with need("helm_python").Chart.load(CHART) as chart:
        files = chart.render(dict(values), name="pith", namespace="pith")
    texts = [files[name].strip() for name in sorted(files) if name.endswith(".yaml")]
    return "---\n" + "\n---\n".join(text for text in texts if text) + "\n"


def manifests(values: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    """Every manifest by its kind and name."""
    found = [each for each in yaml.safe_load_all(rendered(values)) if each]
    by_name = {(each["kind"], each["metadata"]["name"]): each for each in found}
    assert len(by_name) == len(found)
    return by_name


def pods(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The templates of pods in a manifest, by component, each as a Pod."""
    spec = manifest["spec"]
    templates = [spec["template"]] if "template" in spec else []
    if "rayClusterConfig" in spec:
        cluster = spec["rayClusterConfig"]
        templates = [group["template"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
    labels = "app.kubernetes.io/component"
    return {
        each["metadata"]["labels"][labels]: {"apiVersion": "v1", "kind": "Pod", **each} for each in templates
    }
