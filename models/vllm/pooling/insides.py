"""What pith uses of vLLM's pooling runner that vLLM does not promise to keep: its embeddings and scores, up to what the
engine gave. `tests/models/vllm/test_pooling_insides.py` reads the pinned source.
"""

from typing import Any

import numpy as np
from vllm.entrypoints.chat_utils import ChatTemplateConfig
from vllm.entrypoints.openai.models.serving import BaseModelPath, OpenAIServingModels
from vllm.entrypoints.pooling.embed.serving import ServingEmbedding
from vllm.entrypoints.pooling.scoring.serving import ServingScores
from vllm.v1.engine.async_llm import AsyncLLM

from models.retrieval import Computed

__all__ = ["AsyncLLM"]


class Rows:
    """What both share (`PoolingBaseServing._init_ctx`, `._preprocessing`, `._build_response`)."""

    def _build_response(self, ctx: Any) -> Computed:
        found = [np.atleast_1d(output.outputs.data.float().cpu().numpy()) for output in ctx.final_res_batch]
        rows = np.stack(found).astype("<f4")
        tokens = sum(len(output.prompt_token_ids) for output in ctx.final_res_batch)
        return Computed(tokens, rows.shape[1], rows.tobytes())

    async def count(self, request: Any) -> Computed:
        """The tokens that a request has, without a forward pass."""
        processor = self.get_io_processor(request)  # type: ignore[attr-defined]
        ctx = await self._init_ctx(processor, request)  # type: ignore[attr-defined]
        await self._preprocessing(processor, ctx)  # type: ignore[attr-defined]
        return Computed(sum(len(given["prompts"]["prompt_token_ids"]) for given in ctx.engine_inputs))


class EmbeddingRows(Rows, ServingEmbedding):  # type: ignore[misc]
    """A row is a text's vector."""


class ScoreRows(Rows, ServingScores):  # type: ignore[misc]
    """A row is the score of a pair."""


async def rows_of(client: Any, model_id: str, *, embeds: bool) -> Rows:
    """Around an engine that was started. Raises `ValueError` for a model of the other kind."""
    tasks = await client.get_supported_tasks()
    wanted = "embed" if embeds else "classify"
    if wanted not in tasks:
        raise ValueError(f"{model_id}: vLLM runs it for {', '.join(tasks)}, not for {wanted}")
    models = OpenAIServingModels(client, [BaseModelPath(model_id, client.model_config.model)])
    shared: dict[str, Any] = {"request_logger": None, "chat_template_config": ChatTemplateConfig()}
    if embeds:
        return EmbeddingRows(client, models, **shared)
    return ScoreRows(client, models, supported_tasks=tasks, **shared)
