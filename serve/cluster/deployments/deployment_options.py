"""Options of Ray Serve for the deployments of models: replicas, load, health, end, and routing."""

from typing import Any

from serve.cluster.replicas.applications import HEALTH_CHECK_PERIOD_S, HEALTH_CHECK_TIMEOUT_S, SETTLE_S
from serve.config.compression_models import CompressionModelSettings
from serve.config.retrieval_models import RetrievalModelSettings
from serve.config.turns import EngineGroup

# Above what may wait in a replica: it refuses a request too many itself, instead of leaving it in Ray's queue.
REFUSED_AT_ONCE = 64


def chat_options(group: EngineGroup, *, longest_s: float) -> dict[str, Any]:
    """`longest_s` is what a replica that is not needed any more gets to end its requests."""
    from serve.cluster.replicas.router import ReplicaRouter

    replicas = group.first.replicas
    return {
        "name": group.name.replace("/", "--"),
        "autoscaling_config": {
            "min_replicas": replicas.min,
            "initial_replicas": replicas.min,
            "max_replicas": replicas.max,
            "target_ongoing_requests": replicas.target_ongoing_requests,
            "downscale_delay_s": replicas.idle_s,
            "downscale_to_zero_delay_s": replicas.idle_s,
            "upscale_delay_s": 0,
            "metrics_interval_s": 2,
            "look_back_period_s": 4,
        },
        "max_ongoing_requests": replicas.max_ongoing_requests,
        "max_queued_requests": replicas.max_queued_requests,
        "health_check_period_s": HEALTH_CHECK_PERIOD_S,
        "health_check_timeout_s": HEALTH_CHECK_TIMEOUT_S,
        "graceful_shutdown_timeout_s": longest_s,
        "request_router_config": {
            "request_router_class": ReplicaRouter,
            "request_router_kwargs": {"routing": replicas.routing},
        },
    }


def pooled_options(model: CompressionModelSettings | RetrievalModelSettings) -> dict[str, Any]:
    """All but what a replica runs on."""
    replicas = model.replicas
    return {
        "name": model.id.replace("/", "--"),
        "autoscaling_config": {
            "min_replicas": replicas.min,
            "initial_replicas": replicas.min,
            "max_replicas": replicas.max,
            "target_ongoing_requests": max(1, replicas.max_ongoing_requests // 2),
            "upscale_delay_s": 0,
        },
        # All that waits is in the replica, where it is put in order; Ray's queue is for a replica that starts.
        "max_ongoing_requests": model.max_waiting + REFUSED_AT_ONCE,
        "max_queued_requests": model.max_waiting,
        "health_check_period_s": HEALTH_CHECK_PERIOD_S,
        "health_check_timeout_s": HEALTH_CHECK_TIMEOUT_S,
        # A replica that is not needed any more may end what it has.
        "graceful_shutdown_timeout_s": model.deadline_s + SETTLE_S,
    }


def at_most(per_node: int | None) -> dict[str, int]:
    """Ray Serve's option for so many replicas of a deployment on a node; None: any number."""
    return {} if per_node is None else {"max_replicas_per_node": per_node}
