"""Conversations that no prompt can be made of: whatever a template or a tokenizer raises is the request's refusal."""

from __future__ import annotations

import asyncio
import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.catalog import Capabilities
from models.embedded.install import ensure_checkpoints
from models.engine import EngineRequest
from models.errors import InvalidField, UnrenderablePrompt, UnsupportedOption
from models.options.messages import engine_messages
from models.options.options import select_options

pytestmark = pytest.mark.filterwarnings("ignore")

ROLES = ("system", "user", "assistant", "tool")
ABLE = Capabilities(
    tools=True, template_roles=frozenset(ROLES), chat_template_kwargs=frozenset({"enable_thinking", "x"})
)
QWEN = """{%- if tools %}{{- '<|im_start|>system\\n' }}
{%- if messages[0]['role'] == 'system' %}{{- messages[0]['content'] }}{%- else %}{{- 'You are helpful.' }}{%- endif %}
{{- '<tools>' }}{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}{{- '</tools><|im_end|>\\n' }}
{%- elif messages[0]['role'] == 'system' %}{{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}{{- '<|im_start|>assistant' }}
{%- if '</think>' in message.content %}{{- message.content.split('</think>')[-1].lstrip('\\n') }}
{%- elif message.content %}{{- '\\n' + message.content }}{%- endif %}
{%- for tool_call in message.tool_calls %}
{%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
{{- '\\n<tool_call>\\n{"name": "' + tool_call.name + '", "arguments": ' }}
{{- tool_call.arguments | tojson + '}' }}
{%- endfor %}{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != 'tool') %}{{- '<|im_start|>user' }}{%- endif %}
{{- '\\n<tool_response>\\n' + message.content + '</tool_response>' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think></think>' }}{%- endif %}{%- endif %}"""
# As Hermes and others do, it looks into what a tool takes.
HERMES = """{%- if tools %}{%- for tool in tools %}{{- tool.function.name + ': ' + tool.function.description }}
{%- for name, taken in (tool.function.parameters.properties | default({})).items() %}
{{- name + ' (' + taken.type + ')' }}{% endfor %}{% endfor %}{% endif %}
{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.tool_calls %}{% for call in message.tool_calls %}{{- call.function.name }}
{%- for name, value in call.function.arguments | items %}{{- name + '=' + value | string }}{% endfor %}{% endfor %}
{%- else %}{{- message.content + (message.reasoning_content or '') + (x or '') }}{% endif %}{{- '<|im_end|>' }}
{%- endfor %}"""


@pytest.fixture(scope="module")
def renderers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """vLLM's, without an engine: of the embedded models' template, of Qwen's kind and of Hermes'."""
    from vllm.config import DeviceConfig, ModelConfig, VllmConfig
    from vllm.renderers import renderer_from_config
    from vllm.renderers.online_renderer import OnlineRenderer

    from models.vllm import insides

    folder = ensure_checkpoints(tmp_path_factory.mktemp("checkpoints"))["pith-mini"]
    model = ModelConfig(model=str(folder), dtype="float32", max_model_len=2048, enforce_eager=True)
    renderer = renderer_from_config(VllmConfig(model_config=model, device_config=DeviceConfig("cpu")))
    found = {}
    for name, template in {"embedded": None, "qwen": QWEN, "hermes": HERMES}.items():
        online = OnlineRenderer(
            model,
            renderer,
            request_logger=None,
            chat_template=template,
            chat_template_content_format="auto",
            enable_auto_tools=True,
            tool_parser="hermes",
        )
        serving = SimpleNamespace(online_renderer=online)
        insides.refuse_what_cannot_be_rendered(serving)
        found[name] = serving.online_renderer
    return found


