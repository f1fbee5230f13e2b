"""Which node is drained, and when nothing more can be waited for, from values: the drain itself is Ray's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from serve.cluster import drain
from serve.cluster.drain import end_the_rest, has_no_room, node_named, said_of, see_off_clients
from serve.cluster.progress import StartError
from serve.cluster.ray_insides.cluster_nodes import ClusterNode, PlacedReplica

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
