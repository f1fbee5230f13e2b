"""BatchTurns go by project, then by batch."""

from __future__ import annotations

from serve.batches.runner import BatchTurns


def drawn(turns: BatchTurns, count: int) -> list[str | None]:
    return [turns.next(()) for _ in range(count)]


def test_a_project_with_many_batches_has_the_turns_of_one() -> None:
    turns = BatchTurns()
    turns.see([*((f"many-{number}", "a") for number in range(100)), ("one", "b")])
    assert drawn(turns, 6) == ["many-0", "one", "many-1", "one", "many-2", "one"]


def test_turns_are_kept_while_batches_come_and_go() -> None:
    turns = BatchTurns()
    turns.see([("a1", "a"), ("a2", "a"), ("b1", "b")])
    assert drawn(turns, 2) == ["a1", "b1"]
    turns.see([("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("c1", "c")])
    assert drawn(turns, 6) == ["a2", "b1", "c1", "a1", "b1", "c1"]
    turns.see([("b1", "b")])
    assert drawn(turns, 2) == ["b1", "b1"]


def test_a_batch_without_lines_is_passed_over() -> None:
    turns = BatchTurns()
    turns.see([("a1", "a"), ("a2", "a"), ("b1", "b")])
    assert [turns.next({"a1"}) for _ in range(3)] == ["a2", "b1", "a2"]
    assert turns.next({"a1", "a2", "b1"}) is None
    assert BatchTurns().next(()) is None
