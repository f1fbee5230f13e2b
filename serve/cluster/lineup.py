"""The applications of Ray Serve that serve a configuration, and their deployment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from models.checkpoint import fault_of
from models.engine_kinds import ENGINE_KINDS
from serve.cluster.drain import Retiring, retiring
from serve.cluster.fetched_models import fetched_checkpoint, is_fetched
from serve.cluster.nodes import check_nodes, spread_over_nodes
from serve.cluster.progress import Says, StartError
from serve.cluster.ray_insides.ray_serve import application_statuses, deploy, undeploy
from serve.cluster.replicas.applications import (
    INGRESS_APP,
    Places,
    compressor_app,
    model_app,
    of_generation,
    retrieval_app,
    without_generation,
)
from serve.cluster.replicas.status import away_among, reason_of
from serve.config.chat_models import ModelSettings, broken_adapters
from serve.config.settings import Settings
from serve.processes.run_folder import LOGS_SOCKET, told

POLL_S = 0.25
FAILED = ("DEPLOY_FAILED", "UNHEALTHY")
FIRST_START_CHECKPOINTS = "embedded:"


@dataclass(frozen=True, slots=True)
class Lineup:
    """Settings, and the applications that serve them: `places` has one for each model with processes of its own."""

    settings: Settings
    places: Places
    generation: int = 1

    @property
    def ingress(self) -> str:
        return of_generation(INGRESS_APP, self.generation)

    def kept_up(self, apps: Collection[str]) -> list[str]:
        """The names of those among `apps` that have a replica at all times."""
        return [
            self.places[app]
            for app, is_kept_up in applications_of(self.settings)
            if is_kept_up and app in apps
        ]


def first_lineup(settings: Settings) -> Lineup:
    """As a server starts with it."""
    return Lineup(settings, {app: app for app, _ in applications_of(settings)})


def applications_of(settings: Settings) -> Iterable[tuple[str, bool]]:
    """The applications that models need, and whether each has a replica at all times."""
    for group in settings.engine_groups:
        yield model_app(group.name), group.first.replicas.min > 0
    for compressor in settings.compression.models:
        yield compressor_app(compressor.id), compressor.replicas.min > 0
    for texts in settings.retrieval_models:
        if not texts.is_hosted:
            yield retrieval_app(texts.id), texts.is_kept_up


def checkpoints_of(settings: Settings, progress: Says) -> dict[str, str]:
    """By chat model: the hub name or the folder that its engine loads. Raises `StartError`. A folder that no engine can
    load is told by the model's replica, an adapter that is broken here, and the others serve."""
    for model, why in broken_adapters(settings.models).items():
        progress.say(f"WARNING: {model} is away, since it cannot be loaded: {why}")
    return {model.id: checkpoint_of(model, settings.state_dir, progress) for model in settings.engine_models}


def require_any(settings: Settings, checkpoints: Mapping[str, str]) -> None:
    """That a server has anything to serve: where no engine can load any chat model, and there are no models of another
    kind, nothing need be started to say so. Raises `StartError`."""
    broken = [f"{model}: {why}" for model, folder in checkpoints.items() if (why := fault_of(folder))]
    others = (*settings.compression.models, *settings.retrieval_models)
    if broken and len(broken) == len(checkpoints) and not others:
        raise StartError("; ".join(broken))


@dataclass(frozen=True, slots=True)
class Run:
    """Starts and ends the applications of one server at Ray Serve: `folder` has its sockets, where it has them,
    and `progress` is told."""

    folder: Path | None
    progress: Says

    def telling(self, progress: Says) -> Run:
        """The same, with somebody else who is told."""
        return replace(self, progress=progress)

    def free(self) -> Mapping[str, float]:
        """Resources by kind that no application has."""
        import ray

        found: dict[str, float] = ray.available_resources()
        return found

    def check_nodes(self, settings: Settings) -> None:
        """That every node of a cluster of others has what is on this machine's disk. Raises `StartError`."""
        if settings.ray.address:
            check_nodes(settings, tries_ports=False)

    def wait(
        self, names: Collection[str], go_on: Callable[[str], None], *, may_fail: Collection[str] = ()
    ) -> Mapping[str, str]:
        """Until all of these run, or are among `may_fail` and cannot: returns the reasons of those. Raises `StartError`
        for another that cannot, and what `go_on` does, which is called now and then with what is missing."""
        return wait_until_running(names, self.progress, self.folder, go_on, may_fail=may_fail)

    def away(self, lineup: Lineup) -> Mapping[str, bool]:
        """The lineup's applications that cannot start, by what they are for, and whether Ray has given them up."""
        away = away_among(application_statuses())
        return {app: away[name] for app, name in lineup.places.items() if name in away}

    def remove(self, names: Collection[str]) -> None:
        """Have them end when their requests have."""
        for name in names:
            undeploy(name)

    def retiring(self, lineup: Lineup) -> Retiring:
        """The HTTP processes of a lineup that another one follows."""
        return retiring(lineup.ingress, lineup.settings.server)

    def deploy_models(self, lineup: Lineup, apps: Collection[str], checkpoints: Mapping[str, str]) -> None:
        """Those of `apps`, which all start at the same time."""
        settings = lineup.settings
        started = [group for group in settings.engine_groups if model_app(group.name) in apps]
        warn_of_fake_engines([model for group in started for model in group.models], self.progress)
        for app, build in self.builds(settings, checkpoints).items():
            if app in apps:
                on_demand = "" if lineup.kept_up([app]) else " (starts on its first request)"
                self.progress.begin(f"deploying {app.partition(':')[2]}{on_demand}")
                deploy(build(), lineup.places[app])

    def deploy_ingress(self, lineup: Lineup) -> None:
        """The HTTP processes."""
        from serve.cluster.deployments.ingress import build_ingress

        per_node = spread_over_nodes(lineup.settings).get(INGRESS_APP)
        built = build_ingress(lineup.settings, lineup.places, self.folder, per_node=per_node)
        deploy(built, lineup.ingress)

    def builds(self, settings: Settings, checkpoints: Mapping[str, str]) -> dict[str, Callable[[], Any]]:
        """Functions that make each application, by its name."""
        from serve.cluster.deployments.pooled import build_compressor, build_retrieval_model
        from serve.cluster.deployments.vllm_chat import build_models

        logs = settings.logs.plan(self.folder / LOGS_SOCKET if self.folder else None)
        builds: dict[str, Callable[..., Any]] = {}
        for group in settings.engine_groups:
            builds[model_app(group.name)] = partial(
                build_models, group, settings, logs, checkpoints=checkpoints, run_folder=self.folder
            )
        for compressor in settings.compression.models:
            builds[compressor_app(compressor.id)] = partial(build_compressor, compressor, settings, logs)
        for texts in settings.retrieval_models:
            if not texts.is_hosted:
                builds[retrieval_app(texts.id)] = partial(build_retrieval_model, texts, settings, logs)
        per_node = spread_over_nodes(settings)
        return {app: partial(build, per_node=per_node.get(app)) for app, build in builds.items()}


