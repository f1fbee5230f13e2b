"""Trains one embedded model from its recipe: the only file here that imports torch and transformers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from benchmarks.training.chat_models.conversations import Conversation, Turn
from benchmarks.training.chat_models.recipes import HEAD_SIZE, Recipe
from benchmarks.training.chat_models.tokenizer import END_OF_TEXT, TURN_END, TURN_START, VOCABULARY_SIZE

IGNORED = -100
TOKENS_PER_STEP = 2048
ROW_LENGTH = 512
LONG_ROW_LENGTH = 2048
LONG_ROWS_EVERY = 9
LOSS_CHUNK = 512
WARM_UP = 0.04
COOL_DOWN = 0.45
FINISHING_STEPS = 120
FINISHING_RATE = 0.3


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run. `loss` is a running mean, in nats per token."""

    step: int
    steps: int
    loss: float


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(folder)


def model_config(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> PretrainedConfig:
    """The Hugging Face configuration of a recipe; the embedding is tied to the output."""
    return AutoConfig.for_model(
        recipe.model_type,
        vocab_size=VOCABULARY_SIZE,
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.intermediate_size,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.key_value_heads,
        head_dim=HEAD_SIZE,
        max_position_embeddings=recipe.context_length,
        rope_parameters={"rope_type": "default", "rope_theta": recipe.rope_theta},
        tie_word_embeddings=True,
        attention_bias=recipe.model_type == "qwen2",
        bos_token_id=None,
        eos_token_id=tokenizer.convert_tokens_to_ids(TURN_END),
        pad_token_id=tokenizer.convert_tokens_to_ids(END_OF_TEXT),
    )


class _TiedLoss(torch.autograd.Function):  # torch leaves it untyped
    """Cross entropy against a tied embedding, in chunks that fit the cache.

    The whole matrix of logits would be 128 MiB, and writing it twice costs more than computing it.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, embedding: Tensor, targets: Tensor) -> Tensor:
        learnt = (targets != IGNORED).nonzero()[:, 0]
        all_hidden, hidden, targets = hidden, hidden[learnt], targets[learnt]
        weight = embedding.bfloat16()
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(embedding)
        total = torch.zeros(())
        for start in range(0, len(hidden), LOSS_CHUNK):
            piece = slice(start, start + LOSS_CHUNK)
            states = hidden[piece].bfloat16()
            log_p = F.log_softmax((states @ weight.T).float(), dim=-1)
            picked = targets[piece, None]
            total -= log_p.gather(1, picked).sum()
            slope = log_p.exp_()
            slope.scatter_add_(1, picked, torch.full(picked.shape, -1.0))
            slope16 = slope.bfloat16()
            grad_hidden[piece] = (slope16 @ weight).to(hidden.dtype)
            grad_weight += (slope16.T @ states).float()
        grad_all = torch.zeros_like(all_hidden).index_copy_(0, learnt, grad_hidden)
        ctx.save_for_backward(grad_all / len(hidden), grad_weight / len(hidden))
        return total / len(hidden)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        return grad_hidden * grads[0], grad_weight * grads[0], None


def _lesson(turn: Turn, tokenizer: PreTrainedTokenizerFast) -> tuple[list[int], list[int]]:
    """A turn's tokens, and the same with `IGNORED` for those that are not to be learnt."""
    text = tokenizer.apply_chat_template([{"role": turn.role, "content": turn.content}], tokenize=False)
    tokens: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    if turn.learn == "all":
        return tokens, tokens
    ending = 2  # the end of the turn and its newline
    opening = len(tokenizer.tokenize(f"{TURN_START}{turn.role}\n")) + 1
    first = {"none": len(tokens), "end": len(tokens) - ending, "rest": opening}[turn.learn]
    return tokens, [IGNORED] * first + tokens[first:]


def _rows(
    conversations: Iterator[Conversation], tokenizer: PreTrainedTokenizerFast, length: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Inputs and targets of `length` tokens. Each row starts with a conversation, as requests do."""
    tokens: list[int] = []
    targets: list[int] = []
    for conversation in conversations:
        for turn in conversation:
            more_tokens, more_targets = _lesson(turn, tokenizer)
            tokens += more_tokens
            targets += more_targets
        if len(tokens) > length:
            yield tokens[:length], targets[1 : length + 1]
            tokens, targets = [], []


def _optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
    """Muon for the matrices within layers, AdamW for the rest: it learns about twice as much a minute."""
    inner = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    outer = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    return [
        torch.optim.Muon(inner, lr=0.02, weight_decay=0.01),
        torch.optim.AdamW(outer, lr=0.004, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def _rate(step: int, steps: int) -> float:
    """A trapezoid: a short rise, a plateau, a long fall to a twentieth."""
    done = step / steps
    if done < WARM_UP:
        return (done + 1 / steps) / WARM_UP
    return 1.0 if done < 1 - COOL_DOWN else max(0.05, (1 - done) / COOL_DOWN)


def train_model(
    recipe: Recipe,
    steps: int,
    conversations: Iterator[Conversation],
    tokenizer: PreTrainedTokenizerFast,
    report: Callable[[Progress], None],
) -> PreTrainedModel:
    """Runs exactly `steps` steps of `TOKENS_PER_STEP` tokens from random weights and returns the model."""
    torch.manual_seed(recipe.seed)
    model = AutoModelForCausalLM.from_config(model_config(recipe, tokenizer))
    _run(model, [_rate(step, steps) for step in range(steps)], conversations, tokenizer, report)
    return model


def finish_model(
    model: PreTrainedModel,
    conversations: Iterator[Conversation],
    tokenizer: PreTrainedTokenizerFast,
    report: Callable[[Progress], None],
) -> PreTrainedModel:
    """Runs `FINISHING_STEPS` more at a low rate.

    It begins with weights rounded as in the file, so a written checkpoint can be finished again alike.
    """
    model = model.to(torch.bfloat16).to(torch.float32)
    rates = [FINISHING_RATE * (1 - step / FINISHING_STEPS) for step in range(FINISHING_STEPS)]
    _run(model, rates, conversations, tokenizer, report)
    return model


def _run(
    model: PreTrainedModel,
    rates: Sequence[float],
    conversations: Iterator[Conversation],
    tokenizer: PreTrainedTokenizerFast,
    report: Callable[[Progress], None],
) -> None:
    """One step for each of `rates`, which scale the optimizers' own; every ninth step has long rows."""
    torch.set_flush_denormal(True)
    embedding = model.get_input_embeddings().weight
    body = torch.compile(model.get_decoder(), dynamic=False)
    optimizers = _optimizers(model)
    own_rates = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    lengths = (ROW_LENGTH, min(LONG_ROW_LENGTH, model.config.max_position_embeddings))
    streams = [_rows(conversations, tokenizer, length) for length in lengths]
    mean = 0.0
    for step, scale in enumerate(rates):
        kind = int(step % LONG_ROWS_EVERY == LONG_ROWS_EVERY - 1)
        rows = [next(streams[kind]) for _ in range(TOKENS_PER_STEP // lengths[kind])]
        inputs, targets = (torch.tensor(part) for part in zip(*rows, strict=True))
        with torch.autocast("cpu", torch.bfloat16):
            hidden = body(input_ids=inputs, use_cache=False).last_hidden_state
        loss = _TiedLoss.apply(hidden.flatten(0, 1).float(), embedding, targets.flatten())
        loss.backward()
        for optimizer, rate in zip(optimizers, own_rates, strict=True):
            optimizer.param_groups[0]["lr"] = rate * scale
            optimizer.step()
            optimizer.zero_grad()
        mean = loss.item() if step == 0 else 0.95 * mean + 0.05 * loss.item()
        report(Progress(step + 1, len(rates), mean))


def save_checkpoint(model: PreTrainedModel, folder: Path) -> None:
    """Writes bfloat16 safetensors and the configuration; the loop penalty is the caller's to add."""
    model.to(torch.bfloat16).save_pretrained(folder, safe_serialization=True)
