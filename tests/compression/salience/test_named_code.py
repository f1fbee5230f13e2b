"""A stack trace names functions in every language, and they come before all others."""

import pytest

from compression.salience.named_code import named_units, places, with_named
from compression.segmentation import segment

TRACES = {
    "python": (
        'Traceback (most recent call last):\n  File "/srv/a/shop.py", line 9, in pay\n    x()\n',
        ("shop.py", 9, "pay"),
    ),
    "node": ("TypeError: x\n    at pay (/srv/a/shop.js:9:13)\n", ("shop.js", 9, "pay")),
    "java": ("Exception\n\tat com.a.Shop.pay(Shop.java:9)\n", ("Shop.java", 9, "pay")),
    "go": ("panic: x\n\nmain.pay(0x1)\n\t/srv/a/shop.go:9 +0x1d\n", ("shop.go", 9, "pay")),
    "rust": ("   4: shop::pay\n             at ./src/shop.rs:9:5\n", ("shop.rs", 9, "pay")),
    "ruby": ("shop.rb:9:in `pay': boom (RuntimeError)\n", ("shop.rb", 9, "pay")),
    "diff": ("--- a/shop.py\n+++ b/lib/shop.py\n@@ -5,4 +6,4 @@ def pay(bill):\n", ("shop.py", 9, "pay")),
}


@pytest.mark.parametrize(("trace", "wanted"), TRACES.values(), ids=TRACES)
def test_a_place_has_its_file_its_line_and_its_function(trace: str, wanted: tuple[str, int, str]) -> None:
    file, line, name = wanted
    assert any(each.file == file and each.line == line and name in each.names for each in places(trace))


def shop(file: str) -> str:
    functions = "".join(
        f"def {name}(bill):\n    return send(bill, {n})\n\n\n"
        for n, name in enumerate(("open_it", "pay", "close_it"))
    )
    return f"# file: {file}\n{functions}"


def test_of_functions_of_one_name_that_of_the_named_file_is_chosen() -> None:
    found = segment(shop("lib/other.py") + shop("lib/shop.py"))
    named = named_units(found, TRACES["python"][0])
    assert [found.text(unit)[:7] for unit in named] == ["def pay"]
    assert found.units[named[0]].start > len(shop("lib/other.py"))


def test_the_innermost_call_of_a_traceback_comes_first() -> None:
    found = segment(shop("lib/shop.py") + shop("lib/other.py"))
    trace = TRACES["python"][0] + '  File "/srv/a/shop.py", line 2, in open_it\n    y()\n'
    assert [found.text(unit)[:8] for unit in named_units(found, trace)] == ["def open", "def pay("]


def test_named_functions_beat_whatever_the_scorer_found_best() -> None:
    found = segment(shop("lib/shop.py") + shop("lib/other.py"))
    scores = with_named(found, [0.9] * len(found.units), TRACES["python"][0])
    assert found.text(scores.index(max(scores))).startswith("def pay")


def test_a_question_without_a_place_changes_nothing() -> None:
    found = segment(shop("lib/shop.py") + shop("lib/other.py"))
    given = [0.1 * n for n in range(len(found.units))]
    assert with_named(found, given, "Where is the bill paid?") == given
