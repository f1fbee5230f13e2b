"""One embedding or rerank model of the configuration: its price, the engine that it runs on, and its replicas."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from models.embedding_backends import RetrievalSpec
from serve.config.compression_models import CompressionModelSettings, Price
from serve.config.engine import AcceleratorSettings, check_share
from serve.config.values import ReplicaCounts, Section

RetrievalKind = Literal["embedding", "rerank"]
RetrievalEngineKind = Literal["static", "lexical", "encoder", "vllm"]
RETRIEVAL_KINDS: tuple[RetrievalKind, ...] = ("embedding", "rerank")
# Each in the worker processes of a compression model of kind `lexical`, which have its weights: no process of its own.
HOSTED: dict[RetrievalEngineKind, RetrievalKind] = {"static": "embedding", "lexical": "rerank"}


class InputPriceSettings(Section):
    input_usd_per_mtok: Price = Field(description="US dollars per million input tokens.")
    minimum_request_usd: Annotated[Decimal, Field(ge=0, le=1000, max_digits=15, decimal_places=9)] = Field(
        Decimal(0), description="Minimum charge of a successful request, in US dollars."
    )


class RetrievalEngineSettings(Section):
    """The engine that computes vectors or relevance. The arguments of vLLM stand under vLLM's names."""

    kind: RetrievalEngineKind = Field(
        description="`static` (embeddings) and `lexical` (rerank) come with pith; `encoder` runs a checkpoint on CPUs "
        "or a GPU with transformers; `vllm` with vLLM's pooling runner."
    )
    threads: int | None = Field(
        None, ge=1, le=1024, description="CPU threads of an `encoder`; default: torch's."
    )
    batch_tokens: int = Field(4096, ge=16, le=2**24, description="Tokens of an `encoder`'s batch.")
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        "float32", description="Precision of the weights."
    )
    gpu_memory_utilization: float | None = Field(
        None, gt=0, le=1, description="Of `vllm`: part of the GPU's memory that it takes."
    )
    kv_cache_memory_bytes: int | None = Field(
        None,
        ge=2**20,
        description="Of `vllm`: bytes of its KV cache, which it has to know where it shares a GPU.",
    )
    max_num_seqs: int | None = Field(None, ge=1, description="Of `vllm`: texts that it works on at once.")
    enforce_eager: bool | None = Field(None, description="Of `vllm`: without compiling the model.")
    hf_overrides: dict[str, Any] | None = Field(
        None, description="Of `vllm`: what replaces parts of the checkpoint's config.json."
    )

    def vllm_arguments(self) -> dict[str, Any]:
        """Those that are given."""
        own = {"kind", "threads", "batch_tokens"}
        return self.model_dump(exclude_none=True, exclude=own)


class RetrievalReplicaSettings(ReplicaCounts):
    max_ongoing_requests: int = Field(
        64, ge=1, description="Twice the requests in a replica at which another one is started."
    )


class RetrievalModelSettings(Section):
    id: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,126}$", description="What callers send as `model`."
    )
    kind: RetrievalKind = Field(description="`embedding` makes vectors of texts, `rerank` orders texts.")
    name: str = Field(min_length=1, description="Display name.")
    blurb: str = Field(min_length=1, description="One or two sentences for the list of models.")
    checkpoint: str | None = Field(
        None, min_length=1, description="Hub name or a folder; not for `static` and `lexical`."
    )
    revision: str | None = Field(None, description="Commit of the hub repository.")
    context_length: int = Field(ge=16, le=10_000_000, description="Tokens of one text at most.")
    matryoshka: bool = Field(
        False, description="Whether the model's vectors may be cut to the `dimensions` that a request names."
    )
    price: InputPriceSettings
    engine: RetrievalEngineSettings = Field(description="What computes, and its arguments.")
    accelerator: AcceleratorSettings = AcceleratorSettings()
    weights_gb: float | None = Field(
        None, gt=0, description="Gigabytes of weights, for `pith config check`; default: the checkpoint's."
    )
    replicas: RetrievalReplicaSettings = RetrievalReplicaSettings()
    max_waiting: int = Field(256, ge=1, le=10**6, description="Requests a replica has at once; above: 503.")
    max_input_bytes: int = Field(
        2 * 2**20,
        ge=1,
        le=2**30,
        description="Bytes of all texts of a request at most; with `static` and `lexical` the compression model's.",
    )
    deadline_s: float = Field(
        60, gt=0, le=3600, description="Seconds that a request may take, waiting included; then 503."
    )
    environment: dict[str, str] = Field({}, description="Environment variables of the engine's processes.")

    @property
    def is_hosted(self) -> bool:
        """True where it runs in the processes of a compression model."""
        return self.engine.kind in HOSTED

    @property
    def is_kept_up(self) -> bool:
        """True where it has processes of its own that are there from the start."""
        return not self.is_hosted and self.replicas.min > 0

    @model_validator(mode="after")
    def _fits_its_engine(self) -> Self:
        engine, makes = self.engine.kind, HOSTED.get(self.engine.kind)
        if makes is not None and self.kind != makes:
            raise ValueError(f"engine.kind {engine} is for models of kind {makes}")
        if makes is not None and self.checkpoint is not None:
            raise ValueError(f"checkpoint: must not be set for engine.kind {engine}: it comes with pith")
        if makes is not None and "replicas" in self.model_fields_set:
            raise ValueError(f"replicas: engine.kind {engine} runs in the replicas of a compression model")
        if makes is not None and "max_input_bytes" in self.model_fields_set:
            raise ValueError(f"max_input_bytes: engine.kind {engine} takes what its compression model does")
        if makes is None and self.checkpoint is None:
            raise ValueError(f"checkpoint: must be set for engine.kind {engine}")
        if engine == "vllm":
            check_share(
                self.accelerator, self.engine.kv_cache_memory_bytes, self.engine.gpu_memory_utilization
            )
        if self.matryoshka and self.kind != "embedding":
            raise ValueError("matryoshka is for models of kind embedding")
        return self


def spec_of_retrieval(model: RetrievalModelSettings) -> RetrievalSpec:
    """The specification that an engine of its own starts from."""
    return RetrievalSpec(
        model_id=model.id,
        does="embed" if model.kind == "embedding" else "relate",
        checkpoint=str(Path(model.checkpoint or "").expanduser())
        if (model.checkpoint or "").startswith("~")
        else model.checkpoint or "",
        revision=model.revision,
        context_length=model.context_length,
        shortens=model.matryoshka,
        options=model.engine.vllm_arguments(),
    )


def host_of(
    model: RetrievalModelSettings, compressors: Sequence[CompressionModelSettings]
) -> CompressionModelSettings | None:
    """The compression model in whose processes it runs; None where it has its own. Raises `ValueError` where none of
    the configuration can take it."""
    if not model.is_hosted:
        return None
    for compressor in compressors:
        if compressor.kind == "lexical":
            return compressor
    raise ValueError(
        f"model {model.id!r}: engine.kind {model.engine.kind} runs in the processes of a compression model of kind "
        "lexical, and compression.models has none"
    )
