"""Beginnings of prompts that a replica has cached: their keys, the account of them, and what ingresses are told of it.

Ingress and replica work the keys out of the same request, and compare them. They are CRCs, so that they are the same in
every process and cost no more than a `hash`: what two prompts with one key would suffer is a replica that has less of
the second one than was thought. Workspaces share no key, as they share no cache: CRCs of the same text differ wherever
those of the salts do.

All requests of all HTTP processes meet in the replica, and every reply says how many of its prompt's tokens were found
in the cache. What was read is cached; what is cached and used last goes last where there is no more room, as in vLLM.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any
from zlib import crc32

from models.engine import EngineRequest, TokenUsage

# About the tokens of two of vLLM's blocks; it caches whole blocks only.
BLOCK_BYTES = 128
# Prompts that are alike for so long, and differ after it, are taken for the same.
MOST_BYTES = 2**15
MOST_KEYS = MOST_BYTES // BLOCK_BYTES
# Of a prompt that is given as tokens.
MOST_TOKENS = 2**12
# Of a part of a content.
MOST_FIELDS = 8
# Whatever the engine has room for: a key takes some 100 bytes here and in each ingress.
MOST_KNOWN = 100_000
# Found in the cache are whole blocks, of up to 128 tokens, and a prompt's tokens are not spread evenly over its text.
UNSURE_TOKENS, UNSURE_SHARE = 256, 1 / 8
# Of the names and descriptions of tools, which templates put at the beginning.
MOST_OF_TOOLS = 2**12
# A cache may hold more than its engine says, with blocks in the machine's memory; but measured is what prompts have in
# common, also where their text does not show it.
MOST_ROOM = 4


def beginnings(request: EngineRequest) -> list[int]:
    """Keys of a prompt's beginnings, the shortest first; none for a prompt shorter than a block."""
    whose = f"{request.cache_salt}\0{request.model_id}\0{request.adapter_folder}"
    text, so_far, keys = _text(request), crc32(whose.encode()), []
    for end in range(BLOCK_BYTES, len(text) + 1, BLOCK_BYTES):
        so_far = crc32(text[end - BLOCK_BYTES : end], so_far)
        keys.append(so_far)
    return keys


def _text(request: EngineRequest) -> bytes:
    """The beginning of its messages and its first prompt. Nobody reads on where a caller has sent more."""
    pieces, room = [], MOST_BYTES
    for piece in chain(_tools(request), _messages(request), _prompt(request)):
        pieces.append(piece[:room])
        room -= len(piece)
        if room <= 0:
            break
    return "".join(pieces).encode(errors="surrogatepass")[:MOST_BYTES]


def _tools(request: EngineRequest) -> Iterator[str]:
    room = MOST_OF_TOOLS
    for tool in request.options.get("tools") or ():
        function = tool.get("function") or {}
        piece = f"{function.get('name')}:{function.get('description')};"[:room]
        yield piece
        room -= len(piece)
        if not room:
            break


def _messages(request: EngineRequest) -> Iterator[str]:
    for message in request.messages:
        yield f"{message.get('role')}:"
        content = message.get("content")
        if isinstance(content, str):
            yield content
        else:
            for part in content or ():
                yield from _strings(part)
        yield ";"


def _strings(part: Mapping[str, Any]) -> Iterator[str]:
    """The text of a part, or the address of its image: of its fields, and of what lies in them."""
    yield ","
    for value in islice(part.values(), MOST_FIELDS):
        inner = islice(value.values(), MOST_FIELDS) if isinstance(value, Mapping) else (value,)
        yield from (each for each in inner if isinstance(each, str))


def _prompt(request: EngineRequest) -> Iterator[str]:
    for prompt in request.prompts[:1]:
        if isinstance(prompt, str):
            yield prompt
        else:
            yield array("I", (token % 2**32 for token in prompt[:MOST_TOKENS])).tobytes().decode("latin-1")


