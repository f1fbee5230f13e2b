"""Tries grammars out: in one helper process, one at a time, and remembers what came out."""

import asyncio
import hashlib
import json
import os
import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from models.errors import GrammarTooCostly, GrammarTrialsBusy

Kind = Literal["json", "structural_tag"]
HELPER = (sys.executable, "-m", "models.grammar.helper")
ROOT = Path(__file__).resolve().parents[2]
# A schema so small and plain costs less than its trial. What these keys ask for is counted or compiled by itself.
CHEAP_CHARS, CHEAP_MEMBERS = 8_000, 256
_DEAR = re.compile(
    r'"(?:pattern|patternProperties|format|m(?:in|ax)Length|(?:exclusiveM|m)(?:in|ax)imum)"\s*:'
)
MAX_REMEMBERED = 1024
MAX_WAITING = 16


@dataclass(frozen=True, slots=True)
class TrialTerms:
    """What a compile may take: seconds of one processor, and bytes of memory; and how long to wait at most where the
    processors are busy."""

    cpu_s: int = 10
    memory_bytes: int = 2**30
    wall_s: float = 120.0
    start_s: float = 120.0


class GrammarTrials:
    """Compiles grammars on trial. `tokenizer` gives xgrammar's serialized `TokenizerInfo` when the first is asked."""

    def __init__(
        self,
        tokenizer: Callable[[], str],
        *,
        any_whitespace: bool = True,
        terms: TrialTerms = TrialTerms(),
        helper: Sequence[str] = HELPER,
    ) -> None:
        self._tokenizer = tokenizer
        self._any_whitespace = any_whitespace
        self._terms = terms
        self._helper = helper
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._too_costly: OrderedDict[bytes, bool] = OrderedDict()

    async def check(self, kind: Kind, spec: str) -> None:
        """Return when the engine may have it. Raises `GrammarTooCostly`, or `GrammarTrialsBusy` for one that must wait
        behind too many, or that cannot be tried at all."""
        if is_cheap(spec):
            return
        key = hashlib.sha256(f"{kind}:{spec}".encode()).digest()
        if key not in self._too_costly:
            await self._in_turn(key, kind, spec)
        self._too_costly.move_to_end(key)
        if self._too_costly[key]:
            raise GrammarTooCostly(
                f"the schema takes more than {self._terms.cpu_s} s to compile; make it simpler"
            )

    async def close(self) -> None:
        """End the helper, if one runs."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
        if process is not None:
            await process.wait()

    async def _in_turn(self, key: bytes, kind: Kind, spec: str) -> None:
        if self._waiting >= MAX_WAITING:
            raise GrammarTrialsBusy("too many schemas wait to be compiled")
        self._waiting += 1
        try:
            async with self._turn:
                if key not in self._too_costly:
                    self._too_costly[key] = not await self._compiles(kind, spec)
        finally:
            self._waiting -= 1
        while len(self._too_costly) > MAX_REMEMBERED:
            self._too_costly.popitem(last=False)

    async def _compiles(self, kind: Kind, spec: str) -> bool:
        """Whether the helper lived to say how it went. A trial that is given up ends its helper."""
        job = {"kind": kind, "spec": spec, "any_whitespace": self._any_whitespace}
        done = False
        try:
            process = await self._running()
            async with asyncio.timeout(self._terms.wall_s):
                done = bool(await _ask(process, json.dumps(job)))
        except TimeoutError:
            raise GrammarTrialsBusy("the schema could not be compiled in time; the server is busy") from None
        finally:
            if not done:
                await asyncio.shield(self.close())
        return done

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            await self.close()
            self._process = await asyncio.create_subprocess_exec(
                *self._helper,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
            await self._begin(self._process)
        return self._process

    async def _begin(self, process: asyncio.subprocess.Process) -> None:
        terms = {
            "tokenizer": await asyncio.to_thread(self._tokenizer),
            "cpu_s": self._terms.cpu_s,
            "memory_bytes": self._terms.memory_bytes,
        }
        try:
            async with asyncio.timeout(self._terms.start_s):
                began = await _ask(process, json.dumps(terms))
        except TimeoutError:
            began = b""
        if not began:
            raise GrammarTrialsBusy("schemas cannot be compiled on trial: the process for it does not start")


async def _ask(process: asyncio.subprocess.Process, line: str) -> bytes:
    """Its answer, or nothing where it ended instead."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(line.encode() + b"\n")
        await process.stdin.drain()
        return await process.stdout.readline()
    except (BrokenPipeError, ConnectionResetError):
        return b""


def is_cheap(spec: str) -> bool:
    """Whether a grammar is too small and plain to cost anything; `spec` is JSON as Python writes it."""
    return len(spec) <= CHEAP_CHARS and spec.count(":") <= CHEAP_MEMBERS and not _DEAR.search(spec)
