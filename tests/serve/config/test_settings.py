"""A configuration that loads can be served; any other is refused in words that name the file, the key and why."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from copy import deepcopy
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from serve.catalog.offered import catalog_of
from serve.config.engine import EngineSettings
from serve.config.paths import ConfigError
from serve.config.settings import Settings, load_settings, place_in_file
from tests.serve.served import model_document, settings_document

ROOT = Path(__file__).resolve().parents[3]
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    """A valid configuration with every section in it."""
    found = settings_document(tmp_path)
    found["ray"] = {}
    found["ops"] = {}
    found["billing"]["archive"] = {}
    found["batches"] = {}
    found["metrics"] = {"tenants": {"top": 5}}
    found["responses"] = {}
    found["logs"] = {}
    found["log"] = {}
    found["webhooks"] = {}
    found["tracing"] = {}
    for section in ("capabilities", "engine", "accelerator", "size", "replicas"):
        found["models"][0][section] = {}
    # Engines on CPUs could not sleep.
    found["turns"] = [{"models": ["gamma", "delta"]}]
    for model in found["models"][2:4]:
        model["engine"] = {"kind": "fake"}
    compressor = {"id": "m", "name": "M", "blurb": "b", "kind": "encoder", "checkpoint": "some/model"}
    for section in ("ratio", "flags", "selection", "replicas"):
        compressor[section] = {}  # type: ignore[assignment]
    # After the others, since its place in the file is not its place in its list.
    other: dict[str, Any] = {
        "id": "e",
        "kind": "rerank",
        "name": "E",
        "blurb": "b",
        "checkpoint": "x/y",
        "context_length": 512,
    }
    for section in ("accelerator", "replicas"):
        other[section] = {}
    found["models"].append({**other, "price": {"input_usd_per_mtok": 1}, "engine": {"kind": "encoder"}})
    found["compression"] = {"demo": {}, "chat": {}, "retention": {}, "models": [compressor]}
    return found


def refusal(document: Any, folder: Path) -> str:
    """What is said of a configuration, without the file's name before it."""
    path = folder / "pith.yaml"
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_settings(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "\n" not in message
    return message.removeprefix(f"{path}: ")


def sections(
    kind: type[BaseModel] = Settings, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[type[BaseModel], tuple[str | int, ...]]]:
    """Each section of the configuration and where it stands."""
    yield kind, path
    for name, field in kind.model_fields.items():
        inner = field.annotation
        if inner is not None and typing.get_origin(inner) is list:
            (inner,) = typing.get_args(inner)
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                place = ("models", 4) if name == "retrieval_models" else (name, 0)
                yield from sections(inner, (*path, *place))
        elif isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from sections(inner, (*path, name))


SECTIONS = list(sections())
KEYS = [
    (kind, (*path, name))
    for kind, path in SECTIONS
    for name in kind.model_fields
    # Made of the entries of `models`.
    if name != "retrieval_models"
]


def dotted(path: tuple[str | int, ...]) -> str:
    return ".".join(str(part) for part in path)


def put(document: Any, path: tuple[str | int, ...], value: Any) -> Any:
    changed = deepcopy(document)
    place = changed
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return changed


@pytest.mark.parametrize("path", [path for _, path in SECTIONS], ids=lambda path: dotted(path) or "top")
def test_an_unknown_key_is_refused_with_its_path(
    document: dict[str, Any], tmp_path: Path, path: tuple[str | int, ...]
) -> None:
    wrong = (*path, "trust_remote_code")
    also = "; arguments of vLLM's stand in engine.args" if path == ("models", 0, "engine") else ""
    assert refusal(put(document, wrong, True), tmp_path) == f"{dotted(wrong)}: unknown key{also}"


def places_of_problems(document: Any) -> set[str]:
    """Where a configuration is wrong; a quicker question than what is said of its file."""
    try:
        Settings.model_validate(document)
    except ValidationError as error:
        return {dotted(tuple(place_in_file(issue["loc"], document))) for issue in error.errors()}
    return set()


def test_a_value_of_the_wrong_type_is_refused_with_its_path(document: dict[str, Any]) -> None:
    # No key takes a list of such mappings, and those that take a mapping take no list.
    taken = [
        dotted(path)
        for _, path in KEYS
        if not any(
            place.startswith(dotted(path))
            for place in places_of_problems(put(document, path, [{"a": ["b"]}]))
        )
    ]
    assert taken == []


def takes_numbers(annotation: Any) -> bool:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        return any(takes_numbers(part) for part in typing.get_args(annotation))
    return annotation in (int, float, Decimal)


NUMBERS = [path for kind, path in KEYS if takes_numbers(kind.model_fields[str(path[-1])].annotation)]


def test_there_are_numbers_to_test() -> None:
    assert ("server", "port") in NUMBERS and ("models", 0, "price", "input_usd_per_mtok") in NUMBERS


@pytest.mark.parametrize("value", [True, "many", float("nan"), float("inf"), -(2.0**70)], ids=str)
def test_what_is_no_usable_number_is_refused_where_one_is_meant(document: dict[str, Any], value: Any) -> None:
    taken = [path for path in NUMBERS if places_of_problems(put(document, path, value)) != {dotted(path)}]
    # A seed has no bound here.
    assert [path for path in taken if not (value == -(2.0**70) and path[-1] == "seed")] == []


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("server", "port"), 0, "greater than or equal to 1"),
        (("server", "port"), 65536, "less than or equal to 65535"),
        (("server", "max_body_bytes"), 1023, "1024"),
        (("server", "start_wait_s"), 0, "greater than 0"),
        (("server", "coalesce_ms"), 1001, "1000"),
        (("billing", "database_url"), "mysql://x/y", "sqlite:///PATH"),
        (("billing", "database_url"), "sqlite://", "sqlite:///PATH"),
        (("billing", "database_url"), "sqlite:///", "sqlite:///PATH"),
        (("billing", "database_url"), "sqlite:///:memory:", "sqlite:///PATH"),
        (("billing", "database_url"), "sqlite:pith.db", "sqlite:///PATH"),
        (("billing", "database_url"), "postgresql+asyncpg:x", "sqlite:///PATH"),
        (("billing", "key_cache_s"), 5.1, "less than or equal to 5"),
        (("billing", "collection_threshold_cents"), 0, "1"),
        (("billing", "archive", "keep_months"), 0, "greater than or equal to 1"),
        (("models", 0, "id"), "", "pattern"),
        (("models", 0, "id"), "a b", "pattern"),
        (("models", 0, "id"), "x" * 128, "pattern"),
        (("models", 0, "blurb"), "", "at least 1 character"),
        (("models", 0, "price", "input_usd_per_mtok"), "-0.1", "greater than or equal to 0"),
        (("models", 0, "price", "input_usd_per_mtok"), "0.0000001", "6 decimal places"),
        (("models", 0, "price", "minimum_request_usd"), "0.0000000001", "9 decimal places"),
        (("models", 0, "capabilities", "media"), ["smell"], "image_url"),
        (("models", 0, "accelerator", "kind"), "tpu", "'cpu' or 'gpu'"),
        (("models", 0, "engine", "dtype"), "float8", "float32"),
        (("models", 0, "replicas"), {"min": 2, "max": 1}, "min (2) is above max (1)"),
        (("models", 1, "id"), "alpha", "'alpha' is listed twice"),
    ],
)
def test_a_value_out_of_bounds_is_refused_with_the_bound(
    document: dict[str, Any], tmp_path: Path, path: tuple[str | int, ...], value: Any, words: str
) -> None:
    said = refusal(put(document, path, value), tmp_path)
    assert said.startswith("models" if path == ("models", 1, "id") else dotted(path))
    assert words in said


