"""The reading of calls and thoughts in what an engine generates, the same in one piece and in a stream.

Some of vLLM's parsers make broken arguments of a call, no call, or text of its markup, and read a whole text well:
there a stream has its text as it comes and its calls when it has ended. One fails on a call that was demanded
(`SeedOssParser`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence, Set
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import orjson
from vllm.entrypoints.generate.base.protocol import (
    DeltaFunctionCall,
    DeltaMessage,
    DeltaToolCall,
    FunctionCall,
)
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.exceptions import GenerationError
from vllm.sampling_params import RequestOutputKind
from vllm.tool_parsers.utils import partial_tag_overlap

_COMPLETE = '"finish_reason":"tool_calls"'


def told_cut_off(event: str, cut_off: Set[int]) -> str:
    """A server-sent event of a chat's stream; `cut_off` are the choices that the token limit ended.

    Whoever is told `tool_calls` parses the arguments and calls; of half a call that fails, or does the wrong thing.
    """
    # Inside a text its quotes would be escaped.
    if not cut_off or _COMPLETE not in event:
        return event
    chunk = orjson.loads(event.removeprefix("data: "))
    for choice in chunk["choices"]:
        if choice["index"] in cut_off:
            choice["finish_reason"] = "length"
    return f"data: {orjson.dumps(chunk).decode()}\n\n"


def told_end(choice: Any, cut_off: Set[int]) -> str:
    """The reason for which a choice of a reply in one piece ended, in the words of its stream. vLLM says of a call
    that was demanded that there is one, whether there is or not."""
    if choice.finish_reason != "tool_calls":
        return str(choice.finish_reason)
    if choice.index in cut_off:
        return "length"
    return "tool_calls" if choice.message.tool_calls else "stop"


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
    """A `vllm.parser.abstract_parser.Parser` in the place of this one, unless it reads no calls."""
    tools = parser.tool_parser_cls
    if tools is None:
        return parser
    if tools.__name__ in MISREADING:
        late = type(tools.__name__, (LateCalls, tools), {"begins": MISREADING[tools.__name__]})
        return type(parser.__name__, (JoiningParser, EndingParser, parser), {"tool_parser_cls": late})
    if tools.engine_based_streaming and tools.supports_required_and_named:
        return type(parser.__name__, (JoiningParser, DemandingParser, parser), {})
    return type(parser.__name__, (JoiningParser, parser), {})


class JoiningParser:
    """Before a parser that may put several parts of one call into a delta: some clients read the first alone."""

    def parse_delta(self, *given: Any, **options: Any) -> DeltaMessage | None:
        delta: DeltaMessage | None = super().parse_delta(*given, **options)  # type: ignore[misc]
        if delta is not None and len(delta.tool_calls) > 1:
            delta.tool_calls = _joined(delta.tool_calls)
        return delta


def _joined(parts: list[DeltaToolCall]) -> list[DeltaToolCall]:
    """One part of each call: its id and name, and all of its arguments."""
    calls: dict[int, ReadCall] = {}
    for part in parts:
        calls.setdefault(part.index, ReadCall()).read(part)
    return [call.delta(index) for index, call in calls.items()]


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
        """The rest at the end. A call that was begun and cannot be read is told neither as a call nor as text."""
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


Answer = Callable[..., Awaitable[Any]]
NewParser = Callable[[ChatCompletionRequest], Any]


class ReadRequest(ChatCompletionRequest):  # type: ignore[misc]
    """A chat completion in one piece, whose engine tells each token as it comes."""

    def to_sampling_params(self, *given: Any, **options: Any) -> Any:
        params = super().to_sampling_params(*given, **options)
        params.output_kind = RequestOutputKind.DELTA
        return params


async def read_reply(
    answer: Answer,
    new_parser: NewParser,
    request: Any,
    outputs: Any,
    *given: Any,
    parser: Any = None,
    **options: Any,
) -> Any:
    """The reply that `answer`, vLLM's `chat_completion_full_generator`, makes of the outputs; a `ReadRequest` is read
    here, by a parser for each of its choices."""
    if isinstance(request, ReadRequest):
        reader = ReplyReader(request, new_parser)
        outputs, parser = _once(await reader.all_of(outputs)), reader
    return await answer(request, outputs, *given, parser=parser, **options)


async def _once(output: Any) -> AsyncGenerator[Any, None]:
    if output is not None:
        yield output


class ReplyReader:
    """Reads what an engine generates. Afterwards it is vLLM's parser of the whole: it says what was read."""

    def __init__(self, request: ReadRequest, new_parser: NewParser) -> None:
        self._request = request
        self._new_parser = new_parser
        self._choices: dict[int, ReadChoice] = {}
        self._unsaid = 0

    async def all_of(self, outputs: AsyncGenerator[Any, None]) -> Any | None:
        """The outputs as one, without their texts. Raises `GenerationError` where the parser fails."""
        whole: Any = None
        async with aclosing(outputs):
            async for output in outputs:
                for choice in output.outputs:
                    self._read(choice, output.prompt_token_ids)
                    choice.text = ""
                if whole is None:
                    whole = output
                else:
                    whole.add(output, aggregate=True)
        if whole is not None:
            whole.outputs.sort(key=lambda choice: choice.index)
        return whole

    def _read(self, output: Any, prompt_token_ids: Sequence[int] | None) -> None:
        if output.index not in self._choices:
            self._choices[output.index] = ReadChoice(self._new_parser(self._request))
        try:
            self._choices[output.index].read(output, prompt_token_ids, self._request)
        except Exception as error:
            raise GenerationError(f"the reply could not be read: {error}") from error

    def parse(
        self, text: str, request: Any, **options: Any
    ) -> tuple[str | None, str | None, list[FunctionCall]]:
        """Reasoning, content and calls of one choice after the other."""
        choice = [self._choices[index] for index in sorted(self._choices)][self._unsaid]
        self._unsaid += 1
        return choice.said()

    def count_reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        return int(self._new_parser(self._request).count_reasoning_tokens(token_ids))


