"""The engine that every side runs: the default model of pith's own configuration file, in vLLM's terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml

EMBEDDED = "embedded:"


@dataclass(frozen=True, slots=True)
class Engine:
    """A model, where it lies, and how it is run. `arguments` have vLLM's names."""

    model: str
    checkpoint: str
    arguments: Mapping[str, Any]
    environment: Mapping[str, str]

    def words(self) -> list[str]:
        """The arguments of vLLM's own server."""
        found = ["--model", self.checkpoint, "--served-model-name", self.model]
        for name, value in self.arguments.items():
            flag = "--" + name.replace("_", "-")
            if value is True:
                found.append(flag)
            elif value is False:
                found.append("--no-" + flag.removeprefix("--"))
            else:
                found += [
                    flag,
                    orjson.dumps(value).decode() if isinstance(value, dict | list) else str(value),
                ]
        return found


def read_engine(config: Path, checkpoints: Path) -> Engine:
    """The first model of a configuration, which is its default. Embedded checkpoints are laid out in `checkpoints`.

    Raises `SystemExit` for a file without models.
    """
    settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    try:
        model = settings["models"][0]
        name, checkpoint, length = model["id"], model["checkpoint"], model["context_length"]
    except (KeyError, IndexError, TypeError) as error:
        raise SystemExit(f"--config {config}: no model to measure ({error!r})") from error
    # pith's own, which vLLM's server does not know.
    own = {name: value for name, value in model.get("engine", {}).items() if name not in ("spin_s", "args")}
    given = {**model.get("engine", {}).get("args", {}), **own}
    arguments = {**given, "max_model_len": length, "load_format": "safetensors"}
    return Engine(name, located(checkpoint, checkpoints), arguments, model.get("environment", {}))


def with_copies(config: Path, models: int) -> bytes:
    """The configuration with so many models in place of its own, each its first one under another name, kept up."""
    settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    first = settings["models"][0]
    kept_up = {**first.get("replicas", {}), "min": 1, "max": 1}
    names = [first["id"], *(copy_of(first["id"], number) for number in range(2, models + 1))]
    chat = [{**first, "id": name, "replicas": kept_up} for name in names]
    others = [model for model in settings["models"] if model.get("kind", "chat") != "chat"]
    return yaml.safe_dump({**settings, "models": [*chat, *others]}, sort_keys=False).encode()


def copy_of(model: str, number: int) -> str:
    return f"{model}-copy-{number}"


def located(checkpoint: str, checkpoints: Path) -> str:
    if not checkpoint.startswith(EMBEDDED):
        return checkpoint
    from models.embedded.install import (
        ensure_checkpoints,  # The other sides load the very files that pith loads.
    )

    return str(ensure_checkpoints(checkpoints)[checkpoint.removeprefix(EMBEDDED)].resolve())
