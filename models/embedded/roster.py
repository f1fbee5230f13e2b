"""Names the four embedded models, with what a catalog has to know of each."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """One model as an operator sees it. `parameters` counts the tied embedding once."""

    id: str
    architecture: str
    context_length: int
    parameters: int


EMBEDDED_MODELS: tuple[EmbeddedModel, ...] = (
    EmbeddedModel("pith-mini", "LlamaForCausalLM", 16384, 2_053_504),
    EmbeddedModel("pith-small", "Qwen2ForCausalLM", 2048, 820_800),
    EmbeddedModel("pith-base", "Qwen3ForCausalLM", 65536, 951_872),
    EmbeddedModel("pith-wide", "LlamaForCausalLM", 2048, 983_616),
)
