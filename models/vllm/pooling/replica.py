"""A replica's engine on vLLM's pooling runner."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.pooling.embed.protocol import EmbeddingCompletionRequest
from vllm.entrypoints.pooling.scoring.protocol import ScoreQueriesDocumentsRequest
from vllm.exceptions import VLLMClientError

from models.engine import EngineFault
from models.retrieval import Computed, RetrievalJob, RetrievalSpec
from models.vllm.faults import without_internals
from models.vllm.insides import EngineDeadError
from models.vllm.pooling.insides import AsyncLLM, Rows, rows_of

log = logging.getLogger(__name__)
TOO_LONG = "maximum context length"


@dataclass(frozen=True, slots=True)
class PoolingEngine:
    """A `models.retrieval.RetrievalReplica`."""

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
