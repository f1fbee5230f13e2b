"""Runs a command beside `pith serve` with a ledger of its own: `python -m benchmarks.served -- COMMAND`.

`{port}` and `{pid}` in the command's words become the server's; its key is in PITH_API_KEY. The exit status is the
command's.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.load.server import CannotRun, Server, pith_server


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.served", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )  # fmt: skip
    parser.add_argument("--config", type=Path, default=Path("configs/tiny.yaml"))
    parser.add_argument("--model", default="pith-mini", help="that must answer before the command starts")
    parser.add_argument("command", nargs="+")
    return parser.parse_args(words)


def run_beside(server: Server, command: Sequence[str]) -> int:
    """The command's exit status. Raises `CannotRun` where the server does not start."""
    try:
        asyncio.run(server.start())
        assert server.process is not None
        port, pid = server.url.rpartition(":")[2], str(server.process.pid)
        words = [word.replace("{port}", port).replace("{pid}", pid) for word in command]
        return subprocess.run(words, env={**os.environ, "PITH_API_KEY": server.target.key}).returncode
    finally:
        server.stop()


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="pith-served-") as folder:
        try:
            code = run_beside(pith_server(options.config, Path(folder), options.model), options.command)
        except CannotRun as error:
            raise SystemExit(str(error)) from error
    raise SystemExit(code)


if __name__ == "__main__":
    main()
