"""The `pith` command as an operator meets it: what it prints, and how it ends when something is wrong."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from billing.errors import InvalidKey
from serve.cli.ledger.accounts import nano_usd
from serve.cli.main import main
from serve.cli.serve import with_ops_port
from serve.config.paths import ConfigError
from serve.config.settings import load_settings
from serve.money.ledger_setup import open_accounts
from tests.integration.running import free_port
from tests.migrated import migrated_file
from tests.serve.cli.commands import Done
from tests.serve.served import model_document, settings_document

KEY = re.compile(r"pith_[a-z0-9]{16}_[A-Za-z0-9]{43}")

Pith = Callable[..., Done]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "pith.yaml"
    path.write_text(yaml.safe_dump(settings_document(tmp_path)))
    return path


@pytest.fixture
def ledger(tmp_path: Path) -> None:
    """An empty ledger, as every command but the first finds it."""
    (tmp_path / "pith.db").write_bytes(asyncio.run(migrated_file()))


@pytest.fixture
def pith(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pith:
    """Runs the command in this process, with the arguments of a shell."""

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["pith", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as ended:
            assert ended.code is None or isinstance(ended.code, int)
            code = ended.code or 0
        return Done(code, *capsys.readouterr())

    return run


@pytest.fixture
def on(pith: Pith, config: Path, ledger: None) -> Pith:
    """Runs an account command on the test's own ledger."""

    def run(*arguments: object) -> Done:
        return pith(*arguments, "--config", config)

    return run


def works(config: Path, key: str) -> bool:
    """Whether a server of this configuration would take the key."""

    async def ask() -> bool:
        database, accounts = await open_accounts(load_settings(config))
        try:
            await accounts.authenticate(key, now=datetime.now(UTC))
        except InvalidKey:
            return False
        finally:
            await database.close()
        return True

    return asyncio.run(ask())


def test_a_good_configuration_is_called_valid(pith: Pith, config: Path) -> None:
    done = pith("config", "check", config)
    assert (done.code, done.err) == (0, "")
    assert done.out == f"{config}: valid; serves alpha, beta, gamma, delta\n"


