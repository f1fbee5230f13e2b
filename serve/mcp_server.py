"""An MCP server over standard input and output: its tools ask a running pith over HTTP.

The only module that imports `mcp`, but for tests.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent
from pydantic import Field, ValidationError

from serve.client import PithError
from serve.client.pith_client import PithClient

_INSTRUCTIONS = (
    "Compress long text before you reason over it. With retain_s the original stays available, and retrieve returns "
    "any part of it."
)
_RECEIPT = ("original_tokens", "output_tokens", "compression_ratio", "evidence_kept_probability")

Query = Annotated[str, Field(description="The question that the text is to answer. Be specific.")]
Text = Annotated[
    str, Field(min_length=1, description="The text to shorten: documents, a log, a tool's result.")
]
TargetRatio = Annotated[
    float | None,
    Field(gt=0, le=1, description="The most of the text's tokens to keep, as a share. Not with keep."),
]
Keep = Annotated[
    float | None,
    Field(
        gt=0,
        lt=1,
        description="Instead of target_ratio: keep what answers the question with this probability.",
    ),
]
RetainS = Annotated[
    int | None,
    Field(ge=1, description="Seconds for which the original may be retrieved by the id. Default: not kept."),
]
# It becomes part of a path.
CompressionId = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_-]{1,128}$", description="The id that compress answered with.")
]
# An agent that asks for everything must not fill its context.
MOST_CHARACTERS = 100_000
Start = Annotated[int, Field(ge=0, description="Offset of the first character.")]
End = Annotated[
    int | None,
    Field(ge=0, description=f"Offset after the last character. Default: {MOST_CHARACTERS:,} after start."),
]


class ToolServer(MCPServer[Any]):
    """An MCP server that says in words what is wrong with a tool's arguments, where the package prints pydantic's."""

    async def call_tool(self, name: str, arguments: dict[str, Any], *given: Any, **options: Any) -> Any:
        try:
            return await super().call_tool(name, arguments, *given, **options)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            raise ToolError(f"{name}: {_wrong(error.__cause__)}") from error.__cause__


def _wrong(error: ValidationError) -> str:
    """Not what was given: it may be long, and whoever called has it."""
    found = error.errors(include_url=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found)


def mcp_server(pith: PithClient, version: str) -> MCPServer[Any]:
    """A server of this version whose tools `compress` and `retrieve` ask `pith`."""
    server = ToolServer("pith", version=version, instructions=_INSTRUCTIONS, log_level="WARNING")

    @server.tool(structured_output=False)
    async def compress(
        query: Query,
        text: Text,
        target_ratio: TargetRatio = None,
        keep: Keep = None,
        retain_s: RetainS = None,
    ) -> CallToolResult:
        """Shorten a text to the parts that matter to a question, word for word, with a receipt."""
        options = {"target_ratio": target_ratio, "keep": keep, "retain_s": retain_s}
        body = {"query": query, "input": text, "compression": _given(options)}
        with _told_to_the_caller():
            answer = await pith.compress(body)
            return _result(str(answer["output"]), _summary(answer))

    @server.tool(structured_output=False)
    async def retrieve(id: CompressionId, start: Start = 0, end: End = None) -> CallToolResult:
        """The original of a compressed text from start to end, as long as it is retained; length is that of all."""
        with _told_to_the_caller():
            upto = start + MOST_CHARACTERS if end is None else end
            answer = await pith.original(id, {"start": start, "end": upto})
            place = {name: answer.get(name) for name in ("id", "start", "end", "length")}
            return _result(str(answer["text"]), place)

    return server


@contextmanager
def _told_to_the_caller() -> Iterator[None]:
    """Turns a failure into a tool's error, which a model can read. Raises `ToolError`."""
    try:
        yield
    except PithError as error:
        raise ToolError(str(error)) from error
    except (KeyError, TypeError) as error:
        raise ToolError("this address answers, but not as pith does") from error


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _summary(answer: dict[str, Any]) -> dict[str, Any]:
    """The id and what the receipt says, in as few words as a model needs."""
    receipt = answer["receipt"]
    flags = [f"{flag['code']} ({flag['severity']})" for flag in receipt["risk_flags"]]
    kept = {"retained_until": answer["retained_until"]} if "retained_until" in answer else {}
    return {"id": answer["id"], **kept, **{name: receipt.get(name) for name in _RECEIPT}, "risk_flags": flags}


def _result(text: str, about: dict[str, Any]) -> CallToolResult:
    """Two blocks: the text as it is, and a line of JSON about it. No structured content: clients that show a model
    only that would hide the text, and those that show both would show it twice."""
    return CallToolResult(
        content=[TextContent(type="text", text=text), TextContent(type="text", text=json.dumps(about))]
    )
