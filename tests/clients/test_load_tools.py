"""Load generators, which find the model by themselves where they can."""

from __future__ import annotations

import json
from tempfile import TemporaryDirectory

import pytest

from tests.clients.environments import ROOT
from tests.clients.running import SCRIPTS, ClientRun

TOKENIZER = str(ROOT / "models/embedded/tokenizer")
REQUESTS = 3


@pytest.mark.client("guidellm", "`guidellm run`: the model found, chats streamed, usage of each piece")
def test_guidellm_finds_the_model_and_measures(client_run: ClientRun, models: dict[str, str]) -> None:
    backend = f"kind=openai_http,target={client_run.url}/openai,api_key={client_run.key}"
    options = ["--profile", "kind=synchronous", "--constraint", f"kind=max_requests,count={REQUESTS}"]
    options += ["--tokenizer", f"kind=hf_auto,model={TOKENIZER}", "--disable-console"]
    options += ["--data", "kind=synthetic_text,prompt_tokens=32,output_tokens=8"]
    # At its end it forgets the last result where that takes longer than a poll, a tenth of a second by default.
    patient = {"HF_HUB_OFFLINE": "1", "GUIDELLM__MP_POLL_INTERVAL": "1"}
    done = client_run.program("guidellm", "run", "--backend", backend, *options, **patient)
    assert done.returncode == 0, done.stderr
    [measured] = json.loads((client_run.home / "benchmarks.json").read_text())["benchmarks"]
    requests = measured["requests"]
    assert not [*requests["errored"], *requests["incomplete"]]
    assert len(requests["successful"]) == REQUESTS
    assert all(request["output_tokens"] == 8 for request in requests["successful"])


@pytest.mark.client("aiperf", "`aiperf profile --streaming`: chats measured; it wants the model named")
def test_aiperf_measures_and_misses_nothing(client_run: ClientRun, models: dict[str, str]) -> None:
    options = ["-m", models["chat"], "--url", f"{client_run.url}/openai", "--api-key", client_run.key]
    options += ["--streaming", "--request-count", str(REQUESTS), "--tokenizer", TOKENIZER, "--ui", "none"]
    # The paths of its sockets would be too long in the test's folder.
    with TemporaryDirectory() as sockets:
        done = client_run.program("aiperf", "profile", *options, "--osl", "8", TMPDIR=sockets)
    assert done.returncode == 0, done.stdout + done.stderr
    [path] = client_run.home.glob("artifacts/*/profile_export_aiperf.json")
    measured = json.loads(path.read_text())
    assert measured["request_count"]["avg"] == REQUESTS and not measured.get("error_request_count")
    assert "cached_tokens absent" not in done.stdout


@pytest.mark.client("vllm-bench", "`vllm bench serve`, its default backend (completions), the model found")
def test_vllms_benchmark_finds_the_model_and_measures(client_run: ClientRun, models: dict[str, str]) -> None:
    options = ["--base-url", f"{client_run.url}/openai", "--tokenizer", TOKENIZER, "--dataset-name", "random"]
    options += ["--random-input-len", "32", "--random-output-len", "8", "--num-prompts", str(REQUESTS)]
    options += ["--save-result", "--result-filename", "result.json"]
    done = client_run.program("python", str(SCRIPTS / "vllm-bench/serve.py"), *options, HF_HUB_OFFLINE="1")
    assert done.returncode == 0, done.stderr
    measured = json.loads((client_run.home / "result.json").read_text())
    assert measured["model_id"] == models["chat"]
    assert (measured["completed"], measured["failed"]) == (REQUESTS, 0)
    assert measured["total_output_tokens"] == 8 * REQUESTS
