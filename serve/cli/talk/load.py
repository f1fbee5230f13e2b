"""What a running server's metrics say of its load."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Models of these metrics, by what they count.
_IN_FLIGHT = "pith_chat_requests_in_flight"
_WAITING = ("pith_chat_requests_waiting", "pith_compress_jobs_waiting")
_TOKENS = (
    "pith_chat_prompt_tokens_total",
    "pith_chat_completion_tokens_total",
    "pith_retrieval_input_tokens_total",
    "pith_compress_original_tokens_total",
)
_GENERATED = "pith_chat_completion_tokens_total"


@dataclass(frozen=True, slots=True)
class Readings:
    """One scrape: by metric and model; `model` is "" for those without one."""

    values: Mapping[tuple[str, str], float]

    @property
    def models(self) -> list[str]:
        """In the order of the metrics; those with replicas first."""
        return list(dict.fromkeys(model for _, model in self.values if model))

    def of(self, name: str, model: str = "") -> float | None:
        return self.values.get((name, model))

    def total(self, names: Iterable[str], model: str) -> float | None:
        found = [value for name in names if (value := self.of(name, model)) is not None]
        return sum(found) if found else None


def readings_of(text: str) -> Readings:
    """From the text of `/metrics`. Values of the same metric and model are added up. Raises `ValueError`."""
    from prometheus_client.parser import text_string_to_metric_families

    values: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("pith_"):
                key = sample.name, sample.labels.get("model", "")
                values[key] = values.get(key, 0) + sample.value
    order = sorted(values, key=lambda key: not key[0].startswith("pith_replicas"))
    return Readings({key: values[key] for key in order})


def model_load(now: Readings, before: Readings, seconds: float, model: str) -> dict[str, Any]:
    """A model's replicas and load. Tokens per second are of the requests that ended in those seconds; `generated`
    are those of replies, `tokens` all that were read or written."""
    return {
        "model": model,
        "replicas_running": _whole(now.of("pith_replicas_running", model)),
        "replicas_wanted": _whole(now.of("pith_replicas_wanted", model)),
        "in_flight": _whole(now.of(_IN_FLIGHT, model)),
        "waiting": _whole(now.total(_WAITING, model)),
        "tokens_per_s": _rate(now, before, seconds, _TOKENS, model),
        "generated_per_s": _rate(now, before, seconds, (_GENERATED,), model),
    }


def service_load(now: Readings) -> dict[str, Any]:
    """What is of no one model."""
    return {
        "http_processes": _whole(now.of("pith_ingress_replicas")),
        "http_requests_in_flight": _whole(now.of("pith_http_requests_in_flight")),
        "spool_waiting": _whole(now.of("pith_spool_waiting_events")),
        "spool_refused": _whole(now.of("pith_spool_refused_events")),
    }


def _rate(now: Readings, before: Readings, seconds: float, names: Iterable[str], model: str) -> float | None:
    names = tuple(names)
    after, first = now.total(names, model), before.total(names, model)
    # A server that was started again counts from zero.
    return None if after is None else round(max(0.0, after - (first or 0.0)) / seconds, 1)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
