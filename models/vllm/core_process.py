"""Starts vLLM's engine cores from a process that has imported vLLM once, so that a core that died is back in seconds.

vLLM starts a core as a new interpreter, which imports torch and vLLM again: for a small engine, most of the time that a
start takes. A process that imports them and does nothing else is forked instead, as often as a core is needed.
For engines on CPUs: nothing here has been tried with a GPU's driver.
"""

import gc
import logging
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

PRELOADED = "models.vllm.core_imports"


class ForkedContext:
    """A `multiprocessing` context for vLLM. Its processes get this one's environment as it is by then."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([PRELOADED])
        # What libraries read as they are loaded cannot be told them later.
        self._told = environment_of_cpu_cores()
        os.environ.update(self._told)
        forkserver.ensure_running()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def Process(self, *, target: Callable[..., None], name: str, kwargs: Mapping[str, Any]) -> Any:
        given = {"environment": dict(os.environ), "run": target, "arguments": dict(kwargs)}
        if changed := sorted(key for key, value in self._told.items() if os.environ.get(key) != value):
            message = (
                "the engine core is not forked, since vLLM wants other values of %s: it starts more slowly"
            )
            logging.getLogger("pith.engine").warning(message, ", ".join(changed))
            return multiprocessing.get_context("spawn").Process(target=run_forked, name=name, kwargs=given)
        return self._context.Process(target=run_forked, name=name, kwargs=given)


def run_forked(
    environment: Mapping[str, str], run: Callable[..., None], arguments: Mapping[str, Any]
) -> None:
    """In the new process, whose environment is that of the process it was forked from."""
    os.environ.clear()
    os.environ.update(environment)
    run(**arguments)


def environment_of_cpu_cores() -> dict[str, str]:
    """Variables that vLLM sets for a CPU engine's core and that libraries read as they are loaded
    (`vllm.platforms.cpu.CpuPlatform.check_and_update_config`). Without it a core cannot be forked from a process that
    is started before vLLM is imported."""
    preloaded = os.environ.get("LD_PRELOAD", "")
    folder = _folder_of("torch")
    gomp = [*(folder.parent / "torch.libs").glob("libgomp*.so*"), *(folder / "lib").glob("libgomp*.so*")]
    if gomp and not any(each in preloaded for each in ("libomp", "libgomp", "libiomp")):
        preloaded += (":" if preloaded else "") + str(gomp[0])
    libraries = _folder_of("vllm") / "libs"
    malloc = [*libraries.glob("libtcmalloc_minimal*.so*"), *libraries.glob("libtcmalloc.so*")]
    if malloc and "libtcmalloc" not in preloaded:
        preloaded = f"{malloc[0]}:{preloaded}" if preloaded else str(malloc[0])
    return {
        **({"LD_PRELOAD": preloaded} if preloaded else {}),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_CPP_DYNAMIC_THREADS": "1",
    }


def _folder_of(package: str) -> Path:
    """Without importing it."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(f"{package} is not installed")
    return Path(spec.submodule_search_locations[0])


@cache
def start_forking() -> ForkedContext:
    """Start the process that cores are forked from. It imports vLLM by itself, beside whatever this process does."""
    return ForkedContext()


@contextmanager
def importing() -> Iterator[None]:
    """Import vLLM in here: a fifth of the time would go to full collections of garbage, which find none."""
    thresholds = gc.get_threshold()
    gc.set_threshold(*thresholds[:2], 1_000_000)
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(*thresholds)


def fork_cores() -> None:
    """From now on the cores of this process's engines are forked, and no other interpreter is started on the way to
    them. Imports vLLM."""
    with importing():
        from models.vllm.insides import inspect_models_here, start_cores_with

    context = start_forking()
    start_cores_with(lambda: context)
    inspect_models_here()