def warn_of_fake_engines(models: Iterable[ModelSettings], progress: Says) -> None:
    """For each model that computes nothing."""
    for model in models:
        if not ENGINE_KINDS[model.engine.kind].computes:
            fake = "is a fake engine, for tests: every reply is the same made-up text"
            progress.say(f"WARNING: {model.id} {fake}")


def within(limit_s: float, *, says: str = "") -> Callable[[str], None]:
    """A check that raises `StartError` once so much time is over, from now on, with what is missing; then `says`."""
    until = time.monotonic() + limit_s

    def go_on(missing: str) -> None:
        if time.monotonic() > until:
            raise StartError(f"not running after {limit_s:g} s: {missing}{says}")

    return go_on


def wait_until_running(
    applications: Collection[str],
    progress: Says,
    run_folder: Path | None = None,
    go_on: Callable[[str], None] = lambda missing: None,
    *,
    may_fail: Collection[str] = (),
) -> Mapping[str, str]:
    """Poll Ray until every application runs, and say what each that does not is doing. Returns reasons of those among
    `may_fail` that cannot, which the operator is told. Raises `StartError` for another that cannot, and what `go_on`
    raises."""
    tick, away = threading.Event(), dict[str, str]()
    while True:
        states = application_statuses()
        waiting = []
        for name in applications:
            status = states[name].status if name in states else None
            if status in FAILED and name not in away:
                away[name] = reason_of(states[name])
                if name not in may_fail:
                    raise StartError(f"{without_generation(name)} cannot start: {away[name]}")
                progress.say(
                    f"WARNING: {without_generation(name)} is away, since it cannot start: {away[name]}"
                )
            elif status != "RUNNING" and name not in away:
                waiting.append(name)
        if not waiting:
            return away
        missing = ", ".join(_title(name, run_folder) for name in waiting)
        go_on(missing)
        progress.begin("loading " + missing)
        tick.wait(POLL_S)


def _title(name: str, run_folder: Path | None) -> str:
    app = without_generation(name)
    title = app.partition(":")[2] or app
    step = told(run_folder, title)
    return f"{title} ({step})" if step else title


def delete_ingress() -> None:
    """End the HTTP processes of every generation, and wait until they have: running requests get their drain time."""
    from ray import serve

    names = [name for name in application_statuses() if without_generation(name) == INGRESS_APP]
    for name in names:
        undeploy(name)
    for name in names:
        serve.delete(name)


def checkpoint_of(model: ModelSettings, state_dir: Path, progress: Says) -> str:
    """The hub name or the folder that the engine loads. Raises `StartError` for a name that pith does not know."""
    if model.checkpoint.startswith(FIRST_START_CHECKPOINTS):
        from models.embedded.install import ensure_checkpoints

        name = model.checkpoint.removeprefix(FIRST_START_CHECKPOINTS)
        if is_fetched(model):
            return fetched_checkpoint(model, state_dir, progress)
        progress.begin("laying out the embedded checkpoints")
        folders = ensure_checkpoints(state_dir / "checkpoints")
        if name not in folders:
            raise StartError(
                f"{model.id}: no embedded checkpoint is named {name!r}; there are {', '.join(folders)}"
            )
        return str(folders[name].resolve())
    if model.checkpoint.startswith((".", "/", "~")):
        return str(Path(model.checkpoint).expanduser().resolve())
    return model.checkpoint
