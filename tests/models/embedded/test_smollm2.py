"""The conversion of SmolLM2: names, order of rows, rounding, and the tokenizer that comes of its vocabulary."""

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from models.embedded.smollm2 import (
    COMMITTED,
    FILES,
    as_bfloat16,
    halves_apart,
    named_weights,
    tokenizer_of,
    write_safetensors,
)

TOKENS = ["<|endoftext|>", "<|im_start|>", *"abc12", "Ċ", "Ġ", "ab", "ĊĊ"]
VALUES = {
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [3, 3, *[1] * (len(TOKENS) - 2)],
    "tokenizer.ggml.merges": ["a b", "Ċ Ċ"],
}


def test_each_weight_gets_the_name_that_the_architecture_has_for_it() -> None:
    ones = np.ones((4, 2), np.float32)
    found = dict.fromkeys(
        ("token_embd.weight", "output_norm.weight", "blk.7.attn_q.weight", "blk.7.ffn_up.weight"), ones
    )
    assert list(dict(named_weights(found, {"attn_q": 1}))) == [
        "model.embed_tokens.weight",
        "model.norm.weight",
        "model.layers.7.self_attn.q_proj.weight",
        "model.layers.7.mlp.up_proj.weight",
    ]


def test_rows_of_a_head_that_rotate_together_are_half_a_head_apart() -> None:
    rows = np.arange(8, dtype=np.float32).reshape(8, 1)
    assert halves_apart(rows, 2).ravel().tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


@pytest.mark.parametrize(
    ("value", "rounded"),
    [(1.0, 1.0), (1 + 2**-8, 1.0), (1 + 3 * 2**-8, 1 + 2**-6), (1 + 2**-8 + 2**-12, 1 + 2**-7), (-3.0, -3.0)],
)
def test_a_weight_is_rounded_to_the_nearest_and_to_even_from_the_middle(value: float, rounded: float) -> None:
    bits = as_bfloat16(np.array([value], np.float32)).astype(np.uint32) << 16
    assert bits.view(np.float32).tolist() == [rounded]


def test_what_is_written_is_read_again_by_the_library(tmp_path: Path) -> None:
    from safetensors import safe_open

    write_safetensors(tmp_path / "w", {"a": np.ones((2, 3), np.float32), "b": np.zeros(5, np.float32)})
    with safe_open(tmp_path / "w", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
        assert {name: file.get_tensor(name).tolist() for name in file.keys()} == {  # noqa: SIM118
            "a": [[1.0] * 3] * 2,
            "b": [0.0] * 5,
        }


def test_the_tokenizer_has_the_merges_keeps_special_tokens_whole_and_cuts_digits_apart() -> None:
    tokenizer = Tokenizer.from_str(tokenizer_of(VALUES))
    assert tokenizer.encode("<|im_start|>abc12").tokens == ["<|im_start|>", "ab", "c", "1", "2"]
    # As before a word, so before a digit: without the cut the second line feed would go with the digit.
    assert tokenizer.encode("a\n\n1").tokens == ["a", "ĊĊ", "1"]
    assert tokenizer.decode(tokenizer.encode("ab\n\nc 1").ids) == "ab\n\nc 1"


def test_the_committed_files_go_together() -> None:
    config, generation = (json.loads((FILES / name).read_text()) for name in COMMITTED[:2])
    assert config["eos_token_id"] in generation["eos_token_id"]
    assert config["max_position_embeddings"] == 8192
