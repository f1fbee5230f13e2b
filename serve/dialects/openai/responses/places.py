"""Where in a response's body a thing stands that the checks of a chat completion name: their errors name it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from models.errors import EngineRejected, InvalidField, UnsupportedOption
from serve.http.request_body import InvalidBody

Loc = tuple[str | int, ...]

_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_NAMES: Mapping[Loc, Loc] = {
    ("messages",): ("input",),
    ("max_tokens",): ("max_output_tokens",),
    ("max_completion_tokens",): ("max_output_tokens",),
    ("response_format", "json_schema"): ("text", "format"),
    ("response_format",): ("text", "format"),
    ("reasoning_effort",): ("reasoning", "effort"),
    ("tool_choice", "function"): ("tool_choice",),
    ("logprobs",): ("include",),
}


@dataclass(slots=True)
class Places:
    """A place in the chat, or the beginning of one, to that in the body."""

    of: dict[Loc, Loc] = field(default_factory=lambda: dict(_NAMES))

    def renamed(self, error: Exception) -> Exception:
        """The same error in the terms of the body."""
        if isinstance(error, InvalidField):
            return InvalidField(self.found(error.loc), error.message, kind=error.kind)
        if isinstance(error, UnsupportedOption):
            return UnsupportedOption(self._dotted(error.option), error.reason)
        if isinstance(error, EngineRejected) and error.param is not None:
            renamed = EngineRejected(
                error.message, param=self._dotted(error.param), is_too_long=error.is_too_long
            )
            return renamed
        if isinstance(error, InvalidBody):
            # The first step is "body".
            issues = [replace(each, loc=("body", *self.found(each.loc[1:]))) for each in error.issues]
            return InvalidBody(tuple(issues))
        return error

    def found(self, loc: Loc) -> Loc:
        """The longest beginning that is known, and the rest as it is."""
        for end in range(len(loc), 0, -1):
            if loc[:end] in self.of:
                return (*self.of[loc[:end]], *loc[end:])
        return loc

    def _dotted(self, path: str) -> str:
        steps = tuple(int(at) if at else name for at, name in _STEP.findall(path))
        return dotted(self.found(steps))


def dotted(loc: Sequence[str | int]) -> str:
    """The path as OpenAI's errors write it: `input[3].content[0]`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in loc)
    return "".join(steps).removeprefix(".")
