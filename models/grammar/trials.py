"""Tries grammars out: in one helper process, one at a time, payers in turn, and remembers what came out."""

import asyncio
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Protocol
from weakref import WeakValueDictionary

from cachetools import LRUCache

from models.engine import EngineRequest
from models.errors import GrammarRefused, GrammarTooCostly, GrammarTrialsBusy
from models.grammar.helper import LARGE, OK, REFUSED, SLOW, SLOW_TO_FOLLOW, SLOW_TO_READ

Kind = Literal["json", "structural_tag", "regex", "grammar"]
HELPER = (sys.executable, "-m", "models.grammar.helper")
ROOT = Path(__file__).resolve().parents[2]
# A schema so small and plain costs less than its trial. What these keys ask for is counted or compiled by itself.
CHEAP_CHARS, CHEAP_MEMBERS = 4_000, 32
_DEAR = re.compile(
    r'"(?:pattern|patternProperties|format|m(?:in|ax)(?:Length|Properties)|(?:exclusiveM|m)(?:in|ax)imum'
    r'|propertyNames|(?:additional|unevaluated)Properties(?="\s*:\s*[^f\s]))"\s*:'
)
_TEXT = r'"(?:[^"\\]|\\.)*+"'
_CHOICE = re.compile(rf"root ::= {_TEXT}(?: \| {_TEXT})*+", re.DOTALL)
# Of each payer: nobody's results are forgotten for another's, and nobody learns from the time what others have asked.
MAX_REMEMBERED = 128
MAX_PAYERS = 1024


@dataclass(frozen=True, slots=True)
class TrialTerms:
    """Limits of a trial: seconds of one processor, to read the grammar, in all, and for a token; bytes of memory; and
    the longest wait where the processors are busy."""

    read_s: float = 0.1
    token_s: float = 0.002
    cpu_s: float = 0.5
    memory_bytes: int = 2**29
    wall_s: float = 30.0
    start_s: float = 120.0


class TrialTurns(Protocol):
    """The queue of trials: given to this package, which has none of its own."""

    def turn(self, request: EngineRequest) -> AbstractAsyncContextManager[None]:
        """Entered when it is the turn of the request's payer. Raises `GrammarTrialsBusy`."""


class GrammarTrials:
    """Compiles grammars on trial. `tokenizer` gives xgrammar's serialized `TokenizerInfo` when the first is asked."""

    def __init__(
        self,
        tokenizer: Callable[[], str],
        turns: TrialTurns,
        *,
        any_whitespace: bool = True,
        terms: TrialTerms = TrialTerms(),
        helper: Sequence[str] = HELPER,
    ) -> None:
        self._turns = turns
        self._any_whitespace = any_whitespace
        self._terms = terms
        self._helper = _Helper(helper, tokenizer, terms)
        self._outcomes: LRUCache[str, LRUCache[bytes, str]] = LRUCache(MAX_PAYERS)
        # Held while one is tried: those who ask for the same wait for its outcome, and not for a turn.
        self._trying: WeakValueDictionary[tuple[str, bytes], asyncio.Lock] = WeakValueDictionary()

    async def check(self, kind: Kind, spec: str, request: EngineRequest) -> None:
        """Return when the engine may have it. Raises `GrammarTooCostly`, `GrammarRefused` for one that is malformed, or
        `GrammarTrialsBusy` for one that must wait behind too many, or that cannot be tried at all."""
        if is_cheap(kind, spec):
            return
        payer, key = request.project_id, hashlib.sha256(f"{kind}:{spec}".encode()).digest()
        trying = self._trying.setdefault((payer, key), asyncio.Lock())
        async with trying:
            outcome = self._outcomes_of(payer).get(key)
            if outcome is None:
                async with self._turns.turn(request):
                    outcome = await self._tried(kind, spec)
                self._outcomes_of(payer)[key] = outcome
        if outcome.startswith(REFUSED):
            # Of a schema the engine says it in its own words, or has another library for it.
            if kind in ("regex", "grammar"):
                raise GrammarRefused(outcome.removeprefix(REFUSED).strip())
        elif outcome != OK:
            raise GrammarTooCostly(self._message(outcome))

    async def close(self) -> None:
        """End the helper, if one runs."""
        await self._helper.close()

    def _outcomes_of(self, payer: str) -> LRUCache[bytes, str]:
        return self._outcomes.setdefault(payer, LRUCache(MAX_REMEMBERED))

    async def _tried(self, kind: Kind, spec: str) -> str:
        """One that has begun ends, also where its client has left: until then its payer's turn is not over."""
        job = {"kind": kind, "spec": spec, "any_whitespace": self._any_whitespace}
        trial = asyncio.ensure_future(self._helper.tried(job))
        # Of one that nobody waits for any more.
        trial.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        try:
            return await asyncio.shield(trial)
        except asyncio.CancelledError:
            await asyncio.wait({trial})
            raise

    def _message(self, outcome: str) -> str:
        terms = self._terms
        takes = {
            SLOW: f"takes more than {terms.cpu_s:g} s of a processor to compile",
            SLOW_TO_READ: f"takes more than {terms.read_s:g} s of a processor to read",
            SLOW_TO_FOLLOW: f"takes more than {terms.token_s * 1000:g} ms of a processor for each token",
            LARGE: f"takes more than {terms.memory_bytes >> 20} MiB of memory to compile",
        }
        return (
            f"the grammar of the reply {takes[outcome]} for this model; make it simpler: what costs most are "
            "repetitions ({m,n}, .*), ambiguous rules, maxLength, pattern, format, and additionalProperties beside "
            "optional ones"
        )


