"""What holds for every test. What only some need stands in the conftest of their folder."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Generator, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from tests.integration.running import Server

# Until all modules of tests are imported: a fifth of the time that it takes would go to collections that find nothing.
gc.disable()

# A busy machine may be slow at any one example: only the property decides, not how long it took.
hypothesis.settings.register_profile(
    "pith",
    deadline=None,
    print_blob=True,
    max_examples=60,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("pith")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--running-server", type=int, metavar="PID", help="use this `pith serve` instead of starting one"
    )


HERE = Path(__file__).parent
# The longest that a test with `one_day` takes.
TEST_OF_TODAY = timedelta(seconds=30)
# Sweeps of many inputs, and tests that start many processes or sockets: too long, together, for the fast lane.
THOROUGH = (
    "benchmarks/gpu_check/test_bare_machine.py",
    "benchmarks/answers",
    "benchmarks/gpu_check/test_gpu_check.py",
    "benchmarks/ledger",
    "benchmarks/limits",
    "benchmarks/load",
    "benchmarks/overhead",
    "benchmarks/quality",
    "benchmarks/retrieval",
    "benchmarks/savings",
    "benchmarks/test_batches_benchmark.py",
    "benchmarks/test_burst.py",
    "benchmarks/test_compress_benchmark.py",
    "benchmarks/test_lexical_benchmark.py",
    "benchmarks/test_make.py",
    "benchmarks/test_neighbours.py",
    "benchmarks/test_prefix_cache.py",
    "benchmarks/test_recipes.py",
    "benchmarks/test_served.py",
    "benchmarks/test_soak.py",
    "billing/preservation/test_confidence_sequence.py",
    "billing/preservation/test_streams.py",
    "compression/calibration",
    "compression/choosing/test_gaps.py",
    "compression/conversation/test_any_conversation.py",
    "compression/conversation/test_hostile.py",
    "benchmarks/evaluation",
    "compression/salience/test_attacks.py",
    "compression/neural",
    "compression/retrieval",
    "compression/second_look",
    "compression/test_any_text.py",
    "compression/segmentation/test_coarsening.py",
    "compression/test_growth.py",
    "compression/segmentation/test_json_units.py",
    "compression/segmentation/test_records.py",
    "compression/test_nasty_inputs.py",
    "benchmarks/training",
    "compression/tuning",
    "compression/workers",
    "billing/archive",
    "billing/books/test_proof.py",
    "billing/collections/test_payment_hook.py",
    "billing/rollups",
    "billing/ledger/test_theorem.py",
    "deploy",
    "docs",
    "faults",
    "fuzzing",
    "models/embedded/test_fetching.py",
    "models/template",
    # It imports vLLM, which takes several times what its tests do.
    "models/vllm",
    "patterns",
    "power_loss",
    "test_allocations.py",
    "test_lifecycle.py",
    "serve/batches",
    "serve/chat/test_compression_money.py",
    "serve/chat/test_never_dearer.py",
    "serve/cli/test_batch_commands.py",
    "serve/dialects/test_wrong_types.py",
    "serve/cli/test_storage.py",
    "serve/cli/test_books.py",
    "serve/cli/test_compress_file.py",
    "serve/cli/test_tune.py",
    "serve/cli/test_chat.py",
    "serve/cli/test_status.py",
    "serve/cli/test_reload.py",
    "serve/cli/test_completion.py",
    "serve/cluster/test_reloading.py",
    "serve/cluster/test_retrieval_replica.py",
    "serve/config/test_fit.py",
    "serve/http",
    "serve/metrics/test_ops_port.py",
    "serve/metrics/test_request_watch.py",
    "serve/money/test_prompt_bound.py",
    "serve/money/test_tokenizer_growth.py",
    "serve/retrieval",
    "serve/money/test_bypass_matrix_in_batches.py",
    "serve/money/test_isolation.py",
    "serve/money/test_isolation_of_commands.py",
    "serve/ops",
    "monitoring/test_rules.py",
    "simulation",
    "single_faults",
    "test_lanes.py",
    "test_recipes.py",
    "billing/originals",
    "billing/batches",
    "billing/webhooks",
    "serve/operator",
    "billing/store/test_circuit_breaker.py",
    "compression/features",
    "compression/flags",
    "models/test_restarting_engine.py",
    "serve/compress/test_messages.py",
    "serve/test_mcp.py",
    "serve/originals",
    "serve/processes/test_listener.py",
    "serve/tracing/test_traces.py",
    "two_versions",
)


# Tests that take long or start servers of their own, and neither Ray nor vLLM: they run beside others. The longest
# come first.
APART = (
    "faults",
    "simulation/test_many_schedules.py",
    "billing",
    "compression/neural",
    "serve/batches",
    "serve/operator",
    "serve/originals",
    "benchmarks/ledger",
    "serve/http/test_schemathesis.py",
    "serve/playground",
    "models/grammar/test_trials.py",
    # It makes environments elsewhere, for which those that are made in the background would be taken.
    "clients/test_environments.py",
)

# What `make test` has a shorter form of, or others of the kind. `make test-long` runs it.
LONG = (
    "benchmarks/gpu_check/test_bare_machine.py",
    "benchmarks/ledger",
    "benchmarks/training",
    "deploy/test_sbom.py",
    "docs/test_site.py",
    "integration/test_loopback.py",
    "integration/test_models_away.py",
    "integration/test_own_processes.py",
    "integration/test_pretend_gpu_cluster.py",
    "integration/test_pretend_gpu_turns.py",
    "integration/test_serve_file.py",
    "models/vllm/test_speculation.py",
    "serve/playground/test_compare_page.py",
    "test_recipes.py",
)

# The fast lane, as the Makefile has it, and the folders that it takes nothing of.
FAST = "not integration and not thorough"
NEVER_FAST = ("integration", "clients", *THOROUGH)
ALL_INTEGRATION = ("integration", "models/vllm")
# The two parts of `scripts/test`.
FIRST, SECOND = "(not integration or apart) and not long", "integration and not apart and not long"
MARK = "mark.integration"


def pytest_configure(config: pytest.Config) -> None:
    """Before torch is imported. Threads of a network that wait for one another would keep a core busy that others need:
    `tests/compression/neural/test_build.py` took 30 s of processor time so, and takes 17."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if config.option.markexpr == SECOND:
        os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What a lane takes nothing of is not imported either: that alone would take half of the fast lane's minute."""
    if not collection_path.is_relative_to(HERE):
        return None
    lane, name = config.option.markexpr, str(collection_path.relative_to(HERE))
    if lane in (FIRST, SECOND) and name in LONG:
        return True
    if lane == FAST and name in NEVER_FAST:
        return True
    if lane == FIRST and name in ALL_INTEGRATION:
        return True
    if lane == SECOND and (name in APART or (collection_path.suffix == ".py" and not can_start(name))):
        return True
    return None


