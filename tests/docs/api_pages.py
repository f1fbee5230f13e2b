"""`python -m tests.docs.api_pages` writes anew the pages that are made of the code: its routes, its configuration."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.store.database import open_database
from models.fake_engine import FakeEngine
from serve.app import build_api
from serve.config.settings import Settings, load_settings
from serve.ops.app import create_ops
from tests.docs import config_page
from tests.docs.api_page import page
from tests.serve.served import Client

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/api"
CONFIG = ROOT / "configs/embedded.yaml"
MADE = (
    "Made of `{}` by `python -m tests.docs.api_pages`, and compared with the code in every run of the tests."
)
PUBLIC = f"""What the public port serves with `configs/embedded.yaml`. {MADE.format("/openapi.json")}
A running server has the same at `/docs`, to try.

A key is a project's, sent as `Authorization: Bearer KEY`. Every request may have an `X-Request-ID`, of at most 128
printable ASCII characters. What each option of a chat does is in [chat-options.md](../chat-options.md), what differs
between `/v1` and `/openai/v1` in [dialects.md](../dialects.md), and each error in [errors.md](../errors.md)."""


OPS = f"""The admin API, on the ops port alone: what the `pith` command does, over HTTP. {MADE.format("/openapi.json")}
A running server has the same at `/docs` of its ops port, to try.

A key is an admin key, sent as `Authorization: Bearer KEY`. `/metrics` needs none: [metrics.md](../metrics.md)."""
CONFIGURATION = """Made of the settings by `python -m tests.docs.api_pages`, and compared with them in every run of the
tests. An unknown key is refused with its path; `pith config check FILE` says what else is wrong. How the sections work
together: [operating.md](operating.md), [compression.md](compression.md), [billing.md](billing.md)."""


def pages() -> dict[Path, str]:
    """What each page has to say."""
    return {
        FOLDER / "public.md": page("The public API", PUBLIC, public_document()),
        FOLDER / "ops.md": page("The admin API", OPS, ops_document()),
        ROOT / "docs/configuration.md": config_page.page(CONFIGURATION, Settings.model_json_schema()),
    }


def public_document() -> Any:
    """`/openapi.json` of the whole service; nothing is started, and no ledger is asked."""
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(CONFIG).anchored(Path(folder))
        database = open_database(settings.billing.database_url)
        api = build_api(
            settings,
            engines={model.id: FakeEngine() for model in settings.models},
            database=database,
            ledger=Ledger(database, Spool(settings.billing.spool_path)),
            compressors={model.id: Undeployed() for model in settings.compression.models},
            retrievers={model.id: Undeployed() for model in settings.retrieval_models},
        )
        return json.loads(asyncio.run(Client(api, "/openapi.json").run()).body)


def ops_document() -> Any:
    """`/openapi.json` of the ops port; no key is read, and no ledger is opened."""
    api = create_ops(load_settings(CONFIG), CollectorRegistry(), Path("no key"))
    return json.loads(asyncio.run(Client(api, "/openapi.json").run()).body)


class Undeployed:
    """A model that is only described."""

    async def ready(self) -> bool:
        return False


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text)