@pytest.mark.parametrize("count", [1, 3, 4, 5])
def test_a_catalog_holds_as_many_models_as_one_likes(document: dict[str, Any], count: int) -> None:
    document |= {"models": [model_document(f"m{n}") for n in range(count)], "turns": []}
    assert len(Settings.model_validate(document).models) == count


@pytest.mark.parametrize(("cached", "micro_usd"), [("0.1", 100_000), ("0.025", 25_000), ("0", 0)])
def test_cached_input_may_have_a_price_of_its_own(
    document: dict[str, Any], cached: str, micro_usd: int
) -> None:
    price = {**document["models"][0]["price"], "input_usd_per_mtok": "0.1"}
    document["models"][0]["price"] = {**price, "cached_input_usd_per_mtok": cached}
    first, *others = catalog_of(Settings.model_validate(document)).models
    assert first.cached_input_micro_usd_per_mtok == micro_usd
    assert all(model.cached_input_micro_usd_per_mtok is None for model in others)


def test_cached_input_that_costs_more_than_input_is_refused_by_its_key(
    document: dict[str, Any], tmp_path: Path
) -> None:
    """What is held for a prompt of which nothing is cached must cover it."""
    document["models"][0]["price"]["input_usd_per_mtok"] = "0.1"
    document["models"][0]["price"]["cached_input_usd_per_mtok"] = "0.100001"
    said = refusal(document, tmp_path)
    assert said.startswith("models.0.price.cached_input_usd_per_mtok: "), said
    assert "0.100001" in said and "input_usd_per_mtok (0.1)" in said


