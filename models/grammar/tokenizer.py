"""A model's tokenizer as xgrammar reads it: a grammar is compiled against every token there is."""

from __future__ import annotations

from typing import Any

from models.grammar.trials import GrammarTrials


def trials_of(engine_client: Any) -> GrammarTrials:
    """Trials as the engine behind one of vLLM's clients would compile."""
    backend = engine_client.vllm_config.structured_outputs_config
    return GrammarTrials(
        lambda: serialized_tokenizer(engine_client), any_whitespace=not backend.disable_any_whitespace
    )


def serialized_tokenizer(engine_client: Any) -> str:
    """What vLLM's own backend makes of the engine's tokenizer, as text."""
    from xgrammar import TokenizerInfo

    vocab_size = engine_client.model_config.get_vocab_size()
    return str(
        TokenizerInfo.from_huggingface(engine_client.get_tokenizer(), vocab_size=vocab_size).serialize_json()
    )
