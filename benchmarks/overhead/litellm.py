"""LiteLLM's proxy in front of the bare engine: its configuration, its virtual keys, and whether it can run here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import httpx
import yaml

from benchmarks.load.server import ROOT, CannotRun

VENV = ROOT / "var" / "litellm-venv"
MAKE_IT = "benchmarks/overhead/litellm-venv"
MASTER_KEY = "sk-benchmark-on-loopback"


def require_venv() -> None:
    if not (VENV / "bin" / "litellm").is_file():
        raise CannotRun(f"LiteLLM is not installed; {MAKE_IT} does that")


def require_database_client() -> None:
    require_venv()
    if not (VENV / "has-database-client").is_file():
        raise CannotRun(
            "LiteLLM's database client (prisma) could not fetch its query engine, so there are no keys and no "
            "spend logs; var/litellm-prisma.log has the reason"
        )


def write_config(folder: Path, model: str, upstream: str, database_url: str) -> Path:
    """One model behind LiteLLM, logs and telemetry off; keys and spend in PostgreSQL where there is a database."""
    general = {"master_key": MASTER_KEY, **({"database_url": database_url} if database_url else {})}
    body = {
        "model_list": [
            {
                "model_name": model,
                "litellm_params": {
                    "model": f"hosted_vllm/{model}",
                    "api_base": f"{upstream}/v1",
                    "api_key": "none",
                    # Spend is logged at a price, or it would be zero.
                    "input_cost_per_token": 1e-7,
                    "output_cost_per_token": 4e-7,
                },
            }
        ],
        "litellm_settings": {"set_verbose": False, "request_timeout": 120, "telemetry": False},
        "general_settings": general,
    }
    path = folder / "litellm.yaml"
    path.write_text(yaml.safe_dump(body), encoding="utf-8")
    return path


def command(config: Path, port: int) -> list[str]:
    binary = str(VENV / "bin" / "litellm")
    return [binary, "--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]


def environment(database_url: str) -> dict[str, str]:
    # Its own documents ask for these two in production. The price map would be fetched at every start.
    fixed = {"LITELLM_MODE": "PRODUCTION", "LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    return {**fixed, "PYTHONPATH": "", **({"DATABASE_URL": database_url} if database_url else {})}


@dataclass(slots=True)
class Keys:
    """A virtual key, made once; without a database the master key is all there is."""

    url: str
    virtual: bool
    made: str = ""

    def key(self) -> str:
        if not self.virtual:
            return MASTER_KEY
        if not self.made:
            self.made = self._generate()
        return self.made

    def _generate(self) -> str:
        headers = {"Authorization": f"Bearer {MASTER_KEY}"}
        try:
            reply = httpx.post(
                f"{self.url}/key/generate", headers=headers, json={"max_budget": 1000}, timeout=10
            )
        except httpx.TransportError:
            return ""
        return str(reply.json()["key"]) if reply.status_code == 200 else ""