class _Helper:
    """The process of `models.grammar.helper`, started when it is needed. It is asked one thing at a time."""

    def __init__(self, program: Sequence[str], tokenizer: Callable[[], str], terms: TrialTerms) -> None:
        self._program = program
        self._tokenizer = tokenizer
        self._terms = terms
        self._process: asyncio.subprocess.Process | None = None
        self._asking = asyncio.Lock()

    async def tried(self, job: object) -> str:
        """The outcome. Raises `GrammarTrialsBusy` where there is none in time."""
        async with self._asking:
            outcome = b""
            try:
                process = await self._running()
                async with asyncio.timeout(self._terms.wall_s):
                    outcome = await _ask(process, json.dumps(job))
            except TimeoutError:
                pass
            finally:
                if not outcome:
                    await asyncio.shield(self.close())
        if not outcome:
            raise GrammarTrialsBusy("the grammar could not be compiled in time; the server is busy")
        return outcome.decode().strip()

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
        if process is not None:
            await process.wait()

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            await self.close()
            self._process = await asyncio.create_subprocess_exec(
                *self._program,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
            await self._begin(self._process)
        return self._process

    async def _begin(self, process: asyncio.subprocess.Process) -> None:
        terms = asdict(self._terms) | {"tokenizer": await asyncio.to_thread(self._tokenizer)}
        try:
            async with asyncio.timeout(self._terms.start_s):
                began = await _ask(process, json.dumps(terms))
        except TimeoutError:
            began = b""
        if not began:
            raise GrammarTrialsBusy("grammars cannot be compiled on trial: the process for it does not start")


async def _ask(process: asyncio.subprocess.Process, line: str) -> bytes:
    """Its answer, or nothing where it ended instead."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(line.encode() + b"\n")
        await process.stdin.drain()
        return await process.stdout.readline()
    except (BrokenPipeError, ConnectionResetError):
        return b""


def is_cheap(kind: Kind, spec: str) -> bool:
    """True for a grammar too small and plain to cost anything: a schema, as JSON that Python writes, or a choice."""
    if len(spec) > CHEAP_CHARS:
        return False
    if kind in ("regex", "grammar"):
        return kind == "grammar" and _CHOICE.fullmatch(spec) is not None
    return spec.count(":") <= CHEAP_MEMBERS and not _DEAR.search(spec)
