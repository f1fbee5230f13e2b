"""What a reload does for a new configuration: what starts beside what runs, what is withdrawn, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from billing.price import ModelPrice
from serve.catalog.configured import catalog_of
from serve.cluster.reload.differences import Change, differences
from serve.cluster.replicas.applications import compressor_app, model_app, retrieval_app
from serve.config.settings import Settings
from serve.money.ledger_setup import prices_of

# What of the code is taken anew: none of it, the HTTP processes', or that of models and compressors too.
Code = Literal["none", "http", "all"]
# `pith serve` itself goes by these from its start to its end.
NEEDS_A_RESTART = (
    "state_dir",
    "server.host",
    "server.port",
    "ops",
    "metrics",
    "logs",
    "ray",
    "tracing",
    "billing.database_url",
    "billing.spool_path",
    "billing.rate_limit_storage",
)
# Only the HTTP processes read these of a model.
OF_THE_CATALOG = frozenset(
    {"name", "blurb", "price", "price_usd_per_mtok_input", "capabilities", "size", "weights_gb"}
)


@dataclass(frozen=True, slots=True)
class Plan:
    """`refused`: keys that only a restart changes. `started` and `removed` name applications, such as `model:ID`;
    what is started takes the place of one of the same name, if there is one, when it is up."""

    changes: tuple[Change, ...]
    refused: tuple[str, ...]
    started: tuple[str, ...]
    removed: tuple[str, ...]
    prices_change: bool
    code: Code

    @property
    def is_empty(self) -> bool:
        return not self.changes and self.code == "none"

    def fields(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self) | {"http": not self.is_empty}

    def lines(self) -> Iterator[str]:
        """For a person."""
        for change in self.changes:
            yield f"  {change}"
        if self.prices_change:
            yield "  prices: a new version of the price list"
        for app in self.started:
            yield f"  {app.replace(':', ' ', 1)}: new processes beside those that run, then in their place"
        for app in self.removed:
            yield f"  {app.replace(':', ' ', 1)}: withdrawn; its requests end, then its processes"
        if not self.is_empty:
            yield "  HTTP processes: new ones beside those that run, then in their place"


def plan_of(old: Settings, new: Settings, *, code: Code) -> Plan:
    """From what is in force to what is wanted."""
    changes = differences(old, new)
    before, after = _started_with(old), _started_with(new)
    started = [app for app, given in after.items() if code == "all" or before.get(app) != given]
    return Plan(
        changes,
        tuple(change.key for change in changes if _needs_a_restart(change.key)),
        tuple(started),
        tuple(app for app in before if app not in after),
        listed_prices(old) != listed_prices(new),
        code,
    )


def _needs_a_restart(key: str) -> bool:
    return any(key == fixed or key.startswith(f"{fixed}.") for fixed in NEEDS_A_RESTART)


def listed_prices(settings: Settings) -> list[ModelPrice]:
    """All that a configuration offers, in order of the models' ids."""
    listed = prices_of(catalog_of(settings), settings.compression.models, settings.retrieval_models)
    return sorted(listed, key=lambda price: price.model_id)


def _started_with(settings: Settings) -> Mapping[str, Any]:
    """What the processes of each application are started with."""
    server = settings.server
    of_all = (server.coalesce_ms, server.longest_request_s)
    chat = {
        model_app(model.id): (
            _own(model),
            of_all,
            [(one.id, one.adapter) for one in settings.adapters_of(model.id)],
        )
        for model in settings.engine_models
    }
    compressors = {compressor_app(model.id): _own(model) for model in settings.compression.models}
    texts = {
        retrieval_app(model.id): _own(model) for model in settings.retrieval_models if not model.is_hosted
    }
    return {**chat, **compressors, **texts}


def _own(model: Any) -> Any:
    return model.model_dump(exclude=set(OF_THE_CATALOG))