def test_where_vllm_is_not_installed_its_arguments_are_said_to_be_unchecked(
    pith: Pith, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As the import system has it for a module that may not be imported.
    monkeypatch.setitem(sys.modules, "vllm", None)
    document = settings_document(tmp_path, models=[model_document("alpha", engine={"args": {"seed": 1}})])
    path = tmp_path / "with-args.yaml"
    path.write_text(yaml.safe_dump(document))
    done = pith("config", "check", path)
    assert (done.code, done.out) == (0, f"{path}: valid; serves alpha\n")
    assert "models.alpha.engine.args: names and types not checked" in done.err
    document["models"][0]["engine"]["args"] = {"data_parallel_rpc_port": 1}
    path.write_text(yaml.safe_dump(document))
    assert (
        "engine.args.data_parallel_rpc_port: copies of a model" in pith("config", "check", path).complaint()
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("server: {prot: 1}", "server.prot: unknown key"),
        ("models: []", "models: the catalog is empty"),
        ("a: [", "is not valid YAML"),
        ("", "must be a mapping"),
    ],
)
def test_a_bad_configuration_is_one_line_and_exit_code_2(
    pith: Pith, tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    done = pith("config", "check", path)
    assert done.code == 2
    assert done.complaint().startswith(f"{path}: ") and words in done.complaint()


def test_a_configuration_that_is_not_there_is_one_line_and_exit_code_2(pith: Pith, tmp_path: Path) -> None:
    done = pith("config", "check", tmp_path / "none.yaml")
    assert done.code == 2
    assert done.complaint().startswith(f"{tmp_path / 'none.yaml'}: there is no such file; `pith init FOLDER`")


@pytest.mark.parametrize("arguments", [("nonsense",), ("config", "check"), ("key", "create", "--nonsense")])
def test_a_command_that_is_none_is_exit_code_2(pith: Pith, arguments: tuple[str, ...]) -> None:
    done = pith(*arguments)
    assert done.code == 2 and "Usage" in done.err and "Traceback" not in done.err


def test_the_help_names_every_command(pith: Pith) -> None:
    done = pith("--help")
    assert done.code == 0
    assert all(name in done.out for name in ("serve", "config", "workspace", "project", "key"))


def test_an_account_from_nothing_to_a_key_that_works(on: Pith, config: Path, tmp_path: Path) -> None:
    (tmp_path / "pith.db").unlink()
    assert on("workspace", "create", "acme").code == 0
    assert on("project", "create", "acme", "search").code == 0
    made = on("key", "create", "acme/search", "--name", "ci")
    key, *_ = made.out.splitlines()
    assert KEY.fullmatch(key) and "shown once" in made.out
    assert works(config, key)
    assert on("key", "revoke", key).code == 0
    assert not works(config, key)


def test_accounts_as_json(on: Pith, config: Path) -> None:
    workspace = on(
        "workspace", "create", "acme", "--limit-usd", "12.5", "--monthly-limit-usd", "0.000000001", "--json"
    ).json()
    assert (workspace["name"], workspace["billing_enabled"]) == ("acme", True)
    assert (workspace["spend_limit_usd"], workspace["posted_usd"]) == ("12.5", "0")
    assert float(workspace["monthly_limit_usd"]) == 1e-9
    assert datetime.fromisoformat(workspace["created_at"]).tzinfo is not None

    project = on("project", "create", "acme", "search", "--max-in-flight", 3, "--json").json()
    assert (project["metered"], project["max_in_flight"], project["tokens_per_minute"]) == (True, 3, None)

    made = on("key", "create", "acme/search", "--json").json()
    assert KEY.fullmatch(made["key"]) and made["id"] == made["key"].split("_")[1]
    assert works(config, made["key"])

    assert [row["name"] for row in on("workspace", "list", "--json").json()] == ["acme"]
    assert [row["name"] for row in on("project", "list", "--json").json()] == ["search"]
    (listed,) = on("key", "list", "--json").json()
    assert listed["id"] == made["id"] and made["key"] not in json.dumps(listed)
    assert "digest" not in listed

    revoked = on("key", "revoke", made["id"], "--json").json()
    assert revoked["revoked_at"] is not None
    assert on("project", "revoke", "acme/search", "--json").json()["revoked_at"] is not None
    assert on("workspace", "revoke", "acme", "--json").json()["revoked_at"] is not None


def test_accounts_as_tables(on: Pith) -> None:
    assert on("workspace", "list").out == "none\n"
    assert on("workspace", "list", "--json").json() == []
    on("workspace", "create", "acme", "--no-billing")
    on("workspace", "create", "a-longer-name", "--limit-usd", "none")
    head, first, second = on("workspace", "list").out.splitlines()
    assert head.split()[:2] == ["id", "name"]
    column = head.index("billing_enabled")
    assert {first[column:].split()[0], second[column:].split()[0]} == {"false", "true"}
    assert first[head.index("spend_limit_usd") :].split()[0] == "-"
    head, made = on("project", "create", "acme", "search", "--allowed-tags", "b,a").out.splitlines()
    assert made[head.index("allowed_tags") :].split()[0] == "a,b"


def test_lists_can_be_narrowed(on: Pith) -> None:
    for workspace in ("one", "two"):
        on("workspace", "create", workspace)
        on("project", "create", workspace, "p")
        on("key", "create", f"{workspace}/p")
    assert len(on("project", "list", "--json").json()) == 2
    assert len(on("project", "list", "--workspace", "one", "--json").json()) == 1
    assert len(on("key", "list", "--json").json()) == 2
    assert len(on("key", "list", "--project", "two/p", "--json").json()) == 1


def test_a_workspace_keeps_what_is_not_set(on: Pith) -> None:
    on("workspace", "create", "acme", "--limit-usd", 5, "--monthly-limit-usd", 1)
    assert on("workspace", "set", "acme", "--limit-usd", 7, "--json").json()["monthly_limit_usd"] == "1"
    changed = on("workspace", "set", "acme", "--monthly-limit-usd", "none", "--no-billing", "--json").json()
    assert (changed["spend_limit_usd"], changed["monthly_limit_usd"]) == ("7", None)
    assert changed["billing_enabled"] is False
    assert on("workspace", "set", "acme", "--billing", "--json").json()["billing_enabled"] is True


def test_a_project_keeps_what_is_not_set(on: Pith) -> None:
    on("workspace", "create", "acme")
    on("project", "create", "acme", "p", "--requests-per-minute", 5, "--tokens-per-minute", 0, "--no-metered")
    changed = on("project", "set", "acme/p", "--max-in-flight", 2, "--json").json()
    limits = ("requests_per_minute", "tokens_per_minute", "max_in_flight")
    assert [changed[name] for name in limits] == [5, None, 2]
    assert changed["metered"] is False
    changed = on("project", "set", "acme/p", "--requests-per-minute", 0, "--json").json()
    assert [changed[name] for name in limits] == [None, None, 2]


def test_projects_and_keys_have_limits_by_hour_and_day(on: Pith) -> None:
    on("workspace", "create", "acme")
    limits = ("requests_per_hour", "requests_per_day", "tokens_per_hour", "tokens_per_day")
    given = [part for n, name in enumerate(limits, 1) for part in (f"--{name.replace('_', '-')}", n)]
    project = on("project", "create", "acme", "p", *given, "--json").json()
    key = on("key", "create", "acme/p", *given, "--json").json()
    for made, change in ((project, ("project", "set", "acme/p")), (key, ("key", "set", key["id"]))):
        assert [made[name] for name in limits] == [1, 2, 3, 4]
        changed = on(*change, "--requests-per-day", 0, "--tokens-per-day", 9, "--json").json()
        assert [changed[name] for name in limits] == [1, None, 3, 9]
    rotated = on("key", "rotate", key["id"], "--json").json()
    assert [rotated[name] for name in limits] == [1, None, 3, 9]


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (
            ("workspace", "set", "acme"),
            "--limit-usd, --monthly-limit-usd, --billing/--no-billing, --time-zone, --requests-per-minute, "
            "--tokens-per-minute, --max-in-flight, --requests-per-hour, --requests-per-day, --tokens-per-hour, "
            "--tokens-per-day",
        ),
        (
            ("project", "set", "acme/p"),
            "--metered/--no-metered, --requests-per-minute, --tokens-per-minute, --max-in-flight, "
            "--requests-per-hour, --requests-per-day, --tokens-per-hour, --tokens-per-day, --weight, "
            "--compression, --proof/--no-proof, --person-required/--no-person-required, --allowed-tags, "
            "--label-rates",
        ),
    ],
)
def test_a_set_without_options_says_what_to_give(on: Pith, arguments: tuple[str, ...], options: str) -> None:
    on("workspace", "create", "acme")
    on("project", "create", "acme", "p")
    done = on(*arguments)
    assert done.code == 2
    assert done.complaint() == f"nothing to change: give one or more of {options}"


