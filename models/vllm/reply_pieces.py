"""The pieces of a reply made of vLLM's outputs, each with the usage so far, streamed or as one JSON object."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any

import orjson
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.exceptions import GenerationError

from models.engine import EngineChunk, EngineFault
from models.vllm.counting_client import PromptMeters
from models.vllm.faults import fault_of
from models.vllm.reply_reading import told_cut_off

HEARTBEAT_S = 0.5
JSON_PROGRESS_S = 0.2
# vLLM's own fields, which are null unless its own options ask for them; inside a text their quotes are escaped.
NULL_FIELDS = (',"token_ids":null', ',"prompt_token_ids":null', ',"prompt_text":null')
USAGE = ',"usage":{'
ERROR_EVENT = 'data: {"error"'
DONE = "data: [DONE]\n\n"


Reply = AsyncGenerator[str, None]
Read = Callable[[Reply], AsyncGenerator[bytes, None]]


async def streamed(
    creating: Awaitable[Reply | Any],
    meter: PromptMeters,
    *,
    read: Read,
    closing: Callable[[], bytes] = bytes,
) -> AsyncGenerator[EngineChunk | EngineFault, None]:
    """The pieces of a reply in server-sent events, the first at once, later ones every `meter.interval_s`.

    `creating` is vLLM's, `read` makes our events of its events; `closing` gives the last piece once all were read.
    """
    reply = await creating
    if isinstance(reply, ErrorResponse):
        yield fault_of(reply)
        return
    pieces = coalesce(
        read(reply), interval_s=meter.interval_s, heartbeat_s=HEARTBEAT_S, sign_of_life=meter.handed_over
    )
    async with aclosing(pieces):
        async for piece in pieces:
            # Also what the engine has made and not handed out: a client that leaves pays for it.
            yield EngineChunk(piece, meter.peek(), finished=False)
    if meter.failure is not None:
        raise meter.failure
    yield EngineChunk(closing(), meter.usage(), finished=True)


async def completed(
    creating: Coroutine[Any, Any, Any], meter: PromptMeters, *, write: Callable[[Any], bytes]
) -> AsyncGenerator[EngineChunk | EngineFault, None]:
    """Usage while the reply is made, and then the reply in one piece. `creating` is vLLM's, `write` makes its JSON."""
    task = asyncio.create_task(creating)
    try:
        while True:
            signs = (task,) if meter.handed_over.done() else (task, meter.handed_over)
            await asyncio.wait(signs, timeout=JSON_PROGRESS_S, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                break
            yield EngineChunk(b"", meter.peek(), finished=False)
        reply = task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    if meter.failure is not None:
        raise meter.failure
    if isinstance(reply, ErrorResponse):
        yield fault_of(reply)
        return
    yield EngineChunk(write(reply), meter.usage(), finished=True)


async def read_to_its_end(creating: Awaitable[Reply | Any], read: Read, take: Callable[[bytes], None]) -> Any:
    """For `completed`, where a reply is put together from its stream: `take` is given all that `read` gives."""
    reply = await creating
    if isinstance(reply, ErrorResponse):
        return reply
    async with aclosing(read(reply)) as events:
        async for event in events:
            take(event)
    return None


async def unbroken(reply: Reply, meter: PromptMeters) -> Reply:
    """vLLM's events until one tells of a failure, which the meter notes: the service writes its own, after settling.

    Each says of a call that the token limit ended that it was cut off.
    """
    async with aclosing(reply) as events:
        async for event in events:
            if event.startswith(ERROR_EVENT):
                meter.failure = meter.failure or GenerationError(event)
            if meter.failure is not None:
                continue
            yield told_cut_off(event, meter.cut_off)


async def told_reasoning(reply: Reply, meter: PromptMeters) -> Reply:
    """The unbroken events; of the one that `include_usage` asks for, the meter learns what was reasoning."""
    async with aclosing(unbroken(reply, meter)) as events:
        async for event in events:
            if _tells_usage(event):
                usage = orjson.loads(event.removeprefix("data: "))["usage"]
                meter.reasoning_tokens = reasoning_tokens(usage)
            yield event


def _tells_usage(event: str) -> bool:
    return '"choices":[]' in event[:400]


def openai_events(meter: PromptMeters, *, tells_usage: bool, goes_on: bool = False) -> Read:
    """The events of a chat's or a completion's stream that go to the caller as they are."""

    async def read(reply: Reply) -> AsyncGenerator[bytes, None]:
        skips_first = goes_on
        async with aclosing(told_reasoning(reply, meter)) as events:
            async for event in events:
                if skips_first:
                    # That the assistant speaks was told by the replica that began.
                    skips_first = False
                    continue
                # The service sends a usage event of its own, with billing.
                if event == DONE or _tells_usage(event):
                    continue
                for field in NULL_FIELDS:
                    event = event.replace(field, "")
                meter.note_written()
                yield (_with_cached(event, meter) if tells_usage else event).encode()

    return read


def _with_cached(event: str, meter: PromptMeters) -> str:
    """The event's usage with the cached tokens, which vLLM reports in its last event only."""
    details = f'"prompt_tokens_details":{{"cached_tokens":{meter.usage().cached_tokens}}},'
    return event.replace(USAGE, USAGE + details, 1)


def reasoning_tokens(usage: Mapping[str, Any]) -> int:
    """Tokens in vLLM's usage that a reasoning parser counted, if there is one."""
    return int((usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0)


async def coalesce(
    source: AsyncIterator[bytes],
    *,
    interval_s: float,
    heartbeat_s: float,
    sign_of_life: asyncio.Future[None] | None = None,
) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of `source`, joined: the first piece at once, later ones at most every `interval_s`, in step with
    all others of that interval, so that two processes wake up once for many streams.

    When nothing came for `heartbeat_s`, or when `sign_of_life` is done before anything came, an empty piece is yielded,
    so that a listener can tell a slow source from a dead one. What `source` raises is raised after the pieces before
    it. Closing this iterator closes it.
    """
    gathered: list[bytes] = []
    arrived = asyncio.Event()
    if sign_of_life is not None:
        sign_of_life.add_done_callback(lambda _: arrived.set())
    task = asyncio.create_task(_gather(source, gathered, arrived))
    try:
        while True:
            try:
                async with asyncio.timeout(heartbeat_s):
                    await arrived.wait()
            except TimeoutError:
                yield b""
                continue
            arrived.clear()
            if gathered:
                piece = b"".join(gathered)
                gathered.clear()
                yield piece
            elif not task.done():
                yield b""
                continue
            if task.done():
                if not gathered:
                    break
                continue
            await asyncio.wait((task,), timeout=_until_next(interval_s))
        await task
    finally:
        if not task.done():
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _until_next(interval_s: float) -> float:
    """Seconds until the next multiple of the interval, by the event loop's clock."""
    return interval_s - asyncio.get_running_loop().time() % interval_s if interval_s else 0.0


async def _gather(source: AsyncIterator[bytes], gathered: list[bytes], arrived: asyncio.Event) -> None:
    try:
        async for piece in source:
            gathered.append(piece)
            arrived.set()
    finally:
        arrived.set()