def rendered(renderer: Any, messages: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The prompt's tokens, or what vLLM answers instead."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.serve.engine.protocol import ErrorResponse

    from models.vllm.prompts import vllm_fields

    fields = vllm_fields(EngineRequest("r", "m", messages, 4, False, "salt", options))
    found = asyncio.run(renderer.render_chat(ChatCompletionRequest(**fields)))
    return found if isinstance(found, ErrorResponse) else found[1]


def call(arguments: str) -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c", "type": "function", "function": function}],
    }


@pytest.mark.parametrize("name", ["embedded", "qwen", "hermes"])
def test_a_tokenizer_that_takes_no_half_characters_refuses_the_request_and_nothing_else(
    renderers: dict[str, Any], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    conversation = ({"role": "user", "content": "hi"}, call('{"a": "\\ud800"}'))
    with caplog.at_level(logging.WARNING), pytest.raises(UnrenderablePrompt) as caught:
        rendered(renderers[name], conversation, {})
    assert caught.value.parameter == "messages"
    assert [record.exc_info for record in caplog.records] == [None]


def test_a_template_that_refuses_leaves_no_traceback(
    renderers: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": 5}}}
    with pytest.raises(ValueError):
        rendered(renderers["hermes"], ({"role": "user", "content": "hi"},), {"tools": [tool]})
    assert not caplog.records


def test_what_vllm_itself_refuses_keeps_its_words(renderers: dict[str, Any]) -> None:
    from vllm.exceptions import VLLMValidationError

    conversation = ({"role": "user", "content": "word " * 4096},)
    with pytest.raises(VLLMValidationError, match="maximum context length is 2048 tokens"):
        rendered(renderers["embedded"], conversation, {})


# What JSON can hold, and a little more of what breaks those who read it.
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
ODD = st.sampled_from(
    ['"\\ud800"', '"\\udfff\\ud800"', "1e999", "NaN", "[" * 70, "9" * 5000, "null", "[]", "{", ""]
)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECT = st.dictionaries(st.sampled_from(["type", "properties", "required", "$defs", "items", "x"]), VALUE)
ARGUMENTS = st.builds(json.dumps, OBJECT | VALUE) | ODD | st.builds('{{"a": {}}}'.format, ODD) | TEXT
CALLS = st.lists(
    st.fixed_dictionaries(
        {
            "id": TEXT,
            "type": st.just("function"),
            "function": st.fixed_dictionaries({"name": TEXT, "arguments": ARGUMENTS}),
        }
    ),
    max_size=2,
)
CONTENT = (
    st.none() | TEXT | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}), max_size=2)
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(ROLES), "content": CONTENT},
    optional={
        "tool_calls": CALLS,
        "name": TEXT,
        "tool_call_id": TEXT,
        "reasoning_content": TEXT,
        "reasoning": TEXT,
    },
)
TOOL = st.fixed_dictionaries(
    {
        "type": st.just("function"),
        "function": st.fixed_dictionaries(
            {"name": st.just("f")}, optional={"description": TEXT, "parameters": OBJECT}
        ),
    }
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "tools": st.lists(TOOL, min_size=1, max_size=2),
        "chat_template_kwargs": st.dictionaries(
            st.sampled_from(["enable_thinking", "x"]), TEXT | st.integers() | st.booleans()
        ),
    },
)


@pytest.mark.parametrize("name", ["embedded", "qwen", "hermes"])
@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(messages=st.lists(MESSAGE, min_size=1, max_size=4), given_options=OPTIONS)
def test_what_is_let_through_is_rendered_or_refused(
    renderers: dict[str, Any], name: str, messages: list[dict[str, Any]], given_options: dict[str, Any]
) -> None:
    from pydantic import ValidationError
    from vllm.exceptions import VLLMClientError

    try:
        options = select_options(given_options, capabilities=ABLE)
        rendered(renderers[name], engine_messages(messages, capabilities=ABLE), options)
    except (InvalidField, UnsupportedOption, ValidationError, VLLMClientError, ValueError) as error:
        # The service's own checks have named what is known to break a prompt.
        assert "surrogate" not in str(error) or isinstance(error, InvalidField)
