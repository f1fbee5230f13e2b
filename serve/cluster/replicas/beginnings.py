"""Beginnings of prompts, as all processes know them: a key for each, a block longer each time.

Ingress and replica work them out of the same request, and compare them. They are CRCs, so that they are the same in
every process and cost no more than a `hash`: what two prompts with one key would suffer is a replica that has less of
the second one than was thought. Workspaces share no key, as they share no cache: CRCs of the same text differ wherever
those of the salts do.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any
from zlib import crc32

from models.engine import EngineRequest

# About the tokens of two of vLLM's blocks; it caches whole blocks only.
BLOCK_BYTES = 128
# Prompts that are alike for so long, and differ after it, are taken for the same.
MOST_BYTES = 2**15
MOST_KEYS = MOST_BYTES // BLOCK_BYTES
# Of a prompt that is given as tokens.
MOST_TOKENS = 2**12


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
    for piece in chain(_messages(request), _prompt(request)):
        pieces.append(piece[:room])
        room -= len(piece)
        if room <= 0:
            break
    return "".join(pieces).encode(errors="surrogatepass")[:MOST_BYTES]


def _messages(request: EngineRequest) -> Iterator[str]:
    for message in request.messages:
        yield f"{message.get('role')}:"
        content = message.get("content")
        if isinstance(content, str):
            yield content
        else:
            yield from _strings(content)
        yield ";"


def _strings(value: Any) -> Iterator[str]:
    """All strings in it: of a content's parts, whatever they are."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, Sequence):
        for each in value:
            yield from _strings(each)


def _prompt(request: EngineRequest) -> Iterator[str]:
    for prompt in request.prompts[:1]:
        yield prompt if isinstance(prompt, str) else str(prompt[:MOST_TOKENS])
