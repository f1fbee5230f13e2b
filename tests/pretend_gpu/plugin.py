"""Entry point of the pretend GPU: chooses it where a model's environment asks for it.

In a module of its own, which is imported before vLLM knows its platform.
"""

import os

VARIABLE = "PITH_PRETEND_GPU"
PLATFORM = "tests.pretend_gpu.platform.PretendGpu"


def chosen() -> str | None:
    """What vLLM calls in each process of an engine."""
    return PLATFORM if os.environ.get(VARIABLE) else None
