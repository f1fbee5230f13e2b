"""Trials of the grammars that a vLLM engine would compile, with its own tokenizer and settings."""

from typing import Any

from models.grammar.trials import GrammarTrials, Kind, TrialTerms, TrialTurns
from models.vllm.insides import StructuredOutputOptions, any_whitespace

# The grammars that a caller's schemas become. What else there is, callers cannot ask for.
TRIED: dict[StructuredOutputOptions, Kind] = {
    StructuredOutputOptions.JSON: "json",
    StructuredOutputOptions.REGEX: "regex",
    StructuredOutputOptions.GRAMMAR: "grammar",
    StructuredOutputOptions.STRUCTURAL_TAG: "structural_tag",
}


def trials_of(engine_client: Any, turns: TrialTurns, terms: TrialTerms) -> GrammarTrials:
    """Trials as the engine behind one of vLLM's clients would compile."""
    return GrammarTrials(
        lambda: serialized_tokenizer(engine_client),
        turns,
        any_whitespace=any_whitespace(engine_client),
        terms=terms,
    )


def serialized_tokenizer(engine_client: Any) -> str:
    """What vLLM's own backend makes of the engine's tokenizer, as text: a grammar is compiled against every token."""
    from xgrammar import TokenizerInfo

    vocab_size = engine_client.model_config.get_vocab_size()
    return str(
        TokenizerInfo.from_huggingface(engine_client.get_tokenizer(), vocab_size=vocab_size).serialize_json()
    )
