"""What workers run, by kind of model: the part that is loaded once, before they are forked, and each worker's own."""

import asyncio
import importlib
import logging
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from compression.build import build_model, load_counter, plain_compressor, plain_scorer
from compression.counting.counter import TokenCounter
from compression.pipeline.compressor import Compressor
from compression.pipeline.errors import CompressionError
from compression.pipeline.request import CompressionRequest
from compression.pipeline.served import UNEXPECTED, CompressionFault, CompressionModel, as_value, refusal_of
from compression.pipeline.spec import ModelSpec
from compression.pipeline.thread_work import done
from compression.retrieval.work import PlainRetrieval
from compression.scorers.lexical import LexicalScorer
from compression.workers.codec import (
    COUNT,
    fault_message,
    request_message,
    request_of,
    result_message,
    text_of,
    tokens_message,
)
from compression.workers.message import Message
from compression.workers.retrieval_codec import RETRIEVE, answer_message, job_of
from compression.workers.worker_loops import work_in_turn, work_together

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
