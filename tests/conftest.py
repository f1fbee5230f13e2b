"""What holds for every test. What only some need stands in the conftest of their folder."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

# A shared CI machine may be slow at any one example: there only the property decides, not how long it took.
hypothesis.settings.register_profile("ci", deadline=None, print_blob=True)
hypothesis.settings.register_profile("here", deadline=2000)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "here")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--running-server", type=int, metavar="PID", help="use this `pith serve` instead of starting one"
    )


HERE = Path(__file__).parent
# Sweeps of many inputs, and tests that start many processes or sockets: too long, together, for the fast lane.
THOROUGH = (
    "benchmarks/ledger",
    "benchmarks/limits",
    "benchmarks/load",
    "benchmarks/overhead",
    "benchmarks/quality",
    "benchmarks/test_burst.py",
    "benchmarks/test_compress_benchmark.py",
    "benchmarks/test_lexical_benchmark.py",
    "benchmarks/test_make.py",
    "benchmarks/test_neighbours.py",
    "benchmarks/test_prefix_cache.py",
    "benchmarks/test_recipes.py",
    "benchmarks/test_served.py",
    "benchmarks/test_soak.py",
    "compression/calibration",
    "compression/choosing/test_gaps.py",
    "compression/conversation/test_any_conversation.py",
    "compression/conversation/test_hostile.py",
    "compression/evaluation",
    "compression/salience/test_attacks.py",
    "compression/second_look",
    "compression/test_any_text.py",
    "compression/segmentation/test_coarsening.py",
    "compression/test_growth.py",
    "compression/segmentation/test_json_units.py",
    "compression/segmentation/test_records.py",
    "compression/test_nasty_inputs.py",
    "compression/training",
    "compression/tuning",
    "compression/workers",
    "billing/collections/test_payment_hook.py",
    "billing/ledger/test_theorem.py",
    "faults",
    "models/template",
    "patterns",
    "serve/cli/test_books.py",
    "serve/cli/test_compress_file.py",
    "serve/cli/test_tune.py",
    "serve/config/test_fit.py",
    "serve/http",
    "serve/metrics/test_ops_port.py",
    "serve/money/test_prompt_bound.py",
    "serve/money/test_tokenizer_growth.py",
    "serve/compress/test_ended.py",
    "serve/money/test_isolation.py",
    "simulation",
    "test_recipes.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.relative_to(HERE) if item.path.is_relative_to(HERE) else item.path
        if any(path.is_relative_to(each) for each in THOROUGH):
            item.add_marker(pytest.mark.thorough)
