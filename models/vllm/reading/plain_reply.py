"""Chat replies in one piece whose markup (calls, reasoning) is read while it is generated, by the code that reads it
for a stream: vLLM has another reading of a whole text, which takes a call that was cut off for the assistant's words.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from vllm.entrypoints.generate.base.protocol import FunctionCall
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.exceptions import GenerationError
from vllm.sampling_params import RequestOutputKind

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
    """What `answer`, vLLM's `chat_completion_full_generator`, makes of the outputs; a `ReadRequest` is read here, by a
    parser for each of its choices."""
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
    """What a stream of this choice would have said so far."""

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
