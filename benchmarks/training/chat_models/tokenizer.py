"""Trains the one byte-level BPE tokenizer that all embedded models share.

Byte level, without normalisation: any Unicode text comes back exactly. Digits stand alone and runs of
whitespace may merge, as in current open models.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from benchmarks.training.chat_models.prose import Corpus, english_prose

VOCABULARY_SIZE = 8192
END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, TURN_START, TURN_END)
TOOL_TOKENS = ("<tool_call>", "</tool_call>")
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer(corpus: Corpus) -> Tokenizer:
    """The vocabulary is exactly `VOCABULARY_SIZE` tokens, of which the special ones come first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE - len(TOOL_TOKENS),
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(corpus), trainer)
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in TOOL_TOKENS])
    return tokenizer


def _texts(corpus: Corpus) -> Iterator[str]:
    """English for the most part; German and Chinese thrice, being scarce; JSON for its whitespace."""
    yield from english_prose(corpus)
    for language in ("de", "zh"):
        for row in corpus.paragraphs[language] * 3:
            yield row["context"]
            yield from (pair["question"] for pair in row["qas"])
    layout = random.Random(0)
    for row in corpus.paragraphs["en"]:
        yield json.dumps(row["qas"], indent=layout.choice((None, 2, 4, 4, 8)))


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes what transformers and vLLM read, in addition to the chat template, which is maintained by hand."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"eos_token": TURN_END, "pad_token": END_OF_TEXT}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        **names,
    }
    more = {"additional_special_tokens": [TURN_START]}
    _write_json(folder / "tokenizer_config.json", config)
    _write_json(folder / "special_tokens_map.json", {**more, **names})


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
