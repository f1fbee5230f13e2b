"""What the workers of an encoder run: the packages are shared, the network is each worker's."""

import asyncio
import importlib
import socket
from collections.abc import Callable

from compression.pipeline.served import CompressionFault, as_value
from compression.retrieval.encoder_spec import EncoderSpec
from compression.workers.codec import fault_message
from compression.workers.message import Message
from compression.workers.retrieval_codec import answer_message, job_of
from compression.workers.worker_loops import work_together


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
