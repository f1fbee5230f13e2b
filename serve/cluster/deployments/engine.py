"""What Ray Serve LLM does at the start of an engine, done otherwise: where a CPU's model runs, and what is fetched."""

from __future__ import annotations

from typing import Any

from ray.llm._internal.common.callbacks.base import CallbackBase
from ray.llm._internal.serve.engines.vllm.vllm_engine import VLLMEngine
from ray.serve.llm import LLMConfig

EXECUTOR = "distributed_executor_backend"


class ExecutorOfConfig(VLLMEngine):
    """Ray Serve LLM's engine, with the executor that the configuration names put back in.

    It would give each CPU engine's model a process beside vLLM's core, whatever one asks for.
    """

    def _prepare_engine_config(self, callback_ctx: Any) -> Any:
        arguments, frontend, config = super()._prepare_engine_config(callback_ctx)
        config.parallel_config.distributed_executor_backend = self.llm_config.engine_kwargs[EXECUTOR]
        return arguments, frontend, config


def engine_class(llm_config: LLMConfig) -> type[VLLMEngine]:
    """Ray Serve LLM's own engine, unless the configuration names an executor."""
    return ExecutorOfConfig if EXECUTOR in llm_config.engine_kwargs else VLLMEngine


class NothingToFetch(CallbackBase):
    """For a checkpoint that lies in a folder: a process of vLLM's size would be started to fetch nothing."""

    async def on_before_node_init(self) -> None:
        self.ctx.run_init_node = False