@cache
def can_start(name: str) -> bool:
    """Whether tests of this file, or of this folder, may be marked as integration: it says so, or a conftest above."""
    path = HERE / name
    if path == HERE:
        return False
    file = path if path.is_file() else path / "conftest.py"
    return (file.is_file() and MARK in file.read_text()) or can_start(str(path.parent.relative_to(HERE)))


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, None, None]:
    # Before pytest chooses by marks.
    for item in items:
        if is_within(item.path, THOROUGH):
            item.add_marker(pytest.mark.thorough)
        if is_within(item.path, APART):
            item.add_marker(pytest.mark.apart)
        if is_within(item.path, LONG):
            item.add_marker(pytest.mark.long)
        if item.get_closest_marker("integration") and not can_start(name_of(item.path)):
            raise pytest.UsageError(
                f"{item.path} has no {MARK} and no conftest with it: no lane would run {item.name}"
            )
    yield
    items.sort(key=turn)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Collections from now on look at what tests make, not at a million objects of modules."""
    gc.freeze()
    gc.enable()


@cache
def is_within(path: Path, names: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(HERE / name) for name in names)


def name_of(path: Path) -> str:
    return str(path.relative_to(HERE)) if path.is_relative_to(HERE) else "."


def turn(item: pytest.Item) -> int:
    """Tests that take long and share nothing come first, those that need the session's server after all others, and
    what stops it last."""
    if item.get_closest_marker("last"):
        return len(APART) + 2
    if "server" in getattr(item, "fixturenames", ()):
        return len(APART) + 1
    return next((place for place, each in enumerate(APART) if is_within(item.path, (each,))), len(APART))


@pytest.fixture
def one_day() -> None:
    """For what is done and then asked for as today's: near midnight (UTC) the test begins after it."""
    until, tick = datetime.now(UTC) + TEST_OF_TODAY, threading.Event()
    while datetime.now(UTC).date() < until.date():
        tick.wait(0.05)


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One real server for the whole session: `pith serve` on the embedded models, with its own state and port."""
    from benchmarks.training.chat_models.adapter import make_adapter
    from tests.integration.running import running_server, start_server, stop_server, write_config
    from tests.serve.tracing.collector import collecting

    pid = request.config.getoption("--running-server")
    if pid is not None:
        yield running_server(pid)
        return
    state_dir = tmp_path_factory.mktemp("server")
    with collecting() as collector:
        # Only requests are traced whose callers ask for it.
        traces = {"endpoint": collector.http, "sample_ratio": 0, "callers_per_s": 100}
        config = write_config(
            state_dir,
            also={"tracing": traces, "logs": {"access": True}},
            adapter=make_adapter(state_dir / "adapter"),
        )
        running = start_server(config, state_dir)
        running.collector = collector
        yield running
        stop_server(running)
