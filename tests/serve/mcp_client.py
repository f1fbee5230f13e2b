"""The released MCP client on a `pith mcp` that it starts."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult, TextContent

from serve.cli.access import KEY_VARIABLE

PITH = "from serve.cli.main import main; main()"


@asynccontextmanager
async def tools(url: str, *arguments: str, key: str = "") -> AsyncGenerator[Client, None]:
    """A client of a `pith mcp` that it started."""
    environment = {KEY_VARIABLE: key} if key else {}
    command = ["-c", PITH, "mcp", "--url", url, *arguments]
    server = StdioServerParameters(
        command=sys.executable, args=command, env=environment, cwd=Path(__file__).parents[3]
    )
    async with Client(server, read_timeout_seconds=60) as client:
        yield client


def texts(result: CallToolResult) -> list[str]:
    blocks = [block for block in result.content if isinstance(block, TextContent)]
    return [block.text for block in blocks]


def complaint(result: CallToolResult) -> str:
    assert result.is_error
    (said,) = texts(result)
    return said
