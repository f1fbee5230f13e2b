"""The answers of the compression routes, as documented; nothing is checked by these shapes but in tests."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from billing.usage import MeteringStatus
from serve.compressors.compressor import CompressReceipt
from serve.http.openapi import OpenAIError, ValidationIssue
from serve.money.prices import Metering
from serve.prompt_compression.compressed_chat import CompressedBlock

_RECEIPT_EXAMPLE: dict[str, Any] = {
    "original_tokens": 20,
    "output_tokens": 5,
    "tokens_saved": 15,
    "compression_ratio": 0.25,
    "target_ratio": 0.25,
    "latency_ms": 1.25,
    "tokenizer": "example-tokenizer",
    "keep": None,
    "estimated_ratio": None,
    "evidence_kept_probability": None,
    "calibration": None,
    "risk_flags": [
        {
            "code": "number_dropped",
            "severity": "warning",
            "count": 1,
            "examples": [{"start": 30, "end": 35, "text": "2 bar"}],
        }
    ],
}
_COMPRESSION_EXAMPLE: dict[str, Any] = {
    "id": "cmp_5f0c1a",
    "object": "compression",
    "created": 1795000000,
    "model": "example-compressor",
    "output": "The warranty ends after two years.",
    "receipt": _RECEIPT_EXAMPLE,
}
_SUMMARY_EXAMPLE: dict[str, Any] = {
    "items": 1,
    "succeeded": 1,
    "failed": 0,
    "original_tokens": 20,
    "output_tokens": 5,
    "tokens_saved": 15,
    "compression_ratio": 0.25,
    "metering": "persisted",
}
_MESSAGES = (
    "What is left of the request's `messages`, a valid conversation; `output` is the same as JSON text. Absent where "
    "the request had `input`."
)
_KEPT = (
    "Positions in the input of the parts kept, in output order; the output is these parts, with gap marks if "
    "requested. For `messages`: positions in their texts. Absent unless `include` has `spans`."
)


_RETAINED = (
    "Unix time until which the original can be fetched, at `/v1/compress/{id}/original`; null if it could not be kept. "
    "Absent unless `compression.retain_s` was given."
)


_SERVICE = "Absent unless the project has `proof`."


class PromisedService(BaseModel):
    """The record of a reply's usage, with its promise."""

    metering: Metering = Field(description="The record of this request.")


class ByteSpan(BaseModel):
    """A place in the UTF-8 of the input."""

    start: int = Field(description="Offset of its first byte.")
    end: int = Field(description="Offset after its last byte.")


class KeptSpan(BaseModel):
    """A part of the input that is in the output."""

    start: int = Field(description="Offset of its first character; characters are Unicode code points.")
    end: int = Field(description="Offset after its last character.")
    bytes: ByteSpan = Field(description="The same place in bytes of the input's UTF-8.")


class KeptText(BaseModel):
    """A part of a message's text that is in the output. Characters are Unicode code points of the text itself,
    which has no escapes of JSON."""

    message: int = Field(description="The message's place in the request, from 0.")
    part: int | None = Field(description="The part's place in its content; null if the content is a string.")
    inner: int | None = Field(description="The text's place in a part that holds several; else null.")
    start: int = Field(description="Offset of its first character.")
    end: int = Field(description="Offset after its last character.")


class SizedCompression(BaseModel):
    """The parts that are left at another size."""

    kept: list[tuple[int, int]] = Field(
        description="The parts kept, in output order: offsets of the first character and after the last, in code "
        "points of the input."
    )
    receipt: CompressReceipt = Field(
        description="As if this size had been asked for; `latency_ms` is that of choosing it, scores not included."
    )


class CompressResponse(BaseModel):
    """The part of the input that matters to the query, and its receipt."""

    model_config = ConfigDict(json_schema_extra={"examples": [_COMPRESSION_EXAMPLE]})

    id: str = Field(description="Id of the compression: `cmp_…`.")
    object: Literal["compression"] = Field(description="`compression`.")
    created: int = Field(description="Unix time in seconds.")
    model: str = Field(description="The model that compressed.")
    output: str = Field(description="Slices of the input, unaltered, and the gap marks if requested.")
    messages: list[dict[str, Any]] | None = Field(default=None, description=_MESSAGES)
    kept: list[KeptSpan] | list[KeptText] | None = Field(default=None, description=_KEPT)
    sizes: list[SizedCompression] | None = Field(
        default=None, description="For each of the request's `sizes`, in their order. Absent unless given."
    )
    retained_until: int | None = Field(default=None, description=_RETAINED)
    receipt: CompressReceipt = Field(description="Store it with the request that uses the output.")
    service: PromisedService | None = Field(default=None, description=_SERVICE)


