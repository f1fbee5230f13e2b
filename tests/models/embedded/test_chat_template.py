"""The chat template renders each role, text parts and tool calls, and invents nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from models.embedded.install import ARTEFACTS

sandbox = pytest.importorskip("jinja2.sandbox")


class Refused(Exception):
    """What the template raises through `raise_exception`."""


def render(messages: list[dict[str, Any]], **more: Any) -> str:
    def refuse(message: str) -> None:
        raise Refused(message)

    def to_json(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    # The same settings as transformers' own renderer.
    environment = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refuse
    template = environment.from_string((ARTEFACTS / "tokenizer" / "chat_template.jinja").read_text("utf-8"))
    return str(template.render(messages=messages, **more))


CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": {"what": "Größe"}}}


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_each_role_is_a_turn(role: str) -> None:
    assert render([{"role": role, "content": "Hi  \n"}]) == f"<|im_start|>{role}\nHi  \n<|im_end|>\n"


def test_no_system_prompt_is_invented() -> None:
    rendered = render([{"role": "user", "content": "Hi"}], add_generation_prompt=True)
    assert rendered == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_text_parts_are_joined_as_they_are() -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    assert render([{"role": "user", "content": parts}]) == render([{"role": "user", "content": "one two"}])


def test_a_part_that_is_not_text_is_refused_by_its_type() -> None:
    with pytest.raises(Refused, match="image_url"):
        render([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])


def test_an_unknown_role_is_refused_by_name() -> None:
    with pytest.raises(Refused, match="developer"):
        render([{"role": "developer", "content": "Hi"}])


@pytest.mark.parametrize("arguments", [{"what": "Größe"}, '{"what": "Größe"}'])
def test_a_tool_call_is_rendered_whether_its_arguments_are_text_or_not(arguments: Any) -> None:
    call = {**CALL, "function": {"name": "find", "arguments": arguments}}
    expected = '<tool_call>\n{"name": "find", "arguments": {"what": "Größe"}}\n</tool_call>'
    for content in (None, ""):
        message = {"role": "assistant", "content": content, "tool_calls": [call]}
        assert render([message]) == f"<|im_start|>assistant\n{expected}<|im_end|>\n"
    both = {"role": "assistant", "content": "Wait.", "tool_calls": [call, call]}
    assert render([both]) == f"<|im_start|>assistant\nWait.\n{expected}\n{expected}<|im_end|>\n"


def test_an_assistant_turn_without_content_or_calls_is_empty() -> None:
    assert render([{"role": "assistant"}]) == "<|im_start|>assistant\n<|im_end|>\n"


def test_a_whole_exchange_with_a_tool_keeps_its_order() -> None:
    rendered = render(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
            {"role": "user", "content": "And?"},
        ],
        add_generation_prompt=True,
    )
    turns = [turn.split("\n", 1)[0] for turn in rendered.split("<|im_start|>")[1:]]
    assert turns == ["system", "user", "assistant", "tool", "user", "assistant"]


def test_offered_tools_join_the_system_turn() -> None:
    tools = [{"type": "function", "function": {"name": "find", "parameters": {}}}]
    alone = render([{"role": "user", "content": "Hi"}], tools=tools)
    joined = render(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}], tools=tools
    )
    assert alone.count("<|im_start|>system") == joined.count("<|im_start|>system") == 1
    assert json.dumps(tools[0]) in alone
    assert joined.startswith("<|im_start|>system\nBe brief.\n\nTools")
