"""The command blocks of a page of Markdown: what a reader would run, and what the page says comes out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

CONSOLE, SCRIPTS, OUTPUTS = "console", ("bash", "sh", "python"), ("json", "text")
FENCE = re.compile(r"^\s*(```+|~~~+)\s*(\S*)")
INDENTED_CODE = re.compile(r"^( {4}|\t)\S")
LIST_ITEM = re.compile(r"^\s*([-*+]|\d+\.) ")
NUMBER = re.compile(r"\d+(?:\.\d+)*(?:e-?\d+)?")


class CannotRunError(ValueError):
    """A block that is neither a command nor the output of one."""


@dataclass
class Step:
    """One command or script, and what is shown below it."""

    language: str
    code: str
    output: list[str] = field(default_factory=list)
    json: str | None = None


@dataclass
class Block:
    """A fence with the commands that are run one after the other. `line` is where it opens, from 1."""

    line: int
    steps: list[Step]


def blocks_of(markdown: str) -> list[Block]:
    """What is run. A `json` or `text` fence is what the command before it prints. Raises `CannotRunError`."""
    found: list[Block] = []
    for line, language, body in fences(markdown):
        if language == CONSOLE:
            found.append(Block(line, console_steps(body)))
        elif language in SCRIPTS:
            found.append(Block(line, [Step(language, "\n".join(body))]))
        elif language in OUTPUTS and found:
            add_output(found[-1].steps[-1], language, body)
        else:
            raise CannotRunError(f"line {line}: nothing runs a block of {language or 'no language'!r} here")
    return found


def fences(markdown: str) -> Iterator[tuple[int, str, list[str]]]:
    """Line, language and content of each fenced block. Raises `CannotRunError` for code that is only indented."""
    opened: tuple[int, str, str] | None = None
    body: list[str] = []
    in_list = False
    for number, line in enumerate(markdown.splitlines(), 1):
        mark = FENCE.match(line)
        if opened is not None:
            if mark and mark[1].startswith(opened[1]) and not mark[2]:
                yield opened[0], opened[2], body
                opened, body = None, []
            else:
                body.append(line)
        elif mark:
            opened = (number, mark[1], mark[2])
        elif INDENTED_CODE.match(line) and not in_list:
            raise CannotRunError(f"line {number}: fence this code, so that it says what it is")
        elif line.strip():
            in_list = bool(LIST_ITEM.match(line)) or (in_list and line.startswith(" "))
    if opened is not None:
        raise CannotRunError(f"line {opened[0]}: this block is never closed")


def console_steps(body: list[str]) -> list[Step]:
    """Lines that begin with `$ ` are commands, to the end of their quotes and backslashes; others are output."""
    steps: list[Step] = []
    for line in body:
        if steps and is_unfinished(steps[-1].code):
            steps[-1].code += f"\n{line}"
        elif line.startswith("$ "):
            steps.append(Step(CONSOLE, line.removeprefix("$ ")))
        elif steps:
            steps[-1].output.append(line)
        else:
            raise CannotRunError(f"no command before {line!r}: begin it with '$ '")
    if not steps:
        raise CannotRunError("a console block without a command")
    return steps


def is_unfinished(command: str) -> bool:
    if command.endswith("\\"):
        return True
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return True
    return False


def add_output(step: Step, language: str, body: list[str]) -> None:
    if step.output or step.json is not None:
        raise CannotRunError(f"two outputs of one command: {body[0]!r}")
    if language == "json":
        step.json = "\n".join(body)
    else:
        step.output = body


def missing_lines(shown: list[str], printed: list[str]) -> list[str]:
    """The shown lines that were not printed in that order, whatever their figures and the width of columns.

    A line of `…` stands for any lines, and `…` in a line, with the space around it, for any text.
    """
    left = iter([comparable(line) for line in printed])
    said = [line for line in shown if line.strip() != "…"]
    return [line for line in said if not any(line_pattern(line).fullmatch(each) for each in left)]


def line_pattern(shown: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in re.split(" ?… ?", comparable(shown))))


def comparable(line: str) -> str:
    # "[ 34.4 s]" and "[115.8 s]" are one figure in a column.
    return " ".join(NUMBER.sub("#", line).split()).replace("[ #", "[#")


def differences(shown: object, got: object, varying: frozenset[str], path: str = "") -> list[str]:
    """Where `got` lacks what is shown or has another value. Members in `varying` need only have its type."""
    if isinstance(shown, dict) and isinstance(got, dict):
        pairs = [(f"{path}.{name}", value, got.get(name, "missing")) for name, value in shown.items()]
    elif isinstance(shown, list) and isinstance(got, list) and len(shown) == len(got):
        pairs = [(f"{path}[{place}]", value, got[place]) for place, value in enumerate(shown)]
    else:
        return [] if is_same(shown, got, path.rpartition(".")[2] in varying) else [f"{path}: {got!r}"]
    return [each for place, one, other in pairs for each in differences(one, other, varying, place)]


def is_same(shown: object, got: object, varies: bool) -> bool:
    if isinstance(shown, str) and isinstance(got, str):
        return re.fullmatch(".*".join(map(re.escape, shown.split("…"))), got, re.DOTALL) is not None
    if type(shown) is not type(got):
        return False
    return varies or shown == got
