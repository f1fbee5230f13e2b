"""Every step of a request's process, numbered, of which one may fail: statements of SQLite, what the engine and the
client are asked and told, and, in `seam.c`, changes of files and calls on sockets."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing, closing
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import event
from starlette.types import Message

from compression.pipeline.compression_model import (
    NO_TERMS,
    CompressionRequest,
    CompressionResult,
    JobTerms,
)
from compression.pipeline.errors import CompressionTimedOut, CompressorFailed
from models.engine import EngineChunk, EngineRequest
from models.errors import EngineFailed, EngineTimedOut, EngineUnavailable
from models.fake_engine import FakeEngine
from tests.power_loss.journal import NoCompiler
from tests.serve.compressing import ReadyModel
from tests.serve.served import Client

T = TypeVar("T")
SOURCE = Path(__file__).with_name("seam.c")
LABEL_CHARS = 150
# The exit status of a process that died as it was meant to.
DEAD = 9
PR_SET_PDEATHSIG = 1
# What nobody answers is given up after so long: an engine, and a client.
GIVEN_UP_S = 0.15


class How(IntEnum):
    """What a step may come to, as `seam.c` has it. `TIMEOUT`: it takes longer than anybody waits for it."""

    WELL = 0
    ERROR = 1
    LOST = 2
    TIMEOUT = 3
    DEATH_BEFORE = 4
    DEATH_AFTER = 5


@dataclass(frozen=True, order=True)
class Step:
    """The `nth` of its label in one run."""

    label: str
    nth: int

    def __str__(self) -> str:
        return f"{self.label}, time {self.nth}" if self.nth > 1 else self.label


def build(folder: Path) -> Path:
    """The library to preload. Raises `NoCompiler`."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NoCompiler("gcc was not found; install it (Debian: apt-get install gcc)")
    library = folder / "seam.so"
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl", "-lpthread"]
    subprocess.run(command, check=True, capture_output=True)
    return library


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(os.environ["LD_PRELOAD"])


def begin(folder: Path, journal: Path) -> None:
    """From now on steps are counted, and written down."""
    to = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    _library().seam_begin(str(folder).encode(), to)


def end() -> None:
    """No step is counted any more."""
    _library().seam_end()


def arm(step: Step, how: How) -> None:
    """Let it come to this."""
    _library().seam_arm(step.label.encode(), step.nth, int(how))


def release() -> None:
    """What nobody waits for any more goes on."""
    _library().seam_release()


