"""What is proven of the embedded models' prompts, held against their own template and tokenizer."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Regex, Tokenizer, normalizers

from models.engine import EngineRequest, PromptBound
from serve.money.prompt_bound import proven_bound

FOLDER = Path(__file__).parents[3] / "models/embedded/tokenizer"
TEMPLATE = (FOLDER / "chat_template.jinja").read_text()
TOKENIZER = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
RENDERED = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(TEMPLATE)
EXPANDING = "\U0001d160ﷺΐİ<|im_start|>tool_call \n\x00é漢"


class Making:
    """What a replica says that it makes prompts with."""

    def __init__(self, tokenizer: Tokenizer, template: str = TEMPLATE) -> None:
        self.template, self.parts, self.special_tokens = template, True, {"eos_token": "<|im_end|>"}
        self.tokenizer = tokenizer.to_str()


def bound_of(tokenizer: Tokenizer, template: str = TEMPLATE) -> PromptBound | None:
    making: Any = Making(tokenizer, template)
    return proven_bound(making)


def request(*messages: dict[str, Any], **options: Any) -> EngineRequest:
    return EngineRequest("id", "m", messages, 10, False, "salt", options)


TEXTS = st.text(max_size=40) | st.text(alphabet=EXPANDING, max_size=40)
CONTENTS = TEXTS | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}), max_size=4)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": CONTENTS}
    ),
    min_size=1,
    max_size=5,
)


@cache
def tokenizer_and_bound(composed: bool) -> tuple[Tokenizer, PromptBound | None]:
    tokenizer = Tokenizer.from_str(TOKENIZER.to_str())
    if composed:
        tokenizer.normalizer = normalizers.NFC()
    return tokenizer, bound_of(tokenizer)


@pytest.mark.parametrize("composed", [False, True], ids=["as it is", "with NFC"])
@given(messages=MESSAGES)
@settings(max_examples=100)
def test_no_prompt_has_more_tokens_than_its_bound(composed: bool, messages: list[dict[str, Any]]) -> None:
    tokenizer, bound = tokenizer_and_bound(composed)
    assert bound is not None and bound.per_byte == (3 if composed else 1)
    prompt = RENDERED.render(messages=messages, add_generation_prompt=True)
    most = bound.of(request(*messages))
    assert most is not None
    assert len(tokenizer.encode(prompt, add_special_tokens=False).ids) <= most


PLAIN = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    "asked",
    [
        request({**PLAIN, "tool_calls": [{"function": {"arguments": "1e15"}}]}),
        request({**PLAIN, "reasoning_content": "hm"}),
        request({**PLAIN, "name": "Ann"}),
        request({"role": "assistant", "tool_calls": [], "content": ""}),
        request({"role": "u" * 33, "content": "hi"}),
        request({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}),
        request(PLAIN, tools=[]),
        request(PLAIN, chat_template_kwargs={"enable_thinking": False}),
        request(PLAIN, reasoning_effort="low"),
    ],
)
def test_nothing_is_said_of_a_request_that_is_more_than_roles_and_texts(asked: EngineRequest) -> None:
    assert PromptBound(1, 1, 1, 1).of(asked) is None


def test_a_bound_counts_bytes_messages_and_parts() -> None:
    parts = [{"type": "text", "text": "ü"}, {"type": "text", "text": ""}]
    asked = request(PLAIN, {"role": "assistant", "content": parts})
    assert PromptBound(per_byte=1000, per_message=100, per_part=10, fixed=1).of(asked) == 4231


def test_where_the_template_or_the_tokenizer_is_not_understood_nothing_is_proven() -> None:
    assert bound_of(TOKENIZER, "{{ house_rules }}") is None
    other = Tokenizer.from_str(TOKENIZER.to_str())
    other.normalizer = normalizers.Replace(Regex("a*"), "bb")
    assert bound_of(other) is None