@dataclass(slots=True)
class ReadChoice:
    """The text, thoughts and calls that a stream of this choice would have said so far."""

    parser: Any
    begun: bool = False
    reasoning: list[str] = field(default_factory=list)
    content: list[str] = field(default_factory=list)
    calls: dict[int, ReadCall] = field(default_factory=dict)

    def read(self, output: Any, prompt_token_ids: Sequence[int] | None, request: ReadRequest) -> None:
        """Take in a `CompletionOutput`, a delta."""
        if not (self.begun or output.text or output.token_ids):
            # A part of the prompt.
            return
        self.begun = True
        delta = self.parser.parse_delta(
            delta_text=output.text,
            delta_token_ids=list(output.token_ids),
            request=request,
            prompt_token_ids=prompt_token_ids,
            finished=output.finish_reason is not None,
        )
        if delta is None:
            return
        self.reasoning.append(delta.reasoning or "")
        self.content.append(delta.content or "")
        for call in delta.tool_calls:
            self.calls.setdefault(call.index, ReadCall()).read(call)

    def said(self) -> tuple[str | None, str | None, list[FunctionCall]]:
        calls = [self.calls[index].said() for index in sorted(self.calls)]
        reasoning = "".join(self.reasoning) or None
        content = "".join(self.content) or (None if calls or reasoning else "")
        return reasoning, content, calls


@dataclass(slots=True)
class ReadCall:
    id: str | None = None
    name: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)

    def read(self, delta: Any) -> None:
        self.id = self.id or delta.id
        if delta.function is not None:
            self.name.append(delta.function.name or "")
            self.arguments.append(delta.function.arguments or "")

    def said(self) -> FunctionCall:
        return FunctionCall(id=self.id, name="".join(self.name), arguments="".join(self.arguments))

    def delta(self, index: int) -> DeltaToolCall:
        """What is not known is left unset: a null would be sent."""
        said = {"name": "".join(self.name), "arguments": "".join(self.arguments)}
        function = DeltaFunctionCall(**{name: text for name, text in said.items() if text})
        begun = {"id": self.id, "type": "function"} if self.id else {}
        return DeltaToolCall(index=index, function=function, **begun)