def test_limits_of_a_workspace_and_of_labels_are_set_and_lifted(on: Pith) -> None:
    made = on("workspace", "create", "acme", "--requests-per-day", 9, "--json").json()
    assert (made["requests_per_day"], made["max_in_flight"]) == (9, None)
    changed = on("workspace", "set", "acme", "--requests-per-day", 0, "--max-in-flight", 3, "--json").json()
    assert (changed["requests_per_day"], changed["max_in_flight"]) == (None, 3)
    rates = {"*": {"requests_per_minute": 20}, "support": {"tokens_per_day": 100000}}
    project = on("project", "create", "acme", "p", "--label-rates", json.dumps(rates), "--json").json()
    assert project["label_rates"] == rates
    assert on("project", "set", "acme/p", "--label-rates", "none", "--json").json()["label_rates"] is None
    for wrong in ("{", "[]", '{"*": {"requests": 1}}'):
        assert on("project", "set", "acme/p", "--label-rates", wrong).code != 0


def test_a_project_is_made_and_told_to_promise_its_usage(on: Pith) -> None:
    on("workspace", "create", "acme")
    assert on("project", "create", "acme", "p", "--proof", "--json").json()["proof"] is True
    assert on("project", "set", "acme/p", "--no-proof", "--json").json()["proof"] is False
    named = on("project", "set", "acme/p", "--person-required", "--allowed-tags", "b, a", "--json").json()
    assert (named["person_required"], named["allowed_tags"]) == (True, ["a", "b"])
    assert on("project", "set", "acme/p", "--allowed-tags", "none", "--json").json()["allowed_tags"] is None
    day = ("budget", "set", "--project", "acme/p", "--per", "day", "--usd", "1", "--json")
    assert on(*day, "--person").json()["used_usd"] is None
    assert on(*day, "--tag", "a").json()["tag"] == "a"
    lands = on(*day, "--at-end", "flex", "--land-from-percent", 80).json()
    assert (lands["at_end"], lands["land_from_percent"]) == ("flex", 80)
    assert on(*day, "--person", "--tag", "a").code == 2
    assert on("project", "set", "acme/p", "--weight", 2, "--json").json()["proof"] is False


