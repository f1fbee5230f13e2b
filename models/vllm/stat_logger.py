"""vLLM's own metrics, counted where the caller says: under vLLM's names, by vLLM's own code."""

from collections.abc import Callable
from typing import Any, Protocol

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorProm
from vllm.v1.metrics.loggers import PrometheusStatLogger
from vllm.v1.metrics.perf import PerfMetricsProm
from vllm.v1.spec_decode.metrics import SpecDecodingProm


class MetricFamilies(Protocol):
    """Makes what vLLM counts in: the arguments and methods are those of `prometheus_client`'s classes."""

    @property
    def counter(self) -> Callable[..., Any]: ...

    @property
    def gauge(self) -> Callable[..., Any]: ...

    @property
    def histogram(self) -> Callable[..., Any]: ...


def stat_logger(families: MetricFamilies) -> type[PrometheusStatLogger]:
    """vLLM's stat logger, with `families` in the place of `prometheus_client`."""
    classes = {
        "_gauge_cls": staticmethod(families.gauge),
        "_counter_cls": staticmethod(families.counter),
        "_histogram_cls": staticmethod(families.histogram),
    }
    inner = {
        "_spec_decoding_cls": type("SpecDecoding", (SpecDecodingProm,), classes),
        "_kv_connector_cls": type("KVConnector", (KVConnectorProm,), classes),
        "_perf_metrics_cls": type("PerfMetrics", (PerfMetricsProm,), classes),
    }
    return type("CountingStatLogger", (PrometheusStatLogger,), classes | inner)


def count_with(families: MetricFamilies) -> None:
    """Let the engines that this process starts from now on count in `families`, where their statistics are on."""
    from models.vllm.insides import log_stats_with

    log_stats_with(stat_logger(families))
