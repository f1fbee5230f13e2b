"""Which models answer, whoever asks and however often."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from models.fake_engine import FakeEngine
from serve.catalog import offered
from serve.catalog.offered import running_models

pytestmark = pytest.mark.asyncio


class FakeCounting(FakeEngine):
    """Counts how often it is asked, and answers when it may."""

    asked = 0

    async def ready(self) -> bool:
        self.asked += 1
        if not self.answers:
            await asyncio.Event().wait()
        return self.is_ready


async def test_a_crowd_asks_each_model_once() -> None:
    up, down = FakeCounting(), FakeCounting(is_ready=False)
    models = running_models({"up": up, "down": down}, {})
    found = await asyncio.gather(*(models.now() for _ in range(100)))
    assert all(one == {"up": True, "down": False} for one in found)
    await models.now()
    assert (up.asked, down.asked) == (1, 1)


async def test_what_was_told_is_asked_again_when_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offered, "TOLD_AGAIN_S", 0)
    engine = FakeCounting(is_ready=False)
    models = running_models({"one": engine}, {})
    assert await models.now() == {"one": False}
    engine.is_ready = True
    assert await models.now() == {"one": True}


async def test_a_model_that_owes_an_answer_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offered, "TOLD_AGAIN_S", 0)
    engine = FakeCounting()
    models = running_models({"one": engine}, {}, patience_s=0.01)
    assert await models.now() == {"one": True}
    engine.answers = False
    # As it was, and nobody waits for long.
    assert [await models.now() for _ in range(5)] == [{"one": True}] * 5
    assert engine.asked == 2


async def test_an_answer_that_never_comes_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def note(tasks: set[asyncio.Task[None]], **limits: Any) -> None:
        waits.append(limits["timeout"])
        await wait(tasks, **limits)

    wait = asyncio.wait
    monkeypatch.setattr(asyncio, "wait", note)
    engine = FakeCounting()
    engine.answers = False
    models = running_models({"one": engine}, {}, patience_s=0.05)
    for _ in range(5):
        await models.now()
    assert len(waits) == 5 and sum(waits) < 0.06
