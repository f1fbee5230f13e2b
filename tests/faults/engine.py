"""A fake engine that writes down each token before it hands it out, and that can be broken from outside."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Literal

from models.engine import EngineChunk, EngineRequest, PromptBound
from models.errors import EngineFailed, EngineUnavailable
from models.fake_engine import FakeEngine

Breakage = Literal["killed", "bug"]
# A prompt that ends so gets words of this many letters.
LONG_WORDS = "long-words"
LETTERS = 16_384


class FakeWitnessedEngine:
    """A fake. The first word of a prompt is its request's id, under which the witness file counts its tokens."""

    def __init__(self, folder: Path, *, token_s: float) -> None:
        self._engine = FakeEngine(token_s=token_s, first_token_s=token_s)
        self._long_winded = FakeEngine(text="w" * LETTERS, token_s=token_s, first_token_s=token_s)
        # Written without a buffer: what was written outlives a SIGKILL.
        self._witness = os.open(_witness(folder), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._switch = _switch(folder)

    async def ready(self) -> bool:
        return True

    def prompt_bound(self) -> PromptBound | None:
        return self._engine.prompt_bound()

    async def count_tokens(self, request: EngineRequest, *, beyond_context: bool = False) -> int:
        return await self._engine.count_tokens(request, beyond_context=beyond_context)

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        if self._switch.exists():
            raise EngineUnavailable("the fake engine is down", retry_after_s=1)
        prompt = str(request.messages[-1]["content"] if request.messages else request.prompts[0]).split()
        request_id = prompt[0]
        engine = self._long_winded if prompt[-1] == LONG_WORDS else self._engine
        engine.requests.clear()
        engine.aborted.clear()
        async with aclosing(engine.generate(request)) as chunks:
            async for chunk in chunks:
                self._break_down()
                os.write(self._witness, f"{request_id} {chunk.usage.completion_tokens}\n".encode())
                yield chunk

    def _break_down(self) -> None:
        if self._switch.exists():
            if self._switch.read_text() == "bug":
                raise RuntimeError("the fake engine raises what no engine may")
            raise EngineFailed("the fake engine was killed")


def break_engine(folder: Path, how: Breakage) -> None:
    """From now on every running request fails, and new ones find no engine."""
    fresh = _switch(folder).with_suffix(".new")
    fresh.write_text(how)
    fresh.rename(_switch(folder))


def is_broken(folder: Path) -> bool:
    return _switch(folder).exists()


def mend_engine(folder: Path) -> None:
    _switch(folder).unlink()


def witnessed_tokens(folder: Path) -> dict[str, int]:
    """By request id, how many tokens were generated at most."""
    most: dict[str, int] = {}
    if not _witness(folder).exists():
        return most
    for line in _witness(folder).read_text().splitlines():
        request_id, _, tokens = line.partition(" ")
        most[request_id] = max(most.get(request_id, 0), int(tokens))
    return most


def _witness(folder: Path) -> Path:
    return folder / "generated.txt"


def _switch(folder: Path) -> Path:
    return folder / "engine-is-broken"
