"""docs/request.md against the code: real requests meet its files in its order, and its picture is the import graph."""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
import threading
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.import_graph import ROOT, folder_imports
from tests.serve.cluster.one_replica import compressor_behind_a_handle, engine_behind_a_port
from tests.serve.compressing import compressing
from tests.serve.served import serving

PAGE = (ROOT / "docs/request.md").read_text()
CHAT, COMPRESSION, BATCH_LINE, _TEXTS = PAGE.split("\n## ")[1:]
STEP = re.compile(r"^(\d+)\. \*\*`([\w/.]+)`\*\*(.*(?:\n {3,}.*)*)", re.MULTILINE)
# In the place of vLLM, which needs a checkpoint: the fake engine.
STANDS_FOR = {"models/fake_engine.py": "models/vllm/engine.py"}
# In `prepare`, long before the request goes to the engine.
ASKED_BEFORE = ("serve/cluster/replicas/engine.py", "prompt_bound")
# In a process of its own, where no tracer of this one sees it.
ELSEWHERE = {"compression/workers/pool.py"}
# In which a function runs while the request is served, as the page says.
PACKAGES = ("serve/", "billing/", "models/", "compression/")
COUNTED = re.search(r"a streamed chat enters at most (\d+) files .*? a compression (\d+)", PAGE, re.DOTALL)
assert COUNTED is not None
ENTERED = {"chat": int(COUNTED[1]), "compression": int(COUNTED[2])}


def steps(section: str) -> dict[int, str]:
    """The files of the numbered list."""
    return {int(number): path for number, path, _ in STEP.findall(section)}


def named_beside(section: str) -> set[str]:
    """The other files that the numbered list names."""
    return {path for _, _, text in STEP.findall(section) for path in re.findall(r"`([\w/]+\.py)`", text)}


@contextmanager
def files_met() -> Iterator[list[str]]:
    """The project's files, in the order in which a function of each was first called."""
    met: dict[str, None] = {}

    def note(frame: FrameType, event: str, argument: Any) -> None:
        path, function = Path(frame.f_code.co_filename), frame.f_code.co_name
        if event != "call" or function == "<module>" or not path.is_relative_to(ROOT):
            return
        name = str(path.relative_to(ROOT))
        if (name, function) != ASKED_BEFORE:
            met.setdefault(STANDS_FOR.get(name, name))

    found: list[str] = []
    before = sys.getprofile()
    sys.setprofile(note)
    # A compression works in a thread that it starts.
    threading.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
        found += met


async def follow(request: Awaitable[Any]) -> list[str]:
    with files_met() as met:
        client = await request
    assert client.status == 200, client.body
    return met


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return asyncio.run(met_by_chat(tmp_path_factory.mktemp("chat")))


@pytest.fixture(scope="module")
def compression(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return asyncio.run(met_by_compression(tmp_path_factory.mktemp("compression")))


async def met_by_chat(folder: Path) -> list[str]:
    """By a streamed request, its engine behind a replica's port."""
    async with serving(folder) as service:
        served = await service.renewed()
        async with engine_behind_a_port(served.engine) as served.switch.engine:  # type: ignore[assignment]
            await served.warm_up()
            return await follow(served.chat(stream=True).run())


async def met_by_compression(folder: Path) -> list[str]:
    async with compressing(folder) as service:
        local = service.model.inner
        service.model.inner = compressor_behind_a_handle(local)  # type: ignore[assignment]
        met = await follow(service.compress().run())
        service.model.inner = local
        return met


@pytest.mark.parametrize("kind", ENTERED)
def test_the_page_says_how_many_files_a_request_enters(kind: str, request: pytest.FixtureRequest) -> None:
    """Of pith's packages, with the replica's side, in which vLLM's engine is a fake. The numbers are to fall."""
    entered = sorted(path for path in request.getfixturevalue(kind) if path.startswith(PACKAGES))
    print(f"{kind}: {len(entered)} files", *entered, sep="\n")
    assert len(entered) <= ENTERED[kind]


def test_a_chat_request_is_told_in_at_most_twelve_files() -> None:
    assert list(steps(CHAT)) == list(range(1, len(steps(CHAT)) + 1))
    assert len(steps(CHAT)) <= 12


def test_a_chat_request_meets_the_files_in_this_order(chat: list[str]) -> None:
    listed = list(steps(CHAT).values())
    assert [path for path in chat if path in listed] == listed


def test_a_compression_request_meets_the_files_in_this_order(compression: list[str]) -> None:
    listed = list(steps(COMPRESSION).values())
    assert [path for path in compression if path in listed] == listed
    way_in = [steps(CHAT)[1], steps(CHAT)[3]]
    assert [path for path in compression if path in way_in] == way_in


def test_the_files_that_a_line_of_a_batch_meets_are_there() -> None:
    listed = [*steps(BATCH_LINE).values(), *named_beside(BATCH_LINE)]
    assert len(steps(BATCH_LINE)) == 5 and not [path for path in listed if not (ROOT / path).is_file()]


def test_a_request_meets_the_files_that_are_named_beside(chat: list[str], compression: list[str]) -> None:
    assert named_beside(CHAT) <= set(chat)
    assert named_beside(COMPRESSION) - ELSEWHERE <= set(compression)


# The picture.

(DIAGRAM,) = re.findall(r"```mermaid\n(.*?)```", PAGE, re.DOTALL)
ROOMS = {node: (room, rest) for node, room, rest in re.findall(r'(\w+)\["<b>([\w/]+)</b>(.*?)"\]', DIAGRAM)}
Arrow = tuple[str, str]


def drawn_arrows() -> list[Arrow]:
    chains = [line.split("-->") for line in DIAGRAM.splitlines() if "-->" in line]
    nodes = [[ROOMS[name.strip()][0] for name in chain] for chain in chains]
    return [arrow for chain in nodes for arrow in itertools.pairwise(chain)]


def leads_to(arrows: set[Arrow], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        at = waiting.pop()
        new = {target for source, target in arrows if source == at} - found
        found |= new
        waiting += new
    return found


def test_every_room_of_the_picture_is_a_folder() -> None:
    assert not [room for room, _ in ROOMS.values() if not (ROOT / room / "__init__.py").is_file()]


def test_every_arrow_of_the_picture_is_an_import_and_drawn_once() -> None:
    arrows = drawn_arrows()
    assert not set(arrows) - folder_imports().keys()
    assert len(arrows) == len(set(arrows))


def test_every_import_between_the_rooms_of_the_picture_is_an_arrow_or_follows_arrows() -> None:
    rooms, arrows = {room for room, _ in ROOMS.values()}, set(drawn_arrows())
    imports = {pair for pair in folder_imports() if set(pair) <= rooms}
    assert not {pair for pair in imports if pair[1] not in leads_to(arrows, pair[0])}


def test_an_arrow_that_others_lead_along_is_not_drawn() -> None:
    arrows = set(drawn_arrows())
    assert not {arrow for arrow in arrows if arrow[1] in leads_to(arrows - {arrow}, arrow[0])}


def test_the_picture_shows_where_each_file_of_the_list_is() -> None:
    shown = {
        int(number): f"{room}/{name}"
        for room, rest in ROOMS.values()
        for number, name in re.findall(r"(\d+) (\w+\.py)", rest)
    }
    assert shown == steps(CHAT)
