"""A real engine goes on from tokens that another has delivered: within characters, and within stop strings."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from models.engine import EngineChunk, EngineRequest

if TYPE_CHECKING:
    from models.vllm.engine import VLLMEngine

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    # vLLM's own, and those of what it imports.
    pytest.mark.filterwarnings("ignore"),
]
MESSAGES = ({"role": "user", "content": "What is 7 + 8?"},)
TEXT = "naïve 🦉日本語, end, or the END of it"


def asked(*, stream: bool, max_tokens: int = 16, said: tuple[int, ...] = (), **options: Any) -> EngineRequest:
    given = {"temperature": 0.0, "ignore_eos": True, **options}
    id_ = f"s{time.monotonic_ns()}"
    return EngineRequest(id_, "m", MESSAGES, max_tokens, stream, "salt", given, survives=True, said=said)


async def chunks_of(engine: VLLMEngine, request: EngineRequest) -> list[EngineChunk]:
    found = [chunk async for chunk in engine.generate(request)]
    assert all(isinstance(chunk, EngineChunk) for chunk in found), found
    return found  # type: ignore[return-value]


def text_of(chunks: list[EngineChunk]) -> str:
    events = [line[6:] for chunk in chunks for line in chunk.data.decode().split("\n\n") if line]
    return "".join(json.loads(event)["choices"][0]["delta"].get("content") or "" for event in events)


@pytest.mark.parametrize("options", [{}, {"min_tokens": 12}, {"stop": ["e"]}])
async def test_a_stream_goes_on_at_every_token_where_it_was_cut(
    engine: VLLMEngine, options: dict[str, Any]
) -> None:
    request = asked(stream=True, **options)
    whole = await chunks_of(engine, request)
    for cut in range(1, len(whole)):
        said = tuple(token for chunk in whole[:cut] for token in chunk.reply)
        if not said or b'"finish_reason":"' in whole[cut - 1].data:
            continue
        rest = await chunks_of(engine, replace(request, request_id=f"{request.request_id}-{cut}", said=said))
        assert text_of(whole[:cut]) + text_of(rest) == text_of(whole)
        assert (rest[-1].usage.prompt_tokens, rest[-1].usage.completion_tokens) == (
            whole[-1].usage.prompt_tokens,
            whole[-1].usage.completion_tokens,
        )
        assert rest[-1].tokens_sha256 == whole[-1].tokens_sha256


async def test_a_reply_in_one_piece_goes_on_too(engine: VLLMEngine) -> None:
    request = asked(stream=False)
    ids = [one for chunk in await chunks_of(engine, replace(request, stream=True)) for one in chunk.reply]
    whole = (await chunks_of(engine, replace(request, request_id="whole")))[-1]
    for cut in (1, 7, 15):
        going = replace(request, request_id=f"{request.request_id}-{cut}", said=tuple(ids[:cut]))
        found = (await chunks_of(engine, going))[-1]
        assert json.loads(found.data)["choices"] == json.loads(whole.data)["choices"]
        assert found.tokens_sha256 == whole.tokens_sha256
        assert found.usage.completion_tokens == whole.usage.completion_tokens


@pytest.mark.parametrize("stop", [None, ["or the END"]])
async def test_text_goes_on_within_a_character_and_within_a_stop_string(
    engine: VLLMEngine, stop: list[str] | None
) -> None:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.detokenizer import IncrementalDetokenizer

    from models.vllm.going_on import _prime

    tokenizer = engine._client.get_tokenizer()  # type: ignore[attr-defined]
    prompt, reply = tokenizer.encode("Say it."), tokenizer.encode(TEXT, add_special_tokens=False)
    params = SamplingParams(stop=stop, output_kind=RequestOutputKind.DELTA)

    def begun(ids: list[int]) -> Any:
        return SimpleNamespace(request_id="r", prompt_token_ids=ids, sampling_params=params)

    def said_by(detokenizer: Any, ids: list[int]) -> str:
        text = ""
        for number, token in enumerate(ids, 1):
            stopped = detokenizer.update([token], False) is not None
            ended = stopped or number == len(ids)
            text += detokenizer.get_next_output_text(ended, True)
            if ended:
                break
        return text

    whole = said_by(IncrementalDetokenizer.from_new_request(tokenizer, begun(prompt)), reply)
    assert whole == (TEXT if stop is None else TEXT.partition("or the END")[0])
    for cut in range(1, len(reply)):
        first = IncrementalDetokenizer.from_new_request(tokenizer, begun(prompt))
        before = ""
        for token in reply[:cut]:
            if first.update([token], False) is not None:
                return
            before += first.get_next_output_text(False, True)
        state = SimpleNamespace(output_kind=RequestOutputKind.DELTA)
        _prime(state, tokenizer, begun([*prompt, *reply[:cut]]), said=cut, least=0)
        assert before + said_by(state.detokenizer, reply[cut:]) == whole
        assert (state.prompt_token_ids, state.prompt_len) == (prompt, len(prompt))