def test_a_model_that_calls_tools_needs_a_parser_of_its_calls(
    document: dict[str, Any], tmp_path: Path
) -> None:
    model = document["models"][0]
    model["capabilities"] = {"tools": True}
    assert "engine.tool_call_parser" in refusal(document, tmp_path)
    model["engine"] = {"enable_auto_tool_choice": True, "tool_call_parser": "hermes"}
    model["capabilities"], document["models"][1]["capabilities"] = {"tools": True}, {"tools": "ignore"}
    catalog = catalog_of(Settings.model_validate(document))
    assert [model.capabilities.tools for model in catalog.models[:2]] == [True, "ignore"]
    document["models"][1]["capabilities"] = {"tools": "never"}
    assert "models.1.capabilities.tools" in refusal(document, tmp_path)


def test_a_catalog_without_a_model_is_refused(document: dict[str, Any], tmp_path: Path) -> None:
    document["models"] = []
    assert refusal(document, tmp_path) == "models: the catalog is empty"


@pytest.mark.parametrize("name", ["cpu", "embedded", "gpu"])
def test_the_shipped_catalogs_hold_four_models(name: str) -> None:
    assert len(load_settings(Path("configs") / f"{name}.yaml").models) == 4


@pytest.mark.parametrize("name", ["models", "price", "id", "checkpoint", "context_length"])
def test_what_has_no_default_must_be_there(document: dict[str, Any], tmp_path: Path, name: str) -> None:
    path = (name,) if name == "models" else ("models", 0, name)
    place = document if name == "models" else document["models"][0]
    del place[name]
    assert refusal(document, tmp_path) == f"{dotted(path)}: Field required"


def test_one_machine_needs_no_redis_for_several_ingress_processes(document: dict[str, Any]) -> None:
    document["server"]["ingress_replicas"] = 4
    assert Settings.model_validate(document).billing.rate_limit_storage == "memory://"


def test_several_machines_need_shared_limits(document: dict[str, Any], tmp_path: Path) -> None:
    document["ray"] = {"address": "10.0.0.1:6379"}
    document["server"]["ingress_replicas"] = 2
    assert "billing.rate_limit_storage must be shared" in refusal(document, tmp_path)
    document["billing"]["rate_limit_storage"] = "redis://127.0.0.1:6379"
    assert Settings.model_validate(document).server.ingress_replicas == 2


@pytest.mark.parametrize("ports", [[31000, 30999], [80, 90], [31000, 70000], [31000]])
def test_ports_of_replicas_are_a_range(document: dict[str, Any], tmp_path: Path, ports: list[int]) -> None:
    document["ray"] = {"address": "10.0.0.1:6379", "replica_ports": [31000, 31063]}
    document["server"]["ingress_replicas"] = 1
    assert Settings.model_validate(document).ray.replica_ports == (31000, 31063)
    document["ray"]["replica_ports"] = ports
    assert refusal(document, tmp_path).startswith("ray")


def test_only_on_a_cluster_are_there_nodes_and_ports_between_them(
    document: dict[str, Any], tmp_path: Path
) -> None:
    document["ray"] = {"replica_ports": [31000, 31063]}
    assert "without ray.address no other machine reaches an engine" in refusal(document, tmp_path)
    document["ray"] = {}
    document["server"]["host"] = "node"
    assert "server.host: `node` is for a cluster" in refusal(document, tmp_path)


@pytest.mark.parametrize(
    "uri",
    ["", "memory", "memory://x", "redis", "redis://", "memcached://:hunter2@host", "http://:hunter2@host"],
)
def test_a_storage_of_limits_that_is_none_is_refused_without_its_password(
    document: dict[str, Any], tmp_path: Path, uri: str
) -> None:
    document["billing"]["rate_limit_storage"] = uri
    said = refusal(document, tmp_path)
    assert said.startswith("billing.rate_limit_storage: use memory://, redis://") and "hunter2" not in said


@pytest.mark.parametrize(
    "uri", ["redis://127.0.0.1:6379/0", "rediss://:secret@redis:6380", "unix:///run/redis"]
)
def test_limits_may_be_counted_in_redis(document: dict[str, Any], uri: str) -> None:
    document["billing"]["rate_limit_storage"] = uri
    assert Settings.model_validate(document).billing.rate_limit_storage == uri


