"""Programs of workers, by kind of model: a part that is loaded once, before they are forked, and each worker's own."""

import asyncio
import importlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from compression.build import build_model, load_counter, plain_compressor, plain_scorer
from compression.pipeline.compression_model import (
    UNEXPECTED,
    CompressionFault,
    CompressionRequest,
    as_value,
    done,
    fault_of,
)
from compression.pipeline.spec import ModelSpec
from compression.retrieval.job import EncoderSpec
from compression.retrieval.plain import PlainRetrieval
from compression.scorers.lexical import LexicalScorer
from compression.workers.messages import (
    Compress,
    Compressed,
    Count,
    Counted,
    Done,
    Failed,
    Frame,
    Hello,
    Job,
    Retrieve,
    Retrieved,
    job_of,
    packed,
    read,
    read_from,
)

log = logging.getLogger(__name__)
_READ_BYTES = 2**20


def work_in_turn(peer: socket.socket, handle: Callable[[bytes], bytes]) -> None:
    """One at a time: to end a job, kill the process. `handle` must not raise."""
    peer.sendall(hello())
    while (job := read_from(peer)) is not None:
        peer.sendall(Frame(job.number, handle(job.payload)).packed())


async def work_together(peer: socket.socket, handle: Callable[[bytes], Awaitable[bytes]]) -> None:
    """As many as are sent. A job that is cancelled ends when its `handle` does."""
    reader, writer = await asyncio.open_unix_connection(sock=peer, limit=_READ_BYTES)
    writer.write(hello())
    running: dict[int, asyncio.Task[None]] = {}

    async def work(number: int, payload: bytes) -> None:
        try:
            answer = await handle(payload)
        except asyncio.CancelledError:
            answer = b""
        except Exception:
            log.exception("a job failed unexpectedly")
            answer = packed(Failed(UNEXPECTED))
        writer.write(Frame(number, answer).packed())
        del running[number]

    while (job := await read(reader)) is not None:
        if job.payload:
            running[job.number] = asyncio.create_task(work(*job))
        elif (cancelled := running.get(job.number)) is not None:
            cancelled.cancel()


def hello(cannot: str | None = None) -> bytes:
    return Frame(0, packed(Hello(os.getpid(), cannot))).packed()


# A first request, so that the workers inherit whatever is built lazily.
_FIRST = Compress(
    CompressionRequest("Who chose it?", "# Title\n\nThe committee chose it in 1999.\n\nNobody minded.", 0.5)
)


def plain(spec: ModelSpec) -> Callable[[socket.socket], None]:
    """The weights and the tokenizer are shared; a worker has one job at a time."""
    counter = load_counter(spec.tokenizer, name=spec.tokenizer_name)
    scorer = plain_scorer(spec)
    compressor = plain_compressor(spec, counter, scorer)
    retrieval = PlainRetrieval(scorer, counter) if isinstance(scorer, LexicalScorer) else None

    def work(job: Job) -> Done:
        if isinstance(job, Count):
            return Counted(counter.count(job.text))
        if isinstance(job, Compress):
            return Compressed(compressor.compress(job.request))
        if retrieval is None:
            raise TypeError(f"a model of kind {spec.kind} retrieves nothing")
        return Retrieved(retrieval.do(job.job))

    def handle(payload: bytes) -> bytes:
        return handled(lambda: work(job_of(payload)))

    handle(packed(_FIRST))
    return lambda peer: work_in_turn(peer, handle)


def handled(work: Callable[[], Done]) -> bytes:
    """The answer, or the fault."""
    try:
        return packed(work())
    except Exception as error:
        return packed(Failed(fault_of(error)))


def neural(spec: ModelSpec) -> Callable[[socket.socket], None]:
    """Torch is shared, the network is each worker's: its threads would not outlive a fork."""
    if spec.device == "cpu":
        # Seconds of imports, and no more: what starts threads must wait for the fork. For a GPU not even those, since
        # CUDA does not survive a fork, and merely asking for a GPU initialises it.
        importlib.import_module("compression.neural.build")
    counter = load_counter(spec.tokenizer, name=spec.tokenizer_name)

    def run(peer: socket.socket) -> None:
        try:
            model = build_model(spec)
        except Exception as error:
            return peer.sendall(hello(f"{type(error).__name__}: {error}"))
        counting = ThreadPoolExecutor(1, thread_name_prefix="count")

        async def handle(payload: bytes) -> bytes:
            job = job_of(payload)
            if isinstance(job, Count):
                return packed(Counted(await done(counting.submit(counter.count, job.text))))
            if not isinstance(job, Compress):
                return packed(Failed(UNEXPECTED))
            result = await as_value(model.compress(job.request))
            if not isinstance(result, CompressionFault):
                return packed(Compressed(result))
            return packed(Failed(undisclosed(result)))

        asyncio.run(work_together(peer, handle))

    return run


def undisclosed(fault: CompressionFault) -> CompressionFault:
    """Without torch's own messages, which are for the log only."""
    if fault.kind != "failed":
        return fault
    log.error("a compression failed: %s", fault.message)
    return UNEXPECTED


def encoder(spec: EncoderSpec) -> Callable[[socket.socket], None]:
    """As `compression.workers.programs.neural` does it, and for its reasons."""
    if spec.device == "cpu":
        importlib.import_module("compression.retrieval.encoding")

    def run(peer: socket.socket) -> None:
        from compression.retrieval.encoding import EncoderRetrieval

        try:
            model = EncoderRetrieval.load(spec)
        except Exception as error:
            return peer.sendall(hello(f"{type(error).__name__}: {error}"))

        async def handle(payload: bytes) -> bytes:
            job = job_of(payload)
            if not isinstance(job, Retrieve):
                return packed(Failed(UNEXPECTED))
            answer = await as_value(model.do(job.job))
            return packed(Failed(answer) if isinstance(answer, CompressionFault) else Retrieved(answer))

        asyncio.run(work_together(peer, handle))

    return run
