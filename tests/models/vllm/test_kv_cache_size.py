"""What `pith config check` counts of a KV cache is what vLLM's engine has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from serve.config.capacity.memory import engine_on_cpus
from serve.config.chat_models import ModelSettings
from tests.models.vllm.conftest import CONTEXT
from tests.serve.served import model_document

if TYPE_CHECKING:
    from models.vllm.engine import VLLMEngine

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    # vLLM's own, and those of what it imports.
    pytest.mark.filterwarnings("ignore"),
]


async def test_the_check_counts_as_many_tokens_as_vllm_has_blocks_for(engine: VLLMEngine) -> None:
    document = model_document(
        "alpha",
        checkpoint="embedded:pith-mini",
        context_length=CONTEXT,
        engine={"dtype": "float32"},
        environment={"VLLM_CPU_KVCACHE_SPACE": "1"},
    )
    counted = engine_on_cpus(ModelSettings.model_validate(document))
    cache = engine._client.vllm_config.cache_config
    assert counted.tokens == cache.num_gpu_blocks * cache.block_size > CONTEXT
    # 5 layers, keys and values of 4 heads of 32 numbers, 4 bytes each; whole blocks.
    assert 0 <= 2**30 / (5 * 2 * 4 * 32 * 4) - counted.tokens < cache.block_size
