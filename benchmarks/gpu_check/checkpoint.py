"""A chat checkpoint with random weights and the shape of a real one, for engines: what it says means nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.overhead.engine import located

# Of whom the tokenizer and the template are.
TOKENIZER_OF = "embedded:pith-mini"
NOT_OF_THE_TOKENIZER = ("config.json", "generation_config.json", "*.safetensors")
BYTES_EACH = 2


@dataclass(frozen=True, slots=True)
class Shape:
    layers: int
    width: int
    inner: int
    heads: int
    cached_heads: int
    head_width: int

    @property
    def cache_bytes(self) -> int:
        """Of one token, at 16 bits a number."""
        return self.layers * 2 * self.cached_heads * self.head_width * BYTES_EACH


# Qwen3 1.7B with a vocabulary of 8,192: 1.4 billion weights. And a small one, for a trial on a CPU.
SHAPES = {"cuda": Shape(28, 2048, 6144, 16, 8, 128), "cpu": Shape(2, 64, 192, 2, 2, 32)}
CONTEXT = 4096


def made_apart(folder: Path, device: str) -> Path:
    """Write it into `folder`, which is returned, in a process of its own: a process that ran torch's threads must not
    be forked, as engines are."""
    subprocess.run([sys.executable, "-m", __name__, str(folder), device], check=True)
    return folder


def write(folder: Path, shape: Shape) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config

    original = Path(located(TOKENIZER_OF, folder.parent / "embedded"))
    shutil.copytree(original, folder, ignore=shutil.ignore_patterns(*NOT_OF_THE_TOKENIZER))
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.cached_heads,
        head_dim=shape.head_width,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    with torch.no_grad():
        # Never the likeliest: a stream without any text would count as one that broke off.
        model.lm_head.weight[unreadable(tokenizer)] = 0
    model.save_pretrained(str(folder))
    # What engines would take as defaults of sampling from another model.
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": tokenizer.eos_token_id}))


def unreadable(tokenizer: Any) -> list[int]:
    """Tokens that are no text by themselves: marks, and parts of characters."""
    marks = set(tokenizer.all_special_ids)
    texts = {number: tokenizer.decode([number]) for number in range(len(tokenizer))}
    return [number for number, text in texts.items() if number in marks or not text or "\ufffd" in text]


if __name__ == "__main__":
    write(Path(sys.argv[1]), SHAPES[sys.argv[2]])
