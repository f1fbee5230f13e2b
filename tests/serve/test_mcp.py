"""`pith mcp` as an agent meets it: the released MCP client starts the command and calls its tools over stdio."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from models.fake_engine import FakeEngine
from serve.cli.access import KEY_VARIABLE, key_of
from serve.cli.main import main
from serve.config.paths import ConfigError
from tests.serve.compressing import CONTEXT, QUERY, ReadyModel, local_model
from tests.serve.loopback_service import Running, service
from tests.serve.mcp_client import complaint, texts, tools

ORIGINAL = "The warranty ends after two years. It rained."
SECRET_KEY = "pith_a_key"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with service(tmp_path, FakeEngine(), compressor=ReadyModel(local_model())) as found:
        yield found


async def test_an_agent_compresses_through_a_real_service(running: Running, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text(running.key + "\n")
    async with tools(running.url, "--key-file", str(key_file)) as client:
        found = {tool.name: tool for tool in (await client.list_tools()).tools}
        asked = {"query": QUERY, "text": CONTEXT, "target_ratio": 0.5}
        done = await client.call_tool("compress", asked)
        both = await client.call_tool("compress", {**asked, "keep": 0.9})
    assert found.keys() == {"compress", "retrieve"}
    assert found["compress"].input_schema["required"] == ["query", "text"]
    assert not done.is_error and done.structured_content is None
    output, about = texts(done)
    assert "The warranty ends after two years." in output and len(output) < len(CONTEXT)
    receipt = json.loads(about)
    assert receipt["id"].startswith("cmp_") and receipt["compression_ratio"] <= 0.5
    assert all(isinstance(flag, str) for flag in receipt["risk_flags"])
    assert "keep cannot be given together with target_ratio" in complaint(both)


async def test_an_agent_reopens_an_original_that_a_real_service_keeps(running: Running) -> None:
    async with tools(running.url, key=running.key) as client:
        asked = {"query": QUERY, "text": CONTEXT, "target_ratio": 0.5, "retain_s": 60}
        about = json.loads(texts(await client.call_tool("compress", asked))[1])
        whole = await client.call_tool("retrieve", {"id": about["id"]})
        some = await client.call_tool("retrieve", {"id": about["id"], "start": 4, "end": 8})
        gone = await client.call_tool("retrieve", {"id": "cmp_none"})
    assert about["retained_until"] > 1_700_000_000
    assert texts(whole)[0] == CONTEXT and texts(some)[0] == CONTEXT[4:8]
    assert "404" in complaint(gone)


class FakePith(ThreadingHTTPServer):
    """A fake with one original, that remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), FakeHandler)
        self.asked: list[tuple[str, str | None]] = []
        self.answer: tuple[int, dict[str, str], bytes] = (200, {}, b"")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answers(self, fields: Any, status: int = 200, **headers: str) -> None:
        self.answer = (status, headers, json.dumps(fields).encode())


class FakeHandler(BaseHTTPRequestHandler):
    server: FakePith

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.path, self.headers["Authorization"]))
        status, headers, body = self.server.answer
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Nothing on the test's output."""


@contextmanager
def fake_pith() -> Iterator[FakePith]:
    with FakePith() as fake:
        thread = threading.Thread(target=fake.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield fake
        finally:
            fake.shutdown()
            thread.join()


async def test_an_agent_reopens_what_was_left_out() -> None:
    part = {"id": "cmp_1", "object": "compression.original", "start": 4, "end": 12, "length": 45}
    with fake_pith() as fake:
        async with tools(fake.url + "/", key=SECRET_KEY) as client:
            fake.answers({**part, "text": ORIGINAL[4:12]})
            some = await client.call_tool("retrieve", {"id": "cmp_1", "start": 4, "end": 12})
            await client.call_tool("retrieve", {"id": "cmp_1", "start": 7})
            fake.answers({"error": {"message": "no original of cmp_2 is retained"}}, 404)
            gone = await client.call_tool("retrieve", {"id": "cmp_2"})
            elsewhere = await client.call_tool("retrieve", {"id": "../../health"})
    assert texts(some) == ["warranty", json.dumps({k: v for k, v in part.items() if k != "object"})]
    assert fake.asked[:2] == [
        ("/v1/compress/cmp_1/original?start=4&end=12", f"Bearer {SECRET_KEY}"),
        ("/v1/compress/cmp_1/original?start=7&end=100007", f"Bearer {SECRET_KEY}"),
    ]
    assert "pith refused (404): no original of cmp_2 is retained" in complaint(gone)
    assert elsewhere.is_error and len(fake.asked) == 3, "an id is no path"


async def test_whatever_answers_in_place_of_pith_is_a_tools_error_and_the_key_goes_nowhere_else() -> None:
    asked = {"query": QUERY, "text": CONTEXT}
    with fake_pith() as fake, fake_pith() as other:
        async with tools(fake.url, key=SECRET_KEY) as client:
            fake.answer = (200, {}, b"<html>")
            assert "not as pith does" in complaint(await client.call_tool("compress", asked))
            fake.answers({"receipt": {"risk_flags": 7}})
            assert "not as pith does" in complaint(await client.call_tool("compress", asked))
            fake.answers(["x"], 500)
            assert "pith refused (500): no reason given" in complaint(
                await client.call_tool("compress", asked)
            )
            fake.answers({}, 307, Location=other.url)
            assert "pith refused (307)" in complaint(await client.call_tool("compress", asked))
    assert other.asked == []


async def test_a_client_is_told_the_version_and_in_words_what_is_wrong_with_its_arguments() -> None:
    async with tools("http://127.0.0.1:1", key=SECRET_KEY) as client:
        version = client.server_info.version
        wrong = complaint(await client.call_tool("compress", {"query": QUERY, "target_ratio": 7}))
        path = complaint(await client.call_tool("retrieve", {"id": "../secret"}))
    assert version == distribution("pith").version
    assert wrong == "compress: text: Field required; target_ratio: Input should be less than or equal to 1"
    assert path.startswith("retrieve: id: String should match pattern")
    assert "secret" not in path and "pydantic" not in wrong + path


async def test_a_pith_that_does_not_run_is_a_tools_error() -> None:
    with fake_pith() as fake:
        url = fake.url
    async with tools(url, key=SECRET_KEY) as client:
        said = complaint(await client.call_tool("compress", {"query": QUERY, "text": CONTEXT}))
    assert f"pith at {url} cannot be reached" in said and SECRET_KEY not in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), f"{KEY_VARIABLE}: holds no API key; pith key create WORKSPACE/PROJECT makes one"),
        (("--url", "127.0.0.1:8000"), "--url: must begin with http:// or https://, not '127.0.0.1:8000'"),
    ],
)
def test_it_does_not_start_without_a_key_or_an_address(
    arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    monkeypatch.setattr(sys, "argv", ["pith", "mcp", *arguments])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert capsys.readouterr() == ("", f"pith: {said}\n")


def test_a_key_is_one_line_of_a_file_or_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, " from-the-environment\n")
    assert key_of(None) == "from-the-environment"
    file = tmp_path / "key"
    with pytest.raises(ConfigError, match=r"--key-file: .*key: cannot be read: No such file"):
        key_of(file)
    file.write_text("from-a-file\n")
    assert key_of(file) == "from-a-file"
    for content in (b"", b"\n", b"one\ntwo", b"\xff"):
        file.write_bytes(content)
        with pytest.raises(ConfigError, match="--key-file: "):
            key_of(file)
    monkeypatch.setenv(KEY_VARIABLE, "")
    with pytest.raises(ConfigError, match=f"{KEY_VARIABLE}: holds no API key"):
        key_of(None)
