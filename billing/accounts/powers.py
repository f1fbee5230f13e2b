"""What a key may be used for, and the refusals of everything else. Routes have one name each, whatever the dialect."""

from collections.abc import Iterable
from typing import Literal, get_args

from billing.caller import Caller
from billing.errors import BillingError

RouteName = Literal[
    "chat",
    "completions",
    "responses",
    "messages",
    "compress",
    "embeddings",
    "rerank",
    "score",
    "files",
    "batches",
    "models",
    "usage",
]
ROUTE_NAMES: tuple[RouteName, ...] = get_args(RouteName)


class ModelNotAllowed(BillingError):
    """The key is restricted to other models."""

    def __init__(self, model_id: str) -> None:
        super().__init__(f"the model {model_id!r} does not exist or this API key may not use it")
        self.model_id = model_id


class RouteNotAllowed(BillingError):
    """The key is restricted to other routes."""

    def __init__(self, route: str) -> None:
        super().__init__(f"this API key may not be used for {route}")
        self.route = route


def require_models(caller: Caller, model_ids: Iterable[str]) -> None:
    """Raises `ModelNotAllowed` for the first that the caller's key may not use."""
    if caller.powers.models is not None:
        for model_id in model_ids:
            if not caller.powers.allows_model(model_id):
                raise ModelNotAllowed(model_id)


def require_route(caller: Caller, route: RouteName | None) -> None:
    """Raises `RouteNotAllowed`; for a route without a name, where the key is restricted at all."""
    if not caller.powers.allows_route(route or ""):
        raise RouteNotAllowed(route or "this route")
