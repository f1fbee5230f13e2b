"""LoRA adapters in a configuration: entries of `models` that the engines of another entry serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from models.adapters import AdapterSource, BrokenAdapter, read_adapter
from models.engine_kinds import VLLM
from serve.config.chat_models import OF_ITS_BASE, ModelSettings
from serve.config.paths import ConfigError, folder_of
from serve.config.strict_section import with_files

# vLLM's own, where the configuration does not say.
MAX_RANK = 16
# Adapters that one batch may mix, where the configuration does not say: each has a place in the engine's memory.
MAX_LORAS = 8
LORA_KEYS = ("max_loras", "max_cpu_loras", "max_lora_rank")


def with_their_bases(models: Sequence[ModelSettings]) -> list[ModelSettings]:
    """The same with all that an adapter has of its base. Raises `ValueError`."""
    by_id = {model.id: model for model in models}
    completed = [model if model.adapter is None else _completed(model, by_id) for model in models]
    hosts = {model.adapter.of for model in models if model.adapter is not None}
    for model in models:
        given = [name for name in LORA_KEYS if getattr(model.engine, name) is not None]
        if given and model.adapter is None and model.id not in hosts:
            raise ValueError(
                f"{model.id}: engine.{given[0]} is for a model that has an adapter, and it has none"
            )
    return completed


def _completed(model: ModelSettings, by_id: Mapping[str, ModelSettings]) -> ModelSettings:
    assert model.adapter is not None
    base = by_id.get(model.adapter.of)
    if base is None or base.adapter is not None:
        what = "is an adapter itself" if base is not None else "is no chat model of this file"
        raise ValueError(f"{model.id}: adapter.of: {model.adapter.of!r} {what}")
    given = {name: getattr(base, name) for name in OF_ITS_BASE}
    if "capabilities" not in model.model_fields_set:
        given["capabilities"] = base.capabilities
    return model.model_copy(update=given)


def adapter_source(model: ModelSettings) -> AdapterSource:
    """The source of an entry that is an adapter."""
    assert model.adapter is not None
    return AdapterSource(model.id, model.adapter.source, model.adapter.revision)


def max_rank_of(base: ModelSettings) -> int:
    """The largest rank of an adapter that the model's engines take."""
    return base.engine.max_lora_rank or MAX_RANK


def lora_arguments(base: ModelSettings, adapters: int) -> dict[str, Any]:
    """vLLM's arguments for so many adapters: places in a batch, and how many stay in the machine's memory."""
    if not adapters:
        return {}
    max_loras = base.engine.max_loras or min(adapters, MAX_LORAS)
    return {
        "enable_lora": True,
        "max_loras": max_loras,
        "max_cpu_loras": base.engine.max_cpu_loras or max(adapters, max_loras),
        "max_lora_rank": max_rank_of(base),
    }


def check_folders(models: Sequence[ModelSettings]) -> None:
    """Look at the adapters that lie in folders of this machine. Raises `ConfigError`.

    One that comes from the hub is looked at by each replica, once it is fetched.
    """
    for model in models:
        if model.adapter is None or model.engine.kind != VLLM:
            continue
        source = adapter_source(model)
        if source.folder is not None:
            try:
                read_adapter(
                    source.id, source.folder, max_rank=max_rank_of(model), base=folder_of(model.checkpoint)
                )
            except BrokenAdapter as error:
                raise ConfigError(str(error)) from error


def with_adapter(model: ModelSettings, folder: Path) -> ModelSettings:
    """The same with a relative folder of its adapter under `folder`."""
    if model.adapter is None:
        return model
    return model.model_copy(update={"adapter": with_files(model.adapter, folder, "source")})
