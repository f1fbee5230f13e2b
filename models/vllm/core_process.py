"""Starts vLLM's engine cores from a process that has imported vLLM once, so that a core that died is back in seconds.

vLLM starts a core as a new interpreter, which imports torch and vLLM again: for a small engine, most of the time that a
start takes. A process that imports them and does nothing else is forked instead, as often as a core is needed.
For engines on CPUs: nothing here has been tried with a GPU's driver.
"""

import multiprocessing
import os
from collections.abc import Callable, Mapping
from typing import Any

PRELOADED = "models.vllm.core_imports"


class ForkedContext:
    """What vLLM takes for a `multiprocessing` context. Its processes get this one's environment as it is by then."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([PRELOADED])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def Process(self, *, target: Callable[..., None], name: str, kwargs: Mapping[str, Any]) -> Any:
        given = {"environment": dict(os.environ), "run": target, "arguments": dict(kwargs)}
        return self._context.Process(target=run_forked, name=name, kwargs=given)


def run_forked(
    environment: Mapping[str, str], run: Callable[..., None], arguments: Mapping[str, Any]
) -> None:
    """In the new process, whose environment is that of the process it was forked from."""
    os.environ.clear()
    os.environ.update(environment)
    run(**arguments)


def fork_cores() -> None:
    """From now on the cores of this process's engines are forked."""
    from models.vllm.insides import start_cores_with

    context = ForkedContext()
    start_cores_with(lambda: context)
