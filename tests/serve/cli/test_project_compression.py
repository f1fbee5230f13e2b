"""`pith project create|set --compression`: checked when it is set, shown, logged, and said to be off where it is."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import text
from typer.testing import CliRunner, Result

from billing.preservation.sizes import Bound, SizedFor, SizeStore
from billing.store.database import open_database
from serve.cli.main import app
from serve.config.paths import ConfigError
from tests.migrated import migrated_file
from tests.serve.served import settings_document

LEXICAL = {"name": "Lexical", "blurb": "For tests.", "kind": "lexical"}
MODELS: list[dict[str, Any]] = [
    {"id": "lexical", **LEXICAL, "ratio": {"default": 0.5, "min": 0.1, "max": 0.9}},
    {"id": "words", **LEXICAL, "kind": "token_classifier", "checkpoint": "embedded:small"},
]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "pith.yaml"
    write(path, MODELS)
    (tmp_path / "pith.db").write_bytes(asyncio.run(migrated_file()))
    run(path, "workspace", "create", "acme")
    return path


def write(path: Path, models: list[dict[str, Any]]) -> None:
    path.write_text(yaml.safe_dump(settings_document(path.parent, compression={"models": models})))


def run(config: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--config", str(config)])


def found(config: Path, *arguments: str) -> Any:
    done = run(config, *arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def refusal(config: Path, compression: str) -> str:
    """What `main` prints of it, with exit code 2."""
    error = run(config, "project", "create", "acme", "p", "--compression", compression).exception
    assert isinstance(error, ConfigError)
    return str(error)


def test_a_default_is_set_shown_changed_and_switched_off(config: Path) -> None:
    given = '{"scope": "all",  "target_ratio": 0.30, "holdout": 0.02}'
    options = {"holdout": 0.02, "scope": "all", "target_ratio": 0.3}
    assert found(config, "project", "create", "acme", "p", "--compression", given)["compression"] == options
    assert found(config, "project", "create", "acme", "q")["compression"] is None
    listed = found(config, "project", "list")
    assert [project["compression"] for project in listed] == [options, None]
    table = run(config, "project", "list").stdout
    assert '{"holdout":0.02,"scope":"all","target_ratio":0.3}' in table

    # What is not named stays.
    assert found(config, "project", "set", "acme/p", "--max-in-flight", "2")["compression"] == options
    changed = found(config, "project", "set", "acme/p", "--compression", '{"keep": 0.95}')
    assert (changed["compression"], changed["max_in_flight"]) == ({"keep": 0.95}, 2)
    both = found(config, "project", "set", "acme/p", "--compression", "off", "--max-in-flight", "3")
    assert (both["compression"], both["max_in_flight"]) == (None, 3)


def test_changes_are_in_the_audit_log_and_what_changes_nothing_is_not(config: Path) -> None:
    run(config, "project", "create", "acme", "p", "--compression", '{"target_ratio": 0.3}')
    for compression in ('{"target_ratio":0.30}', "{}", "off"):
        run(config, "project", "set", "acme/p", "--compression", compression)
    details = [entry["details"] for entry in found(config, "audit") if "project" in entry["action"]]
    ratio = '{"target_ratio":0.3}'
    assert details[0]["compression"] == ratio
    assert details[1:] == [{"compression": [ratio, "{}"]}, {"compression": ["{}", None]}]


@pytest.mark.parametrize(
    ("compression", "complaint"),
    [
        ('{"target_ratio": 1.5}', "target_ratio: Input should be less than or equal to 1"),
        ('{"target_ratio": "0.5"}', "target_ratio: Input should be a valid number"),
        ('{"target_ratio": 0.5, "keep": 0.9}', "keep: keep cannot be given together with target_ratio"),
        ('{"scope": "some"}', "scope: Input should be 'marked' or 'all'"),
        (
            '{"target_ration": 0.5}',
            "target_ration: unknown option; did you mean target_ratio?",
        ),
        ('{"model": "none"}', "model: there is no 'none', only lexical, words"),
        ('{"target_ratio": 0.05}', "target_ratio: lexical takes 0.1 to 0.9, not 0.05"),
        (
            '{"keep": 0.9, "model": "words"}',
            "keep: words has no calibration for it; give target_ratio instead",
        ),
        (
            '{"within": 0.05, "model": "words"}',
            "within: words has no calibration, which its sizes need; give target_ratio instead",
        ),
        (
            '{"within": 0.05, "keep": 0.9}',
            "within cannot be given together with target_ratio or keep",
        ),
        ('{"within": 0.05, "verify": 0}', "within needs samples: verify must be above 0"),
        ('{"within": 9}', "within: nats: Input should be less than or equal to 8"),
        ('{"within": {"agreement": 2}}', "within: agreement: agreement: Input should be less than 1"),
        ('{"retain_s": 90000}', "retain_s: this server keeps originals for 86400 seconds at the most"),
        ('{"target_ratio": 0.', "Malformed JSON: "),
        ("true", "Input should be an object"),
        ("on", "Malformed JSON: "),
        ("", "The body is empty"),
        ("\udcff", "Malformed JSON: "),
    ],
)
def test_a_default_that_could_not_be_used_is_refused(config: Path, compression: str, complaint: str) -> None:
    assert refusal(config, compression).startswith(f"--compression: {complaint}")
    assert found(config, "project", "list") == []


def test_without_compression_models_there_is_no_default(config: Path) -> None:
    write(config, [])
    assert refusal(config, "{}") == "--compression: model: this configuration has no compression models"


def test_a_default_that_does_nothing_is_named_after_the_list(config: Path) -> None:
    for name, compression in {"a": '{"model": "words"}', "b": '{"target_ratio": 0.1}', "c": "off"}.items():
        run(config, "project", "create", "acme", name, "--compression", compression)
    assert run(config, "project", "list").stderr == ""
    write(config, [{**MODELS[0], "ratio": {"default": 0.5, "min": 0.2}}])
    asyncio.run(by_hand(config, "c", '{"target_ratio":0.5,"summarize":true}'))
    assert run(config, "project", "list").stderr.splitlines() == [
        "acme/a: its chats are not compressed as it says: model: there is no 'words', only lexical",
        "acme/b: its chats are not compressed as it says: target_ratio: lexical takes 0.2 to 1, not 0.1",
        "acme/c: its chats are not compressed as it says: cannot be read by this version",
    ]
    asyncio.run(by_hand(config, "c", "{"))
    assert [project["compression"] for project in found(config, "project", "list")][2] == "{"


async def by_hand(config: Path, project: str, compression: str) -> None:
    database = open_database(f"sqlite:///{config.parent / 'pith.db'}")
    change = text("UPDATE projects SET compression = :compression WHERE name = :project")
    values = {"compression": compression, "project": project}
    await database.write(lambda connection: connection.execute(change, values))
    await database.close()


def test_a_bound_is_set_and_the_list_shows_where_samples_have_led(config: Path) -> None:
    made = found(config, "project", "create", "acme", "p", "--compression", '{"within": 0.05}')
    assert made["compression"] == {"within": 0.05} and made["conversations_by_keep"] is None

    async def sample() -> None:
        database = open_database(f"sqlite:///{config.parent / 'pith.db'}")
        of = SizedFor(made["workspace_id"], made["id"], '{"within":0.05}', Bound("nats", 0.05))
        await SizeStore(database).add_whole(of, 160, datetime(2026, 11, 20, tzinfo=UTC))
        await database.close()

    asyncio.run(sample())
    (listed,) = found(config, "project", "list")
    assert listed["conversations_by_keep"] == {"0.98": 0.5, "0.95": 0.5}
    assert "0.95" in run(config, "project", "list").stdout
    entry = found(config, "audit")[-1]
    assert (entry["action"], entry["subject"]) == ("project.size", made["id"])
    assert entry["details"]["conversations_by_keep"] == [{"0.99": 1.0}, {"0.98": 0.5, "0.95": 0.5}]


def test_a_bound_is_refused_where_nothing_is_ever_scored(config: Path) -> None:
    settings = {"models": MODELS, "chat": {"verify_engine_share": 0}}
    config.write_text(yaml.safe_dump(settings_document(config.parent, compression=settings)))
    complaint = (
        "within: compression.chat.verify_engine_share is 0, so there are no samples to decide the size"
    )
    assert complaint in refusal(config, '{"within": 0.05}')
