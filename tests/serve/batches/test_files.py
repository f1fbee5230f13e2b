"""`/openai/v1/files`: what is uploaded is on disk, private, bounded and its project's alone; what broke off is not."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from openai.types import FileDeleted, FileObject
from sqlalchemy import text

from billing.batches.file_store import PIECE_BYTES, STORE, FileFolder
from tests.serve.batches.uploading import FILES as PATH
from tests.serve.batches.uploading import call
from tests.serve.batches.uploading import upload as upload_of
from tests.serve.served import Client, Served, at_rest, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")
LINES = b'{"custom_id":"a"}\n' * 3
SMALL = {"max_file_mb": 1, "max_files_per_project": 3, "max_mb_per_project": 2}
MB = 2**20


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with serving(tmp_path_factory.mktemp("served"), batches=SMALL) as service:
        yield service


def upload(served: Served, content: bytes = LINES, **given: Any) -> Client:
    return upload_of(served, content, **given)


def on_disk(served: Served) -> list[Path]:
    folder = served.settings.state_dir / "files"
    return sorted(path for path in folder.iterdir() if path.name != STORE) if folder.exists() else []


async def rows(served: Served) -> Sequence[Any]:
    statement = text("SELECT f.id FROM batch_files f JOIN projects p ON p.id = f.project_id")
    return await served.database.read(lambda c: c.execute(statement).all())


async def test_a_file_is_kept_as_it_was_sent_for_its_owner_alone(served: Served) -> None:
    content = os.urandom(3 * PIECE_BYTES + 17)
    made = await upload(served, content).run()
    file = FileObject.model_validate(made.json(), strict=True)
    assert (made.status, file.bytes, file.filename, file.status) == (
        200,
        len(content),
        "in.jsonl",
        "processed",
    )
    assert file.expires_at is not None and file.expires_at - file.created_at == 30 * 86_400
    path = served.settings.state_dir / "files" / file.id
    assert path.read_bytes() == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    read = await call(served, "GET", f"{PATH}/{file.id}/content").run()
    assert read.body == content and read.reply_headers["content-length"] == str(len(content))
    assert FileObject.model_validate((await call(served, "GET", f"{PATH}/{file.id}").run()).json()) == file
    stranger = await served.new_key()
    for method, tail in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        refused = await call(served, method, f"{PATH}/{file.id}{tail}", key=stranger).run()
        assert (refused.status, refused.json()["error"]["code"]) == (404, "file_not_found")
    gone = await call(served, "DELETE", f"{PATH}/{file.id}").run()
    assert FileDeleted.model_validate(gone.json(), strict=True).deleted
    assert not path.exists()
    assert (await call(served, "GET", f"{PATH}/{file.id}").run()).status == 404


async def test_a_client_that_leaves_leaves_nothing_behind(served: Served) -> None:
    before = (on_disk(served), await rows(served))
    client = await upload(served, os.urandom(MB - 5), gone_after=12).run()
    await at_rest()
    assert client.read == 12
    assert (on_disk(served), await rows(served)) == before


@pytest.mark.parametrize("declares", [True, False])
async def test_a_file_that_is_too_large_is_a_413_and_the_rest_is_not_read(
    served: Served, declares: bool
) -> None:
    before = on_disk(served)
    client = upload(served, bytes(4 * MB))
    if not declares:
        del client.headers["Content-Length"]
    await client.run()
    assert client.status == 413 and client.json()["error"]["code"] == "invalid_body"
    assert client.read * 65_536 < (1 if declares else 2 * MB)
    assert on_disk(served) == before


async def test_bounds_are_the_projects_own_and_a_deletion_makes_room(served: Served) -> None:
    first, second = [(await upload(served, bytes(MB // 2)).run()).json()["id"] for _ in range(2)]
    assert (await upload(served, bytes(MB - 100)).run()).status == 200
    refused = await upload(served).run()
    assert (refused.status, refused.json()["error"]["code"]) == (413, "files_full")
    assert (
        await upload(served.__class__(**{**vars(served), "key": await served.new_key()})).run()
    ).status == 200
    await call(served, "DELETE", f"{PATH}/{first}").run()
    assert (await upload(served, bytes(MB)).run()).json()["error"]["code"] == "files_full"
    await call(served, "DELETE", f"{PATH}/{second}").run()
    assert (await upload(served, bytes(MB // 2)).run()).status == 200


async def test_a_disk_without_room_is_a_507_and_nothing_is_left(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = (on_disk(served), await rows(served))
    monkeypatch.setattr(os, "write", full)
    client = await upload(served, bytes(2 * PIECE_BYTES)).run()
    monkeypatch.undo()
    assert (client.status, client.json()["error"]["code"]) == (507, "storage_full")
    assert (on_disk(served), await rows(served)) == before


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "purpose"),
        ({"purpose": "fine-tune"}, "purpose"),
        ({"purpose": "batch", "expires_after[seconds]": "4000"}, "expires_after.anchor"),
        (
            {"purpose": "batch", "expires_after[anchor]": "created_at", "expires_after[seconds]": "1"},
            "expires_after.seconds",
        ),
        # Zeros before a number do not hide how large it is.
        *(
            (
                {
                    "purpose": "batch",
                    "expires_after[anchor]": "created_at",
                    "expires_after[seconds]": seconds,
                },
                "expires_after.seconds",
            )
            for seconds in ("000003600000", "000003600" + "9" * 400)
        ),
        ({"purpose": "b" * 5000}, None),
        ({f"field{number}": "" for number in range(40)}, None),
    ],
)
async def test_a_form_that_is_refused_says_why_and_leaves_nothing(
    served: Served, fields: dict[str, str], param: str | None
) -> None:
    before = (on_disk(served), await rows(served))
    client = await upload(served, fields=fields).run()
    assert client.status == 400, client.body
    assert client.json()["error"]["param"] == param
    assert (on_disk(served), await rows(served)) == before


async def test_a_file_may_ask_for_a_shorter_life(served: Served) -> None:
    fields = {"purpose": "batch", "expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
    file = (await upload(served, fields=fields).run()).json()
    assert file["expires_at"] - file["created_at"] == 3600


async def test_bytes_that_are_no_form_are_a_400(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    before = on_disk(served)
    for kind, body in (
        ("application/json", b"{}"),
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=b", b"nothing like a boundary"),
        ("multipart/form-data; boundary=b", b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\ncut'),
    ):
        headers = {"Authorization": f"Bearer {served.key}", "Content-Type": kind}
        client = await Client(served.api, PATH, "POST", headers, (body,)).run()
        assert (client.status, set(client.json())) == (400, {"error"}), client.body
    assert on_disk(served) == before
    # A caller's mistake is no news for the operator.
    assert caplog.records == []


async def test_lists_are_in_pages(served: Served) -> None:
    ids = [(await upload(served).run()).json()["id"] for _ in range(3)]
    page = (await call(served, "GET", PATH, query="limit=2").run()).json()
    assert [FileObject.model_validate(one, strict=True).id for one in page["data"]] == ids[:0:-1]
    assert page["has_more"] and page["last_id"] == ids[1]
    rest = (await call(served, "GET", PATH, query=f"limit=2&after={ids[1]}").run()).json()
    assert ([one["id"] for one in rest["data"]], rest["has_more"]) == (ids[:1], False)
    oldest = (await call(served, "GET", PATH, query="order=asc").run()).json()
    assert [one["id"] for one in oldest["data"]] == ids
    for query in ("limit=0", "limit=x", "limit=00000000120000", "order=up"):
        assert (await call(served, "GET", PATH, query=query).run()).status == 400


async def test_what_a_process_that_died_left_on_disk_is_deleted_when_its_time_is_over(served: Served) -> None:
    from serve.batches.wiring import open_files

    files = open_files(served.settings, served.database)
    made = (await upload(served).run()).json()["id"]
    over = text("UPDATE batch_files SET expires_at = 0 WHERE id = :id")
    await served.database.write(lambda c: c.execute(over, {"id": made}) and None)
    assert (await call(served, "GET", f"{PATH}/{made}").run()).status == 404
    await files.delete_expired()
    assert made not in {path.name for path in on_disk(served)} | {row.id for row in await rows(served)}


async def test_an_id_that_is_no_id_is_never_a_path(tmp_path: Path) -> None:
    folder = FileFolder(tmp_path)
    for bad in ("../pith.db", "a/b", "", ".", "a\0b"):
        with pytest.raises(ValueError, match="not the id"):
            folder.delete(bad)
