"""Makes the small token classifier of the embedded profile: `python -m benchmarks.training.token_classifier`.

What it learns is modest: which word pieces are rare in the texts it saw, and that what was just said counts for less.
It drops function words and filler before content words. It is no LLMLingua-2, which GPT-4 taught.
"""

import argparse
import gzip
import json
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForTokenClassification, PreTrainedTokenizerFast

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY, WIDTH, LAYERS, WINDOW = 8000, 64, 2, 512
SEED, STEPS, BATCH, LENGTH, RATE = 20261120, 500, 24, 128, 2e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/eval"), help="folder of *.jsonl.gz")
    parser.add_argument("--out", type=Path, default=Path("compression/neural/small"), help="folder to write")
    options = parser.parse_args()
    random.seed(SEED)
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    texts = [text for text in read_texts(options.data) if len(text) > 80]
    if not texts:
        raise SystemExit(f"--data: {options.data} holds no texts to learn from")
    random.shuffle(texts)
    held_out, texts = texts[: len(texts) // 20], texts[len(texts) // 20 :]
    tokenizer = train_tokenizer(texts)
    wanted = wanted_by_token(tokenizer, texts)
    model = train(tokenizer, texts, wanted)
    agreement = measure(model, tokenizer, held_out, wanted)
    save(
        options.out,
        model,
        tokenizer,
        {"texts": len(texts), "steps": STEPS, "seed": SEED, "agreement": agreement},
    )
    print(
        f"{options.out}: agrees with the labels on {agreement:.1%} of the tokens of {len(held_out)} unseen texts"
    )


def read_texts(folder: Path) -> Iterator[str]:
    """Passages, paragraphs and turns of meetings."""
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                yield from (row[key] for key in ("text", "context") if key in row)
                yield from (turn["content"] for turn in row.get("meeting_transcripts", ()))


def train_tokenizer(texts: Sequence[str]) -> Tokenizer:
    """mBERT's pipeline with a small vocabulary."""
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    trainer = trainers.WordPieceTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL, limit_alphabet=3000)
    backend.train_from_iterator(texts, trainer)
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return backend


def wanted_by_token(tokenizer: Tokenizer, texts: Sequence[str]) -> torch.Tensor:
    """How much each piece of the vocabulary is wanted, in [0, 1]: by the share of texts that do without it."""
    seen: Counter[int] = Counter()
    for encoded in tokenizer.encode_batch(list(texts), add_special_tokens=False):
        seen.update(set(encoded.ids))
    rarity = [math.log((len(texts) + 1) / (seen[token] + 1)) for token in range(tokenizer.get_vocab_size())]
    # Half of the tokens of running text should be wanted: the middle is the median over tokens, not over pieces.
    running = sorted(
        rarity[t] for e in tokenizer.encode_batch(list(texts[:2000]), add_special_tokens=False) for t in e.ids
    )
    middle = running[len(running) // 2]
    return torch.sigmoid(torch.tensor([2.0 * (value - middle) for value in rarity]))


def train(tokenizer: Tokenizer, texts: Sequence[str], wanted: torch.Tensor) -> Any:
    model = BertForTokenClassification(
        BertConfig(
            vocab_size=tokenizer.get_vocab_size(),
            hidden_size=WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=2,
            intermediate_size=4 * WIDTH,
            max_position_embeddings=WINDOW,
            num_labels=2,
            id2label={0: "drop", 1: "keep"},
            label2id={"drop": 0, "keep": 1},
        )
    )
    encoded = [e.ids for e in tokenizer.encode_batch(list(texts), add_special_tokens=False) if len(e.ids) > 8]
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    model.train()
    for step in track(range(STEPS), "training"):
        optimizer.param_groups[0]["lr"] = RATE * (1 - step / STEPS)
        ids, mask, targets = batch_of(encoded, wanted)
        logits = model(input_ids=ids, attention_mask=mask).logits
        loss = -(
            targets * torch.log_softmax(logits, -1)[..., 1]
            + (1 - targets) * torch.log_softmax(logits, -1)[..., 0]
        )
        (loss * mask).sum().div(mask.sum()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


def batch_of(
    encoded: Sequence[list[int]], wanted: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pieces of texts. A token is wanted less right after itself: what was just said need not be said again."""
    rows = []
    for ids in random.choices(encoded, k=BATCH):
        start = random.randrange(max(1, len(ids) - LENGTH))
        rows.append([2, *ids[start : start + LENGTH], 3])
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    return ids, (ids != 0).long(), targets_of(ids, wanted)


def targets_of(ids: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    targets = wanted[ids]
    repeated = torch.zeros_like(targets)
    for back in range(1, 9):
        repeated[:, back:] = torch.maximum(repeated[:, back:], (ids[:, back:] == ids[:, :-back]).float())
    return targets * (1 - 0.5 * repeated)


def measure(model: Any, tokenizer: Tokenizer, texts: Sequence[str], wanted: torch.Tensor) -> float:
    """The share of tokens on which model and labels fall on the same side of one half."""
    same = total = 0
    with torch.inference_mode():
        for encoded in tokenizer.encode_batch(list(texts), add_special_tokens=False):
            ids = torch.tensor([[2, *encoded.ids[: WINDOW - 2], 3]])
            kept = torch.softmax(model(input_ids=ids).logits, -1)[..., 1]
            same += int(((kept > 0.5) == (targets_of(ids, wanted) > 0.5))[0, 1:-1].sum())
            total += ids.shape[1] - 2
    return same / max(total, 1)


def save(folder: Path, model: Any, tokenizer: Tokenizer, record: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    model.half().save_pretrained(str(folder))
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=WINDOW,
    )
    wrapped.save_pretrained(str(folder))
    (folder / "training.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
