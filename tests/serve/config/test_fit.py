"""`pith config check --node`, as Ray would place it, and the KV cache's size by the shape of a checkpoint."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.training.chat_models.adapter import make_adapter
from serve.config.capacity.fit import Verdict, check_fit, without_a_place
from serve.config.capacity.memory import (
    BATCHED_TOKENS,
    CacheLayout,
    cache_layout,
    engine_on_cpus,
    engine_on_gpus,
)
from serve.config.capacity.placement import Bundle, Cluster, Place
from serve.config.chat_models import ModelSettings
from serve.config.engine import EngineSettings
from serve.config.paths import ConfigError
from serve.config.settings import Settings, load_settings
from serve.config.values import Node, parse_node
from tests.serve.cli.commands import Done
from tests.serve.served import model_document, settings_document

ROOT = Path(__file__).resolve().parents[3]
GPU = ROOT / "configs/gpu.yaml"
H100S = [Node(8, "H100", 80.0)]


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("8xH100-80GB", Node(8, "H100", 80.0)),
        ("A100-40GB", Node(1, "A100", 40.0)),
        ("cpu:16", Node(cpus=16)),
        ("cpu:16-64GB", Node(cpus=16, memory_gb=64.0)),
        ("2xL4-24GB,cpu:8-32GB", Node(2, "L4", 24.0, 8, 32.0)),
    ],
)
def test_a_machine_in_a_few_letters(text: str, node: Node) -> None:
    assert parse_node(text) == node


@pytest.mark.parametrize(
    "text", ["", "8", "cpu:0", "0xH100-80GB", "8xH100", "cpu:8,cpu:8", "8xH100-80GB;", "cpu:-1"]
)
def test_what_is_no_machine_is_refused_with_how_one_is_written(text: str) -> None:
    with pytest.raises(ValueError, match="8xH100-80GB"):
        parse_node(text)


def test_a_whole_gpu_is_one_that_nobody_has_a_part_of() -> None:
    cluster = Cluster.of([Node(2, "H100", 80.0)], cpus=8)
    assert cluster.place([Bundle(gpus=0.1)]) == [Place(0, (0,))]
    assert cluster.place([Bundle(gpus=1), Bundle(gpus=1)]) is None
    assert cluster.place([Bundle(gpus=1)]) == [Place(0, (1,))]
    # Nothing was taken by what did not fit, and a part goes where least is left.
    assert cluster.place([Bundle(gpus=0.9)]) == [Place(0, (0,))]
    assert cluster.place([Bundle(gpus=0.01)]) is None


def test_a_part_goes_to_the_gpu_with_least_left_that_has_room() -> None:
    cluster = Cluster.of([Node(2, "H100", 80.0)], cpus=8)
    assert cluster.place([Bundle(gpus=0.7)]) == [Place(0, (0,))]
    assert cluster.place([Bundle(gpus=0.2)]) == [Place(0, (0,))]
    assert cluster.place([Bundle(gpus=0.2)]) == [Place(0, (1,))]


def test_strategies_over_two_machines() -> None:
    nodes = [Node(2, "H100", 80.0), Node(2, "H100", 80.0)]
    three = [Bundle(gpus=1)] * 3
    assert Cluster.of(nodes, cpus=8).place(three, strategy="STRICT_PACK") is None
    packed = Cluster.of(nodes, cpus=8).place(three)
    assert packed is not None and [place.node for place in packed] == [0, 0, 1]
    spread = Cluster.of(nodes, cpus=8).place([Bundle(gpus=1)] * 2, strategy="SPREAD")
    assert spread is not None and [place.node for place in spread] == [0, 1]
    assert Cluster.of(nodes, cpus=8).place(three, strategy="STRICT_SPREAD") is None
    assert Cluster.of(nodes, cpus=8).place([Bundle(gpus=1)], gpu_type="L4") is None


@pytest.mark.parametrize("name", ["gpu", "cpu", "embedded"])
def test_a_shipped_configuration_fits_the_machine_that_it_names(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = load_settings(ROOT / f"configs/{name}.yaml")
    assert settings.nodes
    verdicts = check_fit(settings, [parse_node(node) for node in settings.nodes])
    assert [verdict for verdict in verdicts if not verdict.fits] == []
    applications = {verdict.application for verdict in verdicts}
    assert applications >= {f"model:{model.id}" for model in settings.models}
    assert applications >= {f"compress:{model.id}" for model in settings.compression.models}
    own = {f"retrieval:{model.id}" for model in settings.retrieval_models if not model.is_hosted}
    assert {name for name in applications if name.startswith("retrieval:")} == own


@pytest.mark.parametrize(
    ("machine", "homeless"),
    [
        (Node(8, "H100", cpus=16), []),
        (Node(8, "A100", cpus=16), ["gpt-oss-120b has no place: it asks for 2 x 1 GPU of type H100"]),
        (Node(7, "H100", cpus=16), ["qwen3-30b-a3b has no place: it asks for 1 x 0."]),
        (Node(8, "H100", cpus=8), ["ingress has no place: it asks for 1 CPU"]),
        (Node(0, None, cpus=16), ["glm-4.7-flash has no place", "bge-reranker-v2-m3 has no place"]),
    ],
)
def test_what_a_machine_lacks_for_what_is_kept_up_is_said_by_application(
    machine: Node, homeless: list[str]
) -> None:
    found = "; ".join(without_a_place(load_settings(GPU), machine))
    assert bool(found) == bool(homeless) and all(each in found for each in homeless)
    # What starts on a request waits for a place that another model leaves.
    assert "open-provence-base" not in found


def test_each_machine_of_a_cluster_gets_its_share() -> None:
    machines = [parse_node(text) for text in ("cpu:8-32GB", "cpu:8-32GB")]
    kept = [one for one in check_fit(load_settings(ROOT / "configs/cluster.yaml"), machines) if one.fits]
    for app in ("ingress", "model:qwen3-0.6b", "compress:pith-lexical"):
        assert [one.where for one in kept if one.application == app] == ["node 0", "node 1"]


def test_a_small_machine_of_a_cluster_that_cannot_have_a_share_of_each_has_what_fits(
    tmp_path: Path,
) -> None:
    document = settings_document(
        tmp_path,
        models=[two_of(model_document("a")), two_of(model_document("b"))],
        server={"ingress_replicas": 2},
        ray={"address": "auto"},
    )
    document["billing"]["rate_limit_storage"] = "redis://limits"
    assert troubles(document, [parse_node("cpu:2"), parse_node("cpu:16")]) == {}
    for model in document["models"]:
        model["replicas"]["per_node"] = 1
    found = troubles(document, [parse_node("cpu:2"), parse_node("cpu:16")])
    assert list(found) == ["model:b"] and "at most 1 on a node" in found["model:b"]


def two_of(model: dict[str, Any]) -> dict[str, Any]:
    size = {"weights_gb": 1, "kv_kb_per_token": 1}
    return model | {"engine": {"kind": "fake"}, "replicas": {"min": 2, "max": 2}, "size": size}


def test_a_neural_compressor_is_up_from_the_start_on_gpus() -> None:
    models = load_settings(GPU).compression.models
    assert [m.id for m in models if m.kind in ("token_classifier", "query_classifier") and m.replicas.min]


def troubles(document: dict[str, Any], nodes: list[Node]) -> dict[str, str]:
    verdicts: list[Verdict] = check_fit(Settings.model_validate(document), nodes)
    return {verdict.application: verdict.trouble for verdict in verdicts if verdict.trouble}


def test_compressors_have_no_place_where_every_gpu_is_taken_whole() -> None:
    # What configs/gpu.yaml asked for until it was found out.
    document = yaml.safe_load(GPU.read_text())
    document["models"][3]["accelerator"]["share"] = 1
    found = troubles(document, H100S)
    others = {f"retrieval:{model['id']}" for model in document["models"][4:]}
    assert others and set(found) == others | {
        f"compress:{model['id']}" for model in document["compression"]["models"] if model["kind"] != "lexical"
    }
    assert "0.055 GPU" in found["compress:minilm"]


def test_what_has_no_room_for_its_context_says_so() -> None:
    document = yaml.safe_load(GPU.read_text())
    found = troubles(document, [Node(8, "H100", 64.0)])
    assert "glm-4.7-flash" in str(found) and "context_length is 65,536" in found["model:glm-4.7-flash"]


def test_another_type_of_gpu_is_no_place() -> None:
    found = troubles(yaml.safe_load(GPU.read_text()), [Node(8, "A100", 80.0)])
    assert "of type H100" in found["model:gpt-oss-120b"]


def test_a_checkpoint_that_is_not_here_must_have_its_size_stated(tmp_path: Path) -> None:
    document = settings_document(tmp_path)
    document["models"] = [model_document("far", checkpoint="some/where")]
    assert "size.weights_gb" in troubles(document, [Node(cpus=8, memory_gb=32.0)])["model:far"]


def test_a_compressor_that_is_larger_than_its_share_says_so() -> None:
    document = yaml.safe_load(GPU.read_text())
    document["compression"]["models"][1]["weights_gb"] = 9
    assert troubles(document, H100S) == {
        "compress:open-provence-base": "it takes 10.5 GB, and its share is 4.4"
    }


def test_memory_of_a_machine_is_counted(tmp_path: Path) -> None:
    document = yaml.safe_load((ROOT / "configs/cpu.yaml").read_text())
    found = troubles(document, [Node(cpus=8, memory_gb=7.0)])
    assert "of 7" in found["model:granite-3.3-2b"]


def test_what_shares_a_gpu_leaves_some_of_it() -> None:
    document = yaml.safe_load(GPU.read_text())
    assert troubles(document, H100S) == {}
    # 76.1 of 80 GB with the last one, which is more than 93%.
    document["models"][3]["engine"]["kv_cache_memory_bytes"] = 32_000_000_000
    assert "GPU 7: 76.1 GB" in troubles(document, H100S)["retrieval:bge-reranker-v2-m3"]
    for model in document["models"][4:]:
        engine = dict(model["engine"])
        for name in ("kv_cache_memory_bytes", "gpu_memory_utilization"):
            model["engine"] = {key: value for key, value in engine.items() if key != name}
            with pytest.raises(ValueError, match=f"engine.{name}: must be set"):
                Settings.model_validate(document)
        model["engine"] = engine


CACHE = {"kv_cache_memory_bytes": 2**30}


@pytest.mark.parametrize(
    ("accelerator", "engine", "said"),
    [
        ({"kind": "cpu", "share": 0.5}, {}, "for an engine on one GPU"),
        ({"kind": "gpu", "share": 0.5}, {"tensor_parallel_size": 2}, "for an engine on one GPU"),
        (
            {"kind": "gpu", "share": 0.5},
            {**CACHE, "gpu_memory_utilization": 0.9},
            r"accelerator.share \(0.5\)",
        ),
        ({"kind": "gpu", "share": 0.5}, CACHE, r"accelerator.share \(0.5\)"),
        (
            {"kind": "gpu", "share": 0.5},
            {"gpu_memory_utilization": 0.5},
            "would measure the memory of the whole GPU",
        ),
    ],
)
def test_a_share_is_of_one_gpu_and_bounds_its_memory(
    tmp_path: Path, accelerator: dict[str, Any], engine: dict[str, Any], said: str
) -> None:
    document = settings_document(tmp_path)
    document["models"] = [model_document("alpha", accelerator=accelerator, engine=engine)]
    with pytest.raises(ValueError, match=said):
        Settings.model_validate(document)


def pith(*arguments: object) -> Done:
    command = [sys.executable, "-c", "from serve.cli.main import main; main()", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


def test_the_command_says_what_fits_and_its_exit_code_what_came_of_it(tmp_path: Path) -> None:
    fits = pith("config", "check", GPU)
    assert fits.code == 0 and "everything fits 8xH100-80GB" in fits.out
    small = pith("config", "check", GPU, "--node", "4xH100-80GB")
    assert small.code == 1 and "do not fit 4xH100-80GB" in small.out
    assert "huge" in pith("config", "check", GPU, "--node", "huge").complaint()


def test_the_file_may_name_no_machine_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump({**settings_document(tmp_path), "nodes": ["huge"]}))
    with pytest.raises(ConfigError, match="nodes: 'huge' is not a valid machine"):
        load_settings(path)


# The fields of the published config.json that a cache goes by.
PUBLISHED: dict[str, dict[str, Any]] = {
    "gpt-oss-120b": {
        "num_hidden_layers": 36,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 18,
    },
    "qwen3-235b-a22b": {
        "num_hidden_layers": 94,
        "num_attention_heads": 64,
        "num_key_value_heads": 4,
        "head_dim": 128,
    },
    "glm-4.7-flash": {
        "num_hidden_layers": 47,
        "num_attention_heads": 20,
        "num_key_value_heads": 20,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
    },
    "qwen3-30b-a3b": {
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "use_sliding_window": False,
        "sliding_window": 4096,
    },
}


def layout(fields: dict[str, Any], kind: str = "gpu", **engine: Any) -> CacheLayout:
    return cache_layout(fields, EngineSettings(**engine), kind=kind)


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_the_shipped_file_states_is_what_the_published_shape_makes(name: str) -> None:
    document = yaml.safe_load((ROOT / "configs/gpu.yaml").read_text())
    (model,) = (model for model in document["models"] if model["id"] == name)
    found = layout(PUBLISHED[name], dtype="bfloat16")
    assert round(found.bytes_per_token / 1000) == model["size"]["kv_kb_per_token"]


def test_a_cache_of_one_byte_a_number_is_half_as_large() -> None:
    fields = PUBLISHED["qwen3-30b-a3b"]
    whole = layout(fields, dtype="bfloat16").bytes_per_token
    assert layout(fields, kv_cache_dtype="fp8").bytes_per_token * 2 == whole
    assert layout(fields, kv_cache_dtype="fp8_e4m3").bytes_per_token * 2 == whole
    assert layout(fields, dtype="float32").bytes_per_token == 2 * whole


def test_more_gpus_than_heads_hold_a_head_twice_and_each_holds_all_of_mla() -> None:
    qwen, glm = PUBLISHED["qwen3-30b-a3b"], PUBLISHED["glm-4.7-flash"]
    assert layout(qwen, tensor_parallel_size=4) == layout(qwen)
    assert layout(qwen, tensor_parallel_size=8).bytes_per_token == 2 * layout(qwen).bytes_per_token
    assert layout(glm, tensor_parallel_size=2).bytes_per_token == 2 * layout(glm).bytes_per_token


def test_layers_with_a_window_stop_growing() -> None:
    found = layout(PUBLISHED["gpt-oss-120b"])
    assert (found.windowed_bytes * 2, found.window) == (found.bytes_per_token, 128)
    long, longer = found.request_bytes(65_536), found.request_bytes(131_072)
    assert longer - long == 65_536 * found.bytes_per_token // 2
    assert found.request_bytes(128 + BATCHED_TOKENS) == (128 + BATCHED_TOKENS) * found.bytes_per_token
    plain = layout(PUBLISHED["qwen3-30b-a3b"])
    assert (plain.windowed_bytes, plain.request_bytes(17)) == (0, 32 * plain.bytes_per_token)


def model(**fields: Any) -> ModelSettings:
    return ModelSettings.model_validate(model_document("alpha", **fields))


SIZE = {"weights_gb": 10, "kv_kb_per_token": 100, "activations_gb": 2}


def test_a_cache_of_a_stated_size_is_counted_as_stated() -> None:
    fields = {"size": SIZE, "accelerator": {"kind": "gpu"}, "context_length": 10_000}
    found = engine_on_gpus(model(engine={"kv_cache_memory_bytes": 3 * 10**9}, **fields), 80.0)
    assert (found.cache_gb, found.reserved_gb, found.tokens, found.requests) == (3.0, 15.0, 30_000, 3.0)
    shared = engine_on_gpus(model(engine={"gpu_memory_utilization": 0.5}, **fields), 80.0)
    assert (shared.cache_gb, shared.reserved_gb) == (28.0, 40.0)


@pytest.mark.parametrize(
    ("environment", "cache_gb"), [({}, 0.5), ({"VLLM_CPU_KVCACHE_SPACE": "2"}, 2 * 1.073741824)]
)
def test_on_cpus_a_stated_cache_counts_unless_the_variable_says_otherwise(
    environment: dict[str, str], cache_gb: float
) -> None:
    stated = {"engine": {"kv_cache_memory_bytes": 5 * 10**8}, "size": SIZE, "environment": environment}
    assert engine_on_cpus(model(**stated)).cache_gb == pytest.approx(cache_gb)


def test_adapters_take_places_of_the_largest_rank() -> None:
    base = {"checkpoint": "embedded:pith-mini", "engine": {"dtype": "float32", "max_lora_rank": 8}}
    found = engine_on_cpus(model(**base), adapters=2)
    per_rank = 4 * (128 + 128) + 3 * (128 + 352)
    assert found.adapters_gb * 10**9 == 5 * per_rank * 8 * 2 * 4
    assert engine_on_cpus(model(**base)).adapters_gb == 0


def test_the_check_says_how_many_requests_of_full_context_fit(tmp_path: Path) -> None:
    make_adapter(tmp_path / "loud")
    document = yaml.safe_load((ROOT / "configs/tiny.yaml").read_text())
    document["models"][0]["engine"]["max_num_seqs"] = 8
    adapter = {"id": "loud", "name": "Loud", "blurb": "b", "adapter": {"of": "pith-mini", "source": "./loud"}}
    document["models"].insert(1, {**adapter, "price": document["models"][0]["price"]})
    file = tmp_path / "pith.yaml"
    file.write_text(yaml.safe_dump(document))
    first = check_fit(load_settings(file), [Node(cpus=8, memory_gb=32.0)])[0]
    assert first.fits and first.memory.endswith("209,696 tokens, 12.8 full requests")
    assert "+ adapters 0.0 " in first.memory
