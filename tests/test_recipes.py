"""Each recipe of CONTRIBUTING.md, followed with a made-up addition in a copy of the checkout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.recipe_trial import Trial

GREETING_ROUTE = '''"""Greets who has a key."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from serve.http.auth import Authenticate
from serve.http.openapi import BEARER, REQUEST_ID_HEADER, error_responses


def greeting_routes(authenticate: Authenticate) -> APIRouter:
    routes = APIRouter(tags=["greetings"], dependencies=[BEARER])

    @routes.get("/v1/greeting", responses={200: {"headers": REQUEST_ID_HEADER}, **error_responses(401, 403, 503)})
    async def greet(request: Request) -> Response:
        """A greeting."""
        caller = await authenticate(request)
        return JSONResponse({"hello": caller.workspace_id})

    return routes
'''
ASK_THE_ROUTE = """
import asyncio, json, sys, tempfile
from dataclasses import replace
from pathlib import Path
from tests.serve.served import serving

async def main(folder):
    async with serving(Path(folder)) as service:
        served = await service.renewed()
        greeted = await served.get("/v1/greeting").run()
        refused = await served.get("/v1/greeting", key="pith_wrong_key").run()
        document = await served.get("/openapi.json").run()
        print(json.dumps([greeted.status, list(greeted.json()), "x-request-id" in greeted.reply_headers,
                          refused.status, "/v1/greeting" in document.json()["paths"]]))

with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(folder))
"""


def test_a_route(tmp_path: Path) -> None:
    trial = Trial(tmp_path, "serve", "pyproject.toml", "docs")
    trial.write("serve/greetings/__init__.py", '"""For a trial."""\n')
    trial.write("serve/greetings/route.py", GREETING_ROUTE)
    imported = "from serve.greetings.route import greeting_routes"
    trial.insert("serve/api.py", imported, after="from serve.chat.service import")
    included = "_include(api, greeting_routes(callers.bearer))"
    trial.insert("serve/api.py", included, after="_include(api, chat_routes(")
    assert json.loads(trial.runs("-c", ASK_THE_ROUTE)) == [200, ["hello"], True, 403, True]
    rooms = "tests.test_architecture:test_the_page_has_every_room_in_its_layer_as_its_docstring_says"
    trial.replace(
        "pyproject.toml",
        '"account | chat | compress | catalog | playground | retrieval | transparency"',
        '"account | chat | compress | catalog | playground | retrieval | transparency | greetings"',
    )
    assert not trial.passes(rooms, "serve")
    trial.insert(
        "docs/architecture.md", "| 9 | `greetings/` | For a trial. |", after="| 9 | `transparency/` |"
    )
    assert trial.passes(rooms, "serve")
    trial.is_as_told("A route")


ASK_WITH_THE_OPTION = """
import asyncio, json, sys, tempfile
from pathlib import Path
from tests.serve.served import serving

async def main(folder):
    async with serving(Path(folder)) as service:
        served = await service.renewed()
        taken = await served.chat(typical_p=0.5).run()
        refused = await served.chat(typical_p=2).run()
        print(json.dumps([taken.status, served.engine.requests[-1].options.get("typical_p"), refused.status]))

with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(folder))
"""


def test_an_option(tmp_path: Path) -> None:
    trial = Trial(tmp_path, "models", "serve", "docs")
    trial.insert("models/options/options.py", '"typical_p",', after='"min_p",')
    field = 'typical_p: Probability | None = Field(default=None, description="For a trial.")'
    trial.insert(
        "serve/chat/request.py", field, after='stream: bool = Field(default=False, description="True'
    )
    assert json.loads(trial.runs("-c", ASK_WITH_THE_OPTION)) == [200, 0.5, 422]
    documented = ("tests.test_docs:test_every_chat_option_is_documented", "typical_p")
    assert not trial.passes(*documented)
    trial.insert("docs/chat-options.md", "| `typical_p` | for a trial |", after="| `seed` |")
    assert trial.passes(*documented)
    trial.is_as_told("A chat option")


SHORTEST = '''"""For a trial: the fewer characters a unit has, the better."""

from __future__ import annotations

from collections.abc import Sequence

from compression.source.units import Segmentation


class ShortestFirst:
    def score(self, query: str, text: Segmentation) -> Sequence[float]:
        return [1 / len(unit) for unit in text.texts()]
