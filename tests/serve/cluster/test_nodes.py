"""Nodes of a cluster: their checks before a start, their drain, and the replicas that one may have."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from models.engine_kinds import WORKER_SHARE_VARIABLE
from serve.cluster import drain
from serve.cluster.deployments.deployment_options import at_most
from serve.cluster.drain import end_the_rest, has_no_room, node_named, said_of, see_off_clients
from serve.cluster.nodes import (
    Code,
    Marks,
    NodeProbe,
    code_in,
    differences,
    marks_of,
    nodes_of,
    spread_over_nodes,
)
from serve.cluster.progress import StartError
from serve.cluster.ray_insides.cluster_nodes import ClusterNode, PlacedReplica
from serve.config.capacity.placement import Bundle, Demand, Need, bounds_of, placement_group
from serve.config.chat_models import ModelSettings
from serve.config.settings import Settings
from serve.config.turns import EngineGroup
from serve.config.values import Node, parse_node
from tests.serve.cluster.ports import neighbours
from tests.serve.served import settings_document
from tests.vendor_source import text

HERE = "127.0.0.1"
CODE = Code("0.1.0", "0123456789abcdef", Path("/srv/a"))
OWN = Marks(CODE, "pepper")


@contextmanager
def probe() -> Iterator[NodeProbe]:
    made = NodeProbe(HERE)
    try:
        yield made
    finally:
        for one in made.listening:
            one.close()


def test_a_node_listens_at_both_ends_of_the_ports_of_replicas_and_is_reached() -> None:
    first, last = neighbours(2)
    with probe() as there, probe() as here:
        listening = there.listen((first, last))
        assert [port for _, port in listening] == [first, last]
        assert here.unreachable(listening) == []


def test_a_node_listens_on_any_port_where_none_is_named() -> None:
    with probe() as there, probe() as here:
        (listening,) = there.listen(None)
        assert here.unreachable([listening]) == []


def test_a_port_that_is_closed_is_named_with_its_node() -> None:
    with socket.create_server((HERE, 0)) as server:
        closed = server.getsockname()
        open_port = socket.create_server((HERE, 0))
    with open_port:
        (problem,) = NodeProbe(HERE).unreachable([open_port.getsockname(), closed])
    assert problem.startswith(f"{HERE}:{closed[1]} (") and "refused" in problem


def test_a_node_without_a_free_port_says_so() -> None:
    with socket.create_server((HERE, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"no port of {HERE} is free from {port} to {port}"):
            NodeProbe(HERE).listen((port, port))


def test_a_node_with_other_code_or_another_secret_is_named() -> None:
    elsewhere = replace(CODE, folder=Path("/srv/b"))
    others = {
        "a": Marks(elsewhere, "pepper"),
        "b": Marks(replace(elsewhere, version="0.0.9", digest="fedcba9876543210"), "pepper"),
        "c": Marks(CODE, "other"),
        "d": Marks(CODE, None),
    }
    of_b, of_c, of_d = differences(OWN, others, Path("var"))
    assert of_b == (
        "node b has pith 0.0.9 (SHA-256 fedcba987654) in /srv/b, and this machine pith 0.1.0 (SHA-256 0123456789ab) "
        "in /srv/a: install the same wheel on both"
    )
    assert of_c.startswith("node c has another var/pepper") and of_d.startswith("node d has no var/pepper")


def test_code_is_the_same_wherever_it_is_until_any_of_its_files_differs(tmp_path: Path) -> None:
    here, there = tmp_path / "checkout", tmp_path / "site-packages"
    for root in (here, there):
        (root / "compression/weights").mkdir(parents=True)
        (root / "compression/weights/a.npz").write_bytes(b"weights")
        (root / "compression/a.py").write_text("a = 1")
    (there / "compression/__pycache__").mkdir()
    (there / "compression/__pycache__/a.pyc").write_bytes(b"compiled")
    (there / "another_package.py").touch()
    assert code_in(here) == code_in(there)
    (there / "compression/weights/a.npz").write_bytes(b"others")
    assert code_in(here) != code_in(there)


def test_the_marks_of_a_machine_are_those_of_its_code_and_its_secret(tmp_path: Path) -> None:
    without = marks_of(tmp_path)
    assert without.pepper is None
    (tmp_path / "pepper").write_bytes(b"p" * 32)
    found = marks_of(tmp_path)
    assert found.pepper is not None and "p" * 8 not in found.pepper and found.code == without.code
    (tmp_path / "pepper").write_bytes(b"q" * 32)
    assert marks_of(tmp_path).pepper != found.pepper


HEAD = ClusterNode("h0", "10.0.0.1", "head", is_head=True)
ONE = ClusterNode("n1", "10.0.0.2", "one", is_head=False)
TWO = ClusterNode("n2", "10.0.0.3", "two", is_head=False)
NODES = (HEAD, ONE, TWO)
LEAVING = PlacedReplica("model:m", "n1", is_leaving=True, per_node=1)
ELSEWHERE = PlacedReplica("model:m", "h0", is_running=True, per_node=1)


@pytest.mark.parametrize("name", ["10.0.0.2", "one", "n1"])
def test_a_node_is_named_by_address_host_or_id(name: str) -> None:
    assert node_named(name, NODES, own="h0") == ONE


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("10.0.0.9", "no node is called that: 10.0.0.1 (head)"),
        ("head", "Ray's head"),
        ("two", "another node"),
    ],
)
def test_a_node_that_cannot_be_drained_is_refused(name: str, words: str) -> None:
    with pytest.raises(StartError) as caught:
        node_named(name, NODES, own="n2")
    assert words in str(caught.value)


def test_a_host_with_several_nodes_is_named_by_address() -> None:
    with pytest.raises(StartError, match="several nodes are called that"):
        node_named("one", (*NODES, ClusterNode("n3", "10.0.0.4", "one", is_head=False)), own="h0")


def test_a_replica_waits_while_another_node_may_have_one() -> None:
    placed = [LEAVING, ELSEWHERE]
    assert has_no_room(LEAVING, placed, {"h0"})
    assert not has_no_room(LEAVING, placed, {"h0", "n2"})
    # It starts.
    assert not has_no_room(LEAVING, [*placed, PlacedReplica("model:m", "n2", per_node=1)], {"h0", "n2"})
    # One that has begun to stop, or without a bound, is waited for.
    assert not has_no_room(PlacedReplica("model:m", "n1", per_node=1), placed, {"h0"})
    assert not has_no_room(PlacedReplica("model:m", "n1", is_leaving=True), placed, {"h0"})


def test_why_something_is_still_there_is_said_apart() -> None:
    ends = PlacedReplica("compress:c", "n1")
    homeless, ending = said_of([LEAVING, ends])
    assert (
        homeless.startswith("model:m: no room elsewhere") and ending == "compress:c: requests still run there"
    )
    assert said_of([ends]) == [ending] and said_of([]) == []


def test_what_never_ends_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    drained: list[str] = []
    monkeypatch.setattr(drain, "placed_replicas", lambda: [LEAVING, ELSEWHERE])
    monkeypatch.setattr(drain, "begin_drain", lambda node, why, *, deadline_ms: drained.append(node))
    with pytest.raises(StartError, match="model:m still run there"):
        end_the_rest(ONE, [LEAVING], 0, lambda line: None)
    assert drained == ["n1"]
    # What only ends is not hurried.
    monkeypatch.setattr(drain, "placed_replicas", lambda: [ELSEWHERE])
    end_the_rest(ONE, [PlacedReplica("model:m", "n1")], 0, lambda line: None)
    assert drained == ["n1"]


def test_a_process_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    here = PlacedReplica("ingress", "n1", is_running=True)
    monkeypatch.setattr(drain, "placed_replicas", lambda: [here, replace(here, node_id="h0")])
    asked: list[tuple[str, ...]] = []

    def asking(*given: str) -> Callable[[], list[tuple[int, int]]]:
        def ask() -> list[tuple[int, int]]:
            asked.append(given)
            if len(asked) == 1:
                raise RuntimeError("no replica answers")
            return [(0, 0), (0, 0)]

        return ask

    monkeypatch.setattr(drain, "asking", asking)
    said: list[str] = []
    see_off_clients(ONE, 30, said.append)
    assert asked == [("ingress", "n1")] * 2 and said == [
        "10.0.0.2: its HTTP process takes no more connections"
    ]


H100 = "8xH100-80GB,cpu:64"


def app(name: str = "m", *, kept: int = 2, cpus: float = 1, gpus: float = 0, **more: Any) -> Demand:
    bundles = more.pop("bundles", (Bundle(cpus, gpus),))
    return Demand(name, kept, bundles, lambda gpu_gb: Need(), **{"most": kept, **more})


def bounds(demands: list[Demand], *nodes: str) -> dict[str, int]:
    return bounds_of(demands, [parse_node(node) for node in nodes], cpus=0)


@pytest.mark.parametrize(
    ("most", "nodes", "fewest"),
    [
        (2, ["cpu:8", "cpu:8"], 1),
        (1, ["cpu:8", "cpu:8"], 1),
        (3, ["cpu:8", "cpu:8"], 2),
        (4, ["cpu:8", "cpu:8", "cpu:8"], 2),
        # The second node has no more room.
        (4, ["cpu:8", "cpu:1"], 3),
        # More nodes may come.
        (2, ["cpu:1"], None),
        (2, [], None),
    ],
)
def test_as_few_replicas_on_a_node_as_hold_all_of_them(
    most: int, nodes: list[str], fewest: int | None
) -> None:
    assert bounds([app(kept=1, most=most)], *nodes).get("m") == fewest


def test_the_room_of_a_node_is_what_it_has_of_the_scarcest_and_of_the_right_kind() -> None:
    halves = app(kept=1, most=5, gpus=0.5, gpu_type="H100")
    assert bounds([halves], "2xH100-80GB,cpu:16", "2xH100-80GB,cpu:1", "2xL4-24GB,cpu:16") == {"m": 4}


def test_there_is_no_bound_where_others_may_take_the_room_of_a_share() -> None:
    three = [app("a", cpus=2), app("b", cpus=2), app("ingress")]
    # The small node cannot have one of each.
    assert bounds(three, "cpu:2", "cpu:16") == {}
    assert bounds(three, "cpu:5", "cpu:16") == {"a": 1, "b": 1, "ingress": 1}
    # What has no bound itself may take all that it asks for from one node.
    free = app("vllm", cpus=2, bundles=(Bundle(2), Bundle(2)), takes_bound=False)
    assert bounds([free, *three], "cpu:12", "cpu:16") == {}
    assert bounds([free, *three], "cpu:13", "cpu:16") == {"a": 1, "b": 1, "ingress": 1}


def test_who_asks_for_no_gpu_keeps_its_bound_where_gpus_are_short() -> None:
    engines = app("vllm", bundles=(Bundle(1, 1), *(Bundle(0, 1),) * 7), takes_bound=False)
    demands = [engines, app("retrieval", gpus=0.5), app("ingress")]
    assert bounds(demands, H100, H100) == {"ingress": 1}


def test_parts_of_gpus_are_counted_with_what_they_leave_over() -> None:
    # Three of 0.6 fit no two GPUs, though they are 1.8 together.
    parts = [app("a", gpus=0.6), app("b", gpus=0.6), app("c", gpus=0.6)]
    two, three = "2xH100-80GB,cpu:64", "3xH100-80GB,cpu:64"
    assert bounds(parts, two, two) == {}
    assert bounds(parts, three, three) == {"a": 1, "b": 1, "c": 1}


def test_what_the_configuration_says_always_holds() -> None:
    assert bounds([app("a", cpus=2, per_node=1), app("b", cpus=2)], "cpu:2", "cpu:16") == {"a": 1}


def test_nodes_of_ray_without_cpus_have_no_replica() -> None:
    found = [
        {"Resources": {"CPU": 4.0, "GPU": 2.0, "accelerator_type:H100": 1.0}},
        {"Resources": {"node:__internal_head__": 1.0}},
        {"Resources": {"CPU": 8.0}},
    ]
    assert nodes_of(found) == [Node(2, "H100", cpus=4), Node(cpus=8)]


def test_without_a_cluster_nothing_is_asked_of_ray(tmp_path: Path) -> None:
    document = settings_document(tmp_path)
    assert spread_over_nodes(Settings.model_validate(document)) == {}
    document["ray"] = {"address": "auto"}
    document["billing"]["rate_limit_storage"] = "redis://limits"
    assert spread_over_nodes(Settings.model_validate(document)) == {}


def test_the_option_of_ray_serve() -> None:
    assert at_most(None) == {} and at_most(2) == {"max_replicas_per_node": 2}


GPU = {"kind": "gpu", "type": "H100"}
MODELS: dict[str, dict[str, Any]] = {
    "a CPU": {"accelerator": {"kind": "cpu"}},
    "two workers on CPUs": {"accelerator": {"kind": "cpu"}, "engine": {"tensor_parallel_size": 2}},
    "a GPU": {"accelerator": {"kind": "gpu"}},
    "a GPU of a type": {"accelerator": GPU},
    "a share of a GPU": {
        "accelerator": {**GPU, "share": 0.5},
        "engine": {"gpu_memory_utilization": 0.45, "kv_cache_memory_bytes": 2**30},
    },
    "four GPUs": {"accelerator": GPU, "engine": {"tensor_parallel_size": 4}},
    "two stages of two GPUs": {
        "accelerator": GPU,
        "engine": {"tensor_parallel_size": 2, "pipeline_parallel_size": 2},
    },
    "a strategy": {"accelerator": GPU, "replicas": {"placement_strategy": "STRICT_PACK"}},
}


def model(given: dict[str, Any]) -> ModelSettings:
    price = {"input_usd_per_mtok": "1", "output_usd_per_mtok": "1", "minimum_request_usd": "0"}
    names = {"id": "m", "name": "M", "blurb": "b", "checkpoint": "org/m", "context_length": 1024}
    return ModelSettings.model_validate({**names, "price": price, **given})


ON_GPUS = {name: given for name, given in MODELS.items() if given.get("accelerator", {}).get("kind") == "gpu"}


@pytest.mark.parametrize("given", ON_GPUS.values(), ids=ON_GPUS)
def test_a_worker_asks_ray_for_the_part_of_a_gpu_that_its_bundle_has(given: dict[str, Any]) -> None:
    asked = text("vllm.v1.executor.ray_executor_v2", "RayExecutorV2._get_actor_resource_kwargs")
    assert f"num_devices = envs.{WORKER_SHARE_VARIABLE}" in asked and "{'num_gpus': num_devices}" in asked
    described = model(given)
    part = float(described.engine_environment().get(WORKER_SHARE_VARIABLE, 1))
    assert part == placement_group(described)["placement_group_bundles"][0]["GPU"]


def test_a_deployment_is_described_without_vllm() -> None:
    heavy = "[each for each in ('vllm', 'torch', 'ray.llm') if each in sys.modules]"
    code = f"import sys; from serve.cluster.deployments import vllm_chat; print({heavy})"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_a_replica_goes_where_ray_serve_llm_would_put_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray
    from ray.serve.llm import LLMServer

    from serve.cluster.deployments.vllm_chat import llm_config

    # Outside a cluster there is none.
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(runtime_env={}))
    settings = model(MODELS[name])
    config = llm_config(EngineGroup((settings,)), settings, "org/m", counts=False)
    theirs = LLMServer.get_deployment_options(config)
    ours = placement_group(settings)
    assert ours["placement_group_strategy"] == theirs["placement_group_strategy"]
    assert _asked(ours) == _asked(theirs)


def _asked(options: dict[str, Any]) -> list[dict[str, float]]:
    """What each bundle asks for, without what it asks none of."""
    return [
        {key: value for key, value in each.items() if value} for each in options["placement_group_bundles"]
    ]
