"""What programs print: each kind is told, its pieces know what they belong to, and prose is none of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compression.pipeline.compression_model import CompressionRequest
from compression.pipeline.pipeline import Compressor
from compression.salience import read_salience
from compression.segmentation import segment
from tests.compression.segmentation.invariants import check

DIFF = """\
diff --git a/app/queue.py b/app/queue.py
index 1793b65..64f57e7 100644
--- a/app/queue.py
+++ b/app/queue.py
@@ -10,5 +10,5 @@ class Queue:
     def take(self):
         job = self.jobs.pop()
-        self.release(job)
+        await self.release(job)
         return job
@@ -40,3 +40,4 @@ class Queue:
     def close(self):
+        log.warning("closed")
         self.open = False
"""
PYTEST = """\
=================================== FAILURES ===================================
__________________________________ test_parse __________________________________

    def test_parse():
        text = "1:2:3"
>       assert parse(text) == 3

test_fail.py:10:
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _

    def parse(text, unit=None):
        values = text.split(":")
>       return int(values[3])
E       IndexError: list index out of range

test_fail.py:6: IndexError
=========================== short test summary info ============================
FAILED test_fail.py::test_parse - IndexError: list index out of range
========================= 1 failed, 30 passed in 0.12s =========================
"""
CARGO = """\
test parser::reads ... ok
test parser::fails ... FAILED

failures:

---- parser::fails stdout ----
thread 'parser::fails' panicked at src/parser.rs:12:5:
assertion `left == right` failed
  left: 3
 right: 4

test result: FAILED. 1 passed; 1 failed; 0 ignored
"""
GO = """\
--- FAIL: TestLimit (0.01s)
    limit_test.go:42: got 5, want 6
--- PASS: TestOther (0.00s)
FAIL	example.com/limit	0.012s
ok  	example.com/other	0.010s
"""
JEST = """\
PASS src/sum.test.js
FAIL src/cart.test.js
  ✓ is empty at first (3 ms)
  ✕ adds an item (5 ms)

  ● cart > adds an item

    expect(received).toBe(expected)

    Expected: 2
    Received: 1
"""
PODS = """\
NAME                     READY   STATUS             RESTARTS   AGE
web-5d4f8c7b9-abcde      1/1     Running            0          3d
worker-6f7d9c8b5-klmno   0/1     CrashLoopBackOff   17         62m
db-0                     1/1     Running            0          12d
"""
PSQL = """\
 batch   | supplier | count
---------+----------+-------
 AF-2605 | Duran    |  1502
 AF-2606 | Maier    |   902
"""
BOX = """\
+----+-------+
| id | name  |
+----+-------+
|  1 | alice |
|  2 | bob   |
+----+-------+
"""
TREE = """\
project
├── README.md
├── src
│   ├── main.py
│   └── lib
│       └── parts.py
└── tests
    └── test_main.py
