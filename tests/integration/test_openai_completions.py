"""`/openai/v1/completions` on a real engine, with OpenAI's package: its usage is what the ledger has."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import openai
import pytest
from openai.types import Completion

from tests.integration.running import wait_for
from tests.integration.test_money import Payer

if TYPE_CHECKING:
    from tests.integration.running import Server

MODEL = "pith-mini"


@pytest.fixture
def payer(server: Server) -> Payer:
    name = f"completions-{secrets.token_hex(4)}"
    return Payer(server, name, server.new_key(name))


@pytest.fixture
def client(payer: Payer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{payer.server.url}/openai/v1", api_key=payer.key, max_retries=0) as client:
        yield client


def billed(payer: Payer) -> tuple[int, int]:
    (event,) = payer.events()
    return event["prompt_tokens"], event["completion_tokens"]


@pytest.mark.parametrize(
    "prompt", ["Once upon a time", ["Once upon", "a time"], [5, 6, 7], [[5, 6, 7], [8, 9]]], ids=repr
)
def test_prompts_of_every_kind_are_completed_and_billed(
    payer: Payer, client: openai.OpenAI, prompt: Any
) -> None:
    reply = client.completions.create(
        model=MODEL, prompt=prompt, n=2, max_tokens=5, extra_body={"ignore_eos": True}
    )
    whole = Completion.model_validate(reply.model_dump())
    many = len(prompt) if isinstance(prompt, list) and not isinstance(prompt[0], int) else 1
    assert [choice.index for choice in whole.choices] == list(range(2 * many))
    assert whole.usage is not None and whole.usage.completion_tokens == 10 * many
    assert billed(payer) == (whole.usage.prompt_tokens, whole.usage.completion_tokens)


def test_a_stream_is_what_the_whole_reply_is(payer: Payer, client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": MODEL,
        "prompt": ["Once", "The river"],
        "max_tokens": 8,
        "temperature": 0,
    }
    whole = client.completions.create(**asked)
    texts, usage = ["", ""], None
    for chunk in client.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
        usage = chunk.usage or usage
    assert texts == [choice.text for choice in whole.choices]
    assert usage is not None and whole.usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (
        whole.usage.prompt_tokens,
        whole.usage.completion_tokens,
    )
    assert [(e["prompt_tokens"], e["completion_tokens"]) for e in payer.events()] == [
        (usage.prompt_tokens, usage.completion_tokens)
    ] * 2


def test_the_likelihood_of_a_text_is_read_as_evaluations_read_it(payer: Payer, client: openai.OpenAI) -> None:
    """Tokens in, an echo with log probabilities out."""
    reply = client.completions.create(model=MODEL, prompt=[[5, 6, 7, 8]], max_tokens=1, logprobs=1, echo=True)
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None and logprobs.token_logprobs is not None
    assert logprobs.token_logprobs[0] is None and all(value <= 0 for value in logprobs.token_logprobs[1:])
    assert len(logprobs.tokens or []) == 5 and billed(payer) == (4, 1)


def test_an_echo_alone_costs_its_prompt(payer: Payer, client: openai.OpenAI) -> None:
    reply = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=0, echo=True)
    assert reply.choices[0].text == "Once upon a time"
    assert reply.usage is not None and billed(payer) == (reply.usage.prompt_tokens, 0)


def test_a_client_that_leaves_pays_for_what_was_begun(payer: Payer, client: openai.OpenAI) -> None:
    stream = client.completions.create(
        model=MODEL, prompt=["Once"] * 64, max_tokens=400, stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    stream.close()
    wait_for(payer.events, what="the settlement")
    prompt_tokens, completion_tokens = billed(payer)
    (event,) = payer.events()
    assert event["outcome"] == "disconnected"
    assert prompt_tokens > 0 and 0 < completion_tokens < 64 * 400
    wait_for(lambda: payer.held() == 0, what="nothing is held")


def test_little_money_is_enough_for_what_prompts_really_cost(server: Server) -> None:
    """The whole context for each of them would be a hundred times as much: they are counted before they are refused."""
    key = server.new_key(f"little-{secrets.token_hex(4)}", limit_usd="0.000015")
    with openai.OpenAI(base_url=f"{server.url}/openai/v1", api_key=key, max_retries=0) as client:
        asked: dict[str, Any] = {"model": MODEL, "prompt": ["Once", "The river", "A"], "max_tokens": 4}
        assert len(client.completions.create(**asked).choices) == 3
        with pytest.raises(openai.APIStatusError) as refused:
            client.completions.create(**asked)
    assert refused.value.status_code == 402


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"prompt": "a " * 40_000}, "context_length_exceeded"),
        ({"prompt": ["fine", "a " * 40_000], "stream": True}, "context_length_exceeded"),
        ({"prompt": [10**9]}, "rejected_by_engine"),
        ({"prompt": "a", "suffix": "b"}, "unsupported_option"),
    ],
)
def test_what_is_refused_is_free_and_an_error_of_openais(
    payer: Payer, client: openai.OpenAI, fields: dict[str, Any], code: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model=MODEL, max_tokens=5, **fields)
    assert refused.value.code == code
    assert payer.events() == []
