"""The deployment that answers on the HTTP port; it imports no vLLM, whose weight its process need not carry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray import serve

from serve.cluster.ray_insides.loopback import PortCheck
from serve.cluster.replicas.applications import (
    HEALTH_CHECK_PERIOD_S,
    HEALTH_CHECK_TIMEOUT_S,
    INGRESS_APP,
    SETTLE_S,
    compressor_app,
    model_app,
)
from serve.config.chat_models import shares_of
from serve.config.settings import Settings
from serve.metrics.process_files import FOLDER_VARIABLE, count_in_files, metrics_folder
from serve.processes.garbage_collection import freeze_heap

if TYPE_CHECKING:
    from serve.app import Service
    from serve.cluster.replicas.client import ReplicaClient
    from serve.cluster.replicas.compressor import RayCompressor
    from serve.cluster.replicas.engine import RayEngine


class IngressReplica:
    """The HTTP server. Its logic is `serve.app.Service`, which takes connections by itself."""

    async def __init__(self, settings: Settings, run_folder: Path | None) -> None:  # type: ignore[misc]
        # Before anything imports prometheus_client.
        count_in_files(settings)
        self._ports = PortCheck(on_loopback=not settings.ray.address, but_for=[settings.server.port])
        self._service = _start(settings, run_folder)
        freeze_heap()

    async def check_health(self) -> None:
        self._ports.pass_once()
        self._service.check()

    async def __del__(self) -> None:
        await self._service.stop()


def _start(settings: Settings, run_folder: Path | None) -> Service:
    """Take requests, with every model behind a handle to its replicas, which need not be up."""
    from billing.store.database import open_database
    from serve.app import start_service
    from serve.cluster.replicas.client import ReplicaClient

    client = ReplicaClient()
    service = start_service(
        settings,
        engines=_engines(settings, client),
        compressors=_compressors(settings),
        database=open_database(settings.billing.database_url),
        run_folder=run_folder,
    )
    service.closing.append(client.close)
    return service


def _engines(settings: Settings, client: ReplicaClient) -> dict[str, RayEngine]:
    from serve.cluster.replicas.engine import RayEngine

    server = settings.server
    return {
        model.id: RayEngine(
            model.id,
            serve.get_app_handle(model_app(model.id)),
            client,
            max_queued=model.replicas.max_queued_requests,
            shares=shares_of(model.replicas),
            start_wait_s=server.start_wait_s,
            stall_s=server.stall_s,
            progress_s=server.progress_s,
            longest_s=server.longest_request_s,
            retry_after_s=server.retry_after_s,
        )
        for model in settings.models
    }


def _compressors(settings: Settings) -> dict[str, RayCompressor]:
    from serve.cluster.replicas.compressor import RayCompressor

    server = settings.server
    return {
        model.id: RayCompressor(
            model.id,
            serve.get_app_handle(compressor_app(model.id)),
            longest_s=server.start_wait_s + model.deadline_s + server.stall_s,
        )
        for model in settings.compression.models
    }


def build_ingress(settings: Settings, run_folder: Path | None) -> Any:
    """The Ray Serve application that answers on the HTTP port. `run_folder` is the folder where its processes get the
    listening socket; without one each listens by itself."""
    deployment = serve.deployment(
        IngressReplica,
        name=INGRESS_APP,
        num_replicas=settings.server.ingress_replicas,
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        health_check_timeout_s=HEALTH_CHECK_TIMEOUT_S,
        # Ray's own is 2 s that it waits before it says a word; a drain time of 1 s was over by then.
        graceful_shutdown_wait_loop_s=0.1,
        graceful_shutdown_timeout_s=settings.server.drain_s + SETTLE_S,
        ray_actor_options={"runtime_env": {"env_vars": _environment(settings)}},
    )
    return deployment.bind(settings, run_folder)


def _environment(settings: Settings) -> dict[str, str]:
    folder = metrics_folder(settings)
    return {} if folder is None else {FOLDER_VARIABLE: str(folder)}
