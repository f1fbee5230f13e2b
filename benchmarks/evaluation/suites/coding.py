"""Histories of coding agents: file views, an edit, test runs. What the next edit repeats is in the newest of them.

They are made of the files of an installed package, the same on every machine that has its version.
"""

import ast
import importlib.util
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.evaluation.case import Case, Need, seeded, spans_of
from benchmarks.evaluation.suites.traces import Moment, case_of, places

PACKAGES = ("httpx", "starlette", "jinja2", "typer", "rich")
CASES = 48
WINDOW = 90  # lines of a file's view
FEWEST_LINES, MOST_LINES = 5, 25  # of a function
FEWEST_LETTERS = 12  # of a line that must be kept
Message = dict[str, Any]


class NoPackage(FileNotFoundError):
    """None of the packages whose files make these histories is installed."""

    def __init__(self) -> None:
        super().__init__(f"coding agents: none of {', '.join(PACKAGES)} is installed")


@dataclass(frozen=True, slots=True)
class Function:
    """Lines `[first, last)` of a file, from 0, its signature included."""

    name: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class File:
    path: str
    lines: tuple[str, ...]
    functions: tuple[Function, ...]
    about: str


def is_there() -> bool:
    return any(importlib.util.find_spec(name) for name in PACKAGES)


@cache
def files() -> dict[str, tuple[File, ...]]:
    """The files of each package that have functions to edit. Raises `NoPackage`."""
    found = {name: tuple(_files_of(name)) for name in PACKAGES if importlib.util.find_spec(name)}
    if not found:
        raise NoPackage
    return found


def _files_of(package: str) -> Iterator[File]:
    spec = importlib.util.find_spec(package)
    folder = Path(spec.origin if spec and spec.origin else "").parent
    for path in sorted(folder.glob("*.py")):
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        functions = tuple(_functions(tree))
        if functions and source.count("\n") > 2 * WINDOW:
            about = " ".join(
                (ast.get_docstring(node) or "") for node in tree.body if isinstance(node, ast.ClassDef)
            )
            yield File(
                f"{package}/{path.name}", tuple(source.split("\n")), functions, " ".join(about.split())
            )


def _functions(tree: ast.Module) -> Iterator[Function]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            last = node.end_lineno or node.lineno
            if FEWEST_LINES <= last - node.lineno + 1 <= MOST_LINES and not node.name.startswith("__"):
                yield Function(node.name, node.lineno - 1, last)


def cases(suite: str, count: int = CASES) -> Iterator[Case]:
    """Half of them are held out: those of every other number. Raises `NoPackage`."""
    for number in range(count):
        yield _case(suite, number)


def _case(suite: str, number: int) -> Case:
    rng = seeded(f"coding {number}")
    package = rng.choice(sorted(files()))
    edited, *others = rng.sample(files()[package], min(4, len(files()[package])))
    wanted = rng.choice(edited.functions)
    history = list(_history(rng, edited, others, wanted))
    needed = [edited.lines[at].strip() for at in range(wanted.first, wanted.last)]
    values = [line for line in needed if sum(map(str.isalnum, line)) >= FEWEST_LETTERS]
    failed = _test_of(wanted)
    made = case_of(
        Moment(tuple(history), str(history[0]["content"]), (*dict.fromkeys(values), failed)),
        f"coding {number}", suite, f"{suite}-{number}", is_json=True,
    )  # fmt: skip
    # The newest view, and the test run before it.
    newest = {value: made.documents[-1] for value in values} | {failed: made.documents[-3]}
    needs = tuple(
        Need(each.text, places(made.context, each.text, [newest[each.text]])) for each in made.needs
    )
    return replace(made, needs=needs, evidence=spans_of(needs), is_held_out=number % 2 == 0)


