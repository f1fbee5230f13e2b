"""Ray Serve's options for every chat model's deployment: its replicas, their load, health, end, and routing."""

from typing import Any

from serve.cluster.replicas.applications import HEALTH_CHECK_PERIOD_S, HEALTH_CHECK_TIMEOUT_S
from serve.cluster.replicas.router import ReplicaRouter
from serve.config.chat_models import ModelSettings


def deployment_options(model: ModelSettings, *, longest_s: float) -> dict[str, Any]:
    """`longest_s` is what a replica that is not needed any more gets to end its requests."""
    replicas = model.replicas
    return {
        "name": model.id.replace("/", "--"),
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
