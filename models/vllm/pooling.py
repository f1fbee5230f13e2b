"""vLLM's pooling runner as the backend of an embedding or rerank model.

Names that vLLM does not promise to keep are used up to the rows that the engine gave;
`tests/models/vllm/test_pooling_insides.py` reads the pinned source.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.chat_utils import ChatTemplateConfig
from vllm.entrypoints.openai.models.serving import BaseModelPath, OpenAIServingModels
from vllm.entrypoints.pooling.embed.protocol import EmbeddingCompletionRequest
from vllm.entrypoints.pooling.embed.serving import ServingEmbedding
from vllm.entrypoints.pooling.scoring.protocol import ScoreQueriesDocumentsRequest
from vllm.entrypoints.pooling.scoring.serving import ServingScores
from vllm.exceptions import VLLMClientError
from vllm.v1.engine.async_llm import AsyncLLM

from models.embedding_backends import Computed, RetrievalJob, RetrievalSpec
from models.engine import EngineFault
from models.vllm.faults import without_internals
from models.vllm.insides import EngineDeadError

__all__ = ["AsyncLLM"]


class Rows:
    """Parts that both share (`PoolingBaseServing._init_ctx`, `._preprocessing`, `._build_response`)."""

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


log = logging.getLogger(__name__)
TOO_LONG = "maximum context length"


@dataclass(frozen=True, slots=True)
class PoolingEngine:
    """A `models.embedding_backends.RetrievalReplica`."""

    client: AsyncLLM
    rows: Rows

    async def compute(self, job: RetrievalJob, *, payer: str) -> Computed | EngineFault:
        del payer  # It works on all that it has: who comes first is decided before it.
        try:
            request = _request(job)
            if job.only_counts:
                return await self.rows.count(request)
            computed: Computed = await self.rows(request)  # type: ignore[operator]
            return computed
        except EngineDeadError:
            return EngineFault("failed", "the engine died")
        except (ValueError, VLLMClientError) as error:
            # What vLLM raises for what it refuses, pydantic's errors included.
            message = without_internals(str(error))
            field = (
                "dimensions" if "dimension" in message else "input" if job.does == "embed" else "documents"
            )
            return EngineFault("rejected", message, field, is_too_long=TOO_LONG in message)
        except Exception:
            log.exception("a pooling request failed")
            return EngineFault("failed", "the engine could not complete this request")

    def check(self) -> None:
        """Raises where the engine has died."""
        if self.client.errored:
            raise RuntimeError("the pooling engine has died")

    async def stop(self) -> None:
        self.client.shutdown()


async def start(spec: RetrievalSpec) -> PoolingEngine:
    """Load the checkpoint. Raises what vLLM raises, and `ValueError` for a checkpoint of the other kind."""
    options: dict[str, Any] = dict(spec.options)
    if spec.shortens:
        options["hf_overrides"] = {"is_matryoshka": True, **options.get("hf_overrides", {})}
    arguments = AsyncEngineArgs(
        model=spec.checkpoint,
        revision=spec.revision,
        tokenizer_revision=spec.revision,
        served_model_name=spec.model_id,
        runner="pooling",
        max_model_len=spec.context_length,
        load_format="safetensors",
        trust_remote_code=False,
        # What one project's texts left in a cache, another could tell by its times.
        enable_prefix_caching=False,
        disable_log_stats=True,
        **options,
    )
    client = AsyncLLM.from_engine_args(arguments)
    return PoolingEngine(client, await rows_of(client, spec.model_id, embeds=spec.does == "embed"))


def _request(job: RetrievalJob) -> Any:
    if job.does == "embed":
        texts = [text if isinstance(text, str) else list(text) for text in job.texts]
        return EmbeddingCompletionRequest(input=texts, dimensions=job.dimensions)
    cut: dict[str, int] = {} if job.cut is None else {"truncate_prompt_tokens": -1}
    if job.cut is not None and job.cut < job.longest:
        # vLLM refuses as many as the whole context.
        cut["max_tokens_per_doc"] = job.cut
    return ScoreQueriesDocumentsRequest(queries=list(job.queries), documents=list(job.texts), **cut)
