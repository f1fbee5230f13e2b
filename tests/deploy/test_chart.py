"""The Helm chart, by Helm's own engine and the schemas of Kubernetes: it renders what pith, Ray and Serve take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from serve.cluster.import_path import build
from serve.cluster.launch import VLLM_ENVIRONMENT
from serve.cluster.lineup import first_lineup
from serve.cluster.ray_insides.ray_serve import RAY_ENVIRONMENT
from serve.cluster.replicas.applications import (
    INGRESS_APP,
    OPS_APP,
)
from serve.config.settings import Settings, load_settings
from tests.deploy.chart import CHART, KUBERNETES, ROOT, WRITABLE, manifests, need, pods, rendered

EVERYTHING: dict[str, Any] = {
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "persistence": {"models": {"enabled": True}, "files": {"enabled": True}},
    "networkPolicy": {"api": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}]},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "nodeSelector": {"gpu": "h100"},
    "resources": {"limits": {"nvidia.com/gpu": 8, "memory": "900Gi"}},
    "imagePullSecrets": [{"name": "registry"}],
    "podAnnotations": {"a": "b"},
}
FILES = "/opt/pith/var/files"
MODES = ("servers", "ray")
WITH_ALL = [pytest.param({"mode": mode, **more}) for mode in MODES for more in ({}, EVERYTHING)]


@pytest.mark.parametrize("values", WITH_ALL)
def test_helm_finds_nothing_wrong(values: dict[str, Any]) -> None:
    found = need("helm_python.chart").lint(CHART, values, strict=True)
    assert found["errors"] == []
    assert {each["error"] for each in found["messages"]} <= {"icon is recommended"}


@pytest.mark.parametrize("values", WITH_ALL)
def test_every_manifest_is_what_kubernetes_takes(values: dict[str, Any]) -> None:
    """Strictly: a key that Kubernetes does not know is an error. The custom resources have schemas of their own, which
    no package brings; of KubeRay's, the pods in it are held to Kubernetes'."""
    validate = need("kubernetes_validate").validate
    for (kind, _), manifest in manifests(values).items():
        if kind in ("RayService", "StatefulSet"):
            for pod in pods(manifest).values():
                validate(pod, KUBERNETES, strict=True)
        if kind not in ("RayService", "ServiceMonitor"):
            validate(manifest, KUBERNETES, strict=True)


@pytest.mark.parametrize("mode", MODES)
def test_all_pods_run_one_anothers_batches_over_one_folder(mode: str, tmp_path: Path) -> None:
    found = manifests({"mode": mode, "persistence": {"files": {"enabled": True}}})
    assert settings_in(found, tmp_path).batches.deployment == "pith"
    claim = found["PersistentVolumeClaim", "pith-files"]["spec"]
    assert claim["accessModes"] == ["ReadWriteMany"]
    (kind,) = {"RayService", "StatefulSet"} & {kind for kind, _ in found}
    for pod in pods(found[kind, "pith"]).values():
        (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == "files"]
        assert volume["persistentVolumeClaim"] == {"claimName": "pith-files"}
        for container in pod["spec"]["containers"]:
            assert {"name": "files", "mountPath": FILES} in container["volumeMounts"]
    named = manifests({"mode": mode, "config": {"batches": {"deployment": "mine"}}})
    assert settings_in(named, tmp_path).batches.deployment == "mine"


@pytest.mark.parametrize("mode", MODES)
def test_the_configuration_is_one_that_pith_takes(mode: str, tmp_path: Path) -> None:
    settings = settings_in(manifests({"mode": mode}), tmp_path)
    assert settings.state_dir == Path("/opt/pith/var")
    assert (settings.ray.address == "auto") == (mode == "ray")
    if mode == "ray":
        # A server on every worker, and no two on one.
        assert settings.server.ingress_replicas == 2


@pytest.mark.parametrize("mode", MODES)
def test_containers_have_the_ports_of_the_configuration_and_are_probed_on_them(
    mode: str, tmp_path: Path
) -> None:
    found = manifests({"mode": mode})
    settings = settings_in(found, tmp_path)
    pod = serving_pod(found)
    ports = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}
    assert ports == {"http": settings.server.port, "metrics": settings.ops.port}
    assert pod["spec"]["containers"][0]["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "http"}
    allowed = found["NetworkPolicy", "pith"]["spec"]["ingress"]
    assert [rule["ports"][0]["port"] for rule in allowed[:2]] == [settings.server.port, settings.ops.port]


@pytest.mark.parametrize("values", WITH_ALL)
def test_every_selector_finds_the_pods_that_serve_and_none_but_pith(values: dict[str, Any]) -> None:
    found = manifests(values)
    labels = serving_pod(found)["metadata"]["labels"]
    service = found["Service", "pith"]["spec"]["selector"]
    budget = found["PodDisruptionBudget", "pith"]["spec"]["selector"]["matchLabels"]
    for selector in (service, budget, found["Service", "pith-pods"]["spec"]["selector"]):
        assert selector.items() <= labels.items()
        assert "app.kubernetes.io/component" in selector
    if ("ServiceMonitor", "pith") in found:
        wanted = found["ServiceMonitor", "pith"]["spec"]["selector"]["matchLabels"]
        assert wanted.items() <= found["Service", "pith-pods"]["metadata"]["labels"].items()
        assert not wanted.items() <= found["Service", "pith"]["metadata"]["labels"].items()


@pytest.mark.parametrize("values", WITH_ALL)
def test_no_container_may_more_than_write_what_is_named(values: dict[str, Any]) -> None:
    for (kind, _), manifest in manifests(values).items():
        for pod in pods(manifest).values() if kind in ("RayService", "StatefulSet") else ():
            spec = pod["spec"]
            assert spec["securityContext"]["runAsNonRoot"] and spec["automountServiceAccountToken"] is False
            for container in spec["containers"] + spec["initContainers"]:
                security = container["securityContext"]
                assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
                assert security["capabilities"] == {"drop": ["ALL"]}
                mounts = container["volumeMounts"]
                assert {each["mountPath"] for each in mounts if not each.get("readOnly")} <= {
                    *WRITABLE,
                    FILES,
                }


@pytest.mark.parametrize("mode", MODES)
def test_every_volume_that_is_mounted_is_there(mode: str) -> None:
    found = manifests({"mode": mode})
    workload = found["RayService" if mode == "ray" else "StatefulSet", "pith"]
    claims = {each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", ())}
    for pod in pods(workload).values():
        spec = pod["spec"]
        there = claims | {each["name"] for each in spec["volumes"]}
        mounted = {
            m["name"] for each in spec["containers"] + spec["initContainers"] for m in each["volumeMounts"]
        }
        assert mounted == there


def test_secrets_are_named_and_never_in_the_values() -> None:
    text = rendered({"mode": "ray", "existingSecret": "elsewhere"})
    assert "kind: Secret\n" not in text
    assert text.count("secretName: elsewhere") == 2


@pytest.mark.parametrize(
    "values",
    [
        {"mode": "both"},
        {"replicas": 0},
        {"imgae": {}},
        {"image": {"repository": "pith", "digest": "sha256:1"}},
        {"config": {"billing": {"database_url": "postgresql+asyncpg://pith:secret@db/pith"}}},
        {"config": {"billing": {"rate_limit_storage": "redis://:secret@redis:6379/0"}}},
        {"networkPolicy": {"api": [{}]}},
    ],
    ids=str,
)
def test_values_that_cannot_be_meant_are_refused(values: dict[str, Any]) -> None:
    errors = need("helm_python").errors
    with pytest.raises(errors.HelmError):
        rendered(values)


def test_serve_is_told_of_every_application_by_the_name_that_the_others_know(tmp_path: Path) -> None:
    """With every kind of model: as `pith serve` would deploy them."""
    values = {"mode": "ray", "config": models_of_every_kind()}
    found = manifests(values)
    settings = settings_in(found, tmp_path)
    listed = served(found)["applications"]
    wanted = {INGRESS_APP, OPS_APP, *first_lineup(settings).places}
    assert {each["name"] for each in listed} == wanted and len(listed) == len(wanted)
    for each in listed:
        assert each["args"] == {"config": "/etc/pith/pith.yaml", "app": each["name"]}
        assert each["import_path"] == f"{build.__module__}:{build.__name__}"
        assert each["route_prefix"] is None


def test_rays_processes_get_the_environment_that_pith_gives_its_own() -> None:
    found = manifests({"mode": "ray"})
    # The operator sets it with the token.
    wanted = {**RAY_ENVIRONMENT, "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    assert wanted.pop("RAY_AUTH_MODE") == "token"
    cluster = found["RayService", "pith"]["spec"]["rayClusterConfig"]
    assert cluster["authOptions"] == {"mode": "token"}
    assert VLLM_ENVIRONMENT["VLLM_NO_USAGE_STATS"] == "1"
    for pod in pods(found["RayService", "pith"]).values():
        given = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
        assert wanted.items() <= given.items()


def test_rays_version_is_that_of_the_lock() -> None:
    assert f"\nray=={yaml.safe_load((CHART / 'values.yaml').read_text())['ray']['version']} " in (
        ROOT / "constraints/gpu.txt"
    ).read_text().replace("\\\n", " ")


def test_the_manifest_for_kuberay_is_the_chart_rendered() -> None:
    values = yaml.safe_load((ROOT / "deploy/kuberay/values.yaml").read_text())
    assert (ROOT / "deploy/kuberay/pith.yaml").read_text() == rendered(values)


def settings_in(found: dict[tuple[str, str], Any], tmp_path: Path) -> Settings:
    """What pith reads in the ConfigMap."""
    file = tmp_path / "pith.yaml"
    file.write_text(found["ConfigMap", "pith"]["data"]["pith.yaml"])
    return load_settings(file)


def served(found: dict[tuple[str, str], Any]) -> Any:
    return yaml.safe_load(found["RayService", "pith"]["spec"]["serveConfigV2"])


def serving_pod(found: dict[tuple[str, str], Any]) -> Any:
    workloads = [each for (kind, _), each in found.items() if kind in ("RayService", "StatefulSet")]
    return next(pod for component, pod in pods(workloads[0]).items() if component != "head")


def models_of_every_kind() -> Any:
    """The models of configs/cpu.yaml, which has one of each kind, and two that take turns."""
    document = yaml.safe_load((ROOT / "configs/cpu.yaml").read_text())
    chat = next(model for model in document["models"] if model.get("kind", "chat") == "chat")
    fields = {key: chat[key] for key in ("name", "blurb", "checkpoint", "context_length", "price")}
    for model_id in ("one", "other"):
        document["models"].append({"id": model_id, **fields, "accelerator": {"kind": "gpu"}})
    found = {key: document[key] for key in ("models", "compression")}
    return {**found, "turns": [{"models": ["one", "other"]}]}


def test_pods_of_gpu_nodes_may_name_their_runtime() -> None:
    for mode in ("servers", "ray"):
        for wanted in ("", "nvidia"):
            found = manifests({"mode": mode, "runtimeClassName": wanted})
            with_pods = [each for each in found.values() if each["kind"] in ("StatefulSet", "RayService")]
            # Ray's head has no GPU.
            named = [
                pod["spec"].get("runtimeClassName", "")
                for manifest in with_pods
                for component, pod in pods(manifest).items()
                if component != "head"
            ]
            assert named and set(named) == {wanted}