def _history(rng: random.Random, edited: File, others: Sequence[File], wanted: Function) -> Iterator[Message]:
    yield {"role": "user", "content": _task(rng, edited, wanted)}
    listing = "\n".join(each.path for each in files()[edited.path.split("/")[0]])
    steps = [("run", {"command": f"ls {edited.path.split('/')[0]}/*.py"}, listing)]
    for other in others:
        steps.append(_view(rng, other, rng.choice(other.functions)))
        steps.append(_search(rng, other))
    earlier = rng.choice([each for each in edited.functions if each != wanted] or [wanted])
    steps.append(_view(rng, edited, earlier))
    steps.append(_tests(rng, edited, earlier))
    steps.append(_edit(edited, earlier))
    steps.append(_tests(rng, edited, wanted))
    steps.append(_view(rng, edited, wanted))
    for number, (name, arguments, result) in enumerate(steps):
        yield _call(f"call_{number}", name, arguments)
        yield {"role": "tool", "tool_call_id": f"call_{number}", "content": result}


def _call(identity: str, name: str, arguments: dict[str, Any]) -> Message:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": identity, "type": "function", "function": function}],
    }


def _task(rng: random.Random, edited: File, wanted: Function) -> str:
    """A report of some length: half of them name the function."""
    named = f"`{wanted.name}`" if rng.random() < 0.5 else f"something in {Path(edited.path).stem.strip('_')}"
    background = edited.about[: rng.randrange(1200, 3200)]
    return (
        f"We have a bug report: {named} does not behave as documented in a corner case. Please find the cause, "
        f"mend it in the package and make the tests pass.\n\n{background}\n\n"
        "Change as little as you can, and do not touch the tests. Run them before and after."
    )


def _numbered(file: File, first: int, last: int) -> str:
    return "\n".join(f"{at + 1:6}\t{file.lines[at]}" for at in range(first, min(last, len(file.lines))))


Step = tuple[str, dict[str, Any], str]


def _view(rng: random.Random, file: File, around: Function) -> Step:
    room = max(1, WINDOW - (around.last - around.first))
    first = max(0, around.first - rng.randrange(room))
    shown = _numbered(file, first, first + WINDOW)
    arguments = {"path": file.path, "view_range": [first + 1, first + WINDOW]}
    return "view", arguments, f"[File: {file.path} ({len(file.lines)} lines total)]\n{shown}"


def _search(rng: random.Random, file: File) -> Step:
    word = rng.choice(re.findall(r"[a-z_]{6,}", " ".join(file.lines)) or ["import"])
    hits = [f"{file.path}:{at + 1}:{line}" for at, line in enumerate(file.lines) if word in line]
    return "run", {"command": f"grep -rn {word} {file.path}"}, "\n".join(hits[:40])


def _edit(file: File, changed: Function) -> Step:
    old = "\n".join(file.lines[changed.first : changed.last])
    new = old.replace("return", "return (", 1) if "return" in old else f"{old}\n"
    around = _numbered(file, changed.first - 4 if changed.first > 4 else 0, changed.last + 4)
    arguments = {"path": file.path, "old_str": old, "new_str": new}
    return "edit", arguments, f"The file {file.path} has been edited. Here is a snippet of it:\n{around}"


def _test_of(function: Function) -> str:
    return f"test_{function.name.strip('_')}_corner_case"


def _tests(rng: random.Random, file: File, failing: Function) -> Step:
    """As pytest prints it: what passed, the failure, the summary."""
    path = f"tests/test_{Path(file.path).stem.strip('_')}.py"
    names = [
        f"test_{each.name.strip('_')}" for each in rng.sample(file.functions, min(24, len(file.functions)))
    ]
    passed = [f"{path}::{name} PASSED [{100 * at // len(names):3}%]" for at, name in enumerate(names)]
    name, line = _test_of(failing), rng.randrange(20, 400)
    output = [
        "============================= test session starts ==============================",
        f"collected {len(names) + 1} items", "", *passed, f"{path}::{name} FAILED [100%]", "",
        "=================================== FAILURES ===================================",
        f"____________________ {name} ____________________", "",
        f"    def {name}(subject):", f">       assert subject.{failing.name}() is not None",
        "E       AssertionError: assert None is not None", "", f"{path}:{line}: AssertionError",
        "=========================== short test summary info ============================",
        f"FAILED {path}::{name} - AssertionError: assert None is not None",
        f"========================= 1 failed, {len(names)} passed in {rng.random() * 9:.2f}s =========================",
    ]  # fmt: skip
    return "run", {"command": f"python -m pytest -v {path}"}, "\n".join(output)
