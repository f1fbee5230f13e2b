"""Cost of a caller's text, each hostile one through the whole lexical compressor, and of a query."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from benchmarks.limits.inputs import HOSTILE, hostile_of
from benchmarks.limits.row import Row, Work
from benchmarks.load.text import made_up
from compression.build import load_counter
from compression.pipeline.compression_model import CompressionRequest
from compression.pipeline.pipeline import Compressor, Pipeline
from compression.pipeline.spec import CompressionSettings
from compression.scorers.lexical import LexicalScorer

TOKENIZER = Path("models/embedded/tokenizer")
SETTINGS = CompressionSettings()
QUERY = "Who was it that ignored the 3 new instructions, and why?"
RATIO = 0.5


@cache
def compressor() -> Compressor:
    return Compressor(
        LexicalScorer.load(), Pipeline(load_counter(str(TOKENIZER), name="pith-mini"), SETTINGS)
    )


def text_of(name: str, size: int) -> Work:
    return _compress(QUERY, hostile_of(name, size))


def query_of_distinct_words(size: int) -> Work:
    """A query of `size` characters, each word another, over a text of two megabytes that has all of them."""
    query = "".join(f"{n:x} " for n in range(5000))[:size]
    return _compress(query, hostile_of("the query's own words", SETTINGS.longest_input_bytes))


def query_of_absent_words(size: int) -> Work:
    query = "".join(f"q{n:x} " for n in range(5000))[:size]
    return _compress(query, made_up(SETTINGS.longest_input_bytes)[: SETTINGS.longest_input_bytes])


def ordinary_text(size: int) -> Work:
    return _compress(QUERY, made_up(size)[:size])


def _compress(query: str, text: str) -> Work:
    ready = compressor()
    request = CompressionRequest(query, text, RATIO)
    # What is loaded or made on first use is no cost of this input.
    ready.compress(CompressionRequest(query, "One thing. Another thing.", RATIO))
    return lambda: ready.compress(request)


def _texts() -> list[Row]:
    bound = f"{SETTINGS.longest_input_bytes:,} bytes"
    prepare: dict[str, Callable[[int], Work]] = {name: partial(text_of, name) for name in HOSTILE}
    return [Row("text", name, bound, SETTINGS.longest_input_bytes, work) for name, work in prepare.items()]


_QUERY_BOUND = f"{SETTINGS.longest_query_chars:,} characters"
COMPRESSION: tuple[Row, ...] = (
    Row(
        "text",
        "ordinary sentences",
        f"{SETTINGS.longest_input_bytes:,} bytes",
        SETTINGS.longest_input_bytes,
        ordinary_text,
    ),
    *_texts(),
    Row("query", "distinct words", _QUERY_BOUND, SETTINGS.longest_query_chars, query_of_distinct_words),
    Row(
        "query",
        "words that the text lacks",
        _QUERY_BOUND,
        SETTINGS.longest_query_chars,
        query_of_absent_words,
    ),
)
