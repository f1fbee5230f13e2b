"""Plan of a reload: what a new configuration changes in a running server, what is refused, and who asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from billing.price import ModelPrice
from serve.catalog.offered import catalog_of
from serve.cluster.replicas.applications import compressor_app, model_app, retrieval_app
from serve.config.chat_models import ModelSettings, adapter_source, has_room
from serve.config.settings import Settings
from serve.money.ledger_setup import prices_of

# Of these the values are not shown: a password or a token may stand in them.
UNSHOWN = frozenset(
    {"environment", "database_url", "rate_limit_storage", "collection_hook", "options", "tracing"}
)
HIDDEN = "(not shown)"
LISTS_OF_MODELS = ("models", "compression.models", "retrieval_models")
LONGEST_VALUE = 80
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
WITHIN_S, MOST_S = 1800.0, 86_400.0
NONE_AWAY: Mapping[str, bool] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Change:
    """One key with its values as text; "" is none: it was not there, or is not any more."""

    key: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.key}: {self.before or 'none'} → {self.after or 'none'}"


def differences(old: Settings, new: Settings) -> tuple[Change, ...]:
    """In the order of the file. A model that is added or removed is one difference, as is the order of models."""
    before, after = _flat(old), _flat(new)
    keys = dict.fromkeys([*before, *after])
    return tuple(
        Change(key, _text(key, before.get(key)), _text(key, after.get(key), is_new=True))
        for key in keys
        if before.get(key) != after.get(key) and not _is_in_another_model(key, before, after)
    )


def _flat(settings: Settings) -> dict[str, Any]:
    return dict(_leaves("", settings.model_dump()))


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if path in LISTS_OF_MODELS:
        yield path, [model["id"] for model in value]
        for model in value:
            yield from _leaves(f"{path}.{model['id']}", model)
    elif isinstance(value, Mapping) and path.rpartition(".")[2] not in UNSHOWN - {"tracing"}:
        for name, inner in value.items():
            yield from _leaves(f"{path}.{name}" if path else name, inner)
    else:
        yield path, value


def _is_in_another_model(key: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether the key is of a model that only one of them has: the list of models says that."""
    for models in LISTS_OF_MODELS:
        for model_id in set(before[models]) ^ set(after[models]):
            if key.startswith(f"{models}.{model_id}.") and not any(
                other.startswith(f"{model_id}.") and key.startswith(f"{models}.{other}.")
                for other in (*before[models], *after[models])
            ):
                return True
    return False


def _text(key: str, value: Any, *, is_new: bool = False) -> str:
    if value is None:
        return ""
    if not UNSHOWN.isdisjoint(key.split(".")):
        return f"{'another' if is_new else 'one'} {HIDDEN}"
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


@dataclass(frozen=True, slots=True)
class Plan:
    """`refused`: keys that only a restart changes. `started` and `removed` name applications, such as `model:ID`;
    what is started takes the place of one of the same name, if there is one, when it is up. `tried_again` are those
    among the started that could not start before: they may fail once more."""

    changes: tuple[Change, ...]
    refused: tuple[str, ...]
    started: tuple[str, ...]
    removed: tuple[str, ...]
    prices_change: bool
    code: Code
    tried_again: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return self.only_tries_again and not self.tried_again

    @property
    def only_tries_again(self) -> bool:
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
            if app in self.tried_again:
                yield f"  {app.replace(':', ' ', 1)}: is away; its start is tried again"
                continue
            yield f"  {app.replace(':', ' ', 1)}: new processes beside those that run, then in their place"
        for app in self.removed:
            yield f"  {app.replace(':', ' ', 1)}: withdrawn; its requests end, then its processes"
        if not self.is_empty:
            yield "  HTTP processes: new ones beside those that run, then in their place"


