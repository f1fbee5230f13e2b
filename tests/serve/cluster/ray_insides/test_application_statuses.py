"""The controller's answer is read as Ray itself reads it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from serve.cluster.ray_insides.ray_serve import application_statuses

with warnings.catch_warnings():
    # Ray Serve uses what pydantic is going to remove.
    warnings.simplefilter("ignore", DeprecationWarning)
    import ray.serve.context
    from ray.serve.schema import ServeInstanceDetails


class Controller:
    """Ray Serve's client: three applications, as the controller tells of them."""

    def __init__(self) -> None:
        details = {
            "grpc_options": {},
            "controller_info": {},
            "proxies": {},
            "target_groups": [],
            "applications": {
                "model:alpha": told_application(
                    "RUNNING", told_deployment("HEALTHY", "RUNNING", "RUNNING", "STARTING")
                ),
                "model:beta": told_application("DEPLOY_FAILED", told_deployment("DEPLOY_FAILED")),
                "ingress": told_application("DELETING"),
            },
        }
        self.details = ServeInstanceDetails(**details)

    def get_serve_details(self) -> Any:
        return self.details._get_user_facing_json_serializable_dict(exclude_unset=True)


def told_application(status: str, *deployments: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "alpha",
        "status": status,
        "message": f"is {status}",
        "last_deployed_time_s": 7.5,
        "source": "imperative",
        "route_prefix": None,
        "docs_path": None,
        "external_scaler_enabled": False,
        "deployments": {f"deployment {number}": one for number, one in enumerate(deployments)},
    }


def told_deployment(status: str, *replicas: str) -> dict[str, Any]:
    made = {
        "actor_id": "a",
        "actor_name": "a",
        "worker_id": "w",
        "pid": 1,
        "start_time_s": 1.0,
        "log_file_path": "l",
    }
    return {
        "name": "only",
        "status": status,
        "status_trigger": "REPLICA_STARTUP_FAILED",
        "message": "why",
        "deployment_config": {"name": "only"},
        "target_num_replicas": 1,
        "required_resources": {},
        "replicas": [
            {**made, "replica_id": str(number), "state": state} for number, state in enumerate(replicas)
        ],
    }


def test_what_the_controller_tells_is_read_as_ray_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller()
    monkeypatch.setattr(ray.serve.context, "_get_global_client", lambda **_: controller)
    found = application_statuses()
    assert found == controller.details._get_status().applications
    assert found["model:alpha"].deployments["deployment 0"].replica_states == {"RUNNING": 2, "STARTING": 1}
    monkeypatch.setattr(ray.serve.context, "_get_global_client", lambda **_: None)
    assert application_statuses() == {}
