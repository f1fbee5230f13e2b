"""`pith recount`: what it prints of a reply, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from serve.cli.main import app
from tests.models.test_recounting import FOLDER, REQUEST, TEXT, encoded, reply_of


def recount(folder: Path, reply: Any, *options: str) -> tuple[int, str]:
    (folder / "request.json").write_text(json.dumps(REQUEST))
    (folder / "reply.json").write_text(reply if isinstance(reply, str) else json.dumps(reply))
    words = [str(folder / name) for name in ("request.json", "reply.json")]
    run = CliRunner().invoke(app, ["recount", *words, "--tokenizer", str(FOLDER), *options])
    return run.exit_code, run.output


def test_a_right_reply_ends_well_and_says_what_was_looked_at(tmp_path: Path) -> None:
    code, said = recount(tmp_path, reply_of(REQUEST, [encoded(TEXT)], [TEXT]))
    assert code == 0 and "ok      prompt: " in said and "WRONG" not in said


def test_a_padded_reply_ends_with_an_error_that_names_it(tmp_path: Path) -> None:
    code, said = recount(tmp_path, reply_of(REQUEST, [encoded(TEXT + " more")], [TEXT]))
    assert code == 1 and "WRONG   text of choice 0: " in said


def test_for_a_program_it_is_json(tmp_path: Path) -> None:
    code, said = recount(tmp_path, reply_of(REQUEST, [encoded(TEXT)], [TEXT]), "--json")
    assert code == 0 and all(one["fits"] for one in json.loads(said))


@pytest.mark.parametrize("reply", [{"service": {}}, "no JSON", "{"])
def test_what_is_no_such_reply_is_said(tmp_path: Path, reply: Any) -> None:
    code, _ = recount(tmp_path, reply)
    assert code == 1
