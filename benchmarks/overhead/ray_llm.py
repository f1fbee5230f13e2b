"""Ray Serve LLM as its documents start it, for the comparison: `build_openai_app` on this machine alone."""

from __future__ import annotations

import argparse
import signal
from typing import Any

import orjson
import ray
from ray import serve
from ray.serve.llm import LLMConfig, build_openai_app
from ray.serve.llm.request_router import PrefixCacheAffinityRouter

from benchmarks.overhead.engine import copy_of

LOGICAL_CPUS = 16
OBJECT_STORE_BYTES = 128 * 10**6


def config(
    engine: dict[str, Any], *, kind: str | None, replicas: int = 1, prefix_aware: bool = False
) -> LLMConfig:
    """`prefix_aware`: its replicas are chosen by Ray's own router for that, which is given no arguments."""
    routed = {"request_router_config": {"request_router_class": PrefixCacheAffinityRouter}}
    return LLMConfig(
        model_loading_config={"model_id": engine["model"], "model_source": engine["checkpoint"]},
        engine_kwargs=engine["arguments"],
        accelerator_config={"kind": kind} if kind else None,
        deployment_config={
            "autoscaling_config": {"min_replicas": replicas, "max_replicas": replicas},
            **(routed if prefix_aware else {}),
        },
        runtime_env={"env_vars": engine["environment"]},
        log_engine_metrics=False,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", type=orjson.loads, required=True, help="as JSON")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--models", type=int, default=1, help="copies to keep up, each an application")
    parser.add_argument("--kind", default="cpu", help="of accelerator; '' for a GPU")
    parser.add_argument("--replicas", type=int, default=1, help="of the first model")
    parser.add_argument(
        "--prefix-aware", action="store_true", help="choose among them by Ray's own router for that"
    )
    options = parser.parse_args()
    # No dashboard: it would cost this side alone.
    ray.init(
        address="local",
        num_cpus=LOGICAL_CPUS,
        object_store_memory=OBJECT_STORE_BYTES,
        include_dashboard=False,
        log_to_driver=False,
    )
    serve.start(http_options={"host": "127.0.0.1", "port": options.port})
    kind = options.kind or None
    first = config(options.engine, kind=kind, replicas=options.replicas, prefix_aware=options.prefix_aware)
    serve.run(build_openai_app({"llm_configs": [first]}))
    # Not in one application: direct streaming is for one model in each.
    for number in range(2, options.models + 1):
        name = copy_of(options.engine["model"], number)
        app = build_openai_app({"llm_configs": [config({**options.engine, "model": name}, kind=kind)]})
        serve.run(app, name=name, route_prefix=f"/{name}")
    signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main()