def plan_of(old: Settings, new: Settings, *, code: Code, away: Mapping[str, bool] = NONE_AWAY) -> Plan:
    """From what is in force to what is wanted. `away`: applications that could not start, and whether Ray has given
    them up. What it tries on comes back by itself, where a new one would be given up, and it has its room."""
    changes = differences(old, new)
    before, after = _started_with(old, beside=new), _started_with(new, beside=old)
    started = [
        app for app, given in after.items() if code == "all" or before.get(app) != given or away.get(app)
    ]
    return Plan(
        changes,
        tuple(change.key for change in changes if _needs_a_restart(change.key)),
        tuple(started),
        tuple(app for app in before if app not in after),
        listed_prices(old) != listed_prices(new),
        code,
        tuple(app for app in started if app in away),
    )


def _needs_a_restart(key: str) -> bool:
    return any(key == fixed or key.startswith(f"{fixed}.") for fixed in NEEDS_A_RESTART)


def listed_prices(settings: Settings) -> list[ModelPrice]:
    """All that a configuration offers, in order of the models' ids."""
    listed = prices_of(catalog_of(settings), settings.compression.models, settings.retrieval_models)
    return sorted(listed, key=lambda price: price.model_id)


def _started_with(settings: Settings, *, beside: Settings) -> Mapping[str, Any]:
    """What the processes of each application are started with, as far as only a start can change from it to what
    `beside` says."""
    server = settings.server
    of_all = (server.coalesce_ms, server.longest_request_s)
    chat = {
        model_app(group.name): (
            [_own(model) for model in group.models],
            group.turns,
            of_all,
            [
                (one.id, one.adapter)
                for one in settings.adapters_of(group.first.id)
                if not _comes_or_goes(one, group.first, beside)
            ],
        )
        for group in settings.engine_groups
    }
    compressors = {compressor_app(model.id): _own(model) for model in settings.compression.models}
    texts = {
        retrieval_app(model.id): _own(model) for model in settings.retrieval_models if not model.is_hosted
    }
    return {**chat, **compressors, **texts}


def _comes_or_goes(adapter: ModelSettings, base: ModelSettings, beside: Settings) -> bool:
    """Whether it is in one of the two alone and running engines do without it, or load it when it is asked for. One of
    the hub is fetched when an engine starts."""
    known = {model.id for model in beside.adapters_of(base.id)}
    return has_room(base) and adapter.id not in known and adapter_source(adapter).folder is not None


def _own(model: Any) -> Any:
    return model.model_dump(exclude=set(OF_THE_CATALOG))


@dataclass(frozen=True, slots=True)
class Asked:
    """`config`: the file; None: the one that the server was started from. `actor`: who asks, for the audit log.
    `within_s`: what does not run by then is given up, and with it the whole reload. `action`: its name there."""

    actor: str
    config: Path | None = None
    dry_run: bool = False
    code: Code = "none"
    within_s: float = WITHIN_S
    action: str = "server.reload"

    def request(self) -> dict[str, Any]:
        """As it is sent; the server finds out by itself who asks."""
        return {
            "config": None if self.config is None else str(self.config),
            "dry_run": self.dry_run,
            "code": self.code,
            "within_s": self.within_s,
        }


def asked_by(actor: str, request: Mapping[str, Any]) -> Asked:
    """Raises `ValueError` for what is no request of this version."""
    config, dry_run, code = request.get("config"), request.get("dry_run", False), request.get("code", "none")
    if not (config is None or isinstance(config, str)) or not isinstance(dry_run, bool):
        raise ValueError("config must be a path, and dry_run true or false")
    if code not in get_args(Code):
        raise ValueError(f"code must be one of {', '.join(get_args(Code))}")
    within_s = request.get("within_s", WITHIN_S)
    if not isinstance(within_s, int | float) or isinstance(within_s, bool) or not 0 < within_s <= MOST_S:
        raise ValueError(f"within_s must be seconds, above 0 and at most {MOST_S:g}")
    return Asked(actor, None if config is None else Path(config), dry_run, code, float(within_s))
