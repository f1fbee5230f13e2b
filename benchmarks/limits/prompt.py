"""Cost of compression inside chat to the HTTP process by itself, on its event loop, beside the compressors' work."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from benchmarks.limits.row import Row, Work
from compression.pipeline.compression_model import Receipt
from compression.source.units import Slice
from models.catalog import Capabilities
from models.options.messages import MAX_PARTS, MAX_REQUEST_PARTS, engine_messages
from serve.chat.request import ChatCompletionRequest
from serve.compress.request import CompressMessagesRequest
from serve.compressors.compressor import ServedCompressor
from serve.http.request_body import MAX_VALUES, parse_body
from serve.prompt_compression.blocks import JOINT, MOST_JOINED_CHARS, Block, cut, find_blocks
from serve.prompt_compression.compressed_chat import block_fields
from serve.prompt_compression.compressing import BlockCompressor
from serve.prompt_compression.options import PromptCompressionOptions, settings_of
from serve.prompt_compression.outcome import BlockOutcome, CompressedPrompt, Compression, ResultCache

BODY = 8 * 2**20
# What JSON has around the text of a marked part.
AROUND_BYTES = 60
# Of a part without a mark: an object, two keys and two values.
PART_VALUES = 5
CALLER: Any = SimpleNamespace(workspace_id="workspace", project_id="project")
CAPABLE = Capabilities()

Messages = list[dict[str, Any]]


class NoModel:
    """No model at all: what it would take is measured elsewhere."""


SERVED = ServedCompressor(NoModel(), 0.3, 2 * 2**20, 1)  # type: ignore[arg-type]
SETTINGS = settings_of(PromptCompressionOptions(min_tokens=1, mark_gaps=True), None, {"lexical": SERVED})


def marked(size: int, of: str = "word ") -> Messages:
    """As many marked parts as a chat may have, of `size` bytes together."""
    text = of * max(1, (size // MAX_REQUEST_PARTS - AROUND_BYTES) // len(of))
    parts = [{"type": "text", "text": text, "compress": True}] * MAX_PARTS
    return [{"role": "user", "content": parts}] * (MAX_REQUEST_PARTS // MAX_PARTS)


def tiny(size: int) -> Messages:
    return [{"role": "user", "content": [{"type": "text", "text": "a"}] * (size // PART_VALUES - 4)}]


MESSAGES: dict[str, tuple[str, int, Callable[[int], Messages]]] = {
    "2,048 marked parts of a chat": ("8 MiB", BODY, marked),
    "2,048 marked parts of a chat, each begins as JSON": ("8 MiB", BODY, partial(marked, of="[ ")),
}


def chat_of(name: str, size: int) -> Work:
    raw = json.dumps({"messages": MESSAGES[name][2](size)}).encode()

    def work() -> None:
        given = parse_body(raw, None, ChatCompletionRequest).message_fields()
        sent = engine_messages(given, capabilities=CAPABLE)
        compress(find_blocks(given, "marked")).rewritten(sent)

    return work


def compress_of(size: int) -> Work:
    raw = json.dumps({"messages": tiny(size)}).encode()

    def work() -> None:
        given = parse_body(raw, None, CompressMessagesRequest).messages
        compress(find_blocks(given, "all")).rewritten(given)

    return work


def compress(blocks: list[Block]) -> CompressedPrompt:
    """As if half of each text had been kept; what the reply says of it is written too."""
    known = BlockCompressor(ResultCache(0), 1.0, b"k" * 32).known(blocks, SETTINGS, CALLER, SERVED)
    prompt = CompressedPrompt(tuple(map(_compressed, known)))
    json.dumps([block_fields(outcome, None) for outcome in prompt.outcomes])
    return prompt


def _compressed(outcome: BlockOutcome) -> BlockOutcome:
    size = len(outcome.block.text)
    outputs = tuple(text[: len(text) // 2] for text in outcome.block.texts)
    return BlockOutcome(
        outcome.id, outcome.block, Compression(outputs, Receipt(size, size // 2, 0.5, 1.0, "characters", ()))
    )


def cut_back(size: int) -> Work:
    """Every other word was kept of parts that were compressed together: it is done for each block by itself."""
    texts = ["word " * (size // MAX_PARTS // 5)] * MAX_PARTS
    kept = [Slice(at, at + 5) for at in range(0, sum(len(text) + len(JOINT) for text in texts), 10)]
    return lambda: cut(texts, kept, mark_gaps=True)


PROMPT: tuple[Row, ...] = (
    *(
        Row("prompt", name, bound, most, partial(chat_of, name))
        for name, (bound, most, _) in MESSAGES.items()
    ),
    Row("prompt", "512 parts in one block", "256 K characters", MOST_JOINED_CHARS, cut_back),
    Row("prompt", "tiny parts of one message", f"{MAX_VALUES:,} values", MAX_VALUES, compress_of),
)
