"""Transcripts, tickets and mail threads: entries keep their heads, and heads are never kept alone."""

# Some marks of other scripts look like ASCII ones; they are intended.
# ruff: noqa: RUF001

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from compression.pipeline.compression_model import CompressionResult
from compression.segmentation import SegmentationSettings, segment
from compression.source.units import Segmentation
from tests.compression.segmentation.invariants import check

Compress = Callable[..., CompressionResult]
RECORD = json.dumps({f"key{number}": f"value {number} of the record" for number in range(40)})
PARAGRAPH = "The committee met on Monday. It spoke of the weather for an hour. Then it rose. "


def heads_of(text: Segmentation) -> list[str]:
    return [text.text(frame.open) for frame in text.frames if frame.kind == "turn"]


STYLES = {
    "roles": ("user: {}", "assistant: {}", "tool: {}"),
    "roles in German": ("Benutzer: {}", "Assistent: {}", "Werkzeug: {}"),
    "roles in Chinese": ("用户：{}", "助手：{}", "工具：{}"),
    "roles in Russian": ("Пользователь: {}", "Ассистент: {}", "Инструмент: {}"),
    "roles in Arabic": ("المستخدم: {}", "المساعد: {}", "الأداة: {}"),
    "brackets": ("[user] {}", "[assistant] {}", "[tool_result]\n{}"),
    "headings": ("### user\n{}", "### assistant\n{}", "### tool\n{}"),
    "tokens": ("<|im_start|>user\n{}", "<|im_start|>assistant\n{}", "<|im_start|>tool\n{}"),
    "reasoning": ("Thought 1: {}", "Action: {}", "Observation:\n{}"),
    "words in capitals": ("DISCUSSION\n{}", "COMMAND\n{}", "OBSERVATION\n{}"),
    "tags": ("<user>\n{}\n</user>", "<thinking>\n{}\n</thinking>", "<tool_result>\n{}\n</tool_result>"),
}


@pytest.mark.parametrize("style", STYLES)
def test_what_is_kept_of_a_result_keeps_its_head(compress: Compress, style: str) -> None:
    asked, thought, found = STYLES[style]
    rounds = [
        asked.format(f"Where is order A{number}?")
        + "\n\n"
        + thought.format("I will look it up.\nOne moment.")
        + "\n\n"
        + found.format(RECORD.replace("value 7 ", f"value 7-{number} "))
        for number in range(6)
    ]
    source = "\n\n".join(rounds)
    result = compress(source, 0.15, marked=["value 7-3 "])
    head = found.partition("{}")[0].strip()
    at = result.output.index("value 7-3 ")
    assert head in result.output[:at]
    opened = result.output.rindex("{", 0, at)
    record, _ = json.JSONDecoder().raw_decode(result.output, opened)
    assert record["key7"] == "value 7-3 of the record" and len(record) < 40
    lines = [line.strip() for line in result.output.splitlines()]
    assert not any(line == head and after == head for line, after in pairwise(lines))


def test_a_head_alone_is_never_kept(compress: Compress) -> None:
    source = "\n\n".join(
        f"[user]\n{PARAGRAPH * 2}\n\n[assistant]\n\n[tool_result]\nvalue {n}" for n in range(8)
    )
    for ratio in (0.9, 0.5, 0.2):
        lines = [line for line in compress(source, ratio).output.splitlines() if line.strip()]
        for line, after in zip(lines, [*lines[1:], "[user]"], strict=True):
            assert not (line.startswith("[") and after.startswith("["))


TICKETS = [
    "2024-05-0{} 14:22 Jane Doe (agent):\n",
    "[2024-05-0{}] Jane Doe wrote:\n",
    "[2026-03-0{} 09:14] Dana Whitfield (customer)\n",
    "0{}.02.2026, 08:12 – Notiz (Fr. Lechner)\n",
    "2026年5月{}日 09:20　佐藤様\n",
    "--- Comment #3 by Ann on {} May 2024 ---\n",
    "On Mon, {} May 2024, Ann wrote:\n",
    "On Mon, {} May 2024 at 14:22, Ann of Support\n<ann@support.example> wrote:\n",
    "Le lun. {} mai 2026 à 10:02, Service client a écrit :\n",
]


@pytest.mark.parametrize("head", TICKETS)
def test_an_entry_of_a_ticket_keeps_who_wrote_it_and_when(compress: Compress, head: str) -> None:
    entries = [
        head.format(number) + PARAGRAPH + f"The part {number}-X is broken. " + PARAGRAPH
        for number in range(1, 9)
    ]
    source = "Status: open\nPriority: high\n\n" + "\n\n".join(entries)
    text = segment(source)
    assert heads_of(text) == [head.format(number).strip() for number in range(1, 9)]
    result = compress(source, 0.1, marked=["5-X"])
    assert head.format(5).strip() in result.output and "5-X" in result.output


