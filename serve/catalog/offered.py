"""Models on offer: the catalog of a configuration, and readiness of its models."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

from models.catalog import Capabilities, Catalog, ChatModel
from models.engine import Engine
from serve.compressors.compressor import RunningModel
from serve.config.chat_models import ModelSettings, adapter_source, has_room
from serve.config.settings import Settings

# For so long an answer is told again (asking seven models of Ray took 0.26 s), and so long is one waited for.
TOLD_AGAIN_S = 5.0
PATIENCE_S = 2.0
IsReady = Callable[[], Awaitable[bool]]


def catalog_of(settings: Settings) -> Catalog:
    """The catalog that callers see, from the configuration."""
    return Catalog(tuple(_chat_model(model, index == 0) for index, model in enumerate(settings.models)))


def _chat_model(model: ModelSettings, is_default: bool) -> ChatModel:
    capabilities = model.capabilities
    cached = model.price.cached_input_usd_per_mtok
    return ChatModel(
        id=model.id,
        name=model.name,
        blurb=model.blurb,
        context_length=model.context_length,
        input_micro_usd_per_mtok=int(model.price.input_usd_per_mtok * 10**6),
        output_micro_usd_per_mtok=int(model.price.output_usd_per_mtok * 10**6),
        minimum_nano_usd=int(model.price.minimum_request_usd * 10**9),
        is_default=is_default,
        cached_input_micro_usd_per_mtok=None if cached is None else int(cached * 10**6),
        capabilities=Capabilities(
            tools=capabilities.tools,
            reasoning_effort=capabilities.reasoning_effort,
            media=frozenset(capabilities.media),
            template_roles=frozenset(capabilities.template_roles),
            chat_template_kwargs=frozenset(capabilities.chat_template_kwargs),
        ),
        adapter_of=model.adapter.of if model.adapter is not None else None,
        adapter_folder=_adapter_folder(model),
    )


def _adapter_folder(model: ModelSettings) -> str:
    folder = adapter_source(model).folder if model.adapter is not None and has_room(model) else None
    return "" if folder is None else str(folder.resolve())


def readiness(
    settings: Settings, engines: Mapping[str, Engine], compressors: Mapping[str, RunningModel]
) -> IsReady:
    """A check that the default chat model and compression model answer; one kept at 0 replicas counts as up."""
    default = settings.models[0]
    first = next(iter(settings.compression.models), None)

    async def ready() -> bool:
        up = default.replicas.min == 0 or await engines[default.id].ready()
        if not up or not compressors or first is None or first.replicas.min == 0:
            return up
        return await compressors[first.id].ready()

    return ready


class RunningModels:
    """The models that answer now, without starting one. Anybody may ask as often as they like: the models are asked one
    after another, at most once in five seconds, and never while they still owe an answer."""

    def __init__(
        self,
        engines: Mapping[str, Engine],
        compressors: Mapping[str, RunningModel],
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._patience_s = patience_s
        self._models: dict[str, IsReady] = {id_: engine.ready for id_, engine in engines.items()}
        self._models |= {id_: compressor.ready for id_, compressor in compressors.items()}
        self._known: dict[str, bool] = {}
        self._known_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def now(self) -> Mapping[str, bool]:
        """By id, as far as it is known: where no answer comes in time, as it was, or nothing."""
        if self._asking is None and time.monotonic() - self._known_at >= TOLD_AGAIN_S:
            self._asking = asyncio.create_task(self._ask())
            self._asking.add_done_callback(self._answered)
        if self._asking is not None:
            await asyncio.wait({self._asking}, timeout=self._patience_s)
        return self._known

    async def _ask(self) -> None:
        self._known = {id_: await is_ready() for id_, is_ready in self._models.items()}

    def _answered(self, asking: asyncio.Task[None]) -> None:
        """One that failed leaves what was known, and asyncio's log has its error."""
        self._asking, self._known_at = None, time.monotonic()
