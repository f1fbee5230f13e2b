"""A copy of the checkout in which a recipe of CONTRIBUTING.md is followed with a made-up addition."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINKED = ("billing", "compression", "configs", "docs", "models", "pyproject.toml", "serve", "tests")


class Trial:
    """`copied` are the top-level names that the recipe changes; the others are links to the checkout's own."""

    def __init__(self, folder: Path, *copied: str) -> None:
        self.folder = folder
        # The files that were changed or made, in that order.
        self.touched: list[str] = []
        for name in LINKED:
            if name not in copied:
                (folder / name).symlink_to(ROOT / name)
            elif (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name)
            else:
                shutil.copy2(ROOT / name, folder / name)

    def write(self, path: str, text: str) -> None:
        """Make a file."""
        file = self._touch(path)
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)

    def insert(self, path: str, lines: str, *, after: str) -> None:
        """Add `lines` after the one line that has `after`, indented as it is."""
        file = self._touch(path)
        before = file.read_text().splitlines(keepends=True)
        (at,) = [number for number, line in enumerate(before) if after in line]
        indent = re.match(r"\s*", before[at])[0]  # type: ignore[index]
        new = "".join(f"{indent}{line}\n" for line in lines.splitlines())
        file.write_text("".join([*before[: at + 1], new, *before[at + 1 :]]))

    def replace(self, path: str, old: str, new: str) -> None:
        file = self._touch(path)
        text = file.read_text()
        assert text.count(old) == 1, f"{path} has {text.count(old)} times {old!r}"
        file.write_text(text.replace(old, new))

    def _touch(self, path: str) -> Path:
        if path not in self.touched:
            self.touched.append(path)
        return self.folder / path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Python with these arguments, on the copy."""
        environment = {**os.environ, "PYTHONPATH": str(self.folder)}
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def runs(self, *arguments: str) -> str:
        """What it prints. Fails where the command does."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def passes(self, test: str, *arguments: str) -> bool:
        """Whether a test function, `tests.test_docs:test_it`, passes on the copy; pytest would take seconds."""
        module, name = test.split(":")
        done = self.run("-c", f"import {module} as tests; tests.{name}(*{arguments!r})")
        assert done.returncode == 0 or "AssertionError" in done.stderr, done.stderr
        return done.returncode == 0

    def is_as_told(self, recipe: str) -> None:
        """Fails where other files were touched than CONTRIBUTING.md names, or in another order."""
        told = files_of(recipe)
        same = len(told) == len(self.touched) and all(map(fnmatch, self.touched, told))
        assert same, f"the recipe “{recipe}” names {told}; needed were {self.touched}"


def files_of(recipe: str) -> list[str]:
    """The first file of each step; “…” stands for a name that one chooses."""
    text = (ROOT / "CONTRIBUTING.md").read_text().split("\n## Recipes\n")[1]
    (section,) = [part for part in text.split("\n### ") if part.startswith(recipe + "\n")]
    return [path.replace("…", "*") for path in re.findall(r"^\d\. `([^`]+)`", section, re.MULTILINE)]
