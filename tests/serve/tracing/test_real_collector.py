"""A released collector, Elastic's in JavaScript, understands what is sent: by another implementation than ours."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.clients.environments import CannotInstall, environment
from tests.integration.missing import cannot_run
from tests.serve.compressing import ReadyModel, local_model
from tests.serve.retrieval.serving import LEXICAL
from tests.serve.served import serving
from tests.serve.tracing.collector import tree
from tests.serve.tracing.test_traces import CALLER, CHAT, COMPRESS, asked, chat, traced

# It may have to be installed.
pytestmark = pytest.mark.integration
SCRIPT = Path(__file__).with_name("real_collector.mjs")
# Two chats and a compression.
SPANS = 17


@pytest.fixture(scope="module")
def collector() -> Iterator[subprocess.Popen[str]]:
    try:
        command = environment("mockotlpserver").command(SCRIPT)
    except CannotInstall as error:
        cannot_run(str(error))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with process:
        yield process
        process.kill()


def lines(process: subprocess.Popen[str], count: int) -> list[dict[str, Any]]:
    assert process.stdout is not None
    return [json.loads(process.stdout.readline()) for _ in range(count)]


@pytest.fixture(scope="module")
def addresses(collector: subprocess.Popen[str]) -> dict[str, Any]:
    return lines(collector, 1)[0]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
async def test_a_released_collector_sees_the_same_trees(
    tmp_path: Path, collector: subprocess.Popen[str], addresses: dict[str, Any], protocol: str
) -> None:
    given = traced(addresses[protocol].rstrip("/"), protocol=protocol)
    compressors = {"lexical": ReadyModel(local_model())}
    async with serving(
        tmp_path, compression={"models": [LEXICAL]}, compressors=compressors, **given
    ) as service:
        served = await service.renewed()
        traces = [await chat(served, 1), await chat(served, 2, stream=True)]
        third, headers = asked(3)
        compress = served.post("/v1/compress", {"query": "radium", "input": "Marie Curie discovered radium."})
        compress.headers |= headers
        assert (await compress.run()).status == 200
        assert served.registry.get_sample_value("pith_trace_spans_dropped_total") == 0
    spans = [SimpleNamespace(**line, start=number) for number, line in enumerate(lines(collector, SPANS))]
    assert Counter(span.trace for span in spans) == Counter({traces[0]: 6, traces[1]: 6, third: 5})
    wanted = {traces[0]: CHAT, traces[1]: CHAT, third: COMPRESS}
    for trace, expected in wanted.items():
        assert tree([span for span in spans if span.trace == trace], CALLER) == expected
