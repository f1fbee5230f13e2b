"""Imported once by the process that engine cores are forked from: what every core needs, and most import late."""

# ruff: noqa: E402, F401
import gc

# Full collections would take a fifth of the time and find nothing. The others keep what is imported together in memory:
# without them the engine's steps take some 3% longer.
thresholds = gc.get_threshold()
gc.set_threshold(*thresholds[:2], 1_000_000)

import torch._dynamo
import torch._inductor.compile_fx
import vllm.model_executor.models.llama
import vllm.model_executor.models.qwen2
import vllm.model_executor.models.qwen3
import vllm.v1.engine.core
import vllm.v1.executor.uniproc_executor
import vllm.v1.worker.cpu_worker
import xgrammar
from vllm.utils.system_utils import set_process_title

# Named, and so that a fork can name itself: where its title goes can be found only before the environment is changed.
set_process_title("CoreForks")
# A collection would write to every object, and so copy all the pages that forked processes share.
gc.collect()
gc.freeze()
gc.set_threshold(*thresholds)
