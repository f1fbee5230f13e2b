"""Each of vLLM's names that `models.vllm` uses without a promise means at the pinned version what is relied on.

Read from the source: vLLM takes many seconds to import.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from models.engine_kinds import ENGINE_LIMITS
from tests.vendor_source import found, parameters, source, text

CHAT = "vllm.entrypoints.openai.chat_completion.serving"
RESPONSES = "vllm.entrypoints.openai.responses.serving"
PROCESSOR = "vllm.v1.engine.output_processor"
COMPLETION = "vllm.entrypoints.openai.completion.serving"
ANTHROPIC = "vllm.entrypoints.anthropic.serving"
STATE = {
    "content_block_index",
    "block_type",
    "block_index",
    "block_signature",
    "signature_emitted",
    "tool_use_id",
    "pending_content",
    "reset",
}
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


def test_a_response_is_made_of_what_was_rendered() -> None:
    whole = ast.unparse(source(RESPONSES))
    assert "self._make_request(request, prev_response)" in whole
    assert "self._make_request_with_harmony(request, prev_response)" in whole
    assert "messages, engine_inputs = await self._make_request(" in whole
    assert "sub_request_id = f'{request_id}_{sub_request}'" in whole
    assert "request_id=request.request_id" in whole
    assert "request.to_sampling_params(default_max_tokens, self.default_sampling_params)" in whole
    # The response is built of no items, and each of its items is built by this method.
    items = text(RESPONSES, "OpenAIServingResponses.responses_full_generator")
    assert items.count("self._make_response_output_items(") == 1


def test_the_core_tells_how_many_tokens_its_cache_holds() -> None:
    for name in ("kv_cache_size_tokens", "enable_prefix_caching"):
        assert found("vllm.config.cache", f"CacheConfig.{name}")
    told = text("vllm.v1.engine.core_client", "MPClient._apply_ready_response")
    assert "response.kv_cache_size_tokens" in told


def test_a_chat_has_what_the_responses_are_made_with() -> None:
    chat = text(CHAT, "OpenAIServingChat.__init__")
    names = ("online_renderer", "chat_template", "chat_template_content_format", "enable_auto_tools")
    for name in (*names, "default_chat_template_kwargs", "parser_cls"):
        assert f"self.{name}" in chat, name
    assert set(names) <= set(parameters(RESPONSES, "OpenAIServingResponses.__init__"))
    assert "self.parser = ParserManager.get_parser(" in text(RESPONSES, "OpenAIServingResponses.__init__")


def test_a_chat_tells_its_reasoning_tokens_where_a_parser_counts_them() -> None:
    made = text(CHAT, "OpenAIServingChat.__init__")
    assert "self._include_reasoning_tokens_details = bool(reasoning_parser)" in made
    stream = text(CHAT, "OpenAIServingChat.chat_completion_stream_generator")
    assert "_make_completion_tokens_details(sum(previous_reasoning_tokens))" in stream


def test_a_reply_in_one_piece_is_made_of_outputs_by_a_method_that_can_be_replaced() -> None:
    create = text(CHAT, "OpenAIServingChat._create_chat_completion")
    assert "return await self.chat_completion_full_generator(request, result_generator, request_id," in create
    assert "parser=parser, mm_token_counts=mm_token_counts)" in create
    made = text(CHAT, "OpenAIServingChat.chat_completion_full_generator")
    assert "parser.parse(output.text, request, enable_auto_tools=self.enable_auto_tools" in made
    assert "parser.count_reasoning_tokens(token_ids)" in made
    # As a stream's parsers are made, and told each delta.
    stream = text(CHAT, "OpenAIServingChat.chat_completion_stream_generator")
    given = "chat_template_kwargs=chat_template_kwargs, model_config=self.model_config)"
    assert f"self.parser_cls(tokenizer, request.tools, {given}" in stream
    assert "not delta_text and (not output.token_ids) and (not previous_num_tokens[i])" in stream
    told = (
        "parser.parse_delta(delta_text=delta_text, delta_token_ids=as_list(output.token_ids), request=request"
    )
    assert (
        f"{told}, prompt_token_ids=res.prompt_token_ids, finished=output.finish_reason is not None)" in stream
    )
    kinds = ast.unparse(source("vllm.entrypoints.openai.chat_completion.protocol"))
    assert "output_kind=RequestOutputKind.DELTA if self.stream else RequestOutputKind.FINAL_ONLY" in kinds


def test_a_response_is_read_by_a_parser_that_is_told_the_request_by_name() -> None:
    assert parameters(RESPONSES, "OpenAIServingResponses._make_response_parser") == [
        "request",
        "tokenizer",
        "chat_template_kwargs",
    ]
    stream = text(RESPONSES, "OpenAIServingResponses._process_simple_streaming_events")
    assert "ctx.response_parser.parse_delta(delta_text=delta_text," in stream and "request=request" in stream


def test_a_parser_ends_a_stream_and_keeps_what_was_before_by_methods_that_can_be_stood_before() -> None:
    """What `models.vllm.reply_reading` stands before."""
    parser = "vllm.parser.abstract_parser"
    assert parameters(parser, "DelegatingParser.finalize_generation") == ["delta_message", "request", "state"]
    told = text(parser, "DelegatingParser.parse_delta")
    assert "delta_message = self.finalize_generation(delta_message, request, state)" in told
    assert "state = self._stream_state" in told
    advance = text(parser, "StreamState.advance")
    assert "if self.engine_based:\n        return (delta_text, delta_token_ids)" in advance
    assert "self._tool_parser = " in text(parser, "Parser.__init__")


def test_nothing_of_a_response_is_stored_that_does_not_ask_for_it() -> None:
    create = text(RESPONSES, "OpenAIServingResponses._create_responses")
    assert "if request.store:" in create and "if request.background:" in create
    assert create.count("self.msg_store[") == 1 and create.count("self.response_store[") == 1
    full = text(RESPONSES, "OpenAIServingResponses.responses_full_generator")
    assert "if request.store:" in full and full.count("self.response_store[") == 1


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


def test_a_prompt_is_tokenized_by_a_method_that_can_be_replaced() -> None:
    """What `models.vllm.prompts` puts in its place: of a copy, with a limit that can be None."""
    base = "vllm.renderers.base"
    assert parameters(base, "BaseRenderer.tokenize_prompt_async") == ["prompt", "params"]
    assert "self.tokenize_prompt_async(prompt, params)" in text(base, "BaseRenderer.tokenize_prompts_async")
    assert "await self.tokenize_prompts_async(" in text(base, "BaseRenderer.render_chat_async")
    online = "vllm.renderers.online_renderer"
    assert "renderer = self.renderer" in text(online, "OnlineRenderer.preprocess_chat")
    assert "await renderer.render_chat_async(" in text(online, "OnlineRenderer.preprocess_chat")
    limits = text("vllm.renderers.params", "TokenizeParams")
    assert "max_total_tokens: int | None" in limits
    assert "if self.max_total_tokens is None:\n            return None" in limits
    length = text("vllm.utils", "length_from_prompt_token_ids_or_embeds")
    assert "None if prompt_token_ids is None else len(prompt_token_ids)" in length


def test_what_is_done_to_a_prompt_is_given_to_the_threads_that_a_short_one_passes_by() -> None:
    base, hf, inputs = "vllm.renderers.base", "vllm.renderers.hf", "vllm.v1.engine.input_processor"
    assert "self._executor = ThreadPoolExecutor(" in text(base, "BaseRenderer.__init__")
    assert "make_async(self._tokenize_prompt, executor=self._executor)" in text(base, "BaseRenderer.__init__")
    assert "make_async(safe_apply_chat_template, executor=self._executor)" in text(hf, "HfRenderer.__init__")
    wrapped = "make_async(self.process_inputs, executor=self.renderer._executor)"
    assert wrapped in text(inputs, "InputProcessor.__init__")


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


def test_the_environment_is_kept_once_vllm_is_told_that_it_stays() -> None:
    assert "functools.cache(__getattr__)" in text("vllm.envs", "enable_envs_cache")


def test_a_model_is_looked_at_by_the_function_that_is_replaced() -> None:
    registry = "vllm.model_executor.models.registry"
    look = text(registry, "_LazyRegisteredModel.inspect_model_cls")
    assert look.count("_run_in_subprocess(lambda: _ModelInfo.from_model_cls(self.load_model_cls()))") == 1
    assert parameters(registry, "_run_in_subprocess") == ["fn"]


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


def test_completions_call_the_engine_client_once_for_each_prompt_and_by_their_own_id() -> None:
    whole = ast.unparse(source(COMPLETION))
    assert "request_id = f'cmpl-{self._base_request_id(raw_request, request.request_id)}'" in whole
    assert "request_id_item = f'{request_id}-{i}'" in whole
    calls = [
        node
        for node in ast.walk(source(COMPLETION))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "self.engine_client.generate"
    ]
    assert len(calls) == 1
    assert [ast.unparse(each) for each in calls[0].args] == [
        "engine_input",
        "sampling_params",
        "request_id_item",
    ]
    assert parameters(COMPLETION, "OpenAIServingCompletion.__init__")[:3] == [
        "engine_client",
        "models",
        "online_renderer",
    ]
    assert "return await self.online_renderer.render_completion(request)" in whole
    assert "self.models = models" in ast.unparse(source("vllm.entrypoints.serve.engine.serving"))


def test_a_completions_prompts_are_tokenized_by_the_method_that_is_replaced() -> None:
    online = "vllm.renderers.online_renderer"
    assert "renderer = self.renderer" in text(online, "OnlineRenderer.preprocess_cmpl")
    assert "await renderer.render_cmpl_async(" in text(online, "OnlineRenderer.preprocess_cmpl")
    base = "vllm.renderers.base"
    assert "await self.tokenize_prompts_async(" in text(base, "BaseRenderer.render_cmpl_async")
    assert "list[EngineInput] | ErrorResponse" in text(online, "OnlineRenderer.render_completion")


def test_the_converters_of_messages_read_nothing_but_the_reasons_to_stop() -> None:
    read = {
        ast.unparse(node)
        for node in ast.walk(found(ANTHROPIC, "AnthropicServingMessages.message_stream_converter"))
        if isinstance(node, ast.Attribute)
        and ast.unparse(node.value) == "self"
        # The state of its own inner class.
        and node.attr not in STATE
    }
    assert read <= {"self.stop_reason_map"}
    reasons = "{'stop': 'end_turn', 'length': 'max_tokens', 'tool_calls': 'tool_use'}"
    assert f"self.stop_reason_map = {reasons}" in text(ANTHROPIC, "AnthropicServingMessages.__init__")


def test_the_most_texts_to_stop_at_are_read_from_the_variable_that_is_set() -> None:
    base = "vllm.entrypoints.generate.base.protocol"
    assert "max_length=envs.VLLM_MAX_STOP_STRINGS" in ast.unparse(source(base))
    assert set(ENGINE_LIMITS) == {"VLLM_MAX_STOP_STRINGS"}


def test_every_engine_with_statistics_has_the_logger_for_prometheus_that_its_module_names() -> None:
    loggers = "vllm.v1.metrics.loggers"
    manager = text(loggers, "StatLoggerManager.__init__")
    assert "self.stat_loggers.append(PrometheusStatLogger(vllm_config, self.engine_indexes))" in manager
    made = text(loggers, "PrometheusStatLogger.__init__")
    for kind in ("gauge", "counter", "histogram"):
        assert f"self._{kind}_cls(" in made
        assert f" {kind.capitalize()}(" not in made
    for part in ("spec_decoding", "kv_connector", "perf_metrics"):
        assert f"self._{part}_cls(" in made
    assert "self.logger_manager = StatLoggerManager(" in text("vllm.v1.engine.async_llm", "AsyncLLM.__init__")


def test_vllms_openai_layer_loads_the_adapters_that_it_is_given_and_finds_them_by_name() -> None:
    serving = "vllm.entrypoints.openai.models.serving"
    state = "vllm.entrypoints.launchers.api_server.app_state"
    assert "process_lora_modules(args.lora_modules" in ast.unparse(source(state))
    assert "await state.openai_serving_models.init_static_loras()" in ast.unparse(source(state))
    loads = text(serving, "OpenAIServingModels.init_static_loras")
    assert "lora_path=lora.path" in loads and "lora_name=lora.name" in loads and "raise ValueError" in loads
    finds = ast.unparse(source("vllm.entrypoints.serve.engine.serving"))
    assert "return self.models.lora_requests[request.model]" in finds
    # Neither has what the other put into the prefix cache.
    keys = text("vllm.v1.core.kv_cache_utils", "_gen_lora_extra_hash_keys")
    assert "return [request.lora_request.lora_name]" in keys