MAIL = """From: Ann Lee <ann@example.org>
To: Bo <bo@example.org>
Subject: Re: the boiler

The new part fits. Thank you.

> On Thu, 16 Apr 2026 at 09:05, Bo <bo@example.org> wrote:
>
> The part 55-B was sent on Monday. It should arrive
> by Wednesday.
>
>> On Mon, 13 Apr 2026 at 16:48, Ann Lee <ann@example.org> wrote:
>>
>> The boiler leaks again. Please send the part.
"""


def test_the_mails_of_a_thread_are_apart_and_lines_of_quotation_are_no_text() -> None:
    text = segment(MAIL)
    assert [head.split("\n")[0] for head in heads_of(text)] == [
        "From: Ann Lee <ann@example.org>",
        "On Thu, 16 Apr 2026 at 09:05, Bo <bo@example.org> wrote:",
        "On Mon, 13 Apr 2026 at 16:48, Ann Lee <ann@example.org> wrote:",
    ]
    said = [text.text(unit) for unit in range(len(text.units)) if text.units[unit].kind == "sentence"]
    assert said[-2:] == ["The boiler leaks again.", "Please send the part."]
    assert ">" not in said


@pytest.mark.parametrize(
    "rule", ["-----Original Message-----", "----- Message suivant -----", "________________"]
)
def test_mails_that_are_appended_are_apart(rule: str) -> None:
    fields = "From: {0} <{0}@example.org>\nSent: 3 May 2024\nTo: team@example.org\nSubject: Leak\n"
    source = f"\n{rule}\n".join(fields.format(name) + "\n" + PARAGRAPH + "\n" for name in ("ann", "bo", "cy"))
    found = heads_of(segment(source))
    assert len(found) == 3 and all(
        f"{name}@example.org" in head for name, head in zip(("ann", "bo", "cy"), found, strict=True)
    )


def test_turns_that_were_wrapped_are_turns_still() -> None:
    said = "I can offer you two rooms: one with a view of the garden for 745 euros,\nand one with a view of the sea."
    text = segment("".join(f"{'Agent' if n % 2 else 'Guest'}: {said}\n" for n in range(20)))
    assert {unit.kind for unit in text.units} == {"turn"} and len(text.units) == 20


def test_a_log_in_a_ticket_is_no_entry() -> None:
    log = "".join(f"2026-05-18 11:40:0{n},311 INFO  [saml] response {n}\n" for n in range(5))
    entries = [
        f"Ravi Menon added a comment - {n}/May/26 9:12 AM\nI see:\n\n{log}\nNo more.\n\n"
        for n in range(10, 14)
    ]
    assert [head[-18:-8].strip() for head in heads_of(segment("".join(entries)))] == [
        f"{n}/May/26" for n in range(10, 14)
    ]


AS_BEFORE = {
    "a meeting": "".join(f"Speaker {'AB'[n % 2]}: {PARAGRAPH}\n" for n in range(20)),
    "a log": "".join(f"2024-05-03 14:22:{n:02} INFO server: started job {n}\n" for n in range(40)),
    "prose": "\n\n".join([PARAGRAPH] * 9),
    "labelled documents": "".join(f"Passage {n}:\n{PARAGRAPH}\n{PARAGRAPH}\n\n" for n in range(5)),
    "titles with colons": "".join(f"Ghost Recon {n}: Future\n{PARAGRAPH * 3}\n\n" for n in range(5)),
}


@pytest.mark.parametrize("name", AS_BEFORE)
def test_what_has_no_entries_is_cut_as_before(name: str) -> None:
    assert not heads_of(segment(AS_BEFORE[name])) or name == "a meeting"
    if name == "a meeting":
        assert len(segment(AS_BEFORE[name]).documents) == 1


LINES = st.lists(
    st.sampled_from(
        [
            *"""
user: hi|assistant:|tool: {|}|{"a": 1}|[tool_result]|[user] x|### user|OBSERVATION||2024-05-03 14:22 Ann: x|> quoted|>
On Mon, 3 May 2024, Ann wrote:|> On Mon, 3 May 2024, Bo wrote:|From: a@b.example|To: b@c.example|Date: 3 May 2024|<tool>
-----Original Message-----|</tool>|<tool>x</tool>|```|  indented|\x0c|。|Document [1](Title: x)|# Head|1. one|用户：a
""".replace("\n", "|").split("|"),
            "| a | b |",
            "|---|---|",
            PARAGRAPH,
        ]
    ),
    max_size=60,
).map("\n".join)


@given(LINES, st.sampled_from([5, 40, 32_768]))
@example('assistant:\n{"a": 1}\nuser: hi\n\nDocument [1](Title: x)\nuser: hi\nassistant:\ntool: {', 5)
@settings(max_examples=150)
def test_any_lines_are_cut_into_units_in_order(source: str, most_units: int) -> None:
    text = segment(source, SegmentationSettings(most_units=most_units))
    check(text)
    assert len(text.units) <= most_units
