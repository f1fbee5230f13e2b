"""What `/metrics` says of replicas, from what Ray's controller says of applications."""

from __future__ import annotations

from types import SimpleNamespace

from serve.cluster.ops_port import counts_of


def application(**states: int) -> SimpleNamespace:
    return SimpleNamespace(deployments={"only": SimpleNamespace(replica_states=states)})


def test_replicas_are_counted_by_model_and_one_that_leaves_is_not_wanted() -> None:
    applications = {
        "model:alpha": application(RUNNING=1, STARTING=2),
        "model:beta": application(RUNNING=1, STOPPING=1),
        "model:idle": application(),
        "ingress": application(RUNNING=2),
    }
    assert counts_of(applications) == {"alpha": (1, 3), "beta": (1, 1), "idle": (0, 0)}


def test_the_replicas_of_both_generations_are_the_models() -> None:
    applications = {
        "compress:org/one": application(STOPPING=1),
        "compress:org/one@2": application(RUNNING=2),
        "model:beta": application(RUNNING=1),
        "model:beta@3": application(STARTING=1),
    }
    assert counts_of(applications) == {"org/one": (2, 2), "beta": (1, 2)}
