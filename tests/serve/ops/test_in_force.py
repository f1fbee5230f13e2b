"""The admin API goes by the configuration that a reload has put in force."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
from prometheus_client import CollectorRegistry

from serve.config.settings import Settings
from serve.ops.app import open_ops
from tests.integration.running import free_port
from tests.migrated import migrated_file
from tests.serve.served import settings_document

LEXICAL = {"id": "lexical", "name": "Lexical", "blurb": "For tests.", "kind": "lexical"}


def test_a_default_is_checked_against_the_compression_models_of_now(tmp_path: Path) -> None:
    (tmp_path / "pith.db").write_bytes(asyncio.run(migrated_file()))
    port = {"port": free_port()}
    before = Settings.model_validate(settings_document(tmp_path, ops=port))
    after = Settings.model_validate(settings_document(tmp_path, ops=port, compression={"models": [LEXICAL]}))
    in_force = [before]
    close = open_ops(before, CollectorRegistry(), in_force=lambda: in_force[-1])
    key = (before.state_dir / "admin-key").read_text().strip()
    url, headers = f"http://127.0.0.1:{before.ops.port}/admin/v1", {"Authorization": f"Bearer {key}"}
    try:
        with httpx.Client(base_url=url, headers=headers) as admin:
            admin.post("/workspaces", json={"name": "acme"}).raise_for_status()
            wanted = {"workspace": "acme", "name": "p", "compression": {"target_ratio": 0.3}}
            assert admin.post("/projects", json=wanted).status_code == 422
            in_force.append(after)
            assert admin.post("/projects", json=wanted).status_code == 201
    finally:
        close()