def end_with_parent() -> None:
    """This process does not outlive the one that forked it, and says nothing."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)


def steps_of(journal: Path) -> tuple[list[Step], bool]:
    """In their order, and whether the one that was armed was among them."""
    found, hit = [], False
    for line in journal.read_text().splitlines():
        nth, mark, label = line.split("\t", 2)
        hit = hit or mark == "!"
        found.append(Step(label, int(nth)))
    return found, hit


def taken(label: str) -> How:
    """Counts the step; what is to come of it. Whoever calls this sees to all but its death before."""
    how = How(_library().seam_step(label.encode()))
    if how is How.DEATH_BEFORE:
        _library().seam_die()
    return how


def done(how: How) -> None:
    """The step was taken, and this is where its process dies where it is to."""
    if how is How.DEATH_AFTER:
        _library().seam_die()


def _statement(connection: CountedConnection, what: str, run: Callable[[], T]) -> T:
    how = taken(f"{connection.name}: {' '.join(what.split())}"[:LABEL_CHARS])
    if how is How.ERROR:
        raise sqlite3.OperationalError("disk I/O error")
    if how is How.TIMEOUT:
        _library().seam_wait()
    result = run()
    done(how)
    if how is How.LOST:
        raise sqlite3.OperationalError("disk I/O error")
    return result


class CountedCursor(sqlite3.Cursor):
    """Of a `CountedConnection`."""

    connection: CountedConnection

    def execute(self, sql: str, *parameters: Any) -> Any:
        return _statement(self.connection, sql, lambda: super(CountedCursor, self).execute(sql, *parameters))

    def executemany(self, sql: str, *parameters: Any) -> Any:
        return _statement(
            self.connection, sql, lambda: super(CountedCursor, self).executemany(sql, *parameters)
        )


class CountedConnection(sqlite3.Connection):
    """Every statement of SQLAlchemy, and those that bypass it, come through here."""

    def __init__(self, database: str, *arguments: Any, **options: Any) -> None:
        super().__init__(database, *arguments, **options)
        self.name = Path(database).name

    def cursor(self, factory: Any = CountedCursor) -> Any:
        return super().cursor(factory)

    def execute(self, *statement: Any) -> Any:
        return self.cursor().execute(*statement)

    def executemany(self, *statement: Any) -> Any:
        return self.cursor().executemany(*statement)

    def commit(self) -> None:
        if self.in_transaction:
            _statement(self, "COMMIT", super().commit)

    def rollback(self) -> None:
        if self.in_transaction:
            _statement(self, "ROLLBACK", super().rollback)


@event.listens_for(SqlEngine, "do_connect")
def _count(dialect: Any, _: Any, arguments: Any, options: dict[str, Any]) -> None:
    if dialect.name == "sqlite":
        options["factory"] = CountedConnection


class CountedEngine(FakeEngine):
    """A fake engine whose requests and chunks are steps. `on_asked` is called with each request."""

    on_asked: Callable[[], None] = staticmethod(lambda: None)

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        self.on_asked()
        how = taken("the engine is asked")
        if how is How.ERROR:
            raise EngineUnavailable("nobody is there", retry_after_s=1)
        await _given_up(how, EngineTimedOut("the engine said nothing", retry_after_s=1))
        done(how)
        async with aclosing(super().generate(request)) as chunks:
            async for chunk in chunks:
                now = taken("the engine says something")
                # The request was taken, and its engine died at once; or now it dies.
                if how is How.LOST or now is How.ERROR:
                    raise EngineFailed("the engine broke off")
                await _given_up(now, EngineFailed("the engine went silent"))
                yield chunk
                done(now)
                if now is How.LOST:
                    raise EngineFailed("the engine broke off")


class CountedCompressor(ReadyModel):
    """A real compressor whose requests are steps."""

    async def compress(self, request: CompressionRequest, terms: JobTerms = NO_TERMS) -> CompressionResult:
        return await _asked("the compressor is asked", super().compress(request, terms))

    async def count_tokens(self, text: str, terms: JobTerms = NO_TERMS) -> int:
        return await _asked("the compressor counts", super().count_tokens(text, terms))


async def _asked(label: str, answer: Coroutine[Any, Any, T]) -> T:
    how = taken(label)
    with closing(answer):
        if how is How.ERROR:
            raise CompressorFailed("the compressor was gone")
        await _given_up(how, CompressionTimedOut("the compressor said nothing"))
        result = await answer
    done(how)
    if how is How.LOST:
        raise CompressorFailed("the compressor was gone at the end")
    return result


async def _given_up(how: How, error: Exception) -> None:
    if how is How.TIMEOUT:
        await asyncio.sleep(GIVEN_UP_S)
        raise error


@dataclass(repr=False)
class CountedClient(Client):
    """A client, each of whose messages is a step. One that fails is the last: the server learns that it has gone."""

    told: Callable[[Mapping[str, Any]], None] = field(default=lambda _: None)

    async def receive(self) -> Message:
        if self.read == len(self.pieces) or self.gone.is_set():
            return await super().receive()
        how = taken("a part of the request comes")
        await self._leave(how)
        message = await super().receive()
        done(how)
        if how is How.LOST:
            self.gone.set()
        return message

    async def send(self, message: Message) -> None:
        # As a server drops what is sent to a client that has gone.
        if self.gone.is_set():
            return
        how = taken(
            "the reply begins" if message["type"].endswith("start") else "a part of the reply is sent"
        )
        await self._leave(how)
        if self.gone.is_set():
            return
        await super().send(message)
        self.told(message)
        done(how)
        if how is How.LOST:
            self.gone.set()

    async def _leave(self, how: How) -> None:
        if how is How.TIMEOUT:
            await asyncio.sleep(GIVEN_UP_S)
        if how in (How.ERROR, How.TIMEOUT):
            self.gone.set()
            await asyncio.sleep(0)
