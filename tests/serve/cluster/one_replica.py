"""One replica of an engine and one of a compressor as the ingress knows them, without Ray: handles are fakes, ports are
real."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from compression.pipeline.compression_model import CompressionModel, as_value
from models.fake_engine import FakeEngine
from serve.cluster.replicas.applications import BOUND_KEY
from serve.cluster.replicas.pool import ReplicaClient
from serve.cluster.replicas.port import ReplicaPort
from serve.config.chat_models import ReplicaSettings
from serve.config.server_settings import ServerSettings
from serve.fairness.replica_turns import FairGeneration

with warnings.catch_warnings():
    # Ray Serve uses what pydantic is going to remove.
    warnings.simplefilter("ignore", DeprecationWarning)
    from serve.cluster.replicas.engine import RayCompressor, RayEngine

REPLICA = "the only one"


@dataclass(frozen=True)
class FakeEngineHandle:
    """Of a deployment with one replica; also its router and its counts, which ask for nothing."""

    metadata: dict[str, Any]
    is_initialized: bool = True

    def options(self, **options: object) -> FakeEngineHandle:
        return self

    @cached_property
    def _router(self) -> Any:
        replica = SimpleNamespace(max_ongoing_requests=4, replica_metadata=self.metadata)
        ignore = lambda *arguments: None  # noqa: E731
        router = SimpleNamespace(
            curr_replicas={REPLICA: replica}, on_change=ignore, begin=ignore, end=ignore, caches=None
        )
        counts = SimpleNamespace(
            inc_num_running_requests_for_replica=ignore, dec_num_running_requests_for_replica=ignore
        )
        return SimpleNamespace(
            _asyncio_router=SimpleNamespace(request_router=router, _metrics_manager=counts)
        )


@asynccontextmanager
async def engine_behind_a_port(engine: FakeEngine) -> AsyncIterator[RayEngine]:
    """What the API is given for a model, when the replica's side is `engine`."""
    fair = FairGeneration(engine.generate, places=4)
    port, client = ReplicaPort(fair.generate), ReplicaClient()
    address = await port.open("127.0.0.1")
    bound = engine.prompt_bound()
    handle = FakeEngineHandle({**address.metadata(), BOUND_KEY: asdict(bound) if bound else None})
    try:
        yield RayEngine(
            "model:alpha",
            handle,  # type: ignore[arg-type]
            client,
            replicas=ReplicaSettings(max_queued_requests=4),
            server=ServerSettings(
                start_wait_s=5, stall_s=5, progress_s=5, longest_request_s=5, retry_after_s=1
            ),
        )
    finally:
        await client.close()
        await port.close()


@dataclass(frozen=True)
class FakeCompressorHandle:
    """Calls the model where the request is."""

    model: CompressionModel

    def options(self, *, method_name: str) -> FakeCompressorHandle:
        return self

    def remote(self, *arguments: Any) -> asyncio.Task[Any]:
        return asyncio.ensure_future(as_value(self.model.compress(*arguments)))


def compressor_behind_a_handle(model: CompressionModel) -> RayCompressor:
    return RayCompressor(
        "lexical",
        "compress:lexical",
        FakeCompressorHandle(model),
        longest_s=5,  # type: ignore[arg-type]
    )
