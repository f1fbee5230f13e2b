"""A `pith serve` with models whose checkpoints are broken: `python -m tests.integration.models_away`.

The default model's weights are cut off, others are missing, have a broken configuration, or are of an architecture that
vLLM does not know, and a compression model is not there. One model is whole, on vLLM too, and has an adapter that is
broken. Printed is what clients and the operator are told, how long each answer took, and what a reload makes of it when
the checkpoints were mended."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import typer
import yaml

from benchmarks.training.chat_models.adapter import make_adapter
from models import adapters
from models.embedded.install import ensure_checkpoints
from tests.integration.running import Server, adapter_entry, start_server, stop_server, write_config

WEIGHTS, CONFIG = "model.safetensors", "config.json"
WHOLE, CUT, MISSING, BROKEN, UNKNOWN = "whole", "cut", "missing", "broken", "unknown"
WORDS, LOUD = "words", "loud"
CHAT = {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 4}


def cut(folder: Path) -> None:
    os.truncate(folder / WEIGHTS, (folder / WEIGHTS).stat().st_size // 2)


def another_architecture(folder: Path) -> None:
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**config, "architectures": ["NobodyForCausalLM"]}))


BREAKS: dict[str, Callable[[Path], object]] = {
    WHOLE: lambda folder: None,
    CUT: cut,
    MISSING: shutil.rmtree,
    BROKEN: lambda folder: (folder / CONFIG).write_text('{"model_type": '),
    UNKNOWN: another_architecture,
}


def write_models(state_dir: Path, broken: Sequence[str], *, words: bool) -> Path:
    """A configuration with these, whose first is the default, and one that is whole, with an adapter that is cut off;
    `words`: and with a compression model without a checkpoint."""
    checkpoint = ensure_checkpoints(state_dir / "made")["pith-mini"]
    config = write_config(state_dir, ingress_replicas=1)
    given = yaml.safe_load(config.read_text())
    first, models = given["models"][0], []
    for name in (*broken, WHOLE):
        folder = state_dir / name
        shutil.copytree(checkpoint, folder)
        BREAKS[name](folder)
        kept = {"id": name, "name": name, "checkpoint": str(folder), "replicas": {"min": 1, "max": 1}}
        models.append({**first, **kept})
    loud = make_adapter(state_dir / LOUD)
    cut_off(loud)
    models.append({**adapter_entry(loud), "id": LOUD, "adapter": {"of": WHOLE, "source": str(loud)}})
    compressors = [one for one in given["compression"]["models"] if one["kind"] == "lexical"]
    if words:
        gone = {"kind": "token_classifier", "checkpoint": str(state_dir / "nowhere"), "threads": 1}
        compressors.append({"id": WORDS, "name": WORDS, "blurb": "It is not there.", **gone})
    # All fit at once when they are mended.
    given |= {"models": models, "compression": {"models": compressors}, "nodes": ["cpu:2-24GB"]}
    config.write_text(yaml.safe_dump(given))
    return config


def cut_off(adapter: Path) -> None:
    os.truncate(adapter / adapters.WEIGHTS, 100)


def mend(state_dir: Path, name: str) -> None:
    """Put a checkpoint or the adapter right."""
    if name == LOUD:
        shutil.rmtree(state_dir / LOUD)
        make_adapter(state_dir / LOUD)
    else:
        shutil.copytree(state_dir / WHOLE, state_dir / name, dirs_exist_ok=True)


def reasons(server: Server) -> dict[str, str]:
    """What the operator is told, by model."""
    return {row["model"]: row["away"] for row in server.pith("status")["models"] if row["away"]}


def main() -> None:
    broken = (CUT, MISSING, BROKEN, UNKNOWN)
    with tempfile.TemporaryDirectory(prefix="pith-away-") as name:
        state_dir, began = Path(name), time.monotonic()
        server = start_server(write_models(state_dir, broken, words=True), state_dir)
        try:
            print(f"started after {time.monotonic() - began:.1f} s")
            tell(server)
            for each in (*broken, LOUD):
                mend(state_dir, each)
            began = time.monotonic()
            print("reload:", server.pith("reload", within_s=900), f"after {time.monotonic() - began:.1f} s")
            tell(server)
            print("reconcile:", server.pith("reconcile"))
        finally:
            stop_server(server)
            print("".join(line for line in server.lines if "WARNING" in line))


def tell(server: Server) -> None:
    """Print what callers and the operator get now."""
    for model, why in reasons(server).items():
        print(f"{model}: {why}")
    with server.client() as http:
        print("/ready:", http.get("/ready").json())
        print("unavailable:", [one["id"] for one in http.get("/v1/models").json() if "unavailable" in one])
        for model in [one["id"] for one in http.get("/v1/models").json()]:
            began = time.monotonic()
            reply = http.post("/v1/chat/completions", json={**CHAT, "model": model})
            print(f"{model}: {reply.status_code} after {time.monotonic() - began:.3f} s {told(reply)}")


def told(reply: httpx.Response) -> str:
    return "" if reply.status_code == 200 else str(reply.json()["detail"])


if __name__ == "__main__":
    typer.run(main)
