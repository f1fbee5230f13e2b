"""`pith` by itself: what its help imports, that each verb is there, and its version."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from serve.cli.main import app
from serve.cli.verbs import GROUPS, VERBS, recorded_commit

ROOT = Path(__file__).parents[3]
HEAVY = ("pydantic", "sqlalchemy", "rich", "yaml", "ray", "numpy", "aiohttp", "fastapi", "structlog")

LOADED = f"""
import contextlib, io, json, sys
from serve.cli.main import app
from serve.cli.verbs import VERBS

def loaded(*arguments):
    with contextlib.redirect_stdout(io.StringIO()):
        app(list(arguments), standalone_mode=False)
    heavy = [name for name in {HEAVY!r} if name in sys.modules]
    return heavy, [verb.name for verb in VERBS if verb.place.partition(":")[0] in sys.modules]

print(json.dumps([loaded("--help"), loaded("--version")]))
print(json.dumps([loaded(verb.name, "--help") for verb in VERBS]))
"""


def test_help_and_version_import_no_verb_and_a_verbs_help_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    before, verbs = map(json.loads, done.stdout.splitlines())
    assert before == [[[], []], [[], []]]
    assert {verb.name: heavy for verb, (heavy, _) in zip(VERBS, verbs, strict=True) if heavy} == {}


def test_the_line_of_each_verb_fits_into_the_help() -> None:
    shown = CliRunner().invoke(app, ["--help"]).stdout
    assert [line[:-1] for line in shown.splitlines() if line.endswith(":")][-len(GROUPS) :] == list(GROUPS)
    assert (
        len({line.index(verb.help) for verb in VERBS for line in shown.splitlines() if verb.help in line})
        == 1
    )
    assert all(f"  {verb.name} " in shown and verb.help in shown for verb in VERBS)


def test_a_verb_that_is_called_is_loaded() -> None:
    for verb in VERBS:
        done = CliRunner().invoke(app, [verb.name, "--help"], prog_name="pith")
        assert done.exit_code == 0 and f"Usage: pith {verb.name}" in done.stdout


def test_a_verb_that_is_none_is_refused_with_the_nearest() -> None:
    done = CliRunner().invoke(app, ["usag"])
    assert done.exit_code == 2 and "Did you mean 'usage'?" in done.stderr


def test_the_version_has_a_name_a_number_and_the_commit() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert done.exit_code == 0
    assert re.fullmatch(r"pith \d+\.\d+\.\d+( \(commit [0-9a-f]{12}\))?\n", done.stdout)


@pytest.mark.parametrize(
    ("record", "commit"),
    [
        ('{"vcs_info": {"vcs": "git", "commit_id": "0123456789abcdef"}}', "0123456789ab"),
        ('{"url": "file:///pith", "dir_info": {}}', None),
        ('{"vcs_info": []}', None),
        ("{", None),
        (None, None),
    ],
)  # fmt: skip
def test_the_commit_of_an_installation_from_a_repository_is_known(
    record: str | None, commit: str | None
) -> None:
    assert recorded_commit(record) == commit