class CacheContents:
    """Beginnings that are cached, with the tokens of each block; the last used are at the end.

    To be used in one event loop. `room_tokens`: what the cache holds, where the engine says so.
    """

    def __init__(self, room_tokens: int | None = None, *, most_known: int = MOST_KNOWN) -> None:
        self._room_tokens = self._said_tokens = room_tokens
        self._most_known = most_known
        self._tokens: OrderedDict[int, float] = OrderedDict()
        self._held = 0.0
        self._listeners: set[Changes] = set()

    def __len__(self) -> int:
        return len(self._tokens)

    def read(self, keys: Sequence[int], usage: TokenUsage) -> None:
        """The engine has read a prompt with these beginnings; `usage` has its tokens, and those that were cached."""
        if not keys:
            return
        share = usage.prompt_tokens / len(keys)
        added, known_tokens = [], 0.0
        # The longest first, as vLLM does: the shorter, which more prompts share, go last.
        for key in reversed(keys):
            before = self._tokens.pop(key, None)
            if before is None:
                added.append(key)
            else:
                self._held -= before
                known_tokens += share
            self._tokens[key] = share
        self._held += usage.prompt_tokens
        self._tell(added, self._corrected(known_tokens, usage))

    def _corrected(self, known_tokens: float, usage: TokenUsage) -> list[int]:
        """Drop what has gone; `known_tokens` were thought to be cached."""
        most_held = self._held
        unsure = UNSURE_TOKENS + UNSURE_SHARE * usage.prompt_tokens
        if usage.cached_tokens < known_tokens - unsure:
            # What had gone was read again, and took the place of something else.
            most_held = max(usage.prompt_tokens, self._held - (known_tokens - usage.cached_tokens))
        if self._room_tokens is not None and self._said_tokens is not None:
            if usage.cached_tokens > known_tokens + unsure:
                # There is more room than was said, as with blocks that were moved to the machine's memory.
                found = self._room_tokens + int(usage.cached_tokens - known_tokens)
                self._room_tokens = min(found, MOST_ROOM * self._said_tokens)
            most_held = min(most_held, self._room_tokens)
        return self._drop(most_held)

    def _drop(self, most_held: float) -> list[int]:
        """Drop the oldest until no more is held than may be."""
        dropped = []
        while self._tokens and (self._held > most_held or len(self._tokens) > self._most_known):
            key, tokens = self._tokens.popitem(last=False)
            self._held -= tokens
            dropped.append(key)
        return dropped

    def clear(self) -> None:
        """The engine was started again."""
        dropped = list(self._tokens)
        self._tokens.clear()
        self._held = 0.0
        self._tell([], dropped)

    def _tell(self, added: Sequence[int], dropped: Sequence[int]) -> None:
        for listener in self._listeners:
            listener.note(added, dropped)

    @contextmanager
    def listener(self) -> Iterator[Changes]:
        """Is told all that is cached, and from then on every change."""
        listener = Changes(self._tokens, most=3 * self._most_known)
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)


class TooSlow(Exception):
    """More has changed than a listener may have waiting for it: it may begin again."""


class Changes:
    """Changes that one ingress has not been told yet."""

    def __init__(self, cached: Iterable[int], *, most: int) -> None:
        self._most = most
        self._is_cached = dict.fromkeys(cached, True)
        self._is_too_slow = False
        self._any = asyncio.Event()
        # That nothing is cached is told as well.
        self._any.set()

    def note(self, added: Iterable[int], dropped: Iterable[int]) -> None:
        self._is_cached.update(dict.fromkeys(added, True))
        self._is_cached.update(dict.fromkeys(dropped, False))
        if len(self._is_cached) > self._most:
            self._is_too_slow = True
            self._is_cached.clear()
        if self._is_cached or self._is_too_slow:
            self._any.set()

    async def next(self) -> tuple[list[int], list[int]]:
        """Keys added and keys dropped since the last call, once there are any. Raises `TooSlow`."""
        await self._any.wait()
        return self.take()

    def take(self) -> tuple[list[int], list[int]]:
        """The same without waiting for any."""
        if self._is_too_slow:
            raise TooSlow
        self._any.clear()
        changed, self._is_cached = self._is_cached, {}
        added = [key for key, is_cached in changed.items() if is_cached]
        return added, [key for key, is_cached in changed.items() if not is_cached]
