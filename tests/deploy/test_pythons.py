"""Which Pythons pith is for is said in one way everywhere."""

from __future__ import annotations

import re
import tomllib

from tests.deploy.chart import ROOT
from tests.test_house import PYTHONS

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_project_the_scripts_and_the_lock_are_for_the_same_pythons() -> None:
    first, last = PYTHONS[0], PYTHONS[-1]
    after = f"3.{int(last.split('.')[1]) + 1}"
    assert PROJECT["requires-python"] == f">={first},<{after}"
    named = [each.rsplit(" ", 1)[1] for each in PROJECT["classifiers"] if "Python :: 3" in each]
    assert tuple(named) == PYTHONS
    assert f"PYTHONS = {PYTHONS!r}".replace("'", '"') in (ROOT / "scripts/lock").read_text()
    for script in ("scripts/install", "scripts/docs"):
        bounds = re.findall(r"not \((3, \d+)\) <= .* < \((3, \d+)\)", (ROOT / script).read_text())
        assert bounds == [(first.replace(".", ", "), after.replace(".", ", "))]


def test_the_images_have_one_of_them() -> None:
    for name in ("Dockerfile.gpu", "deploy/Dockerfile.cpu"):
        used = set(re.findall(r"python:?(3\.\d+)", (ROOT / name).read_text()))
        assert used and used <= set(PYTHONS)
