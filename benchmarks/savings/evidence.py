"""Evidence that survives inside chat, measured without a server: `python -m benchmarks.savings.evidence`.

Blocks are found and compressed by the code that serves them, in this process. Sessions are judged at every call of the
assistant that repeats values of earlier results; questions are asked over their context as a marked part.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment
from tokenizers import Tokenizer

from benchmarks.evaluation.case import Case, seeded
from benchmarks.evaluation.suites import catalogue
from benchmarks.evaluation.suites.families import family_of
from benchmarks.evaluation.suites.traces import calls_of, holds_value, needed_values
from benchmarks.load.report import table
from benchmarks.savings.conversation import Conversation, Message, conversations
from benchmarks.savings.interval import bootstrap
from compression.build import load_counter, plain_compressor
from compression.pipeline.compression_model import CompressionRequest
from compression.pipeline.spec import ModelSpec
from serve.prompt_compression.blocks import Block, find_blocks

TOKENIZER = Path("models/embedded/tokenizer")
SUITES = "nq,hotpot_dev,wiki2_train,musique_dev,xquad_de,xquad_zh"
# The serving default: shorter blocks are sent whole.
MIN_TOKENS = 128
# Of a result, in assistant messages since then.
AGES = (1, 3, 6, 10)


@dataclass(frozen=True, slots=True)
class Value:
    """A value that a call needs: in all that was sent, in tools' results alone, and whether these alone have it."""

    tool: str
    age: int
    is_sent: bool
    is_in_results: bool
    only_in_results: bool


@dataclass(frozen=True, slots=True)
class Session:
    """Tokens of all its requests, and the values of each call that needs any."""

    task: str
    whole_tokens: int
    sent_tokens: int
    calls: tuple[tuple[Value, ...], ...]


