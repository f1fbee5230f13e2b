"""What is stored of a text: nothing that can be read, moved or mistaken for another."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.originals.original_sql import Head
from serve.originals.originals import CHUNK_CHARACTERS, Sealer, Unreadable, chunks_of

PEPPER = b"p" * 32


def head_of(text: str, **fields: str) -> Head:
    given = {"project_id": "prj_a", "id": "cmp_a", "generation": "0" * 32, **fields}
    return Head(**given, characters=len(text), chunks=chunks_of(len(text)), size=len(text.encode()))


@given(st.text(), st.sampled_from([1, CHUNK_CHARACTERS, 3 * CHUNK_CHARACTERS + 1]))
def test_what_is_opened_is_what_was_sealed(piece: str, least: int) -> None:
    text = piece * (least // max(1, len(piece)) + 1)
    sealer = Sealer(PEPPER, head_of(text))
    chunks = sealer.seal(text, 0, 10**6, 10**9)
    assert [number for number, _ in chunks] == list(range(chunks_of(len(text))))
    assert "".join(sealer.open(0, [sealed for _, sealed in chunks])) == text
    assert all(len(sealed) < 66_000 for _, sealed in chunks)


def test_a_text_that_cannot_be_compressed_stays_within_64_kib_and_a_little() -> None:
    text = "".join(chr(0x10000 + 977 * n % 0xF0000) for n in range(CHUNK_CHARACTERS))
    ((_, sealed),) = Sealer(PEPPER, head_of(text)).seal(text, 0, 16, 1)
    assert len(sealed) < 64 * 1024 + 64


def test_a_step_ends_once_it_has_enough() -> None:
    text = "".join(chr(0x10000 + 977 * n % 0xF0000) for n in range(4 * CHUNK_CHARACTERS))
    sealer = Sealer(PEPPER, head_of(text))
    assert [number for number, _ in sealer.seal(text, 1, 16, 1)] == [1]
    assert [number for number, _ in sealer.seal(text, 1, 2, 10**9)] == [1, 2]


@pytest.mark.parametrize("field", ["project_id", "id", "generation"])
def test_a_chunk_of_another_name_is_not_opened(field: str) -> None:
    text = "The pump ships with a filter."
    head = head_of(text)
    ((_, sealed),) = Sealer(PEPPER, head).seal(text, 0, 1, 1)
    with pytest.raises(Unreadable):
        list(Sealer(PEPPER, head_of(text, **{field: "another"})).open(0, [sealed]))
    with pytest.raises(Unreadable):
        list(Sealer(PEPPER, replace(head, characters=5)).open(0, [sealed]))


def test_a_chunk_in_another_place_a_changed_one_and_another_pepper_are_not_opened() -> None:
    text = "a" * CHUNK_CHARACTERS + "b"
    sealer = Sealer(PEPPER, head_of(text))
    (_, first), (_, second) = sealer.seal(text, 0, 2, 10**9)
    for number, sealed in ((0, second), (1, first), (0, first[:-1] + bytes([first[-1] ^ 1]))):
        with pytest.raises(Unreadable):
            list(sealer.open(number, [sealed]))
    with pytest.raises(Unreadable):
        list(Sealer(b"q" * 32, head_of(text)).open(0, [first]))


def test_the_same_text_written_twice_has_nothing_in_common() -> None:
    text = "The warranty ends after two years. " * 100
    once, again = (
        Sealer(PEPPER, head_of(text, generation=name * 32)).seal(text, 0, 1, 1)[0][1] for name in "ab"
    )
    pieces = {once[at : at + 8] for at in range(len(once) - 8)}
    assert not [at for at in range(len(again) - 8) if again[at : at + 8] in pieces]
