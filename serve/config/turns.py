"""Chat models that take turns on the same GPUs, of which one is awake; and what each application's engines are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from models.engine_kinds import ENGINE_KINDS, VLLM, WORKER_SHARE_VARIABLE
from serve.config.chat_models import ModelSettings, has_room
from serve.config.server_settings import ServerSettings
from serve.config.values import Section
from serve.fairness.model_turns import TurnTerms

# Ray counts in ten-thousandths.
_UNITS = 10_000


class TurnSettings(Section):
    """Models that share GPUs. A request for one that sleeps waits as for one that starts."""

    models: list[str] = Field(
        min_length=2, description="Ids of chat models; the first is awake at the start. Each is in one entry."
    )
    min_stay_s: float = Field(
        30,
        ge=1,
        le=3600,
        description="Seconds that a model stays awake at least: longer than its longest prompt takes to be read, since "
        "a paused request's prompt is read again.",
    )
    longest_wait_s: float = Field(
        60,
        ge=1,
        le=3600,
        description="Seconds that a model that is asked for waits while another is busy, before that one's turn ends.",
    )
    finish_s: float = Field(
        10,
        ge=0,
        le=3600,
        description="Seconds that running requests get to end when their model's turn does; then they are paused, and "
        "go on at its next one.",
    )

    @property
    def terms(self) -> TurnTerms:
        return TurnTerms(self.min_stay_s, self.longest_wait_s, self.finish_s)


@dataclass(frozen=True, slots=True)
class EngineGroup:
    """The chat models of one application: one, or those that take `turns`."""

    models: tuple[ModelSettings, ...]
    turns: TurnSettings | None = None

    @property
    def name(self) -> str:
        """No id of a model has a plus sign."""
        return "+".join(model.id for model in self.models)

    @property
    def first(self) -> ModelSettings:
        """All that take turns have the same accelerator, replicas, environment and number of workers."""
        return self.models[0]

    def environment(self) -> dict[str, str]:
        """All that the engines' processes find in theirs. The workers of those that take turns are in the same bundles
        of GPUs, and each asks Ray for a part."""
        part = {WORKER_SHARE_VARIABLE: str(_UNITS // len(self.models) / _UNITS)} if self.turns else {}
        return {**self.first.engine_environment(), **part}


def groups_of(models: Sequence[ModelSettings], turns: Sequence[TurnSettings]) -> list[EngineGroup]:
    """In the order of their first models. `models` have engines of their own."""
    by_id = {model.id: model for model in models}
    of = {model_id: entry for entry in turns for model_id in entry.models}
    groups: dict[str, EngineGroup] = {}
    for model in models:
        entry = of.get(model.id)
        listed = tuple(by_id[model_id] for model_id in entry.models) if entry else (model,)
        groups.setdefault(listed[0].id, EngineGroup(listed, entry))
    return list(groups.values())


def problems_of_turns(
    turns: Sequence[TurnSettings], models: Sequence[ModelSettings], server: ServerSettings
) -> Iterator[str]:
    """A sentence for each thing that cannot work, with the path of its key."""
    by_id = {model.id: model for model in models if model.adapter is None}
    bases = {model.adapter.of for model in models if model.adapter is not None}
    listed: set[str] = set()
    for at, entry in enumerate(turns):
        where = f"turns.{at}"
        for model_id in entry.models:
            if model_id not in by_id:
                yield f"{where}.models: {model_id!r} is no chat model with engines of its own"
            if model_id in listed:
                yield f"{where}.models: {model_id!r} takes turns already"
            listed.add(model_id)
        known = [by_id[model_id] for model_id in entry.models if model_id in by_id]
        for model in known:
            yield from _of_one(model, where, is_base=model.id in bases or has_room(model))
        yield from _of_all(known, where)
        yield from _of_time(entry, where, server)


def _of_one(model: ModelSettings, where: str, *, is_base: bool) -> Iterator[str]:
    path, replicas = f"models.{model.id}", model.replicas
    if not ENGINE_KINDS[model.engine.kind].sleeps:
        yield f"{path}.engine.kind: engines of kind {model.engine.kind} cannot sleep, as {where} wants"
    if model.engine.kind == VLLM and model.accelerator.kind != "gpu":
        yield f"{path}.accelerator.kind: must be gpu, since vLLM gives up no other memory ({where})"
    if model.accelerator.share != 1:
        yield f"{path}.accelerator.share: must be 1: the one that is awake has the whole GPU ({where})"
    if (replicas.min, replicas.max) != (1, 1):
        yield f"{path}.replicas: min and max must be 1: it has one replica with those of {where}"
    if is_base:
        yield (
            f"{path}.engine.max_loras: a model that takes turns ({where}) has no adapters, since one would be loaded "
            "into a GPU that another has"
        )


def _of_all(models: Sequence[ModelSettings], where: str) -> Iterator[str]:
    """What is that of all, since their engines are in one replica on the same GPUs."""
    for model in models[1:]:
        first, other = _shared(models[0]), _shared(model)
        for key in first:
            if other[key] != first[key]:
                yield f"models.{model.id}.{key}: must be that of {models[0].id}, with which it shares GPUs ({where})"


def _shared(model: ModelSettings) -> Mapping[str, object]:
    engine = model.engine
    return {
        "engine.kind": engine.kind,
        "engine.tensor_parallel_size": engine.tensor_parallel_size or 1,
        "engine.pipeline_parallel_size": engine.pipeline_parallel_size or 1,
        "engine.spin_s": engine.spin_s,
        "accelerator": model.accelerator,
        "replicas": model.replicas,
        "environment": model.environment,
    }


def _of_time(entry: TurnSettings, where: str, server: ServerSettings) -> Iterator[str]:
    wait_s = entry.finish_s + entry.terms.bound_s(len(entry.models), swap_s=0)
    for key, limit_s in (("start_wait_s", server.start_wait_s), ("progress_s", server.progress_s)):
        if wait_s >= limit_s:
            yield (
                f"{where}: a request may wait for {wait_s:g} s, even if swaps took no time, and server.{key} gives it "
                f"up after {limit_s:g} s"
            )
