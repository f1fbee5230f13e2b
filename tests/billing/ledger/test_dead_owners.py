"""`billing.ledger.leases`: when a server takes another one's lease for ended."""

from __future__ import annotations

from billing.ledger.leases import DeadOwners, LeaseTimes, Neglected

TIMES = LeaseTimes(ttl_s=60, renew_every_s=15, looks=3)
ENDED = Neglected("e", 100.0, has_ended=True)


def looks(watch: DeadOwners, *times: float, hold: Neglected = ENDED) -> list[bool]:
    return [watch.look([hold], now=now, spared=()) == ["e"] for now in times]


def test_a_lease_is_dead_at_the_third_look_a_renewal_apart() -> None:
    assert looks(DeadOwners(TIMES), 0, 15, 30) == [False, False, True]


def test_looks_in_quick_succession_count_as_one() -> None:
    assert looks(DeadOwners(TIMES), 0, 1, 2, 3, 4, 5, 15, 16, 30) == [False] * 8 + [True]


def test_a_lease_that_changed_is_looked_at_anew() -> None:
    watch = DeadOwners(TIMES)
    assert looks(watch, 0, 15) == [False, False]
    assert looks(watch, 30, 45, hold=Neglected("e", 101.0, has_ended=True)) == [False, False]


def test_a_server_that_was_stopped_itself_looks_anew() -> None:
    assert looks(DeadOwners(TIMES), 0, 15, 315, 330, 345) == [False, False, False, False, True]


def test_a_lease_that_has_not_ended_is_dead_when_nobody_renewed_it_for_longer_than_one_lasts() -> None:
    running = Neglected("e", 10**9, has_ended=False)
    assert looks(DeadOwners(TIMES), *range(0, 76, 15), hold=running) == [False] * 5 + [True]


def test_what_was_forgotten_or_is_not_found_any_more_is_looked_at_anew() -> None:
    watch = DeadOwners(TIMES)
    looks(watch, 0, 15)
    watch.forget()
    assert looks(watch, 30, 45) == [False, False]
    watch.look([], now=60, spared=())
    assert looks(watch, 75) == [False]


def test_what_is_spared_is_not_dead() -> None:
    watch = DeadOwners(TIMES)
    for now in (0, 15, 30, 45):
        assert watch.look([ENDED], now=now, spared={"e"}) == []
