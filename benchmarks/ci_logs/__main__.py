"""Records logs of real builds and test runs with faults put in: `python -m benchmarks.ci_logs`.

Each project is written to a temporary folder, its tool runs there, and the log with its colours goes to a file of the
suite `ci_logs` together with what the causes say. A tool that this machine does not have is left out, and said so.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.ci_logs.projects import PROJECTS, Project
from benchmarks.evaluation.suites.ci_logs import RECORDED

TIMEOUT_S = 300
_MOST_LINES = 900
# Of the machine that recorded it.
_PATHS = re.compile(r"(?:/[\w.@+-]+)+/(?=(?:site-packages|lib/python3|node_modules|bin)/)")


def environment(folder: Path) -> dict[str, str]:
    """Colours, as CI systems ask for them; English; no configuration of the user's."""
    kept = {name: os.environ[name] for name in ("PATH", "RUSTUP_HOME", "CARGO_HOME") if name in os.environ}
    home = {"HOME": os.environ.get("HOME", str(folder))}
    colours = {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "CARGO_TERM_COLOR": "always", "PY_COLORS": "1"}
    return kept | home | colours | {"LC_ALL": "C.UTF-8", "CI": "true", "COLUMNS": "120", "NODE_ENV": "test"}


def record(project: Project, modules: Path | None) -> dict[str, object] | None:
    """The log of one project; None where its tool is not here."""
    if any(shutil.which(tool) is None for tool in project.tools):
        return None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "app"
        _write(folder, project.files)
        if project.needs_modules:
            if modules is None:
                return None
            (folder / "node_modules").symlink_to(modules.resolve())
        log = (
            "".join(_run(command, folder) for command in project.commands)
            .replace(str(folder), "/srv/app")
            .replace(name, "/srv")
        )
    if modules is not None:
        log = log.replace(str(modules.resolve()), "/srv/app/node_modules")
    lines = [line.rstrip("\r") for line in _PATHS.sub("/opt/tools/", log).split("\n")][:_MOST_LINES]
    missing = [cause for cause in project.causes if not any(cause in line for line in lines)]
    if missing:
        raise SystemExit(f"{project.name}: the log does not say {missing[0]!r}:\n" + "\n".join(lines[-60:]))
    return {"name": project.name, "causes": project.causes, "log": "\n".join(lines)}


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)


def _run(command: str, folder: Path) -> str:
    """What it prints, after the command as a CI system writes it. Each of them is known to fail."""
    done = subprocess.run(
        command, shell=True, cwd=folder, env=environment(folder), timeout=TIMEOUT_S, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    return f"$ {command}\n{done.stdout}" + (
        f"Error: Process completed with exit code {done.returncode}.\n" if done.returncode else ""
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", type=Path, help="a node_modules folder with jest and eslint")
    parser.add_argument("--only", help="projects whose name begins so; the others' logs stay")
    asked = parser.parse_args()
    kept = (
        {row["name"]: row for row in map(json.loads, RECORDED.read_text().splitlines())}
        if RECORDED.exists()
        else {}
    )
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for project in PROJECTS:
        if asked.only and not project.name.startswith(asked.only):
            continue
        row = record(project, asked.modules)
        if row is None:
            print(f"{project.name}: one of {', '.join(project.tools)} is not here", file=sys.stderr)
        else:
            kept[project.name] = row
    RECORDED.write_text("".join(json.dumps(kept[name], ensure_ascii=False) + "\n" for name in sorted(kept)))


if __name__ == "__main__":
    main()
