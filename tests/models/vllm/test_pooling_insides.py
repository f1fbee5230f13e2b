"""Each of vLLM's names that `models.vllm.pooling` uses without a promise means what is relied on, as pinned."""

from __future__ import annotations

from tests.vendor_source import parameters, text

SERVING = "vllm.entrypoints.pooling.base.serving"
SCORES = "vllm.entrypoints.pooling.scoring.serving"
EMBED = "vllm.entrypoints.pooling.embed.serving"


def test_an_answer_is_made_of_the_engines_outputs_by_the_method_that_is_replaced() -> None:
    whole = text(SERVING, "PoolingBaseServing.__call__")
    assert "ctx = await self._init_ctx(io_processor, request, raw_request)" in whole
    assert "await self._preprocessing(io_processor, ctx)" in whole
    assert "return await self._postprocessing_async(io_processor, ctx)" in whole
    assert "return self._build_response(ctx)" in text(SERVING, "PoolingBaseServing._postprocessing")
    collected = text(SERVING, "PoolingBaseServing._collect_batch")
    assert "ctx.final_res_batch = [res for res in final_res_batch if res is not None]" in collected


def test_what_is_counted_is_what_the_engine_would_be_given() -> None:
    assert "ctx.engine_inputs = await asyncio.gather(" in text(SERVING, "PoolingBaseServing._preprocessing")
    assert "prompt=engine_input['prompts']" in text(SERVING, "PoolingBaseServing._prepare_generators")


def test_both_layers_take_what_they_are_built_with() -> None:
    taken = parameters(SERVING, "PoolingBaseServing.__init__")
    assert {"engine_client", "models", "request_logger", "chat_template_config"} <= set(taken)
    assert "supported_tasks" in parameters(SCORES, "ServingScores.__init__")
    assert "EmbedIOProcessor" in text(EMBED, "ServingEmbedding.init_io_processor")
