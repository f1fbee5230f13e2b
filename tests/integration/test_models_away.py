"""Models whose checkpoints are broken, beside one that serves; `tests.integration.models_away` has the long form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.models_away import (
    CHAT,
    CUT,
    LOUD,
    MISSING,
    WEIGHTS,
    WHOLE,
    cut_off,
    mend,
    reasons,
    write_models,
)
from tests.integration.running import Server, start_server, stop_server, wait_for

UP_S = 60.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Two models are broken, the default one among them, and so is an adapter of the third."""
    started = start_server(write_models(tmp_path, (CUT, MISSING), words=False), tmp_path)
    yield started
    stop_server(started)


def ask(http: httpx.Client, model: str) -> httpx.Response:
    return http.post("/v1/chat/completions", json={**CHAT, "model": model})


def test_broken_checkpoints_take_their_models_away_and_nobody_elses(server: Server) -> None:
    printed = "".join(server.lines)
    assert f"model:{CUT} is away" in printed and "was cut off" in printed
    with server.client() as http:
        assert http.get("/ready").json() == {"status": "ok", "unavailable": [CUT, LOUD, MISSING]}
        listed = {one["id"]: "unavailable" in one for one in http.get("/v1/models").json()}
        assert listed == {CUT: True, MISSING: True, WHOLE: False, LOUD: True}
        assert ask(http, WHOLE).status_code == 200
        for model in (CUT, MISSING, LOUD):
            reply = ask(http, model)
            assert (reply.status_code, reply.json()["error"]["code"]) == (503, "engine_unavailable")
            # At once: nobody waits for `server.start_wait_s`.
            assert reply.elapsed.total_seconds() < 5
            assert str(server.state_dir) not in reply.text and f"{model} cannot be started here" in reply.text
        why = reasons(server)
        assert str(server.state_dir / CUT / WEIGHTS) in why[CUT] and "cannot be read" in why[MISSING]
        assert str(server.state_dir / LOUD) in why[LOUD]
        # Only the whole model's chat is in the books.
        (row,) = server.pith("usage", "--by", "model")
        assert (row["model"], row["requests"]) == (WHOLE, 1)
        mend(server.state_dir, CUT)
        assert server.pith("reload", within_s=300)["tried_again"] == [f"model:{CUT}", f"model:{MISSING}"]
        assert ask(http, CUT).status_code == 200
        assert set(reasons(server)) == {MISSING, LOUD}
        # An adapter needs no reload.
        mend(server.state_dir, LOUD)
        assert ask(http, LOUD).json()["model"] == LOUD
        assert set(reasons(server)) == {MISSING}
        # One that was damaged meanwhile does not keep its base's engine from starting again.
        cut_off(server.state_dir / LOUD)
        (core,) = server.engine_processes(WHOLE)
        core.kill()
        core.wait(UP_S)
        wait_for(lambda: ask(http, WHOLE).status_code == 200, what="the base answers again", timeout_s=UP_S)
        assert ask(http, LOUD).status_code == 503 and set(reasons(server)) == {MISSING, LOUD}
    server.pith("reconcile")
