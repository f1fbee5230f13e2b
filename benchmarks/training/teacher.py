"""The sentence encoder that the token embeddings are distilled from; the only file here that loads transformers."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from rich.progress import track
from transformers import AutoModel, AutoTokenizer

from benchmarks.evaluation.minilm import encoder_checkpoint
from benchmarks.training.artefact import sha256
from compression.features.layout import Floats
from compression.features.meaning import normalised


def find_teacher(folder: Path | None) -> Path:
    """The folder given, or the one inside the installed package. Raises `FileNotFoundError` and `NoEncoder`."""
    folder = folder or encoder_checkpoint()
    if not (folder / "model.safetensors").is_file():
        raise FileNotFoundError(f"no teacher: {folder} holds no model.safetensors")
    return folder


class Teacher:
    """all-MiniLM-L6-v2, or another encoder of its shape: mean pooling over the last hidden states."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.weights_sha256 = sha256(folder / "model.safetensors")
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder, use_safetensors=True).eval()

    def vocabulary(self) -> list[str]:
        """Pieces in the order of their ids."""
        ids: dict[str, int] = self.tokenizer.get_vocab()
        return sorted(ids, key=ids.__getitem__)

    def embed_tokens(self, batch: int = 1024) -> Floats:
        """Each piece of the vocabulary by itself, between the special tokens, mean-pooled: (vocabulary, width)."""
        first, last = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        rows = []
        for start in track(range(0, self.tokenizer.vocab_size, batch), "pieces through the teacher"):
            pieces = torch.arange(start, min(start + batch, self.tokenizer.vocab_size))
            ids = torch.stack([torch.full_like(pieces, first), pieces, torch.full_like(pieces, last)], dim=1)
            rows.append(self._pool(ids, torch.ones_like(ids)))
        return np.concatenate(rows)

    def embed_texts(self, texts: Sequence[str], batch: int = 64) -> Floats:
        """Sentences as the encoder gives them, of length one: (texts, width)."""
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        out = np.zeros((len(texts), self.model.config.hidden_size), np.float32)
        for start in track(range(0, len(order), batch), "sentences through the teacher"):
            chosen = order[start : start + batch]
            ready = self.tokenizer(
                [texts[index] for index in chosen],
                padding=True,
                truncation=True,
                max_length=128,
                return_tensors="pt",
            )
            out[chosen] = self._pool(ready["input_ids"], ready["attention_mask"])
        return normalised(out)

    def _pool(self, ids: torch.Tensor, mask: torch.Tensor) -> Floats:
        with torch.inference_mode():
            states = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
            weight = mask.unsqueeze(-1).to(states.dtype)
            return np.asarray(((states * weight).sum(1) / weight.sum(1)).numpy(), np.float32)