class CompressMessagesResponse(BaseModel):
    """The messages with their long parts compressed, in the shape that Headroom's clients read."""

    id: str = Field(description="Id of this answer: `cmp_…`.")
    object: Literal["compression.messages"] = Field(description="`compression.messages`.")
    created: int = Field(description="Unix time in seconds.")
    model: str = Field(description="The model that compressed.")
    messages: list[dict[str, Any]] = Field(
        description="As many as in the request; only the texts of `blocks` differ."
    )
    tokens_before: int = Field(description="Tokens of the parts that were compressed, as they came.")
    tokens_after: int = Field(description="Tokens of what is left of them.")
    tokens_saved: int = Field(description="Their difference.")
    compression_ratio: float = Field(
        description="`tokens_after` / `tokens_before`; 1 if nothing was compressed."
    )
    transforms_applied: list[str] = Field(description="The model, if anything was compressed.")
    status: Literal["applied", "skipped", "failed"] = Field(
        description="`failed` if a part could not be compressed and is whole."
    )
    blocks: list[CompressedBlock] = Field(description="The parts that could be compressed, in their order.")
    service: PromisedService | None = Field(default=None, description=_SERVICE)


class BatchResult(BaseModel):
    """The outcome of one item: a compression's fields if `status` is `ok`, an error's if it is `error`."""

    id: str | None = Field(
        description="The item's id; if it has none, the compression's, or null for an error."
    )
    index: int = Field(description="The item's place in the request, from 0.")
    status: Literal["ok", "error"] = Field(description="Which of the two.")
    object: Literal["compression"] | None = Field(default=None, description="As in a single compression.")
    created: int | None = Field(default=None, description="As in a single compression.")
    model: str | None = Field(default=None, description="As in a single compression.")
    output: str | None = Field(default=None, description="As in a single compression.")
    messages: list[dict[str, Any]] | None = Field(default=None, description="As in a single compression.")
    kept: list[KeptSpan] | list[KeptText] | None = Field(
        default=None, description="As in a single compression."
    )
    retained_until: int | None = Field(
        default=None, description="As in a single compression; the id is `compression_id`."
    )
    compression_id: str | None = Field(
        default=None, description="The id of the item's original, where it is kept: `id` may be yours."
    )
    receipt: CompressReceipt | None = Field(default=None, description="As in a single compression.")
    service: PromisedService | None = Field(default=None, description="As in a single compression.")
    detail: str | list[ValidationIssue] | None = Field(default=None, description="As in any error.")
    error: OpenAIError | None = Field(default=None, description="As in any error.")


class BatchSummary(BaseModel):
    """The totals of a batch; tokens are those of the items that succeeded."""

    items: int = Field(description="Items asked for.")
    succeeded: int = Field(description="Items compressed.")
    failed: int = Field(description="Items with an error.")
    original_tokens: int = Field(description="Tokens of the inputs.")
    output_tokens: int = Field(description="Tokens of the outputs.")
    tokens_saved: int = Field(description="Their difference.")
    compression_ratio: float = Field(
        description="Output tokens divided by original tokens; 1 if nothing was compressed."
    )
    metering: MeteringStatus = Field(description="`degraded` if any item's usage is not yet in the ledger.")


class BatchCompressResponse(BaseModel):
    """All results, in the order of the items."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "object": "list",
                    "model": "example-compressor",
                    "results": [{**_COMPRESSION_EXAMPLE, "id": "a", "index": 0, "status": "ok"}],
                    "summary": _SUMMARY_EXAMPLE,
                }
            ]
        }
    )

    object: Literal["list"] = Field(description="`list`.")
    model: str = Field(description="The model of every item.")
    results: list[BatchResult] = Field(description="One for each item.")
    summary: BatchSummary = Field(description="Their sums.")