'''
COMPRESS = """
import asyncio
from compression.build import build_model
from compression.pipeline.compression_model import CompressionRequest
from serve.config.compression_models import CompressionModelSettings, spec_of

settings = CompressionModelSettings(id="shortest", name="Shortest", blurb="For a trial.", kind="{kind}")
source = "The committee met for a whole day in Geneva. It rained. Nobody who was there remembers why they had come."
result = asyncio.run(build_model(spec_of(settings)).compress(CompressionRequest("Who came?", source, 0.2)))
print(result.output, [flag.code for flag in result.receipt.risk_flags])
"""


def test_a_scorer(tmp_path: Path) -> None:
    trial = Trial(tmp_path, "compression")
    trial.write("compression/scorers/shortest.py", SHORTEST)
    trial.replace(
        "compression/scorers/kinds.py", 'Kind = Literal["lexical", ', 'Kind = Literal["shortest", "lexical", '
    )
    row = '"shortest": ScorerKind("compression.scorers.shortest:ShortestFirst"),'
    trial.insert("compression/scorers/kinds.py", row, after='"lexical": ScorerKind(')
    assert trial.runs("-c", COMPRESS.format(kind="shortest")).startswith("It rained. [")
    trial.is_as_told("A scorer")


WEATHER = '''"""Talk of the weather, for a trial."""

from __future__ import annotations

from collections.abc import Iterator

from compression.flags.flag import Evidence
from compression.flags.flag import Flag


def talk_of_the_weather(evidence: Evidence) -> Iterator[Flag]:
    if "rained" in evidence.source:
        yield evidence.flag("weather", count=1)
'''


def test_a_risk_flag(tmp_path: Path) -> None:
    trial = Trial(tmp_path, "compression", "docs")
    trial.write("compression/flags/weather.py", WEATHER)
    trial.insert(
        "compression/flags/flag.py", '"weather": "info",', after='"instruction_like_text": "critical"'
    )
    imported = "from compression.flags.weather import talk_of_the_weather"
    trial.insert("compression/flags/check.py", imported, after="from compression.flags.damage import")
    trial.replace(
        "compression/flags/check.py",
        "    doubtful_text,\n)",
        "    doubtful_text,\n    talk_of_the_weather,\n)",
    )
    assert "'weather'" in trial.runs("-c", COMPRESS.format(kind="lexical"))
    documented = (
        "tests.test_docs:test_every_risk_flag_has_a_section_with_its_severity_and_an_example",
        "weather",
    )
    assert not trial.passes(*documented)
    section = "\n### `weather`\n\nInfo. Somebody talks of the weather. Example: It rained."
    trial.insert("docs/compression.md", section, after="Critical. The kept text tells a model what to do")
    assert trial.passes(*documented)
    trial.is_as_told("A risk flag")


ECHO_ENGINE = '''"""Says what it is told, for a trial."""

from __future__ import annotations

from models.engine import EngineChunk, TokenUsage


class EchoEngine:
    places, cache_tokens, dead, prompt_making = 8, None, False, None

    def __init__(self, spec):
        self.greeting = spec.options["greeting"]

    async def generate(self, request):
        said = f"{self.greeting} {request.messages[-1]['content']}"
        yield EngineChunk(said.encode(), TokenUsage(await self.count_tokens(request), 1), finished=True)

    async def count_tokens(self, request, *, beyond_context=False):
        return len(request.messages)

    async def stop(self):
        self.dead = True


async def start(spec):
    return EchoEngine(spec)
'''
ASK_THE_ENGINE = """
import asyncio
from models.engine import EngineRequest
from models.engine_kinds import EngineSpec, start_engine
from serve.cluster.replicas.pool import ReplicaClient
from serve.cluster.replicas.address import ADDRESS_KEY, Address
from serve.cluster.deployments.chat import Replica
from serve.config.chat_models import EngineSettings

async def main():
    given = EngineSettings(kind="echo", options={"greeting": "hello"})
    engine = await start_engine(given.kind, EngineSpec("m", "checkpoint", 100, 0.03, given.options))
    replica, client = Replica(engine, lambda: None, give_up=lambda: None), ReplicaClient()
    await replica.open("127.0.0.1")
    asked = EngineRequest("1", "m", ({"role": "user", "content": "world"},), 5, False, "salt")
    address = Address(**replica.metadata()[ADDRESS_KEY])
    print([item.data.decode() async for item in client.generate(address, asked)])
    await client.close()
    await replica.close()

asyncio.run(main())
"""


def test_an_engine_backend(tmp_path: Path) -> None:
    """From the configuration to a reply at the replica's port, without Ray."""
    trial = Trial(tmp_path, "models")
    trial.write("models/echo.py", ECHO_ENGINE)
    trial.insert("models/engine_kinds.py", '"echo": EngineKind("models.echo"),', after="VLLM: EngineKind(")
    assert trial.runs("-c", ASK_THE_ENGINE) == "['hello world']"
    trial.is_as_told("An engine backend")


GREET = '''"""`pith greet`: for a trial."""

