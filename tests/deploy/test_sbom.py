"""The bill of materials, made by its command: exactly the lock's packages, each with the hashes it is held to."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.deploy.chart import ROOT

CANNOT_INSTALL = 3
MAKE_S = 600


@pytest.fixture(scope="module")
def components() -> list[dict[str, object]]:
    done = subprocess.run(
        [ROOT / "scripts/sbom", "cpu"], capture_output=True, text=True, timeout=MAKE_S, check=False
    )
    if done.returncode == CANNOT_INSTALL and not os.environ.get("CI"):
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    document = json.loads((ROOT / "var/sbom-cpu.json").read_text())
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert document["metadata"]["component"]["name"] == "pith"
    found: list[dict[str, object]] = document["components"]
    return found


def test_it_names_every_package_of_the_lock_in_its_version(components: list[dict[str, object]]) -> None:
    assert {(each["name"], each["version"]) for each in components} == set(locked())


def test_it_has_the_hashes_by_which_the_lock_knows_each_file(components: list[dict[str, object]]) -> None:
    wanted = locked()
    for each in components:
        hashes = set(re.findall(r"\b[0-9a-f]{64}\b", json.dumps(each["externalReferences"])))
        assert hashes == wanted[each["name"], each["version"]], each["name"]


def locked() -> dict[tuple[object, object], set[str]]:
    text = Path(ROOT / "constraints/cpu.txt").read_text().replace("\\\n", " ")
    entries = [line.split() for line in text.splitlines() if "==" in line and not line.startswith("#")]
    return {
        tuple(pin.split("==")): {each.removeprefix("--hash=sha256:") for each in hashes}  # type: ignore[misc]
        for pin, *hashes in entries
    }
