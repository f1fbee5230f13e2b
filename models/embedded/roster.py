"""Names the four embedded models and the shape of each, for the catalog and for the script that makes them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """One model as an operator sees it. `parameters` counts the tied embedding once."""

    id: str
    architecture: str
    context_length: int
    parameters: int


EMBEDDED_MODELS: tuple[EmbeddedModel, ...] = (
    EmbeddedModel("pith-mini", "LlamaForCausalLM", 4096, 2_053_504),
    EmbeddedModel("pith-small", "Qwen2ForCausalLM", 2048, 0),
    EmbeddedModel("pith-base", "Qwen3ForCausalLM", 8192, 0),
    EmbeddedModel("pith-wide", "LlamaForCausalLM", 2048, 0),
)
