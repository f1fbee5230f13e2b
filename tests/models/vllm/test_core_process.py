"""The process that engine cores are forked from starts before vLLM is imported, and is told what vLLM would say."""

from __future__ import annotations

import multiprocessing.context
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.vllm import core_process
from models.vllm.core_process import ForkedContext, environment_of_cpu_cores
from tests.vendor_source import text

FORKED, SPAWNED = multiprocessing.context.ForkServerProcess, multiprocessing.context.SpawnProcess


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkedContext]:
    """Whose server is not started: that imports vLLM, and `tests/integration/test_start_and_stop.py` looks at one."""
    monkeypatch.setattr(core_process.forkserver, "ensure_running", lambda: None)
    # What a server that another test starts here would load.
    monkeypatch.setattr(core_process.forkserver, "set_forkserver_preload", lambda names: None)
    before = dict(os.environ)
    yield ForkedContext()
    os.environ.clear()
    os.environ.update(before)


def test_a_core_is_forked_where_vllm_says_what_was_foreseen(context: ForkedContext) -> None:
    assert isinstance(context.Process(target=print, name="core", kwargs={}), FORKED)


def test_a_core_has_its_own_interpreter_where_vllm_wants_something_else(
    context: ForkedContext, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "2")
    # An engine that ran in this process before has set the root's level.
    with caplog.at_level("WARNING", "pith.engine"):
        assert isinstance(context.Process(target=print, name="core", kwargs={}), SPAWNED)
    assert "other values of TORCHINDUCTOR_COMPILE_THREADS" in caplog.text


def test_what_is_preloaded_is_kept_and_nothing_of_its_kind_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/lib/libomp.so:/lib/libtcmalloc.so")
    assert environment_of_cpu_cores()["LD_PRELOAD"] == "/lib/libomp.so:/lib/libtcmalloc.so"


def test_vllm_sets_for_a_cpu_engine_what_is_foreseen() -> None:
    sets = text("vllm.platforms.cpu", "CpuPlatform.check_and_update_config")
    assert "os.environ['TORCHINDUCTOR_COMPILE_THREADS'] = '1'" in sets
    assert "os.environ['TORCHINDUCTOR_CPP_DYNAMIC_THREADS'] = '1'" in sets
    assert sets.count("os.environ['LD_PRELOAD'] = ld_preload_str") == 2
    for part in ("libgomp*.so*", "libtcmalloc_minimal*.so*", "libtcmalloc.so*", "torch.libs"):
        assert part in sets


@pytest.mark.filterwarnings("ignore")
def test_no_other_interpreter_is_started_to_look_at_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.model_executor.models import registry

    from models.vllm.insides import inspect_models_here

    monkeypatch.setattr(registry._LazyRegisteredModel, "_get_cache_dir", staticmethod(lambda: tmp_path))
    monkeypatch.setattr(registry, "_run_in_subprocess", registry._run_in_subprocess)
    monkeypatch.setattr(registry, "_SUBPROCESS_COMMAND", ["false"])
    model = registry.ModelRegistry.models["LlamaForCausalLM"]
    with pytest.raises(RuntimeError):
        model.inspect_model_cls()
    inspect_models_here()
    assert model.inspect_model_cls().architecture == "LlamaForCausalLM"
    # It is kept all the same, for starts that find it.
    assert len([*tmp_path.glob("*.json")]) == 1
