"""All kinds of the mixed load on the real server: the short form of `benchmarks.soak --mixed`."""

from __future__ import annotations

from benchmarks.load.kept import Place, kept
from benchmarks.load.loop import Target, Window
from benchmarks.load.mixed import SHARES, Ops, Outcome, drive, prepared
from tests.integration.running import Server, wait_for

RATE, SECONDS = 8.0, 5.0


async def test_every_kind_of_load_is_answered_as_it_must_be_and_leaves_nothing_held(server: Server) -> None:
    place = Place(server.state_dir, f"http://127.0.0.1:{server.ops_port}/metrics")
    ops = Ops(
        place.metrics_url.removesuffix("/metrics"), (server.state_dir / "admin-key").read_text().strip()
    )
    async with prepared(Target(server.url), ops, seed=28) as (client, deliveries):
        for kind, _ in SHARES:
            await kind(client)
        outcome = Outcome()
        await drive(client, outcome, RATE, Window(0, SECONDS), lambda kind: None)
    assert outcome.failures == []
    assert sum(map(len, outcome.samples.values())) == RATE * SECONDS
    assert deliveries.seen
    wait_for(lambda: kept(place)["holds"] == 0, what="nothing is held")
    assert kept(place)["tasks"] > 0
