"""Models on offer: the catalog of a configuration, and readiness of its models."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Generic, TypeVar

from models.catalog import Capabilities, Catalog, ChatModel
from models.embedding_backends import RetrievalModel
from models.engine import Engine
from serve.compressors.compressor import RunningModel
from serve.config.chat_models import ModelSettings, adapter_source
from serve.config.settings import Settings

# For so long an answer is told again (asking seven models of Ray took 0.26 s), and so long is one waited for.
TOLD_AGAIN_S = 5.0
PATIENCE_S = 2.0
IsReady = Callable[[], Awaitable[bool]]
# Ids of the models that cannot be started now.
Away = Callable[[], Awaitable[Collection[str]]]
# What anybody may know of it; the reason is the operator's.
UNAVAILABLE = "cannot be started here at the moment"


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
    folder = adapter_source(model).folder if model.adapter is not None else None
    return "" if folder is None else str(folder.resolve())


def readiness(
    settings: Settings,
    engines: Mapping[str, Engine],
    compressors: Mapping[str, RunningModel],
    retrievers: Mapping[str, RetrievalModel],
    away: Away,
) -> IsReady:
    """A check that the default chat model and compression model answer; one kept at 0 replicas counts as up. One that
    is away holds up none of the others: then any that answers is enough."""
    default = settings.models[0]
    first = next(iter(settings.compression.models), None)

    async def ready() -> bool:
        up = default.replicas.min == 0 or await engines[default.id].ready()
        if not up:
            up = default.id in await away() and await any_of(engines, compressors, retrievers)
        if not up or not compressors or first is None or first.replicas.min == 0:
            return up
        return await compressors[first.id].ready() or first.id in await away()

    return ready


async def any_of(
    engines: Mapping[str, Engine],
    compressors: Mapping[str, RunningModel],
    retrievers: Mapping[str, RetrievalModel],
) -> bool:
    """Whether any model answers."""
    models: list[Engine | RunningModel | RetrievalModel] = [
        *engines.values(),
        *compressors.values(),
        *retrievers.values(),
    ]
    for model in models:
        if await model.ready():
            return True
    return False


def unavailable_field(model_id: str, away: Collection[str]) -> dict[str, str]:
    """What a model that is away has beside the other fields of a list."""
    return {"unavailable": UNAVAILABLE} if model_id in away else {}


async def none_away() -> Collection[str]:
    """Where nothing can be away."""
    return ()


Answer = TypeVar("Answer")


class ToldAgain(Generic[Answer]):
    """An answer that anybody may ask for as often as they like: it is asked for at most once in five seconds, and never
    while it is still owed."""

    def __init__(
        self, ask: Callable[[], Awaitable[Answer]], unknown: Answer, *, patience_s: float = PATIENCE_S
    ) -> None:
        self._ask, self._known = ask, unknown
        self._patience_s = patience_s
        self._asked_at = self._known_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def now(self) -> Answer:
        """As far as it is known: where no answer comes in time, as it was, or `unknown`. An answer that is owed for
        longer is waited for no more."""
        if self._asking is None and time.monotonic() - self._known_at >= TOLD_AGAIN_S:
            self._asked_at = time.monotonic()
            self._asking = asyncio.create_task(self._renew())
            self._asking.add_done_callback(self._answered)
        if self._asking is not None:
            left_s = self._asked_at + self._patience_s - time.monotonic()
            await asyncio.wait({self._asking}, timeout=max(0.0, left_s))
        return self._known

    async def _renew(self) -> None:
        self._known = await self._ask()

    def _answered(self, asking: asyncio.Task[None]) -> None:
        """One that failed leaves what was known, and asyncio's log has its error."""
        self._asking, self._known_at = None, time.monotonic()


def running_models(
    engines: Mapping[str, Engine],
    compressors: Mapping[str, RunningModel],
    *,
    patience_s: float = PATIENCE_S,
) -> ToldAgain[Mapping[str, bool]]:
    """By id, whether a model answers now, without starting one; the models are asked one after another."""
    models: dict[str, IsReady] = {id_: engine.ready for id_, engine in engines.items()}
    models |= {id_: compressor.ready for id_, compressor in compressors.items()}

    async def ask() -> Mapping[str, bool]:
        return {id_: await is_ready() for id_, is_ready in models.items()}

    return ToldAgain(ask, {}, patience_s=patience_s)
