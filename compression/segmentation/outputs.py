"""Output of programs: diffs, directory trees, test runs, and lines that make sense alone."""

import re
from collections.abc import Iterator, Sequence

from compression.segmentation.lines import Line, is_blank
from compression.source.units import Builder, SegmentationSettings

_FILE = re.compile(r"diff (?:--git |-\w|--cc )|Index: \S")
_OF_FILE = re.compile(
    r"index [0-9a-f]{6,40}|(?:new|deleted) file mode |(?:old|new) mode |(?:dis)?similarity index "
    r"|(?:rename|copy) (?:from|to) |Binary files |GIT binary patch|={10,}\Z|\+\+\+ \S"
)
_OLD_FILE = re.compile(r"--- \S")
_NEW_FILE = re.compile(r"\+\+\+ \S")
_HUNK = re.compile(r"@@@? -(?:\d+)(?:,(\d+))? (?:-\d+,\d+ )?\+(?:\d+)(?:,(\d+))? @@")
_HEAD = 6
# What a diff, a failed test or a tree may begin with: prose that does is only kept apart from its neighbours.
TREE_HEADS = ("├", "└", "|--", "`--", "+--")
PRINTED_HEADS = ("diff -", "Index: ", "@@", "--- ", "---- ", "___", "FAIL: ", "ERROR: ", "● ", *TREE_HEADS)


def diff_until(source: str, lines: Sequence[Line], number: int) -> int:
    """The line after the diff that begins at `number`; `number` itself where none does."""
    # A file name by itself, or prose that begins like one, is not a diff.
    near = lines[number : number + _HEAD]
    if not any(_HUNK.match(source, *line) or _OF_FILE.match(source, *line) for line in near):
        return number
    at = number
    while at < len(lines):
        after = _head_until(source, lines, at)
        after = _hunk_until(source, lines, after) if after < len(lines) else after
        if after == at:
            break
        at = after
    return at


def _head_until(source: str, lines: Sequence[Line], number: int) -> int:
    at = number
    if _FILE.match(source, *lines[at]):
        at += 1
    while at < len(lines) and (
        (at > number and _OF_FILE.match(source, *lines[at])) or _names_files(source, lines, at)
    ):
        at += 2 if _names_files(source, lines, at) else 1
    return at


def _names_files(source: str, lines: Sequence[Line], at: int) -> bool:
    return (
        _OLD_FILE.match(source, *lines[at]) is not None
        and at + 1 < len(lines)
        and _NEW_FILE.match(source, *lines[at + 1]) is not None
    )


def _hunk_until(source: str, lines: Sequence[Line], number: int) -> int:
    """The line after a hunk, as many lines as its head says at most."""
    found = _HUNK.match(source, *lines[number])
    if found is None:
        return number
    old, new = (int((count or "1")[:9]) for count in found.groups())
    at = number + 1
    while at < len(lines) and (old > 0 or new > 0):
        mark = source[lines[at].start : lines[at].start + 1]
        if mark not in ("", " ", "+", "-", "\\") and lines[at].start < lines[at].end:
            break
        old -= mark != "+" and mark != "\\"
        new -= mark != "-" and mark != "\\"
        at += 1
    if at < len(lines) and source.startswith("\\ No newline", lines[at].start):
        at += 1
    return at


def add_diff(builder: Builder, lines: Sequence[Line], settings: SegmentationSettings) -> None:
    source, at, depth = builder.source, 0, 0
    while at < len(lines):
        after = _head_until(source, lines, at)
        if after > at:
            depth = _close(builder, depth)
            builder.open_frame("block", builder.add(lines[at].start, lines[after - 1].end, "heading"))
            depth, at = 1, after
            continue
        after = _hunk_until(source, lines, at)
        builder.open_frame("block", builder.add(*lines[at], "heading"))
        for first, last in _runs(source, lines[at + 1 : after], settings.longest_block):
            builder.add_exactly(first.start, last.end, "line")
        builder.close_frame()
        builder.end_paragraph()
        at = after
    _close(builder, depth)


def _close(builder: Builder, depth: int) -> int:
    if depth:
        builder.close_frame()
        builder.end_paragraph()
    return 0


def _runs(source: str, lines: Sequence[Line], longest: int) -> Iterator[tuple[Line, Line]]:
    """Lines that change something, and lines that do not, in turns; long runs in parts."""
    first = 0
    for at in range(1, len(lines) + 1):
        if (
            at == len(lines)
            or lines[at].end - lines[first].start > longest
            or _changes(source, lines[at]) != _changes(source, lines[at - 1])
        ):
            yield lines[first], lines[at - 1]
            first = at


def _changes(source: str, line: Line) -> bool:
    return source[line.start : line.start + 1] in ("+", "-", "\\")


