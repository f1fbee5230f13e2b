"""pith installed from its wheel into environments that have the checkout's packages and no checkout."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

from tests.integration.running import ROOT

BUILD_S, RUN_S = 120, 180
SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
# Of the checkout's own environment.
OURS = ("pith-", "__editable__", "__pycache__")
PROGRAMS = {
    "ray": "from ray.scripts.scripts import main; main()",
    "pip": "from pip._internal.cli.main import main; raise SystemExit(main())",
}


def environment_in(folder: Path) -> Path:
    """A new one with the packages of the checkout's, linked, and without pith; returns its folder of programs."""
    venv.create(folder / ".venv", symlinks=True)
    for entry in (Path(sys.prefix) / SITE).iterdir():
        if not entry.name.startswith(OURS):
            (folder / ".venv" / SITE / entry.name).symlink_to(entry)
    programs = folder / ".venv/bin"
    for name, program in PROGRAMS.items():
        (programs / name).write_text(f"#!{programs}/python\n{program}\n")
        (programs / name).chmod(0o755)
    return programs


def build_wheel(folder: Path) -> Path:
    subprocess.run([ROOT / "scripts/wheel", folder], check=True, capture_output=True, timeout=BUILD_S)
    (built,) = folder.glob("pith-*.whl")
    return built


def install_by_pip(wheel: Path, folder: Path) -> Path:
    """Returns the folder of programs. pip finds there all that the wheel's metadata asks for."""
    programs = environment_in(folder)
    run(programs / "python", "-m", "pip", "install", "--no-index", wheel, folder=folder)
    return programs


def install_as_the_image_does(folder: Path) -> Path:
    """What `deploy/Dockerfile.cpu` does with the source, by its own lines."""
    programs = environment_in(folder)
    build = (ROOT / "deploy/Dockerfile.cpu").read_text()
    (folder / "source").mkdir()
    for sources, target in re.findall(r"^COPY (?!--)(.+) (source/\S*)$", build, re.MULTILINE):
        run("cp", "-R", *(ROOT / source for source in sources.split()), folder / target, folder=folder)
    (step,) = re.findall(r"^RUN (.*pip wheel (?:.*\\\n)*.*)$", build, re.MULTILINE)
    run("bash", "-euo", "pipefail", "-c", step.replace("/opt/pith", str(folder)), folder=folder)
    assert (folder / "pith.yaml").is_file() and not (folder / "source").exists()
    return programs


def folder_with_names_of_ours(folder: Path) -> Path:
    """A folder to start pith in, which has modules by the names of pith's."""
    (folder / "serve").mkdir(parents=True)
    for module in ("serve/__init__.py", "models.py", "billing.py"):
        (folder / module).write_text("raise RuntimeError('this is not what is installed')\n")
    return folder


def run(*command: Any, folder: Path) -> str:
    """What it prints, in that folder. Fails where it does not end with 0."""
    done = subprocess.run(
        [*map(str, command)], cwd=folder, capture_output=True, text=True, timeout=RUN_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
