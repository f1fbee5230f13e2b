"""Answers in a file as they come, a line each, so that a run that was cut goes on where it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Self

import orjson

from benchmarks.answers.asking import Answer


class OtherRun(ValueError):
    """The file has answers of another model or to another prompt."""


class Record:
    """`answers` by case and arm; the file's first line says of what they are."""

    def __init__(self, path: Path, answers: Mapping[tuple[str, str], Answer]) -> None:
        self.path = path
        self.answers = dict(answers)
        self._lock = Lock()

    @classmethod
    def begin(cls, path: Path, of: Mapping[str, str]) -> Self:
        """An empty one; what the file had is gone."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(orjson.dumps(dict(of)) + b"\n")
        return cls(path, {})

    @classmethod
    def resume(cls, path: Path, of: Mapping[str, str]) -> Self:
        """With the answers that the file has; one that was being written is dropped. Raises `OtherRun`."""
        if not path.exists():
            return cls.begin(path, of)
        whole, _, cut = path.read_bytes().rpartition(b"\n")
        if cut:
            path.write_bytes(whole + b"\n")
        head, *lines = whole.split(b"\n")
        if orjson.loads(head) != dict(of):
            raise OtherRun(f"{path} has answers of {head.decode()}")
        found = [Answer(**orjson.loads(line)) for line in lines]
        return cls(path, {(answer.case, answer.arm): answer for answer in found})

    def has(self, case: str, arm: str) -> bool:
        return (case, arm) in self.answers

    def add(self, answer: Answer) -> None:
        with self._lock, self.path.open("ab") as file:
            file.write(orjson.dumps(asdict(answer)) + b"\n")
            self.answers[answer.case, answer.arm] = answer