_ENTRY = re.compile(
    r"(?P<lead>(?:[│|](?=[ \t\u00a0])|[ \t\u00a0]){0,256}+)(?:├──|└──|\|--|`--|├─|└─|\+--|\\--) ?\S"
)
_ROOT_FOLDER = re.compile(r"\S{1,200}+[ \t]*+\Z")
_DEEPEST = 64


def tree_until(source: str, lines: Sequence[Line], number: int) -> int:
    """The line after the tree whose root or first entry is line `number`; `number` itself where none begins."""
    at = number if _ENTRY.match(source, *lines[number]) else number + 1
    if at > number and (at >= len(lines) or not _ROOT_FOLDER.match(source, *lines[number])):
        return number
    first = at
    while at < len(lines) and _ENTRY.match(source, *lines[at]):
        at += 1
    return at if at - first >= 2 else number


def add_tree(builder: Builder, lines: Sequence[Line], settings: SegmentationSettings) -> None:
    depths = [_depth(builder.source, line) for line in lines]
    opened: list[int] = []
    for at, (line, depth) in enumerate(zip(lines, depths, strict=True)):
        while opened and opened[-1] >= depth:
            builder.close_frame()
            opened.pop()
        holds = at + 1 < len(lines) and depths[at + 1] > depth and len(opened) < _DEEPEST
        unit = builder.add_exactly(line.start, line.end, "heading" if holds else "line")
        if holds and unit >= 0:
            builder.open_frame("block", unit)
            opened.append(depth)
    for _ in opened:
        builder.close_frame()
    builder.end_paragraph()


def _depth(source: str, line: Line) -> int:
    """How far an entry is indented, in characters; -1 for a root."""
    found = _ENTRY.match(source, *line)
    return -1 if found is None or is_blank(source, line) else found.end("lead") - line.start


_BAR = r"[█▏▎▍▌▋▊▉░▒▓━─╸╺#=>.-]"
OUTPUT_LINE = re.compile(
    "[ \t]{0,8}(?:"
    + "|".join(
        (
            # test results: pytest, unittest, cargo, go, jest, TAP, googletest
            r"[^\s:]{1,300}+::\S.{0,200} (?:PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b",
            r"(?:FAILED|ERROR|PASSED|SKIPPED|XFAIL) [^\s:]{1,200}+(?:::| - |\Z)",
            r"[^\s.]{1,120}\.\w{1,4} [.FEsxX]{1,120}+(?: {1,80}\[ *\d+%\])?\Z",
            r"test \S.{0,200} \.\.\. \w+",
            r"test_\w+ \([\w.]+\).{0,120} \.\.\. \w+",
            r"=== (?:RUN|PAUSE|CONT) |--- (?:PASS|SKIP): ",
            r"(?:ok|FAIL|\?)[ \t]{1,4}\S++[ \t]{1,4}(?:[\d.]+s|\(cached\)|\[)",
            r"(?:PASS|FAIL) {1,2}[^\s.]++\.\w",
            r"[✓✔√✕✗✘✖○\u00d7] \S",
            r"\d{1,6}:\d{1,5} +(?:error|warning) +\S",
            r"(?:not )?ok \d+ ",
            r"\[ *(?:OK|RUN|PASSED|FAILED|-{4,}|={4,}) *\]",
            r"={3,}+ .{1,120} ={3,}\Z",
            r"(?:Tests|Test Suites|Snapshots|Test Files):? {1,8}\d",
            # progress: bars, cmake, git, docker, apt, pip, npm
            rf"[^%\n]{{0,80}}+(?<=\d)%[ \t]*+[|\[]{_BAR}",
            r"\[ {0,3}\d{1,3}%\] ",
            r"remote: \S|(?:Receiving|Resolving|Unpacking) (?:objects|deltas): ",
            r"(?:Step \d+/\d+|#\d+ \[[^\]\n]{1,40}\]|#\d+ (?:DONE|CACHED|\d+\.\d+)) ?",
            r"(?:Get|Hit|Ign):\d+ https?:",
            r"(?:Unpacking|Setting up|Preparing to unpack|Selecting previously unselected|Processing triggers for) \S",
            r"(?:Collecting|Downloading|Requirement already satisfied:) [^\s()]{2,200}+(?: \(|\Z)",
            r"Installing collected packages: ",
            r"npm (?:warn|WARN|ERR!|error|notice) ",
            # grep, compilers, linters; ls -l; git status
            r"(?=[^\s:./]{0,80}[./])[^\s:]{2,200}+:\d+(?::\d+)?:(?! ?\d\d\b)",
            r"[-dlcbps][r-][w-][xsS-][r-][w-][xsS-][r-][w-][xtT-][.+@]? +\d+ ",
            r"(?:modified|new file|deleted|renamed|both modified): {2,}\S",
            r"(?:make|ninja|cargo|go)(?:\[\d+\])?: ",
        )
    )
    + ")"
)