"""
GREP = """\
app/queue.py:12:    def take(self):
app/queue.py:40:    def close(self):
app/worker.py:7:from app.queue import Queue
"""
LISTING = """\
-rw-r--r-- 1 root root   354 Nov 22 04:00 errors.py
drwxr-xr-x 2 root root  4096 Nov 22 04:43 calibration
-rw-r--r-- 1 root root  2461 Nov 22 04:00 bm25.py
"""
SAMPLES = (DIFF, PYTEST, CARGO, GO, JEST, PODS, PSQL, BOX, TREE, GREP, LISTING)
PROSE = """\
The harbour was closed for two days. Nobody  knew why,  and nobody asked.
Those who waited had three things to do:  eat,  sleep,  and look at the sea.
Failures were common in those days - more common than anybody likes to say.
ok, said the mate, and went below | he was tired.
"""


def units(source: str) -> list[str]:
    text = segment(source)
    return [text.text(unit) for unit in range(len(text.units))]


def heads(source: str, piece: str) -> list[str]:
    """What stands around the unit that holds `piece`, the innermost first."""
    text = segment(source)
    [unit] = [unit for number, unit in enumerate(text.units) if piece in text.text(number)]
    found, frame = [], unit.frame
    while frame is not None:
        found.append(text.text(text.frames[frame].open))
        frame = text.frames[frame].parent
    return found


def levels(source: str) -> dict[str, float]:
    text = segment(source)
    return {text.text(unit): float(level) for unit, level in enumerate(read_salience(text).level)}


def noise(source: str) -> set[str]:
    text = segment(source)
    return {text.text(unit) for unit, is_noise in enumerate(read_salience(text).noise) if is_noise}


def test_a_changed_line_knows_its_hunk_and_its_file() -> None:
    hunk, file = heads(DIFF, "await self.release")
    assert hunk == "@@ -10,5 +10,5 @@ class Queue:"
    assert file.startswith("diff --git a/app/queue.py")
    assert "-        self.release(job)\n+        await self.release(job)" in units(DIFF)


def test_an_assertion_stays_with_what_it_found_and_where() -> None:
    found = [unit for unit in units(PYTEST) if "IndexError" in unit and "return int" in unit]
    assert found and found[0].endswith("test_fail.py:6: IndexError")
    assert heads(PYTEST, "return int(values[3])") == [
        "__________________________________ test_parse __________________________________"
    ]


@pytest.mark.parametrize(
    ("source", "piece", "head"),
    [(CARGO, "left == right", "---- parser::fails stdout ----"), (GO, "got 5, want 6", "--- FAIL: TestLimit (0.01s)"),
     (JEST, "Received: 1", "● cart > adds an item")],
)  # fmt: skip
def test_what_a_test_found_knows_the_test(source: str, piece: str, head: str) -> None:
    assert [each.strip() for each in heads(source, piece)] == [head]


@pytest.mark.parametrize(
    ("source", "passed", "failed"),
    [(CARGO, "test parser::reads ... ok", "test parser::fails ... FAILED"),
     (GO, "ok  \texample.com/other\t0.010s", "FAIL\texample.com/limit\t0.012s"),
     (JEST, "✓ is empty at first (3 ms)", "✕ adds an item (5 ms)"),
     (JEST, "PASS src/sum.test.js", "FAIL src/cart.test.js")],
)  # fmt: skip
def test_passed_tests_are_noise_and_failed_ones_grave(source: str, passed: str, failed: str) -> None:
    assert passed in noise(source)
    assert levels(source)[failed] >= 0.85


@pytest.mark.parametrize(
    ("source", "piece"),
    [(GO, "got 5, want 6"), (JEST, "Received: 1"), (PYTEST, "return int"), (CARGO, "left == right")],
)
def test_what_a_failed_test_found_is_grave(source: str, piece: str) -> None:
    [level] = [level for unit, level in levels(source).items() if piece in unit]
    assert level >= 0.85


def test_what_a_diff_changes_is_told_from_what_it_leaves_alone() -> None:
    text = segment(DIFF)
    changed = read_salience(text).changes_state
    assert [text.text(unit)[0] for unit in range(len(text.units)) if changed[unit]] == ["-", "+"]


@pytest.mark.parametrize(
    ("source", "row", "header"),
    [(PODS, "CrashLoopBackOff", "NAME  "), (PSQL, "Maier", "batch   | supplier"), (BOX, "alice", "+----+")],
)
def test_a_row_of_any_table_knows_its_header(source: str, row: str, header: str) -> None:
    [head] = heads(source, row)
    assert head.startswith(header)


def test_a_table_is_told_under_the_command_that_printed_it() -> None:
    [head] = heads(f"$ kubectl get pods\n{PODS}", "CrashLoopBackOff")
    assert head.startswith("NAME ")


def test_a_file_in_a_tree_knows_its_folders() -> None:
    assert [each.strip("│├└─ ") for each in heads(TREE, "parts.py")] == ["lib", "src", "project"]


@pytest.mark.parametrize("source", [GREP, LISTING])
def test_hits_and_entries_are_lines_and_no_failures_for_their_names(source: str) -> None:
    assert units(source) == [line.strip() for line in source.splitlines()]
    assert not any(levels(source).values())


def test_prose_is_none_of_it() -> None:
    kinds = {unit.kind for unit in segment(PROSE).units}
    assert kinds == {"sentence"}
    assert not segment(PROSE).frames


@settings(max_examples=80)
@given(
    st.lists(st.sampled_from([*SAMPLES, PROSE, "[tool_result]", "---", ""]), max_size=5),
    st.integers(0, 400), st.integers(0, 2000), st.sampled_from([0.05, 0.3, 0.7]),
)  # fmt: skip
def test_whatever_is_cut_off_the_output_is_slices_within_the_target(
    lexical: Compressor, texts: list[str], start: int, length: int, ratio: float
) -> None:
    source = "\n".join(texts)[start : start + 200 + length]
    check(segment(source), str.isalpha)
    if source.strip():
        result = lexical.compress(CompressionRequest("Which test failed, and where?", source, ratio))
        assert "".join(source[piece.start : piece.end] for piece in result.kept) == result.output
        assert result.receipt.output_tokens <= ratio * result.receipt.original_tokens + 1e-9
