"""Each of vLLM's names that `models.vllm` uses without a promise means at the pinned version what is relied on.

Read from the source: vLLM takes many seconds to import.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.vendor_source import found, parameters, source, text

CHAT = "vllm.entrypoints.openai.chat_completion.serving"
PROCESSOR = "vllm.v1.engine.output_processor"
ROOT = Path(__file__).parents[3]


def test_the_openai_layer_calls_the_engine_client_that_is_put_in_its_place() -> None:
    calls = [
        node
        for node in ast.walk(source(CHAT))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "self.engine_client.generate"
    ]
    assert len(calls) == 1
    assert [ast.unparse(each) for each in calls[0].args] == [
        "engine_input",
        "sampling_params",
        "sub_request_id",
    ]
    layer = text("vllm.entrypoints.generate.base.serving", "GenerateBaseServing.__init__")
    assert "self.engine_client = engine_client" in layer


def test_the_openai_layer_calls_a_request_by_its_own_id() -> None:
    whole = ast.unparse(source(CHAT))
    assert "request_id = f'chatcmpl-{self._base_request_id(raw_request, request.request_id)}'" in whole


def test_the_output_processor_has_the_running_choices_of_a_request() -> None:
    processor = text(PROCESSOR, "OutputProcessor.__init__")
    assert "self.request_states: dict[str, RequestState] = {}" in processor
    assert "self.external_req_ids: defaultdict[str, list[str]]" in processor
    state = text(PROCESSOR, "RequestState.__init__")
    for name in ("parent_req", "request_index", "prompt_len", "detokenizer", "num_cached_tokens"):
        assert f"self.{name} = " in state
    counts = text("vllm.v1.engine.detokenizer", "IncrementalDetokenizer.num_output_tokens")
    assert "return len(self.token_ids)" in counts


def test_choices_that_have_ended_wait_with_their_parent() -> None:
    parent = text("vllm.v1.engine.parallel_sampling", "ParentRequest")
    assert "self.output_aggregator[completion_output.index] = completion_output" in parent
    assert "[cast(CompletionOutput, None)] * sampling_params.n" in parent


def test_a_prompt_is_rendered_and_measured_as_for_a_generation() -> None:
    assert "return await self.online_renderer.render_chat(request)" in text(CHAT, "OpenAIServingChat")
    render = "vllm.renderers.online_renderer", "OnlineRenderer.render_chat"
    assert parameters(*render)[0] == "request" and "skip_mm_cache" in parameters(*render)
    assert "tuple[list[ConversationMessage], list[EngineInput]] | ErrorResponse" in text(*render)
    layer = "vllm.entrypoints.serve.engine.serving"
    lengths = [
        ast.unparse(node)
        for node in ast.walk(source(layer))
        if isinstance(node, ast.FunctionDef) and node.name == "_extract_prompt_len"
    ]
    assert len(lengths) == 1 and "return extract_prompt_len(self.model_config, prompt)" in lengths[0]


def test_what_makes_a_prompt_is_where_it_is_looked_for() -> None:
    renderer = text("vllm.renderers.online_renderer", "OnlineRenderer.__init__")
    for name in (
        "renderer",
        "use_harmony",
        "default_chat_template_kwargs",
        "chat_template",
        "chat_template_content_format",
        "model_config",
    ):
        assert f"self.{name}" in renderer, name
    hf = "vllm.renderers.hf"
    assert {"chat_template", "tools", "model_config"} <= set(parameters(hf, "resolve_chat_template"))
    wanted = parameters(hf, "resolve_chat_template_content_format")
    assert wanted[:4] == ["chat_template", "tools", "given_format", "tokenizer"]


def test_the_scheduler_and_the_grammars_have_their_settings() -> None:
    assert found("vllm.config.scheduler", "SchedulerConfig.max_num_seqs")
    assert found("vllm.config.structured_outputs", "StructuredOutputsConfig.disable_any_whitespace")
    config = text("vllm.config.vllm", "VllmConfig")
    assert "scheduler_config: " in config and "structured_outputs_config: " in config


def test_a_grammar_has_a_kind_and_a_text() -> None:
    request = "vllm.v1.structured_output.request"
    assert parameters(request, "get_structured_output_key") == ["params"]
    kinds = text("vllm.v1.structured_output.backend_types", "StructuredOutputOptions")
    assert "JSON = " in kinds and "STRUCTURAL_TAG = " in kinds
    key = ast.unparse(source("vllm.v1.structured_output.backend_types"))
    assert "StructuredOutputKey = tuple[StructuredOutputOptions, str]" in key


def test_engine_cores_are_started_from_the_context_that_is_replaced() -> None:
    manager = text("vllm.v1.engine.utils", "CoreEngineProcManager.__init__")
    assert "context = get_mp_context()" in manager
    assert "context.Process(target=EngineCoreProc.run_engine_core, name=" in manager
    imports = ast.unparse(source("vllm.v1.engine.utils"))
    assert "from vllm.utils.system_utils import get_mp_context" in imports


def test_a_dead_engine_says_so_and_can_be_shut_down() -> None:
    client = "vllm.v1.engine.async_llm"
    assert "engine_core.resources.engine_dead" in text(client, "AsyncLLM.errored")
    assert parameters(client, "AsyncLLM.shutdown") == ["timeout"]
    assert found("vllm.v1.engine.exceptions", "EngineDeadError")
    assert found("vllm.v1.engine.exceptions", "EngineGenerateError")


IMPORTED = [
    node.names[0].name
    for node in ast.walk(ast.parse((ROOT / "models/vllm/core_imports.py").read_text()))
    if isinstance(node, ast.Import) and node.names[0].name.startswith("vllm.")
]


@pytest.mark.parametrize("module", IMPORTED)
def test_each_module_that_cores_are_forked_with_is_there(module: str) -> None:
    """`multiprocessing` passes over one that is not: cores would start as slowly as without."""
    assert source(module)
