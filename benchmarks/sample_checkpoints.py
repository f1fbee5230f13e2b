"""Small checkpoints with random weights and real-format tokenizers, of the architectures that LLMLingua-2 has.

Random weights tell nothing about quality. They are for comparing two programs on the same weights.
"""

# ruff: noqa: RUF001 - the marks of other scripts are meant as they stand
from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertConfig,
    ModernBertConfig,
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
)

Architecture = Literal["bert", "xlm-roberta", "modernbert"]
VOCABULARY = 1500

# What the tokenizers are trained on, and what tests compress: several scripts, marks, numbers, code, odd spaces.
TEXTS = (
    "The committee met on 12 March 2024 to discuss the budget. Mr. Smith said that the plan was not ready; he would "
    'not sign it. "We need $3.5 million more," he added, and the council\'s chair agreed without comment.',
    "Das Gesetz wurde am 3. Mai nicht verabschiedet, weil keine Mehrheit zustande kam. Man vertagte sich.",
    "委员会于2024年3月12日开会讨论预算。史密斯先生说计划还没有准备好，他不会签字。预算为350万美元。",
    "def add(a, b):\n    return a + b  # see https://example.org/docs?id=3\n\n| name | value |\n|---|---|\n| x | 1 |",
    "Ünïcödé naïve café — “quoted words” … ends\u00a0here\ttabs   spaces\r\nnext line. "
    "Emoji \U0001f469\u200d\U0001f469\u200d\U0001f467 joins! İstanbul'da 5 °C.",
    "It wasn't me; they've gone to the market, haven't they? State-of-the-art results (94.25%) were: 93.68.",
)


def make_checkpoint(
    folder: Path,
    architecture: Architecture,
    *,
    layers: int = 2,
    width: int = 48,
    spread: float = 3.0,
    seed: int = 7,
) -> Path:
    """A token classifier with two labels. `spread` widens its weights, so that probabilities of a small one differ."""
    tokenizer = train_tokenizer(architecture)
    torch.manual_seed(seed)
    model = AutoModelForTokenClassification.from_config(config_of(architecture, tokenizer, layers, width))
    _spread(model, spread)
    _save(folder, model, tokenizer)
    return folder


def make_query_classifier(
    folder: Path, architecture: Architecture, *, prefix: str = "ranking_model."
) -> Path:
    """An OpenProvence checkpoint as its exporter writes it: one reranker, one head, the base's config inside."""
    from safetensors.torch import save_file

    tokenizer = train_tokenizer(architecture)
    torch.manual_seed(11)
    base = config_of(architecture, tokenizer, layers=2, width=48)
    base.num_labels = 1
    model = AutoModelForSequenceClassification.from_config(base)
    _spread(model, 3.0)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(str(folder))
    weights = {prefix + name: value.contiguous() for name, value in model.state_dict().items()}
    weights["pruning_head.classifier.weight"] = torch.randn(2, 48)
    weights["pruning_head.classifier.bias"] = torch.randn(2)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config: dict[str, Any] = {
        "model_type": "open_provence",
        "architectures": ["OpenProvenceForSequenceClassification"],
        "auto_map": {"AutoModel": "modeling_open_provence_standalone.OpenProvenceModel"},
        "base_model_config": base.to_dict(),
        "max_length": 96,
        "num_labels": 1,
        "num_pruning_labels": 2,
        "pruning_config": {"hidden_size": 48, "num_labels": 2, "classifier_dropout": 0.1},
        "default_threadshold": 0.1,
        "transformers_version": "4.57.1",
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def config_of(architecture: Architecture, tokenizer: Any, layers: int, width: int) -> Any:
    common = {
        "vocab_size": len(tokenizer),
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": max(width // 64, 2),
        "intermediate_size": 4 * width,
        "pad_token_id": tokenizer.pad_token_id,
        "num_labels": 2,
    }
    if architecture == "bert":
        return BertConfig(**common, max_position_embeddings=512)
    if architecture == "xlm-roberta":
        return XLMRobertaConfig(
            **common, max_position_embeddings=514, type_vocab_size=1, bos_token_id=0, eos_token_id=2
        )
    special = {"cls_token_id": tokenizer.cls_token_id, "sep_token_id": tokenizer.sep_token_id}
    return ModernBertConfig(**common, **special, max_position_embeddings=1024, local_attention=32)


def train_tokenizer(architecture: Architecture) -> PreTrainedTokenizerFast:
    """The pipelines of mBERT (WordPiece, cased), XLM-R (Unigram, Metaspace) and ModernBERT (byte-level BPE)."""
    build = {"bert": _wordpiece, "xlm-roberta": _unigram, "modernbert": _byte_bpe}[architecture]
    return build()


def _wordpiece() -> PreTrainedTokenizerFast:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    # A small alphabet leaves some words unknown, as real ones do.
    backend.train_from_iterator(
        TEXTS, trainers.WordPieceTrainer(vocab_size=VOCABULARY, special_tokens=special, limit_alphabet=120)
    )
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def _unigram() -> PreTrainedTokenizerFast:
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    backend = Tokenizer(models.Unigram())
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=VOCABULARY, special_tokens=special, unk_token="<unk>")
    backend.train_from_iterator(TEXTS, trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        eos_token="</s>",
        sep_token="</s>",
        cls_token="<s>",
        unk_token="<unk>",
        pad_token="<pad>",
        mask_token="<mask>",
    )


def _byte_bpe() -> PreTrainedTokenizerFast:
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    backend = Tokenizer(models.BPE())
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    backend.train_from_iterator(TEXTS, trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        mask_token="[MASK]",
    )


def _spread(model: Any, by: float) -> None:
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1 and "embed" not in name:
                weight.mul_(by)


def _save(folder: Path, model: Any, tokenizer: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
