"""Each of Ray's names that `ray_insides` uses means at the pinned version what is relied on."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

from serve.cluster.ray_insides.cluster_nodes import HEAD, REASON
from serve.cluster.ray_insides.ray_serve import CLUSTERS_VARIABLE, RAY_ENVIRONMENT
from tests.vendor_source import found, parameters, source, text

ROUTER = "ray.serve._private.router"
LLM_SERVER = "ray.llm._internal.serve.core.server.llm_server"
VLLM_ENGINE = "ray.llm._internal.serve.engines.vllm.vllm_engine"


def test_without_clusters_ray_calls_this_machine_loopback() -> None:
    assert isinstance(found("ray._private.ray_constants", "ENABLE_RAY_CLUSTER"), ast.Assign)
    address = text("ray._private.services", "get_node_ip_address")
    assert "if not ray_constants.ENABLE_RAY_CLUSTER:\n        return get_localhost_ip()" in address


def test_a_process_that_joins_takes_the_machines_address_for_loopback_unless_its_environment_says_otherwise() -> (
    None
):
    services, constants = "ray._private.services", ast.unparse(source("ray._private.ray_constants"))
    assert "resolve_ip_for_localhost(host)" in text(services, "canonicalize_bootstrap_address")
    assert "if is_localhost(host):\n        return get_node_ip_address()" in text(
        services, "resolve_ip_for_localhost"
    )
    assert f"ENABLE_RAY_CLUSTERS_ENV_VAR = '{CLUSTERS_VARIABLE}'" in constants
    assert "ENABLE_RAY_CLUSTER = env_bool(ENABLE_RAY_CLUSTERS_ENV_VAR," in constants


def test_ray_takes_an_address_and_a_folder_of_ours() -> None:
    init = text("ray._private.worker", "init")
    assert "kwargs.pop('_node_ip_address'" in init and "kwargs.pop('_temp_dir'" in init


def test_a_monitor_is_a_process_that_nothing_else_of_a_node_needs() -> None:
    node = "ray._private.node"
    for name, started_in in (("monitor", "start_head_processes"), ("log_monitor", "start_ray_processes")):
        assert parameters(node, f"Node.start_{name}") == []
        assert f"        self.start_{name}()" in text(node, f"Node.{started_in}")
        assert "return" not in text(node, f"Node.start_{name}")


def test_the_port_of_a_serve_replica_is_opened_by_the_function_that_is_wrapped() -> None:
    assert parameters("ray._common.tls_utils", "add_port_to_grpc_server") == ["server", "address"]
    replica = "ray.serve._private.replica"
    bound = [
        ast.unparse(node)
        for node in ast.walk(source(replica))
        if isinstance(node, ast.ImportFrom) and node.module == "ray._common.tls_utils"
    ]
    assert bound == ["from ray._common.tls_utils import add_port_to_grpc_server"]
    whole = ast.unparse(source(replica))
    assert "add_port_to_grpc_server(self._server, '[::]:0')" in whole
    assert "add_insecure_port" not in whole and "add_secure_port" not in whole


def test_a_workers_setup_hook_that_fails_ends_the_worker() -> None:
    main = ast.unparse(source("ray._private.workers.default_worker"))
    assert "error = load_and_execute_setup_hook(worker_process_setup_hook_key)" in main
    assert "worker.core_worker.drain_and_exit_worker('system', error)" in main


def test_a_replica_passes_a_health_check_after_its_ports_are_open_and_before_it_is_used() -> None:
    begins = next(
        ast.unparse(node)
        for node in ast.walk(source("ray.serve._private.replica"))
        if isinstance(node, ast.AsyncFunctionDef)
        and node.name == "initialize"
        and "_on_initialized" in ast.unparse(node)
    )
    assert begins.index("await self._on_initialized()") < begins.index("await self.check_health()")
    assert begins.index("record_replica_metadata") < begins.index("await self.check_health()")


def test_an_application_is_deployed_without_waiting() -> None:
    assert {"target", "_blocking", "name", "route_prefix"} <= set(parameters("ray.serve.api", "_run"))
    assert "wait_for_applications_running=_blocking" in text("ray.serve.api", "_run")


def test_an_application_is_deleted_without_waiting() -> None:
    assert "delete_apps([name], blocking=_blocking)" in text("ray.serve.api", "delete")


def test_a_handle_makes_its_router_once_in_the_loop_that_asks() -> None:
    handle = "ray.serve.handle"
    assert "self._router = self._create_router(" in text(handle, "_DeploymentHandleBase._init")
    assert found("ray.serve._private.handle_options", "InitHandleOptionsBase._run_router_in_separate_loop")
    choose = text("ray.serve._private.default_impl", "create_router")
    assert "handle_options._run_router_in_separate_loop" in choose and "CurrentLoopRouter" in choose
    assert "self._asyncio_router = AsyncioRouter(" in text(ROUTER, "CurrentLoopRouter")


def test_a_replica_is_chosen_without_a_reservation() -> None:
    choose = text(ROUTER, "AsyncioRouter.choose_replica")
    assert "reserve = request_kwargs.pop('_reserve', True)" in choose
    selection = "ray.serve._private.request_router.replica_wrapper"
    assert found(selection, "ReplicaSelection._replica")
    assert "replica_metadata" in text(selection, "ReplicaSelection")


def test_the_counts_by_which_ray_scales_are_the_handles_own() -> None:
    assert "self._metrics_manager = RouterMetricsManager(" in text(ROUTER, "AsyncioRouter")
    counts = "RouterMetricsManager"
    for sign, name in (("+", "inc"), ("-", "dec")):
        queued = text(ROUTER, f"{counts}.{name}_num_queued_requests")
        assert f"self.num_queued_requests {sign}= 1" in queued
        running = f"{counts}.{name}_num_running_requests_for_replica"
        assert parameters(ROUTER, running) == ["replica_id"]
        assert f"self.num_requests_sent_to_replicas[replica_id] {sign}= 1" in text(ROUTER, running)


def test_the_router_has_the_replicas_and_forgets_a_dead_one() -> None:
    router = "ray.serve._private.request_router.request_router"
    assert "return self._replicas" in text(router, "RequestRouter.curr_replicas")
    assert parameters(router, "RequestRouter.on_replica_actor_died") == ["replica_id"]
    assert "self._replicas.pop(replica_id, None)" in text(router, "RequestRouter.on_replica_actor_died")
    assert parameters(router, "RequestRouter.update_replicas") == ["replicas"]
    assert "return self._request_router" in text(ROUTER, "AsyncioRouter.request_router")


@pytest.mark.parametrize("name", sorted(RAY_ENVIRONMENT))
def test_ray_reads_each_variable_that_is_set_for_it(name: str) -> None:
    spec = find_spec("ray")
    assert spec is not None and spec.submodule_search_locations
    ray = Path(spec.submodule_search_locations[0])
    read_in = (
        "_private/utils.py",
        "_common/usage/usage_constants.py",
        "serve/_private/constants.py",
        "llm/_internal/serve/constants.py",
        "core/src/ray/raylet/raylet",
    )
    assert any(name.encode() in (ray / place).read_bytes() for place in read_in)


def test_ray_serve_llms_server_starts_the_engine_class_that_it_is_given() -> None:
    assert "engine_cls" in parameters(LLM_SERVER, "LLMServer.sync_init")
    assert "instance._init_shared(llm_config, engine_cls, model_downloader)" in text(
        LLM_SERVER, "LLMServer.sync_init"
    )
    assert "self.engine = self._engine_cls(self._llm_config)" in text(LLM_SERVER, "LLMServer.start")
    assert "self._llm_config = llm_config" in text(LLM_SERVER, "LLMServer._init_shared")


def test_ray_serve_llm_starts_its_engine_in_a_method_that_reports_it_too() -> None:
    starts = found(LLM_SERVER, "LLMServer._start_engine")
    assert isinstance(starts, ast.AsyncFunctionDef)
    calls = [ast.unparse(each) for each in starts.body if isinstance(each, ast.Expr)]
    assert calls == [
        "await self.engine.start()",
        "push_telemetry_report_for_all_models(all_models=[self._llm_config])",
    ]
    assert "self._start_engine()" in text(LLM_SERVER, "LLMServer.start")


def test_ray_serve_llms_engine_keeps_vllm_where_it_is_looked_for() -> None:
    starts = text(VLLM_ENGINE, "VLLMEngine.start")
    assert "self._engine_client = self._start_async_llm_engine(" in starts
    assert "self._oai_serving_chat = getattr(state, 'openai_serving_chat', None)" in starts


def test_ray_serve_llm_lets_vllm_count_nothing_where_it_is_told_so() -> None:
    starts = text(VLLM_ENGINE, "VLLMEngine._start_async_llm_engine")
    assert "log_stats=not vllm_engine_args.disable_log_stats" in starts


def test_ray_serve_llm_takes_the_executor_from_what_it_has_prepared() -> None:
    prepared = text(VLLM_ENGINE, "VLLMEngine._prepare_engine_config")
    assert "return (vllm_engine_args, vllm_frontend_args, vllm_engine_config)" in prepared
    assert "self._prepare_engine_config(callback.ctx)" in text(VLLM_ENGINE, "VLLMEngine.start")


def test_ray_serve_llm_fetches_nothing_where_a_callback_says_so() -> None:
    callbacks = "ray.llm._internal.common.callbacks.base"
    assert "run_init_node: bool = True" in text(callbacks, "CallbackCtx")
    assert "on_before_node_init" in text(callbacks, "CallbackBase")
    starts = text(VLLM_ENGINE, "VLLMEngine.start")
    asked = "await callback.run_callback('on_before_node_init')\n    if callback.ctx.run_init_node:"
    assert asked in starts


def test_who_started_serve_is_noted_by_the_id_of_its_controller() -> None:
    constants = "ray.serve._private.constants"
    assert found(constants, "SERVE_CONTROLLER_NAME") and found(constants, "SERVE_NAMESPACE")
    kept = "ray.experimental.internal_kv"
    assert parameters(kept, "_internal_kv_put")[:3] == ["key", "value", "overwrite"]
    assert parameters(kept, "_internal_kv_get")[0] == "key"
    actor = "ray.actor"
    assert "self._ray_actor_id" in text(actor, "ActorHandle") and "def _actor_id" in text(
        actor, "ActorHandle"
    )
    assert parameters("ray.serve.api", "delete") == ["name", "_blocking"]


def test_a_replica_that_is_gone_is_an_actor_whose_name_nobody_has() -> None:
    started = text("ray.serve._private.deployment_state", "ActorReplicaWrapper")
    assert "self._actor_name = replica_id.to_full_id_str()" in started
    assert "self._actor_name, namespace=SERVE_NAMESPACE" in started
    assert "ValueError" in text("ray._private.worker", "get_actor")
    kept = "ray.experimental.internal_kv"
    assert parameters(kept, "_internal_kv_list")[0] == "prefix"
    assert "-> int" in text(kept, "_internal_kv_del")


def test_ray_serve_llm_hands_a_frontends_arguments_on_to_vllm() -> None:
    models = "ray.llm._internal.serve.engines.vllm.vllm_models"
    assert "frontend_kwargs=frontend_kwargs" in text(models, "VLLMEngineConfig.from_llm_config")
    config = "ray.llm._internal.serve.core.configs.llm_config"
    assert "return self._engine_config" in text(config, "LLMConfig.get_engine_config")
    prepared = text(VLLM_ENGINE, "VLLMEngine._prepare_engine_config")
    assert "FrontendArgs(**engine_config.frontend_kwargs)" in prepared


STATES = "ray.serve._private.deployment_state"


def test_rays_own_command_drains_by_the_same_call() -> None:
    command = text("ray.scripts.scripts", "drain_node")
    assert "gcs_client = ray._raylet.GcsClient(address=address)" in command
    assert "is_accepted, rejection_error_message = gcs_client.drain_node(node_id, " in command
    assert "autoscaler_pb2.DrainNodeReason.Value(reason), reason_message, deadline_timestamp_ms)" in command
    # No deadline is 0, and others are in milliseconds.
    assert "deadline_timestamp_ms = 0\n" in command and "time.time_ns() // 1000000" in command
    # The others are refused where something runs on the node.
    assert REASON == "DRAIN_NODE_REASON_PREEMPTION"


def test_the_head_has_a_resource_that_tells_it() -> None:
    assert text("ray._common.constants", "HEAD_NODE_RESOURCE_NAME").endswith(
        f"'{HEAD.removeprefix('node:')}'"
    )


def test_serve_starts_another_replica_before_it_stops_one_on_a_node_that_is_drained() -> None:
    migrate = text(STATES, "migrate_replicas_on_draining_nodes")
    assert "self._replicas.add(ReplicaState.PENDING_MIGRATION, replica)" in migrate
    assert "num_running + num_draining - self._target_state.target_num_replicas" in migrate
    chosen = text(STATES, "_partition_groups_to_stop")
    assert "if curr_timestamp_ms >= effective_deadline - timeout_ms:" in chosen
    cache = text("ray.serve._private.cluster_node_info_cache", "ClusterNodeInfoCache.update")
    assert "deadline if deadline != 0 else _DRAINING_NODE_NO_DEADLINE" in cache


def test_serve_tells_where_replicas_are_and_how_many_a_node_may_have() -> None:
    assert "node_id" in text("ray.serve.schema", "ServeActorDetails")
    assert "state: ReplicaState" in text("ray.serve.schema", "ReplicaDetails")
    assert "schema.max_replicas_per_node = " in text("ray.serve.schema", "_deployment_info_to_schema")
    details = text("ray.serve._private.client", "ServeControllerClient.get_serve_details")
    assert "self._controller.get_serve_instance_details.remote()" in details