class Sender:
    """Turns messages into what is sent, at one size."""

    def __init__(self, size: Mapping[str, float]) -> None:
        self._ratio, self._keep = size.get("target_ratio"), size.get("keep")
        self._tokenizer = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))
        self._counter = load_counter(str(TOKENIZER), name="pith-mini")
        self._compressor = plain_compressor(
            ModelSpec("lexical", "lexical", str(TOKENIZER), "pith-mini"), self._counter
        )
        environment = Environment()
        # As engines have it: jinja's own escapes for HTML.
        environment.filters["tojson"] = json.dumps
        self._template = environment.from_string(
            (TOKENIZER / "chat_template.jinja").read_text(encoding="utf-8")
        )
        self._outputs: dict[Block, str] = {}

    def sent(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """Raises `CompressionError`."""
        found = [dict(message) for message in messages]
        for block in find_blocks(messages, "marked"):
            if block not in self._outputs:
                self._outputs[block] = self._output(block)
            self._put(found[block.message], block, self._outputs[block])
        return found

    def tokens(self, messages: Sequence[Message]) -> int:
        """As the engine counts them: its template's marks are a token each."""
        text = self._template.render(messages=messages, add_generation_prompt=True)
        return len(self._tokenizer.encode(text, add_special_tokens=False))

    def _output(self, block: Block) -> str:
        if self._counter.count(block.text) < MIN_TOKENS:
            return block.text
        request = CompressionRequest(
            query=block.query,
            input=block.text,
            target_ratio=self._ratio,
            keep=self._keep,
            is_tool_result=block.is_tool_result,
            known=block.known,
        )
        return self._compressor.compress(request).output

    def _put(self, message: dict[str, Any], block: Block, text: str) -> None:
        if not block.parts:
            message["content"] = text
            return
        # The contexts of this module are one part each.
        (at,) = block.parts
        message["content"] = [
            part | {"text": text} if at == number else part for number, part in enumerate(message["content"])
        ]


def of_session(conversation: Conversation, sender: Sender) -> Session:
    messages = conversation.messages
    sent = sender.sent(messages)
    ends = [at for at, message in enumerate(messages) if at and message["role"] == "assistant"]
    whole, less = (sum(sender.tokens(some[:at]) for at in ends) for some in (messages, sent))
    calls = (tuple(_values(messages, sent, at)) for at in ends if messages[at].get("tool_calls"))
    return Session(conversation.task, whole, less, tuple(each for each in calls if each))


def _values(messages: Sequence[Message], sent: Sequence[Message], at: int) -> Iterator[Value]:
    """What the call of `messages[at]` needs of the results before it."""
    tools = {call["id"]: call["function"]["name"] for message in messages for call in calls_of(dict(message))}
    results = [number for number in range(at) if messages[number]["role"] == "tool"]
    others = [_read(messages[number]) for number in range(at) if number not in results]
    for value in needed_values([dict(each) for each in messages[:at]], calls_of(dict(messages[at]))):
        having = [number for number in results if holds_value(_read(messages[number]), value)]
        kept = any(holds_value(_read(sent[number]), value) for number in having)
        is_said = any(holds_value(text, value) for text in others)
        tool = tools.get(messages[having[-1]]["tool_call_id"], "")
        age = sum(message["role"] == "assistant" for message in messages[having[-1] : at])
        yield Value(tool, age, kept or is_said, kept, not is_said)


def _read(message: Message) -> str:
    calls = [str(call["function"]["arguments"]) for call in message.get("tool_calls") or ()]
    return "\n".join([str(message["content"] or ""), *calls])


def of_sessions(sessions: Sequence[Session]) -> dict[str, str]:
    """Figures by name, with the interval that the choice of tasks leaves."""
    tasks: dict[str, list[Session]] = {}
    for session in sessions:
        tasks.setdefault(session.task, []).append(session)

    def shown(figure: Callable[[Sequence[Session]], float]) -> str:
        return bootstrap(list(tasks.values()), figure, draws=300).shown()

    def values(some: Sequence[Session]) -> list[Value]:
        return [value for session in some for call in session.calls for value in call]

    def calls(some: Sequence[Session]) -> list[tuple[Value, ...]]:
        return [call for session in some for call in session.calls]

    return {
        "input tokens, median": shown(
            lambda some: statistics.median(each.sent_tokens / each.whole_tokens for each in some)
        ),
        "of all": shown(
            lambda some: sum(each.sent_tokens for each in some) / sum(each.whole_tokens for each in some)
        ),
        "values sent": shown(lambda some: statistics.fmean(each.is_sent for each in values(some))),
        "in results": shown(lambda some: statistics.fmean(each.is_in_results for each in values(some))),
        "of those in results only": shown(
            lambda some: statistics.fmean(each.is_sent for each in values(some) if each.only_in_results)
        ),
        "calls with all sent": shown(
            lambda some: statistics.fmean(all(each.is_sent for each in call) for call in calls(some))
        ),
    }  # fmt: skip


def groups(sessions: Sequence[Session], name_of: Callable[[Value], str]) -> list[list[str]]:
    found: dict[str, list[Value]] = {}
    for value in (value for session in sessions for call in session.calls for value in call):
        found.setdefault(name_of(value), []).append(value)
    return [
        [name, f"{len(own):,}", *(f"{statistics.fmean(of):.3f}" for of in (
            [each.is_sent for each in own], [each.is_in_results for each in own]
        ))]
        for name, own in sorted(found.items())
    ]  # fmt: skip


def of_question(case: Case, sender: Sender) -> tuple[float, float]:
    """Its tokens of those without compression, and whether its evidence is in them."""
    parts = [{"type": "text", "text": case.context, "compress": True}, {"type": "text", "text": case.query}]
    messages = [{"role": "user", "content": parts}]
    sent = sender.sent(messages)
    family = family_of(case.suite)
    kept = family.measure(case, sent[0]["content"][0]["text"])[family.decisive] >= family.enough
    return sender.tokens(sent) / sender.tokens(messages), float(kept)


def asked(case: Case) -> bool:
    """Whether anything of it is judged."""
    return case.is_held_out and bool(case.answers or case.needs or case.evidence)


def size_of(text: str) -> dict[str, float]:
    """`0.3` is a target_ratio, `keep0.95` a promise."""
    return {"keep": float(text[4:])} if text.startswith("keep") else {"target_ratio": float(text)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.savings.evidence", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/eval"), help="folder of .jsonl.gz files")
    parser.add_argument("--sizes", default="0.3,keep0.95", help="a ratio, or keep and a probability")
    parser.add_argument("--sessions", type=int, help="default: all")
    parser.add_argument("--system", action="store_true", help="sessions with their system message")
    parser.add_argument("--suites", default=SUITES, help="of questions; may be empty")
    parser.add_argument("--questions", type=int, default=100, help="of a suite, at most")
    options = parser.parse_args()
    every = conversations(options.data, options.sessions)
    for size in options.sizes.split(","):
        sender = Sender(size_of(size))
        found = [of_session(each if options.system else each.without_system(), sender) for each in every]
        print(f"\n{size}: {len(found)} sessions, {sum(len(each.calls) for each in found)} calls\n")
        print(
            "\n".join(table(["figure", "of the sessions"], [list(row) for row in of_sessions(found).items()]))
        )
        head = ["values", "sent", "in results"]
        print("\n".join(["", *table(["tool", *head], groups(found, lambda value: value.tool))]))
        print("\n".join(["", *table(["assistant messages since", *head], groups(found, _age))]))
        print(
            "\n".join(
                ["", *table(["suite", "questions", "tokens", "evidence kept"], _questions(options, sender))]
            )
        )


def _age(value: Value) -> str:
    return next((f"{bound:2} or fewer" for bound in AGES if value.age <= bound), "more")


def _questions(options: argparse.Namespace, sender: Sender) -> list[list[str]]:
    names = [name for name in options.suites.split(",") if name]
    rows = []
    for name, cases in catalogue.load(options.data, names).items() if names else ():
        own = [case for case in cases if asked(case)]
        some = seeded(name).sample(own, min(len(own), options.questions))
        pairs = [[of_question(case, sender)] for case in some]
        tokens = bootstrap(pairs, lambda all_: statistics.fmean(each[0] for each in all_))
        kept = bootstrap(pairs, lambda all_: statistics.fmean(each[1] for each in all_))
        rows.append([name, str(len(pairs)), tokens.shown(), kept.shown()])
    return rows


if __name__ == "__main__":
    main()
