"""Fills the page of examples: its tables and outputs are generated, its words are not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from benchmarks.quality.samples.sample import Reading

_LONGEST_LINE = 300
_MOST_LINES = 60
_BLOCK = re.compile(
    r"(?P<open><!-- begin (?P<name>[^\n]+) -->\n)(?P<inside>.*?)(?P<close><!-- end -->)", re.DOTALL
)


def table(before: Sequence[Reading], after: Sequence[Reading]) -> str:
    """A row for each sample: the facts that its question needs, before and after."""
    rows = [
        f"| `{new.sample.name}` | {new.receipt['original_tokens']} | {old.kept} | {new.kept} | {new.warnings} |"
        for old, new in zip(before, after, strict=True)
    ]
    return "\n".join(
        ["| sample | tokens | facts before | facts after | warnings after |", "|---|---|---|---|---|", *rows]
    )


def shown(reading: Reading) -> str:
    """An output as a block of code; chat messages a line each, long lines and long outputs cut, which it says."""
    lines = _message_lines(reading.output) or reading.output.splitlines()
    cut = [line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} (cut here)" for line in lines]
    if len(cut) > _MOST_LINES:
        cut = [*cut[:_MOST_LINES], f"({len(cut) - _MOST_LINES} more lines)"]
    return "\n".join(["````text", *cut, "````"])


def _message_lines(output: str) -> list[str]:
    """`role: content` and calls; none where the output is no array of messages."""
    try:
        messages = json.loads(output)
        return [line for message in messages for line in _lines_of(message)]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def _lines_of(message: Mapping[str, object]) -> list[str]:
    content = message.get("content") or ""
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    calls = message.get("tool_calls") or ()
    names = [f"{call['function']['name']}({call['function']['arguments']})" for call in calls]  # type: ignore[attr-defined]
    return f"{message['role']}: {' '.join([text, *names])}".splitlines()


def filled(page: str, blocks: Mapping[str, str]) -> str:
    """The page with the insides of `<!-- begin NAME -->` to `<!-- end -->` replaced. Raises `KeyError`."""
    return _BLOCK.sub(lambda found: f"{found['open']}\n{blocks[found['name']]}\n\n{found['close']}", page)


def blocks_of(before: Sequence[Reading], after: Sequence[Reading]) -> dict[str, str]:
    """Every block that a page may ask for: `table`, and `before NAME` and `after NAME` of each sample."""
    blocks = {"table": table(before, after)}
    for word, readings in (("before", before), ("after", after)):
        blocks |= {f"{word} {reading.sample.name}": shown(reading) for reading in readings}
    return blocks
