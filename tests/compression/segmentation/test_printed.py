"""A printed log is read without its colours and times, and what is kept of it has its lines' times."""

from compression.segmentation import segment
from compression.segmentation.printed import printed_view

LINES = [
    "tests/test_a.py::test_one PASSED",
    "\x1b[31mtests/test_a.py::test_two FAILED\x1b[0m",
    "src/a.py:3: error: no",
]
TIMED = "\n".join(f"2026-11-24T10:00:0{n}.123Z {line}" for n, line in enumerate(LINES))


def test_the_view_has_no_colours_and_no_times() -> None:
    view = printed_view(TIMED)
    assert view is not None
    assert view[0] == "\n".join(LINES).replace("\x1b[31m", "").replace("\x1b[0m", "")


def test_a_kept_line_has_its_own_time_and_none_of_its_colours_within() -> None:
    found = segment(TIMED)
    (at,) = (n for n in range(len(found.units)) if "error" in found.text(n))
    unit = found.units[at]
    assert found.raw([(unit.start, unit.end)]) == "2026-11-24T10:00:02.123Z src/a.py:3: error: no"  # type: ignore[list-item]


def test_all_of_the_view_is_the_input_without_its_colours() -> None:
    text = "one \x1b[1mtwo\x1b[0m three\n\x1b[32m✓\x1b[39m four\n"
    view = printed_view(text)
    assert view is not None
    assert view[1].text([(0, len(view[0]))]) == view[0] == "one two three\n✓ four\n"


def test_the_log_of_an_application_keeps_its_times_in_view() -> None:
    log = "\n".join(f"2026-11-24T10:00:0{n}.123Z INFO started worker {n}" for n in range(8))
    assert printed_view(log) is None
