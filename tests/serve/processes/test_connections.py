"""Which connection is shed for the next one, and when the next one is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.processes.connections import MAX_WAITING_REFUSALS, UNREAD_S, Connections, Place, Rest


class Port:
    """Connections that note which of them was shed."""

    def __init__(self, most: int, most_per_client: int = 100) -> None:
        self.connections = Connections(most=most, most_per_client=most_per_client)
        self.shed: list[tuple[str, Rest]] = []

    def open(self, name: str, client: str | None = None) -> Place:
        return self.connections.open(client, lambda rest: self.shed.append((name, rest)))

    def busy(self, name: str, client: str | None = None) -> Place:
        place = self.open(name, client)
        self.connections.works(place)
        return place


def test_the_one_that_was_silent_for_the_longest_goes_first() -> None:
    port = Port(3)
    for name in ("first", "second", "third", "fourth", "fifth"):
        assert port.open(name).refused is None
    assert port.shed == [("first", Rest.NEW), ("second", Rest.NEW)]


def test_the_idle_ones_go_after_the_silent_and_those_at_work_never() -> None:
    port = Port(3)
    idle, silent = port.open("idle"), port.open("silent")
    port.connections.rests(idle, Rest.IDLE)
    port.busy("busy")
    assert not silent.refused
    for name in ("second", "third"):
        port.busy(name)
    assert port.shed == [("silent", Rest.NEW), ("idle", Rest.IDLE)]
    assert port.open("fourth").refused == Connections.ALL
    assert len(port.shed) == 2


def test_a_reply_that_is_not_read_counts_as_rest_only_after_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("serve.processes.connections.monotonic", lambda: now)
    port = Port(1)
    port.connections.rests(port.open("unread"), Rest.UNREAD)
    refused = port.open("next")
    assert refused.refused == Connections.ALL
    port.connections.close(refused)
    now += UNREAD_S
    assert port.open("next").refused is None
    assert port.shed == [("unread", Rest.UNREAD)]


def test_a_client_over_its_bound_loses_one_of_its_own() -> None:
    port = Port(10, 2)
    port.open("other", "b")
    for name in ("first", "second", "third"):
        assert port.open(name, "a").refused is None
    assert port.shed == [("first", Rest.NEW)]
    full = Port(10, 1)
    full.busy("busy", "a")
    assert full.open("next", "a").refused == Connections.CLIENT
    assert full.open("next", "b").refused is None


def test_what_is_refused_waits_for_its_refusal_only_in_small_numbers() -> None:
    port = Port(0)
    places = [port.open("refused") for _ in range(MAX_WAITING_REFUSALS)]
    assert port.connections.may_be_told
    places.append(port.open("one more"))
    assert not port.connections.may_be_told
    for place in places:
        port.connections.close(place)
    assert port.connections.may_be_told


@given(
    st.lists(
        st.tuples(st.sampled_from(["open", "works", "idle", "unread", "close"]), st.integers(0, 9)),
        max_size=80,
    )
)
def test_whatever_happens_no_bound_is_passed_and_nothing_is_left_at_the_end(
    steps: list[tuple[str, int]],
) -> None:
    connections, places = Connections(most=4, most_per_client=2), list[Place]()
    for step, number in steps:
        if step == "open":
            places.append(connections.open(f"client {number % 3}", lambda rest: None))
        elif places:
            place = places[number % len(places)]
            if step == "works":
                connections.works(place)
            elif step == "close":
                connections.close(place)
            else:
                connections.rests(place, Rest.IDLE if step == "idle" else Rest.UNREAD)
        taken = [place for place in places if place.is_taken]
        assert len(taken) <= 4
        assert all(
            sum(place.client == client for place in taken) <= 2 for client in {p.client for p in taken}
        )
    for place in places:
        connections.close(place)
        connections.close(place)
    assert connections._all.taken == 0 and not connections._of
    assert not any(connections._all.resting)
