"""The deployment that answers on the HTTP port; it imports no vLLM, whose weight its process need not carry."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray import serve

from serve.cluster.deployments.deployment_options import at_most
from serve.cluster.ray_insides.ray_serve import PortCheck, application_statuses
from serve.cluster.replicas.applications import (
    HEALTH_CHECK_PERIOD_S,
    HEALTH_CHECK_TIMEOUT_S,
    INGRESS_APP,
    SETTLE_S,
    Places,
    bound_key,
    compressor_app,
    model_app,
    retrieval_app,
)
from serve.config.chat_models import broken_adapters
from serve.config.retrieval_models import RetrievalModelSettings, host_of
from serve.config.server_settings import NODE
from serve.config.settings import Settings
from serve.logs.outlet import DRAIN_S, Outlet, begin_logs
from serve.metrics.counts import Counts, count_dropped_lines, open_counts
from serve.money.ledger_setup import digest_of_pepper, require_pepper
from serve.processes.process_setup import prepare_interpreter
from serve.processes.run_folder import LOGS_SOCKET

if TYPE_CHECKING:
    from serve.app import Service
    from serve.cluster.replicas.engine import RayCompressor, RayEngine, RayRetriever
    from serve.cluster.replicas.pool import ReplicaClient


class IngressReplica:
    """The HTTP server. Its logic is `serve.app.Service`, which takes connections by itself.

    It has one configuration for its whole life: what changes is taken by its successor, so that no request meets two.
    """

    async def __init__(  # type: ignore[misc]
        self, settings: Settings, places: Places, run_folder: Path | None, pepper: str | None
    ) -> None:
        """`pepper`: the digest of that of the machine that started the server, in a cluster of several."""
        if pepper is not None:
            require_pepper(settings.state_dir, pepper)
        counts = open_counts(settings)
        self._logs = _begin_logs(settings, counts, run_folder)
        self._ports = PortCheck(on_loopback=not settings.ray.address, but_for=[settings.server.port])
        self._service = _start(settings, counts, places, run_folder)
        prepare_interpreter()

    async def check_health(self) -> None:
        self._ports.pass_once()
        self._service.check()

    async def retire(self, node_id: str | None = None) -> tuple[int, int]:
        """Take no more connections, and end each with its next reply. Returns how many may still ask something, and
        how many have a request that runs. To be called until there are none: a replica may have taken another's place.
        `node_id`: only where it is on this node of the cluster.
        """
        if node_id not in (None, ray.get_runtime_context().get_node_id()):
            return 0, 0
        return self._service.retire()

    async def __del__(self) -> None:
        await self._service.stop()
        self._logs.drain(DRAIN_S)


def _begin_logs(settings: Settings, counts: Counts, run_folder: Path | None) -> Outlet:
    plan = settings.logs.plan(run_folder / LOGS_SOCKET if run_folder else None)
    return begin_logs(plan, dropped=count_dropped_lines(counts))


def _start(settings: Settings, counts: Counts, places: Places, run_folder: Path | None) -> Service:
    """Take requests, with every model behind a handle to its replicas, which need not be up."""
    from billing.store.database import open_database
    from serve.app import start_service
    from serve.cluster.replicas.pool import ReplicaClient
    from serve.cluster.replicas.status import models_away

    async def ask_away() -> frozenset[str]:
        away = models_away(await asyncio.to_thread(application_statuses))
        return all_away(settings, [*away, *await asyncio.to_thread(broken_adapters, settings.models)])

    client = ReplicaClient()
    engines = _engines(settings, counts, places, client)
    service = start_service(
        with_address(settings, ray.util.get_node_ip_address()),
        engines=engines,
        compressors=_compressors(settings, places),
        retrievers=_retrievers(settings, places),
        database=open_database(settings.billing.database_url),
        run_folder=run_folder,
        counts=counts,
        ask_away=ask_away,
    )
    service.closing += [*(engines[model.id].close for model in settings.engine_models), client.close]
    return service


def all_away(settings: Settings, away: Collection[str]) -> frozenset[str]:
    """Those away, and what others have no processes of their own for: adapters, and models on a compressor's
    weights."""
    adapters = [model.id for model in settings.models if model.adapter and model.adapter.of in away]
    hosts = {model.id: host_of(model, settings.compression.models) for model in settings.retrieval_models}
    hosted = [model_id for model_id, host in hosts.items() if host is not None and host.id in away]
    return frozenset([*away, *adapters, *hosted])


def with_address(settings: Settings, node: str) -> Settings:
    """The same with the address of the node in the place of `node`."""
    if settings.server.host != NODE:
        return settings
    return settings.model_copy(update={"server": settings.server.model_copy(update={"host": node})})


def _engines(
    settings: Settings, counts: Counts, places: Places, client: ReplicaClient
) -> dict[str, RayEngine]:
    from serve.cluster.replicas.engine import RayEngine
    from serve.metrics.background import WaitingMetrics

    waiting = WaitingMetrics(counts)
    engines = {
        model.id: RayEngine(
            places[model_app(group.name)],
            serve.get_app_handle(places[model_app(group.name)]),
            client,
            replicas=model.replicas,
            server=settings.server,
            waits=waiting.of(model.id),
            **({"bound_at": bound_key(model.id)} if group.turns else {}),
        )
        for group in settings.engine_groups
        for model in group.models
    }
    # An adapter shares its base's replicas, and with them their places and their queue.
    return engines | {model.id: engines[model.adapter.of] for model in settings.models if model.adapter}


def _compressors(settings: Settings, places: Places) -> dict[str, RayCompressor]:
    from serve.cluster.replicas.engine import RayCompressor

    server = settings.server
    return {
        model.id: RayCompressor(
            model.id,
            places[compressor_app(model.id)],
            serve.get_app_handle(places[compressor_app(model.id)]),
            longest_s=server.start_wait_s + model.deadline_s + server.stall_s,
        )
        for model in settings.compression.models
    }


def _retrievers(settings: Settings, places: Places) -> dict[str, RayRetriever]:
    return {model.id: _retriever(model, settings, places) for model in settings.retrieval_models}


def _retriever(model: RetrievalModelSettings, settings: Settings, places: Places) -> RayRetriever:
    from serve.cluster.replicas.engine import RayRetriever

    server = settings.server
    host = host_of(model, settings.compression.models)
    app = places[retrieval_app(model.id) if host is None else compressor_app(host.id)]
    return RayRetriever(
        model.id,
        app,
        serve.get_app_handle(app),
        deadline_s=model.deadline_s,
        longest_s=server.start_wait_s + model.deadline_s + server.stall_s,
        retry_after_s=server.retry_after_s,
    )


def build_ingress(
    settings: Settings, places: Places, run_folder: Path | None, *, per_node: int | None = None
) -> Any:
    """The Ray Serve application that answers on the HTTP port. `places`: where the models' applications are;
    `run_folder` is the folder where its processes get the listening socket; without one each listens by itself;
    `per_node`: how many of them a node may have."""
    deployment = serve.deployment(
        IngressReplica,
        name=INGRESS_APP,
        num_replicas=settings.server.ingress_replicas,
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        health_check_timeout_s=HEALTH_CHECK_TIMEOUT_S,
        # Ray's own is 2 s that it waits before it says a word; a drain time of 1 s was over by then.
        graceful_shutdown_wait_loop_s=0.1,
        graceful_shutdown_timeout_s=settings.server.drain_s + SETTLE_S,
        **at_most(per_node),
        ray_actor_options={"num_cpus": 1},
    )
    from serve.batches.wiring import with_deployment

    # Only in a cluster is there a machine with another pepper, and another deployment's id.
    pepper = digest_of_pepper(settings.state_dir) if settings.ray.address else None
    given = with_deployment(settings) if settings.ray.address else settings
    return deployment.bind(given, places, run_folder, pepper)
