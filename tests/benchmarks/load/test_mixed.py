"""The mixed load on a server that answers nothing as it should."""

from __future__ import annotations

from aiohttp import web
from aiohttp.test_utils import TestServer

from benchmarks.load.loop import Target, Window
from benchmarks.load.mixed import MOST_FAILURES, SHARES, Client, Outcome, drive

# What leaves before it is answered, or does not ask whole, is never told.
NEVER_TOLD = {"left_chat", "half_a_request"}


async def teapot(request: web.Request) -> web.Response:
    await request.read()
    return web.Response(status=418)


async def test_what_is_not_answered_as_it_must_be_is_listed_and_ends_the_load() -> None:
    app, done = web.Application(client_max_size=2**24), list[object]()
    app.router.add_route("*", "/{path:.*}", teapot)
    async with TestServer(app) as server, Target(str(server.make_url("/"))).session() as session:
        outcome = Outcome()
        client = Client(str(server.make_url("/")), session, session, 1)
        await drive(client, outcome, 400, Window(0, 20), done.append)
    assert MOST_FAILURES <= len(outcome.failures) < len(done) < 400 * 20
    named = {failure.split(": ")[1] for failure in outcome.failures}
    # A kind that is one in a hundred may not have come.
    assert len(named) > len(SHARES) / 2 and named <= {kind.__name__ for kind, _ in SHARES} - NEVER_TOLD
    assert set(outcome.statuses) == {"418"}


def test_shares_are_hundredths() -> None:
    assert sum(share for _, share in SHARES) == 100