def test_a_projects_weight_is_given_and_changed_and_stays_with_the_rest(on: Pith) -> None:
    on("workspace", "create", "acme")
    assert on("project", "create", "acme", "p", "--weight", 3, "--json").json()["weight"] == 3
    assert on("project", "create", "acme", "q", "--json").json()["weight"] == 1
    assert on("project", "set", "acme/p", "--max-in-flight", 2, "--json").json()["weight"] == 3
    assert on("project", "set", "acme/p", "--weight", 1000, "--json").json()["weight"] == 1000
    assert on("project", "set", "acme/p", "--weight", 0).code == 2


def test_metering_is_switched_and_the_limits_stay(on: Pith) -> None:
    on("workspace", "create", "acme")
    on("project", "create", "acme", "p", "--max-in-flight", 2)
    changed = on("project", "set", "acme/p", "--no-metered", "--json").json()
    assert (changed["metered"], changed["max_in_flight"]) == (False, 2)
    changed = on("project", "set", "acme/p", "--metered", "--max-in-flight", 3, "--json").json()
    assert (changed["metered"], changed["max_in_flight"]) == (True, 3)


def test_nothing_is_made_in_what_was_revoked(on: Pith) -> None:
    for workspace in ("gone", "kept"):
        on("workspace", "create", workspace)
        on("project", "create", workspace, "p")
    on("workspace", "revoke", "gone")
    on("project", "revoke", "kept/p")
    for arguments, owner in (
        (("key", "create", "gone/p"), "workspace 'gone'"),
        (("project", "create", "gone", "q"), "workspace 'gone'"),
        (("key", "create", "kept/p"), "project 'p'"),
    ):
        done = on(*arguments)
        assert done.code == 1
        assert done.complaint().startswith(f"{owner} was revoked on ")
    assert on("key", "list", "--all", "--json").json() == []
    assert len(on("project", "list", "--all", "--json").json()) == 2


