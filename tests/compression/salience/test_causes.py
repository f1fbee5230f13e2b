"""Of a failed build its causes come first, each kind before its repetitions; passed tests are no errors."""

from compression.salience import with_causes
from compression.segmentation import segment

LOG = "\n".join((
    *(f"tests/test_{n}.py::test_fails_with_an_error_{n} PASSED" for n in range(20)),
    "src/a.c:3:9: error: 'rate' undeclared",
    "    3 |   return rate;",
    "      |          ^~~~",
    "src/b.c:4:1: error: too few arguments to function 'send'",
    "make: *** [Makefile:7: a.o] Error 1",
    "Error: Process completed with exit code 2.",
))  # fmt: skip
QUERY = "Why did the build fail?"


def ranked(log: str, query: str) -> list[str]:
    found = segment(log)
    scores = with_causes(found, [0.5] * len(found.units), query)
    raised = [unit for unit in range(len(scores)) if scores[unit] > 0.5]
    return [found.text(unit) for unit in sorted(raised, key=lambda unit: -scores[unit])]


def test_the_causes_come_first_and_what_only_counts_them_last() -> None:
    first, second, *rest = ranked(LOG, QUERY)
    assert {first.split(":")[0], second.split(":")[0]} == {"src/a.c", "src/b.c"}
    assert "exit code" in rest[-1]


def test_the_picture_of_the_place_is_one_with_its_error() -> None:
    assert any("undeclared" in unit and "^~~~" in unit for unit in ranked(LOG, QUERY))


def test_a_passed_test_is_no_error_whatever_its_name() -> None:
    assert not any("PASSED" in unit for unit in ranked(LOG, QUERY))


def test_who_asks_for_something_else_gets_what_the_scorer_says() -> None:
    assert ranked(LOG, "How many files are there?") == []