# A report of one error: what is indented under it, a picture of its place and notes belong to it.
_REPORT = re.compile(
    r"[ \t]{0,16}(?:[^\s:]{1,200}+:\d+(?::\d+)?: (?:fatal )?(?:error|note|warning)\b|error(?:\[\w{1,10}\])?: \S"
    r"|warning: \S|not ok \d|[✕✗✘✖] \S|(?:[\w$]{1,80}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception)(?: \[\w{1,40}\])?: \S)"
)
# What ruff writes above the place: F821 Undefined name
_CODED = re.compile(r"[A-Z]{1,5}\d{1,5} (?:\[\*\] )?\S")
_POINTS = re.compile(r"[ \t]{0,8}--> \S")
_PICTURE = re.compile(r"\||= |\d{1,6} \||--> ")
_MOST_OF_REPORT = 40


def begins_report(source: str, lines: Sequence[Line], number: int) -> bool:
    if _CODED.match(source, *lines[number]):
        return number + 1 < len(lines) and _POINTS.match(source, *lines[number + 1]) is not None
    return _REPORT.match(source, *lines[number]) is not None


def report_until(source: str, lines: Sequence[Line], number: int, longest: int) -> int:
    """The line after the report that begins at `number`; `number` itself where none does, or it has one line."""
    if not begins_report(source, lines, number):
        return number
    depth = _indentation(source, lines[number])
    at = after = number + 1
    while at < min(len(lines), number + _MOST_OF_REPORT) and lines[at].end - lines[number].start <= longest:
        if not is_blank(source, lines[at]):
            is_under = _indentation(source, lines[at]) > depth
            if not is_under and not (depth == 0 and _PICTURE.match(source, *lines[at])):
                break
            after = at + 1
        elif is_blank(source, lines[at - 1]):
            break
        at += 1
    return after if after - number > 1 else number


def _indentation(source: str, line: Line) -> int:
    text = source[line.start : line.end]
    return len(text) - len(text.lstrip())


# pytest; cargo; unittest; jest; go
_SECTION = re.compile(
    r"_{3,}+ [^\n]{1,200} _{3,}\Z|---- \S[^\n]{0,200} stdout ----\Z|(?:FAIL|ERROR): \w+ \([\w.]+\)"
)
_INDENTED_SECTION = re.compile(r" {0,4}● \S|[ \t]{0,8}--- FAIL: \S")
_AFTER_REPORT = re.compile(
    r"={5,}|-{5,} |failures:\Z|test result:|Ran \d+ tests?|Test Suites?:|Tests:|FAIL\Z|PASS\b|ok\b"
)
_RAISING = re.compile(r">|Traceback |thread '|(?:_ ){4,}")
_RULE_OF_FRAMES = re.compile(r"(?:_ ){4,}")
_MOST = 2_000


def failure_until(source: str, lines: Sequence[Line], number: int) -> int:
    """The line after the report of a failed test that begins at `number`; `number` itself where none does."""
    if _SECTION.match(source, *lines[number]):
        return _section_until(source, lines, number)
    if _INDENTED_SECTION.match(source, *lines[number]):
        return _indented_until(source, lines, number)
    return number


def _section_until(source: str, lines: Sequence[Line], number: int) -> int:
    at = number + 1
    if at < len(lines) and source.startswith("-----", lines[at].start):
        at += 1
    while at < len(lines) and at - number < _MOST:
        if _SECTION.match(source, *lines[at]) or _AFTER_REPORT.match(source, *lines[at]):
            break
        at += 1
    return at


def _indented_until(source: str, lines: Sequence[Line], number: int) -> int:
    at = number + 1
    while at < len(lines) and at - number < _MOST:
        line = lines[at]
        if not is_blank(source, line) and (
            not source[line.start].isspace() or _INDENTED_SECTION.match(source, *line)
        ):
            break
        at += 1
    return at


def add_failure(builder: Builder, lines: Sequence[Line], settings: SegmentationSettings) -> None:
    builder.open_frame("block", builder.add(*lines[0], "heading"))
    for first, last in _parts(builder.source, lines[1:], settings.longest_block):
        builder.add_exactly(first.start, last.end, "line")
    builder.close_frame()
    builder.end_paragraph()


def _parts(source: str, lines: Sequence[Line], longest: int) -> Iterator[tuple[Line, Line]]:
    """Cut at blank lines and where something is raised, so that an assertion stays with what it found."""
    first = 0
    for at in range(1, len(lines) + 1):
        if at < len(lines) and lines[at].end - lines[first].start <= longest:
            is_break = is_blank(source, lines[at - 1]) and not _is_location(source, lines[at])
            is_break |= _RULE_OF_FRAMES.match(source, *lines[at - 1]) is not None
            if not is_break and _RAISING.match(source, *lines[at]) is None:
                continue
        yield lines[first], lines[at - 1]
        first = at


_LOCATION = re.compile(r"\S{1,200}:\d+: \w|\S{1,200}:\d+:\d+\Z")


def _is_location(source: str, line: Line) -> bool:
    return _LOCATION.match(source, *line) is not None