def test_lists_name_what_a_row_belongs_to_and_leave_out_what_was_revoked(on: Pith) -> None:
    for workspace in ("acme", "gone"):
        on("workspace", "create", workspace)
        on("project", "create", workspace, "search")
        on("key", "create", f"{workspace}/search", "--name", "ci")
    revoked = on("key", "create", "acme/search", "--name", "old", "--json").json()["id"]
    on("key", "revoke", revoked)
    on("workspace", "revoke", "gone")

    listed = on("key", "list")
    head, row = listed.out.splitlines()
    assert head.split()[:4] == ["id", "workspace", "project", "name"]
    assert row.split()[1:4] == ["acme", "search", "ci"]
    assert listed.err == "2 revoked, left out; --all shows them\n"
    assert on("project", "list").out.splitlines()[1].split()[1:3] == ["acme", "search"]
    assert [row["name"] for row in on("workspace", "list", "--json").json()] == ["acme"]

    states = {
        row["workspace"] + "/" + row["name"]: row["state"]
        for row in on("key", "list", "--all", "--json").json()
    }
    assert states == {"acme/ci": "active", "acme/old": "key revoked", "gone/ci": "workspace revoked"}
    gone = on("key", "list", "--workspace", "gone")
    assert (gone.out, gone.err) == ("none\n", "1 revoked, left out; --all shows them\n")
    assert len(on("key", "list", "--workspace", "gone", "--all", "--json").json()) == 1
    (project,) = on("project", "list", "--workspace", "gone", "--all", "--json").json()
    assert (project["workspace"], project["state"]) == ("gone", "workspace revoked")


BAD_AMOUNTS = [
    "-1",
    "-0.01",
    "a lot",
    "",
    "1,5",
    "$5",
    "nan",
    "snan",
    "inf",
    "-inf",
    "0.0000000001",
    "1e999990",
    "1e5000",
    "9999999999.5",
    "1e9999999",
]


@pytest.mark.parametrize("amount", BAD_AMOUNTS)
def test_what_is_no_amount_is_refused_with_the_option(amount: str) -> None:
    with pytest.raises(ConfigError) as caught:
        nano_usd(amount, "--limit-usd")
    assert str(caught.value).startswith(f"--limit-usd: {amount!r} is not an amount of US dollars")


def test_a_bad_amount_is_one_line_and_exit_code_2_and_changes_nothing(on: Pith) -> None:
    for option in ("--limit-usd", "--monthly-limit-usd"):
        done = on("workspace", "create", "acme", f"{option}=1,5")
        assert done.code == 2
        assert done.complaint().startswith(f"{option}: '1,5' is not an amount of US dollars")
    assert on("workspace", "list").out == "none\n"


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("none", None),
        ("NONE", None),
        ("0", 0),
        ("1", 10**9),
        ("0.000000001", 1),
        ("1e3", 10**12),
        ("9223372036.854775807", 2**63 - 1),
    ],
)
def test_an_amount_is_whole_nano_dollars(text: str, nano: int | None) -> None:
    assert nano_usd(text, "--limit-usd") == nano


def test_the_first_amount_that_no_ledger_holds_is_refused() -> None:
    with pytest.raises(ConfigError, match="--limit-usd"):
        nano_usd("9223372036.854775808", "--limit-usd")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("workspace", "set", "nobody", "--limit-usd", "1"), "no workspace has the id or name 'nobody'"),
        (("workspace", "revoke", "nobody"), "no workspace has the id or name 'nobody'"),
        (("project", "create", "nobody", "p"), "no workspace has the id or name 'nobody'"),
        (("project", "set", "acme/nothing", "--metered"), "no project has the id or name 'acme/nothing'"),
        (("project", "revoke", "nothing"), "no project has the id or name 'nothing'"),
        (("project", "list", "--workspace", "nobody"), "no workspace has the id or name 'nobody'"),
        (("key", "create", "acme/nothing"), "no project has the id or name 'acme/nothing'"),
        (("key", "list", "--project", "acme/nothing"), "no project has the id or name 'acme/nothing'"),
        (("key", "revoke", "nothing"), "no key has the id or name 'nothing'"),
        (("key", "revoke", "pith_short"), "the API key is invalid"),
        (("workspace", "create", "acme"), "a workspace named 'acme' already exists"),
        (("workspace", "create", "a/b"), "name: "),
        (("workspace", "create", ""), "name: "),
        (("project", "create", "acme", "x" * 65), "name: "),
    ],
)
def test_an_account_that_is_wrong_is_one_line_and_exit_code_1(
    on: Pith, arguments: tuple[str, ...], words: str
) -> None:
    on("workspace", "create", "acme")
    done = on(*arguments)
    assert done.code == 1
    assert words in done.complaint()


