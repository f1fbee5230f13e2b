"""A page of its own origin in a real browser: it calls a server and reports what its script could read."""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.integration.missing import cannot_run

PAGE_S = 60
HTML = """<!doctype html><meta charset=utf-8><script type=module>
const given = %s;
const report = (found) => fetch("/result", {method: "POST", body: JSON.stringify(found)});
async function run() { %s }
run().then(report, (error) => report({failed: String(error)}));
</script>"""


def chromium_program() -> str:
    """Its path, by whichever of its names it is installed."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None) or cannot_run(
        "no chromium: apt-get install chromium"
    )


def headless(profile: Path) -> list[str]:
    """The command of a browser that asks its makers for nothing."""
    options = ("headless", "no-sandbox", "disable-gpu", "disable-dev-shm-usage")
    quiet = ("disable-background-networking", "disable-component-update", f"user-data-dir={profile}")
    return [chromium_program(), *(f"--{option}" for option in (*options, *quiet))]


def result_of(script: str, origin: str, folder: Path, given: dict[str, Any]) -> Any:
    """What the body of an async function returns in a page of `origin` (a made-up host), which sees `given`."""
    results: queue.Queue[Any] = queue.Queue()
    html = (HTML % (json.dumps(given), script)).encode()
    with page_server(html, results) as port:
        host = origin.removeprefix("http://")
        command = [
            *headless(folder / "profile"),
            f"--host-resolver-rules=MAP {host} 127.0.0.1:{port}, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            # Stays until it is ended.
            "--remote-debugging-port=0",
            f"{origin}/",
        ]
        with (folder / "chromium.log").open("wb") as log:
            browser = subprocess.Popen(command, stdout=log, stderr=log)
            try:
                return results.get(timeout=PAGE_S)
            except queue.Empty:
                said = (folder / "chromium.log").read_text(errors="replace")[-2000:]
                raise AssertionError(f"the page reported nothing:\n{said}") from None
            finally:
                browser.terminate()
                browser.wait(PAGE_S)


@contextmanager
def page_server(html: bytes, results: queue.Queue[Any]) -> Iterator[int]:
    """Serves the page on a port and takes its report."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(html if self.path == "/" else b"", "text/html")

        def do_POST(self) -> None:
            results.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self._answer(b"", "text/plain")

        def _answer(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
