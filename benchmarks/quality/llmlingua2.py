"""LLMLingua-2 as a baseline, where a checkpoint of it is given; its weights come with nothing here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.evaluation.case import Case
from benchmarks.evaluation.metrics import tokens

NAME = "LLMLingua-2"
# Its rate is in tokens of another tokenizer, so that an output may be too long by the count of words here.
SHRINKING = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)


class LLMLingua2:
    """`llmlingua.PromptCompressor` on the CPU; what it drops is chosen without the question."""

    def __init__(self, compressor: Any) -> None:
        self.compressor = compressor

    @classmethod
    def load(cls, checkpoint: Path) -> LLMLingua2:
        """Raises `FileNotFoundError` where the folder holds no checkpoint."""
        if not (checkpoint / "config.json").is_file():
            raise FileNotFoundError(f"{checkpoint} holds no config.json")
        # torch takes seconds to import, and few runs have a checkpoint.
        from llmlingua import PromptCompressor

        return cls(
            PromptCompressor(
                str(checkpoint), device_map="cpu", use_llmlingua2=True, model_config={"trust_remote_code": False}
            )
        )  # fmt: skip

    def select(self, case: Case, ratio: float) -> str:
        """The longest of a few outputs that is within the ratio; empty where none is."""
        budget = int(len(tokens(case.context)) * ratio)
        for share in SHRINKING:
            found = self.compressor.compress_prompt_llmlingua2([case.context], rate=ratio * share)
            output: str = found["compressed_prompt"]
            if len(tokens(output)) <= budget:
                return output
        return ""