def test_a_negative_rate_is_refused(on: Pith) -> None:
    on("workspace", "create", "acme")
    done = on("project", "create", "acme", "p", "--max-in-flight", -1)
    assert done.code == 2 and "--max-in-flight" in done.err


@pytest.mark.parametrize("content", [b"short", b""])
def test_a_broken_pepper_is_one_line(on: Pith, config: Path, content: bytes) -> None:
    state = load_settings(config).state_dir
    state.mkdir()
    (state / "pepper").write_bytes(content)
    done = on("workspace", "list")
    assert done.code == 2 and "restore it from a backup" in done.complaint()


def test_a_ledger_that_is_no_database_is_one_line(on: Pith, tmp_path: Path) -> None:
    (tmp_path / "pith.db").write_bytes(b"no database at all" * 100)
    done = on("workspace", "list")
    assert done.code == 1 and "the ledger is unavailable" in done.complaint()


def test_a_port_that_is_taken_is_one_line_before_anything_is_started(
    pith: Pith, config: Path, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        done = pith("serve", "--config", config, "--port", port)
    assert done.code == 2
    assert done.complaint().startswith(f"cannot listen on 127.0.0.1:{port}: address already in use")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pith.yaml"]


def test_an_ops_port_that_is_taken_is_one_line_before_anything_is_started(
    pith: Pith, config: Path, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        done = pith("serve", "--config", config, "--port", free_port(), "--ops-port", port)
    assert done.code == 2
    assert done.complaint().startswith(f"cannot listen on 127.0.0.1:{port}: address already in use")
    assert done.complaint().endswith("choose another with OPS_PORT= or --ops-port")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pith.yaml"]


def test_one_port_for_requests_and_metrics_is_refused(pith: Pith, config: Path) -> None:
    port = free_port()
    done = pith("serve", "--config", config, "--port", port, "--ops-port", port)
    assert done.code == 2 and f"127.0.0.1:{port}" in done.complaint() and "--ops-port" in done.complaint()


def test_the_ops_port_of_the_command_line_wins_and_0_is_none(config: Path) -> None:
    settings = load_settings(config)
    assert with_ops_port(settings, None).ops.port == 9464
    assert with_ops_port(settings, 9999).ops.port == 9999
    assert with_ops_port(settings, 0).ops.port == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--ops-port", "-1"), "--ops-port: -1 is not a TCP port"),
        (("--ops-port", "65536"), "--ops-port: 65536 is not a TCP port"),
        (("--port", "0"), "--port: 0 is not a TCP port"),
        (("--port", "65536"), "--port: 65536 is not a TCP port"),
        (("--host", "192.0.2.1"), "cannot listen on 192.0.2.1:8000: "),
        (("--host", "a..b"), "cannot listen on a..b:8000: "),
        (("--host", "x" * 64), "cannot listen on xxx"),
        (("--host", "\u00e4" * 64), "cannot listen on \u00e4\u00e4"),
        (("--host", "1:2"), "cannot listen on 1:2:8000: "),
    ],
)
def test_an_address_that_is_none_of_this_machine_is_one_line(
    pith: Pith, config: Path, tmp_path: Path, options: tuple[str, str], words: str
) -> None:
    done = pith("serve", "--config", config, *options)
    assert done.code == 2 and done.complaint().startswith(words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pith.yaml"]


def test_a_bad_configuration_stops_the_start(pith: Pith, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("server: {port: yes}")
    done = pith("serve", "--config", path)
    assert done.code == 2 and "server.port: must not be true or false" in done.complaint()
