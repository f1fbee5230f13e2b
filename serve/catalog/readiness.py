"""Whether the models that a request gets by default answer."""

from collections.abc import Awaitable, Callable, Mapping

from models.engine import Engine
from serve.compressors.served import RunningModel
from serve.config.settings import Settings


def readiness(
    settings: Settings, engines: Mapping[str, Engine], compressors: Mapping[str, RunningModel]
) -> Callable[[], Awaitable[bool]]:
    """Whether the default chat model and the default compression model answer; one kept at 0 replicas counts as up."""
    default = settings.models[0]
    first = next(iter(settings.compression.models), None)

    async def ready() -> bool:
        up = default.replicas.min == 0 or await engines[default.id].ready()
        if not up or not compressors or first is None or first.replicas.min == 0:
            return up
        return await compressors[first.id].ready()

    return ready
