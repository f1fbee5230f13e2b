"""docs/clients.md says what the tests of released clients do, of the versions that they are pinned to."""

from __future__ import annotations

from tests.clients.environments import LOCKS, NPM, pinned
from tests.clients.record import WORKS, Row, rows_of_tests
from tests.clients.table import PAGE, committed, table


def test_the_page_has_a_row_for_each_test_with_the_pinned_version() -> None:
    """`python -m tests.clients.table` writes it anew, after `pytest tests/clients`."""
    assert committed(PAGE.read_text()) == table(rows_of_tests())


def test_each_lock_names_the_client_that_it_is_for() -> None:
    names = [path.stem for path in LOCKS.glob("*.txt")] + [
        path.name for path in NPM.glob("*") if path.is_dir()
    ]
    assert names and all(all(pinned(name)) for name in names)


def test_a_client_has_one_row_which_says_what_did_not_work() -> None:
    rows = [
        Row("one", "1.0", "chats", WORKS),
        Row("one", "1.0", "tools", "failed"),
        Row("two", "2.0", "x", WORKS),
    ]
    lines = table(rows).splitlines()[2:]
    assert lines == ["| one | 1.0 | chats<br>tools | failed: tools |", "| two | 2.0 | x | works |"]


def test_a_client_in_anothers_environment_has_its_own_package_and_version() -> None:
    assert pinned("langgraph")[0] == "langgraph" and pinned("langgraph") != pinned("langchain")
    assert pinned("ai-sdk-compatible")[0] == "@ai-sdk/openai-compatible (npm)"
