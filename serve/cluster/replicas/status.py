"""Ray Serve's word on applications: whether one has a replica that runs, and why one cannot start.

A model is *away* while its replicas fail at their start: a checkpoint that is not there, say. The others serve.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from typing import Any

from serve.cluster.ray_insides.ray_serve import application_statuses
from serve.cluster.replicas.applications import models_of

STATUS_TTL_S = 1.0
RUNNING, DEPLOY_FAILED, STARTUP_FAILED = "RUNNING", "DEPLOY_FAILED", "REPLICA_STARTUP_FAILED"
STARTING = frozenset({"STARTING", "RECOVERING"})
# How a line begins that names an exception; those of its traceback are indented.
EXCEPTION = re.compile(r"(\w+\.[\w.]+|\w*(Error|Exception)): ")
LONGEST_REASON = 2000
Applications = Mapping[str, Any]


def has_running_replica(application: Any) -> bool:
    return RUNNING in _replica_states(application)


def _replica_states(application: Any) -> set[str]:
    """Those that any of its replicas is in."""
    return {
        word_of(state)
        for deployment in application.deployments.values()
        for state, number in deployment.replica_states.items()
        if number > 0
    }


def word_of(state: Any) -> str:
    """Ray's enumerations and their values are equal, and only the latter are words."""
    return str(getattr(state, "value", state))


def is_away(application: Any) -> bool:
    """True where no replica runs and as many as Ray tries in a row could not start. Of one that never ran Ray starts no
    more; one that did is tried on, at intervals (`serve.cluster.deployments.starting`)."""
    triggers = (word_of(one.status_trigger) for one in application.deployments.values())
    failed = word_of(application.status) == DEPLOY_FAILED or STARTUP_FAILED in triggers
    return failed and not has_running_replica(application)


def away_among(applications: Applications) -> dict[str, bool]:
    """Those that are away by their names, and whether Ray has given them up: it starts another replica as soon as one
    has failed, or none any more."""
    return {
        name: STARTING.isdisjoint(_replica_states(found))
        for name, found in applications.items()
        if is_away(found)
    }


def models_away(applications: Applications) -> dict[str, str]:
    """Reasons by model. One of which another application runs, as after a reload, is not away; one that is
    being started or ended does not count."""
    away, up = dict[str, str](), set[str]()
    for name, found in applications.items():
        for model in models_of(name):
            if is_away(found):
                away[model] = reason_of(found)
            elif has_running_replica(found) or word_of(found.status) == RUNNING:
                up.add(model)
    return {model: reason for model, reason in away.items() if model not in up}


def reason_of(application: Any) -> str:
    """The reason of a failure, on one line: of a deployment's traceback the exception that ends it."""
    said = [application.message.splitlines()]
    for deployment in application.deployments.values():
        lines = deployment.message.splitlines()
        ends = [number for number, line in enumerate(lines) if EXCEPTION.match(line)]
        said.append(lines[ends[-1] :] if ends else lines)
    return " ".join(" ".join(each.split()) for lines in said for each in lines)[:LONGEST_REASON]


class ReplicaStatus:
    """Asks the controller at most once a second."""

    def __init__(self, application: str) -> None:
        self._application = application
        self._seen = (float("-inf"), False)

    async def is_running(self) -> bool:
        asked_at, running = self._seen
        if time.monotonic() - asked_at >= STATUS_TTL_S:
            running = await asyncio.to_thread(self._has_running_replica)
            self._seen = (time.monotonic(), running)
        return running

    def _has_running_replica(self) -> bool:
        application = application_statuses().get(self._application)
        return application is not None and has_running_replica(application)