def test_each_problem_is_named(document: dict[str, Any], tmp_path: Path) -> None:
    document["server"] = {"port": 0, "prot": 1}
    first, second = refusal(document, tmp_path).split("; ")
    assert first.startswith("server.port: ") and second.endswith("server.prot: unknown key")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must be a mapping"),
        ("[]", "must be a mapping"),
        ("just words", "must be a mapping"),
        ("a: [", "is not valid YAML"),
        ("a: b: c", "is not valid YAML"),
        ("\tx: 1", "is not valid YAML"),
        ("a: !!python/object/apply:os.getcwd []", "is not valid YAML"),
        ("a: 2026-13-45", "is not valid YAML"),
        ("a: " + "9" * 5000, "is not valid YAML"),
        ("a: " + "[" * 500, "is not valid YAML"),
        ("? [1, 2]\n: 3", "is not valid YAML"),
        ("1: 2", "1: "),
        ('"a\\nb": 1', "unknown key"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused_in_one_line(
    tmp_path: Path, text: str, words: str
) -> None:
    assert words in refusal(text, tmp_path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: there is no such file; `pith init FOLDER`"):
        load_settings(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_settings(tmp_path)
    (tmp_path / "latin.yaml").write_bytes("naïve".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"latin\.yaml: cannot be read: is not UTF-8"):
        load_settings(tmp_path / "latin.yaml")


def test_the_configurations_of_the_repository_are_all_here() -> None:
    assert {path.name for path in CONFIGS} >= {
        "cluster.yaml",
        "cpu.yaml",
        "embedded.yaml",
        "gpu.yaml",
        "tiny.yaml",
    }


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_configuration_of_the_repository_loads_and_makes_a_catalog(path: Path) -> None:
    settings = load_settings(path)
    catalog = catalog_of(settings)
    assert len(catalog.models) == (4 if settings.ray.address is None else 2)
    assert catalog.default.id == settings.models[0].id
    assert all(model.input_micro_usd_per_mtok > 0 for model in catalog.models)
    assert settings.models[0].replicas.min >= 1
    assert settings.server.host == ("127.0.0.1" if settings.ray.address is None else "node")


def test_a_price_becomes_whole_micro_and_nano_dollars(document: dict[str, Any]) -> None:
    document["models"][0]["price"] = {
        "input_usd_per_mtok": 0.1,
        "output_usd_per_mtok": "0.000001",
        "minimum_request_usd": "0.000000001",
    }
    model = catalog_of(Settings.model_validate(document)).default
    assert model.input_micro_usd_per_mtok == 100_000
    assert (model.output_micro_usd_per_mtok, model.minimum_nano_usd) == (1, 1)


def test_every_key_outside_the_engines_own_is_described() -> None:
    plain = [
        dotted(path)
        for kind, path in KEYS
        if kind is not EngineSettings
        and not kind.model_fields[str(path[-1])].description
        and not isinstance(kind.model_fields[str(path[-1])].default, BaseModel)
        and path[-1] != "price"
    ]
    assert plain == []


def test_settings_cannot_be_changed_in_place(document: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings.model_validate(document).server.port = 1  # type: ignore[misc]


def anchored(billing: dict[str, Any], folder: str) -> Settings:
    document = {"billing": billing, "models": [model_document(name) for name in "abcd"]}
    return Settings.model_validate(document).anchored(Path(folder))


def test_relative_paths_are_anchored() -> None:
    settings = anchored({}, "/srv/pith")
    assert settings.state_dir == Path("/srv/pith/var")
    assert settings.billing.database_url == "sqlite:////srv/pith/var/pith.db"
    assert settings.billing.spool_path == Path("/srv/pith/var/spool.db")
    assert settings.demo.key_path == Path("/srv/pith/var/demo-key")


def test_absolute_paths_and_other_databases_stay() -> None:
    settings = anchored({"database_url": "sqlite:////data/l.db", "spool_path": "/data/s.db"}, "/srv/pith")
    assert settings.billing.database_url == "sqlite:////data/l.db"
    assert settings.billing.spool_path == Path("/data/s.db")
    url = "postgresql+asyncpg://pith@db/pith"
    assert anchored({"database_url": url}, "/srv/pith").billing.database_url == url


def test_anchoring_twice_changes_nothing_more() -> None:
    once = anchored({}, "/srv/pith")
    assert once.anchored(Path("/elsewhere")) == once
