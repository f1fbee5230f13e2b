"""Counts prompts that may be longer than the context, such as a conversation before it is compressed to fit.

vLLM refuses them unread: tokenizing megabytes takes seconds, gigabytes, and the thread on which every prompt is
tokenized. Here such a text is tokenized in pieces: other prompts have their turn between two of them, a count that is
given up ends there, and no token is kept.
"""

import asyncio
import copy
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

# A few hundredths of a second: what another prompt waits at most.
PIECE_CHARS = 64 * 1024
# Where a piece may end: this far from its end, or anywhere if there is no good place.
SEARCHED_CHARS = 4096
# After a line, or before a space between words. Byte-level tokenizers split there before they merge anything: their
# pieces have exactly the tokens of the whole. For others a cut may cost a token.
_BOUNDARY = re.compile(r"(?<=\S\n)(?=\w)|(?<=\w)(?= \w)")


def without_a_limit(online_renderer: Any, turns: asyncio.Lock) -> Any:
    """vLLM's `OnlineRenderer`, for prompts of any length whose tokens are only counted.

    `turns` is shared by all that count: a piece of each in turn.
    """
    renderer = copy.copy(online_renderer.renderer)
    whole = renderer.tokenize_prompt_async

    async def tokenized(prompt: Any, params: Any) -> Any:
        params = replace(params, max_total_tokens=None)
        text = prompt.get("prompt")
        if not isinstance(text, str) or prompt.keys() - {"prompt"}:
            # Media, or tokens already.
            return await whole(prompt, params)
        tokens = 0
        for piece in pieces_of(text):
            async with turns:
                tokens += len((await whole({"prompt": piece}, params))["prompt_token_ids"])
        return {"prompt_token_ids": range(tokens)}

    renderer.tokenize_prompt_async = tokenized
    found = copy.copy(online_renderer)
    found.renderer = renderer
    return found


def one_at_a_time(online_renderer: Any) -> Any:
    """vLLM's `OnlineRenderer`, for requests of many prompts: it tokenizes one after the other, and another request's
    prompt has its turn between two of them."""
    renderer = copy.copy(online_renderer.renderer)
    tokenize, turns = renderer.tokenize_prompt_async, asyncio.Lock()

    async def tokenized(prompt: Any, params: Any) -> Any:
        async with turns:
            return await tokenize(prompt, params)

    renderer.tokenize_prompt_async = tokenized
    found = copy.copy(online_renderer)
    found.renderer = renderer
    return found


def pieces_of(text: str, *, chars: int = PIECE_CHARS) -> Iterator[str]:
    """The text in pieces of at most so many characters; at least one."""
    start = 0
    while len(text) - start > chars:
        end = _boundary(text, start, start + chars)
        yield text[start:end]
        start = end
    yield text[start:]


def _boundary(text: str, start: int, end: int) -> int:
    """The last good place to cut before `end`; else `end`."""
    places = _BOUNDARY.finditer(text, max(start + 1, end - SEARCHED_CHARS), end)
    return max((place.start() for place in places), default=end)
