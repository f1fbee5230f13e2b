"""Private parts of Ray Serve LLM that pith uses: the one module that may, with each reason.

Beside `serve.cluster.ray_insides.ray_serve`, since a process that imports this has vLLM in memory. The pinned version
is held to these meanings by `tests/serve/cluster/ray_insides/`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray.llm._internal.common.callbacks.base import CallbackBase
from ray.llm._internal.serve.engines.vllm.vllm_engine import VLLMEngine
from ray.serve.llm import LLMConfig, LLMServer

EXECUTOR = "distributed_executor_backend"


class ExecutorOfConfig(VLLMEngine):
    """Ray Serve LLM's engine, with the executor that the configuration names put back in.

    It would give each CPU engine's model a process in addition to vLLM's core, whatever is configured.
    """

    def _prepare_engine_config(self, callback_ctx: Any) -> Any:
        arguments, frontend, config = super()._prepare_engine_config(callback_ctx)
        config.parallel_config.distributed_executor_backend = self.llm_config.engine_kwargs[EXECUTOR]
        return arguments, frontend, config


def engine_class(llm_config: LLMConfig) -> type[VLLMEngine]:
    """Ray Serve LLM's own engine, unless the configuration names an executor."""
    return ExecutorOfConfig if EXECUTOR in llm_config.engine_kwargs else VLLMEngine


def serve_adapters(llm_config: LLMConfig, folders: Mapping[str, Path]) -> None:
    """Let vLLM's OpenAI layer load these adapters, by their ids, each time that the engine starts: its argument
    `lora_modules`, which Ray Serve LLM hands on as a frontend's (`VLLMEngineConfig.frontend_kwargs`).

    Ray Serve LLM's own way is to fetch an adapter from a cloud's storage when Serve's handle asks for it by a
    multiplexed id; requests here go past the handle.
    """
    from models.vllm.insides import lora_modules

    llm_config.get_engine_config().frontend_kwargs["lora_modules"] = lora_modules(folders)


class NothingToFetch(CallbackBase):
    """For a checkpoint that lies in a folder: a process of vLLM's size would be started to fetch nothing."""

    async def on_before_node_init(self) -> None:
        self.ctx.run_init_node = False


class UnreportedServer(LLMServer):
    """Ray Serve LLM's server, which starts its engine and reports it to nobody.

    Each start would start a process of Ray that collects statistics for Ray's makers, and wait two seconds for it.
    """

    async def _start_engine(self) -> None:
        await self.engine.start()


def unstarted_server(llm_config: LLMConfig) -> LLMServer:
    """Ray Serve LLM's server of one model, within a replica of ours; its `start` starts the engine."""
    return UnreportedServer.sync_init(llm_config, engine_cls=engine_class(llm_config))


@dataclass(frozen=True, slots=True)
class StartedEngine:
    """vLLM, as Ray Serve LLM has started it."""

    model_id: str
    serving_chat: Any
    client: Any


def started_engine(server: Any) -> StartedEngine:
    """vLLM as an `LLMServer` has started it (`_llm_config`, and its engine's `_oai_serving_chat` and `_engine_client`).

    Ray Serve LLM's own replies know usage only at their end; without these nothing is counted before.
    """
    engine = server.engine
    return StartedEngine(server._llm_config.model_id, engine._oai_serving_chat, engine._engine_client)


def fetch_nothing_again(server: Any) -> None:
    """Before `LLMServer.start` is called again: what the first start fetched is there. Without it each restart begins
    with a process that looks for the checkpoint."""
    server._llm_config.get_or_create_callback().ctx.run_init_node = False
