"""Programs of workers, by kind of model: a part that is loaded once, before they are forked, and each worker's own."""

import asyncio
import importlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from compression.build import build_model, load_counter, plain_compressor, plain_scorer
from compression.pipeline.errors import CompressionError
from compression.pipeline.pipeline import Compressor
from compression.pipeline.request import CompressionRequest
from compression.pipeline.served import (
    UNEXPECTED,
    CompressionFault,
    CompressionModel,
    as_value,
    done,
    refusal_of,
)
from compression.pipeline.spec import ModelSpec
from compression.retrieval.job import EncoderSpec
from compression.retrieval.plain import PlainRetrieval
from compression.scorers.lexical import LexicalScorer
from compression.source.token_counter import TokenCounter
from compression.workers.messages import (
    CANCEL,
    COUNT,
    RETRIEVE,
    Message,
    answer_message,
    fault_message,
    job_of,
    read,
    read_from,
    request_message,
    request_of,
    result_message,
    text_of,
    tokens_message,
)

ID = "id"
_READ_BYTES = 2**20


def work_in_turn(peer: socket.socket, handle: Callable[[Message], Message]) -> None:
    """One at a time: to end a job, kill the process. `handle` must not raise."""
    peer.sendall(_hello().packed())
    while (job := read_from(peer)) is not None:
        peer.sendall(handle(job).packed(id=job.header[ID]))


async def work_together(peer: socket.socket, handle: Callable[[Message], Awaitable[Message]]) -> None:
    """As many as are sent. A job that is cancelled ends when its `handle` does."""
    reader, writer = await asyncio.open_unix_connection(sock=peer, limit=_READ_BYTES)
    writer.write(_hello().packed())
    running: dict[Any, asyncio.Task[None]] = {}

    async def work(job: Message) -> None:
        number = job.header[ID]
        try:
            answer = await handle(job)
        except asyncio.CancelledError:
            answer = Message({})
        writer.write(answer.packed(id=number))
        del running[number]

    while (job := await read(reader)) is not None:
        if job.header["do"] != CANCEL:
            running[job.header[ID]] = asyncio.create_task(work(job))
        elif (cancelled := running.get(job.header[ID])) is not None:
            cancelled.cancel()


def _hello() -> Message:
    return Message({"pid": os.getpid()})


log = logging.getLogger(__name__)
# A first request, so that the workers inherit whatever is built lazily.
_FIRST = CompressionRequest(
    "Who chose it?", "# Title\n\nThe committee chose it in 1999.\n\nNobody minded.", 0.5
)


def plain(spec: ModelSpec) -> Callable[[socket.socket], None]:
    """The weights and the tokenizer are shared; a worker has one job at a time."""
    counter = load_counter(spec.tokenizer, name=spec.tokenizer_name)
    scorer = plain_scorer(spec)
    compressor = plain_compressor(spec, counter, scorer)
    retrieval = PlainRetrieval(scorer, counter) if isinstance(scorer, LexicalScorer) else None

    def handle(job: Message) -> Message:
        if job.header["do"] == RETRIEVE and retrieval is not None:
            return handled(lambda: answer_message(retrieval.do(job_of(job))))
        return handled(lambda: compressed_here(compressor, counter, job))

    handle(request_message(_FIRST))
    return lambda peer: work_in_turn(peer, handle)


def compressed_here(compressor: Compressor, counter: TokenCounter, job: Message) -> Message:
    if job.header["do"] == COUNT:
        return tokens_message(counter.count(text_of(job)))
    return result_message(compressor.compress(request_of(job)))


def handled(work: Callable[[], Message]) -> Message:
    """The answer, or the fault. What failed unexpectedly is for the log only."""
    try:
        return work()
    except CompressionError as error:
        return fault_message(refusal_of(error))
    except Exception:
        log.exception("a job failed unexpectedly")
        return fault_message(UNEXPECTED)


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
            peer.sendall(Message({"cannot": f"{type(error).__name__}: {error}"}).packed())
            return
        counting = ThreadPoolExecutor(1, thread_name_prefix="count")

        async def handle(job: Message) -> Message:
            if job.header["do"] == COUNT:
                return tokens_message(await done(counting.submit(counter.count, text_of(job))))
            return await compressed(model, job)

        asyncio.run(work_together(peer, handle))

    return run


async def compressed(model: CompressionModel, job: Message) -> Message:
    result = await as_value(model.compress(request_of(job)))
    if not isinstance(result, CompressionFault):
        return result_message(result)
    if result.kind != "failed":
        return fault_message(result)
    # Torch's own messages are for the log only.
    log.error("a compression failed: %s", result.message)
    return fault_message(UNEXPECTED)


def encoder(spec: EncoderSpec) -> Callable[[socket.socket], None]:
    """As `compression.workers.programs.neural` does it, and for its reasons."""
    if spec.device == "cpu":
        importlib.import_module("compression.retrieval.encoding")

    def run(peer: socket.socket) -> None:
        from compression.retrieval.encoding import EncoderRetrieval

        try:
            model = EncoderRetrieval.load(spec)
        except Exception as error:
            peer.sendall(Message({"cannot": f"{type(error).__name__}: {error}"}).packed())
            return

        async def handle(job: Message) -> Message:
            answer = await as_value(model.do(job_of(job)))
            return fault_message(answer) if isinstance(answer, CompressionFault) else answer_message(answer)

        asyncio.run(work_together(peer, handle))

    return run
