"""Training text is cleaned of transcript marks, asides and dates; a missing file is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.training.chat_models.prose import CorpusMissing, clean_speech, first_sentences, read_corpus


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusMissing, match=r"nq_open_oracle\.jsonl\.gz is not there"):
        read_corpus(tmp_path)


@pytest.mark.parametrize(
    ("spoken", "written"),
    [
        ("So {disfmarker} it 's not , uh , mine .", "So it's not mine."),
        ("I I did n't , um , see it ( at all ) .", "I didn't see it (at all)."),
        ("well - known {vocalsound}", "Well-known"),
        ("{gap}", ""),
    ],
)
def test_speech_is_written_as_prose(spoken: str, written: str) -> None:
    assert clean_speech(spoken) == written


def test_a_reply_is_whole_sentences_without_asides_or_dates() -> None:
    assert first_sentences("It is a song. It was sung (by two) in 1971 twice.", 400) == "It is a song."
    assert first_sentences("One is here. Two is there.", 5) == "One is here."
