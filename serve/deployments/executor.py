"""Where a CPU engine's model runs: Ray Serve LLM gives each a process beside vLLM's core, whatever one asks for."""

from __future__ import annotations

from typing import Any

from ray.llm._internal.serve.engines.vllm.vllm_engine import VLLMEngine
from ray.serve.llm import LLMConfig

EXECUTOR = "distributed_executor_backend"


class ExecutorOfConfig(VLLMEngine):
    """Ray Serve LLM's engine, with the executor that the configuration names put back in."""

    def _prepare_engine_config(self, callback_ctx: Any) -> Any:
        arguments, frontend, config = super()._prepare_engine_config(callback_ctx)
        config.parallel_config.distributed_executor_backend = self.llm_config.engine_kwargs[EXECUTOR]
        return arguments, frontend, config


def engine_class(llm_config: LLMConfig) -> type[VLLMEngine]:
    """Ray Serve LLM's own engine, unless the configuration names an executor."""
    return ExecutorOfConfig if EXECUTOR in llm_config.engine_kwargs else VLLMEngine
