"""vLLM's parsers of replies, with what they misread in a stream put right.

Some make broken arguments of a call, no call, or text of its markup, and read a whole text well: there a stream has
its text as it comes and its calls when it has ended. One fails on a call that was demanded (`SeedOssParser`).
"""

from __future__ import annotations

from typing import Any

from vllm.entrypoints.generate.base.protocol import DeltaFunctionCall, DeltaMessage, DeltaToolCall
from vllm.tool_parsers.utils import partial_tag_overlap

# The classes of those that misread calls, with the texts at which calls begin.
MISREADING: dict[str, tuple[str, ...]] = {
    "FunctionGemmaToolParser": ("<start_function_call>",),
    "Granite20bFCToolParser": ("<function_call>",),
    "GraniteToolParser": ("<|tool_call|>", "<tool_call>"),
    "HunyuanA13BToolParser": ("<tool_calls>",),
    "Internlm2ToolParser": ("<|action_start|>",),
    "JambaToolParser": ("<tool_calls>",),
    "MiniCPM5XMLToolParser": ("<function",),
    "Olmo3PythonicToolParser": ("<function_calls>",),
    "Phi4MiniJsonToolParser": ("functools[",),
}


def reading_right(parser: type[Any]) -> type[Any]:
    """This `vllm.parser.abstract_parser.Parser`, or one in its place."""
    tools = parser.tool_parser_cls
    if tools is not None and tools.__name__ in MISREADING:
        late = type(tools.__name__, (LateCalls, tools), {"begins": MISREADING[tools.__name__]})
        return type(parser.__name__, (EndingParser, parser), {"tool_parser_cls": late})
    if tools is not None and tools.engine_based_streaming and tools.supports_required_and_named:
        return type(parser.__name__, (DemandingParser, parser), {})
    return parser


class DemandingParser:
    """Before a parser that is given each piece alone, where a call that was demanded is read of the whole so far."""

    def parse_delta(
        self, delta_text: str, delta_token_ids: list[int], request: Any, *given: Any, **options: Any
    ) -> Any:
        if request.tool_choice == "required":
            self._stream_state.engine_based = False  # type: ignore[attr-defined]
        return super().parse_delta(delta_text, delta_token_ids, request, *given, **options)  # type: ignore[misc]


class EndingParser:
    """Before a parser whose tool parser has `LateCalls`."""

    def finalize_generation(self, delta: DeltaMessage | None, *given: Any) -> DeltaMessage | None:
        delta = super().finalize_generation(delta, *given)  # type: ignore[misc]
        rest = self._tool_parser.rest()  # type: ignore[attr-defined]
        if delta is None or rest is None:
            return delta or rest
        delta.content = (delta.content or "") + (rest.content or "") or None
        delta.tool_calls = [*delta.tool_calls, *rest.tool_calls]
        return delta


class LateCalls:
    """Before a tool parser: its deltas have text alone, and `rest` the calls."""

    begins: tuple[str, ...]

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._unsaid = ""
        self._call_begun = False
        self._request: Any = None

    def extract_tool_calls_streaming(
        self, _previous: str, _current: str, delta_text: str, *given: Any
    ) -> DeltaMessage | None:
        """The text up to a call, and not what may be the beginning of one."""
        self._request = given[-1]
        self._unsaid += delta_text
        if self._call_begun:
            return None
        starts = [at for at in map(self._unsaid.find, self.begins) if at >= 0]
        self._call_begun = bool(starts)
        held_back = max(partial_tag_overlap(self._unsaid, begin) for begin in self.begins)
        upto = min(starts) if starts else len(self._unsaid) - held_back
        said, self._unsaid = self._unsaid[:upto], self._unsaid[upto:]
        return DeltaMessage(content=said) if said else None

    def rest(self) -> DeltaMessage | None:
        """What is left at the end. A call that was begun and cannot be read is told neither as a call nor as text."""
        unsaid, self._unsaid = self._unsaid, ""
        if not self._call_begun:
            return DeltaMessage(content=unsaid) if unsaid else None
        try:
            found = self.extract_tool_calls(unsaid, self._request)  # type: ignore[attr-defined]
        except (ValueError, LookupError, TypeError, AttributeError):
            # Of a call that was cut off.
            return None
        calls = [_delta(number, call) for number, call in enumerate(found.tool_calls)]
        return DeltaMessage(tool_calls=calls) if found.tools_called else None


def _delta(number: int, call: Any) -> DeltaToolCall:
    function = DeltaFunctionCall(name=call.function.name, arguments=call.function.arguments)
    return DeltaToolCall(index=number, id=call.id, type="function", function=function)