from __future__ import annotations

from typing import Annotated

import typer


def greet(name: Annotated[str, typer.Argument(help="Who is greeted.")]) -> None:
    """Greet somebody."""
    typer.echo(f"hello {name}")
'''


def test_a_cli_verb(tmp_path: Path) -> None:
    trial = Trial(tmp_path, "serve")
    trial.write("serve/cli/greet.py", GREET)
    row = 'Verb("greet", "serve.cli.greet:greet", "Greet somebody."),'
    trial.insert("serve/cli/main.py", row, after='Verb("tune"')
    pith = "from serve.cli.main import main; main()"
    assert trial.runs("-c", pith, "greet", "world") == "hello world"
    assert "Greet somebody." in trial.runs("-c", pith, "--help")
    trial.is_as_told("A CLI verb")


def test_a_metric(tmp_path: Path) -> None:
    trial = Trial(tmp_path, "serve", "docs")
    row = '_counter("pith_greetings", "For a trial."),'
    trial.insert("serve/metrics/families.py", row, after='_gauge("pith_ingress_replicas"')
    counter = 'self.greetings = families.counter("pith_greetings")'
    trial.insert("serve/metrics/request_watch.py", counter, after="self._refusals = {labels")
    counts = "self.greetings.inc()"
    trial.insert(
        "serve/metrics/request_watch.py", counts, after="self._duration_of(route, method).observe(seconds)"
    )
    count = (
        "from serve.metrics.counts import Counts, Families; from serve.metrics.request_watch import HttpMetrics;"
        "counts = Counts(); HttpMetrics(Families(counts)).end('/', 'GET', '200', 1.0);"
        "print(*[values[0] for series, values in counts.read() if series.family.name == 'pith_greetings'])"
    )
    assert trial.runs("-c", count) == "1.0"
    page = "tests.test_docs:test_the_page_of_metrics_names_each_with_its_type_and_labels_and_no_other"
    assert not trial.passes(page)
    row = "| `pith_greetings_total` | counter | | for a trial |"
    trial.insert("docs/metrics.md", row, after="| `pith_ingress_replicas` |")
    assert trial.passes(page)
    trial.is_as_told("A metric")


MIGRATION = '''"""For a trial."""

from __future__ import annotations

from alembic import op

revision = "{revision}"
down_revision = "{before}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE projects ADD COLUMN greeting VARCHAR DEFAULT 'hello' NOT NULL")
'''
MIGRATE = """
import asyncio, sys
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from billing.store.database import open_database
from billing.store.migration import upgrade
from billing.store.schema import metadata

async def main(url, before):
    await upgrade(url, revision=before)
    print(await upgrade(url))
    database = open_database(url)
    print(await database.read(lambda c: compare_metadata(MigrationContext.configure(c), metadata)))
    await database.close()

asyncio.run(main(*sys.argv[1:]))
"""


def test_a_migration(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    trial = Trial(tmp_path / "copy", "billing")
    versions = "billing/store/migrations/versions"
    before = max(path.name[:4] for path in (trial.folder / versions).glob("*.py"))
    revision = f"{int(before) + 1:04}"
    trial.write(f"{versions}/{revision}_greetings.py", MIGRATION.format(revision=revision, before=before))
    arguments = ("-c", MIGRATE, f"sqlite:///{tmp_path / 'ledger.db'}", before)
    found = trial.runs(*arguments).splitlines()
    assert found[0] == revision and "remove_column" in found[1], "what the schema does not have must be seen"
    column = 'Column("greeting", String, nullable=False, server_default="hello"),'
    trial.insert("billing/store/schema.py", column, after='Column("weight", Integer')
    (tmp_path / "ledger.db").unlink()
    assert trial.runs(*arguments).splitlines() == [revision, "[]"]
    trial.is_as_told("A migration")


def test_a_trial_says_which_files_a_recipe_forgot(tmp_path: Path) -> None:
    trial = Trial(tmp_path, "serve")
    trial.write("serve/cli/greet.py", GREET)
    with pytest.raises(AssertionError, match=r"serve/cli/main\.py.*needed were \['serve/cli/greet\.py'\]"):
        trial.is_as_told("A CLI verb")
