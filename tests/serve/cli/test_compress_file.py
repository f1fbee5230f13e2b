"""`pith compress` as an ML engineer meets it: what it prints, and how it ends when something is wrong."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from compression.flags import Example, Flag
from compression.pipeline.compression_model import CompressionResult, Receipt, UnitScore
from compression.source.units import Slice
from serve.cli.compress import document
from serve.cli.compression_view import show
from serve.cli.main import main
from serve.cli.output import printable
from tests.serve.served import settings_document

SOURCE = (
    "The cat sat on the mat. The harbour team won the cup in 1999. It was raining all day in the north.\r\n"
)
KEPT = "The harbour team won the cup in 1999."
QUERY = "Who won the cup?"
LEXICAL = {"id": "pith-lexical", "name": "Lexical", "blurb": "The default.", "kind": "lexical"}
WORDS = {**LEXICAL, "id": "words", "kind": "token_classifier", "checkpoint": "embedded:small"}

ROOT = Path(__file__).parents[3]
PITH = (sys.executable, "-c", "from serve.cli.main import main; main()")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return written(tmp_path, [LEXICAL, WORDS])


def written(folder: Path, models: list[dict[str, Any]]) -> Path:
    path = folder / "pith.yaml"
    path.write_text(yaml.safe_dump(settings_document(folder, compression={"models": models})))
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.txt"
    path.write_bytes(SOURCE.encode())
    return path


@pytest.fixture
def pith(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], config: Path) -> Run:
    """Runs `pith compress` with the configuration; gives the exit code and what was printed."""

    def run(*words: object, stdin: bytes = b"", settings: Path | None = None) -> tuple[int, str, str]:
        monkeypatch.setattr(
            sys, "argv", ["pith", "compress", *map(str, words), "--config", str(settings or config)]
        )
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run


def complaint(ended: tuple[int, str, str]) -> str:
    code, out, err = ended
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("pith: ")
    return line.removeprefix("pith: ")


def test_piped_output_is_the_compressed_text_alone_byte_for_byte(pith: Run, source: Path) -> None:
    code, out, err = pith(source, "--query", QUERY, "--ratio", 0.5)
    assert (code, out) == (0, KEPT)
    assert "for a target of 0.5" in err and "(pith-mini)" in err
    assert "info input_too_short x1" in err


def test_nothing_is_wrapped_escaped_or_added_on_the_way_to_a_file(tmp_path: Path, config: Path) -> None:
    text = (
        "x" * 500
        + " [bold]wide[/bold] \x1b[31m \u202e \N{GRINNING FACE} tab\tend.\r\nLast line without an end"
    )
    (tmp_path / "wide.txt").write_bytes(text.encode())
    command = [*PITH, "compress", str(tmp_path / "wide.txt"), "--ratio", "1"]
    with (tmp_path / "out").open("wb") as out:
        done = subprocess.run(
            [*command, "--config", str(config)],
            stdout=out,
            stderr=subprocess.PIPE,
            # What a terminal of 80 columns and an old locale would leave in the environment.
            env={**os.environ, "COLUMNS": "80", "FORCE_COLOR": "1", "LC_ALL": "C"},
            cwd=ROOT,
            check=True,
        )
    assert (tmp_path / "out").read_bytes() == text.encode()
    # What ends without a line end is not run together with what is said of it, where both are shown.
    assert done.stderr.startswith(b"\n")
    (receipt,) = [line for line in done.stderr.decode().splitlines() if "tokens" in line]
    assert "ratio 1.000" in re.sub(r"\x1b\[[0-9;]*m", "", receipt)


def test_on_a_terminal_the_source_is_shown_with_the_receipt(config: Path, source: Path) -> None:
    ours, theirs = os.openpty()
    command = [*PITH, "compress", str(source), "--query", QUERY, "--ratio", "0.5"]
    with subprocess.Popen(
        [*command, "--config", str(config)], stdout=theirs, stderr=theirs, cwd=ROOT
    ) as child:
        os.close(theirs)
        shown = b"".join(iter(lambda: read_terminal(ours), b"")).decode()
    os.close(ours)
    assert child.returncode == 0
    assert "The cat sat" in shown and KEPT in shown and "for a target of 0.5" in shown


def read_terminal(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:
        # How a terminal says that nobody writes to it any more.
        return b""


def test_json_has_the_response_and_where_it_is_in_the_source(pith: Run, source: Path) -> None:
    code, out, _ = pith(source, "--query", QUERY, "--ratio", 0.5, "--json", "--explain")
    found = json.loads(out)
    assert code == 0 and found["model"] == "pith-lexical" and found["output"] == KEPT
    assert "".join(SOURCE[start:end] for start, end in found["kept"]) == KEPT
    receipt = found["receipt"]
    assert receipt["tokens_saved"] == receipt["original_tokens"] - receipt["output_tokens"] > 0
    assert receipt["risk_flags"][0]["code"] == "input_too_short"
    scores = {SOURCE[unit["start"] : unit["end"]]: unit["score"] for unit in found["unit_scores"]}
    assert max(scores, key=lambda text: scores[text]) == KEPT


def test_explain_lists_every_unit(pith: Run, source: Path) -> None:
    _, out, err = pith(source, "--query", QUERY, "--ratio", 0.5, "--explain")
    assert out == KEPT
    rows = [line for line in err.splitlines() if " sentence " in line]
    assert len(rows) == 3 and sum(row.lstrip().startswith("yes") for row in rows) == 1


def test_gaps_are_marked_and_spans_are_characters_and_bytes_of_the_file(pith: Run, tmp_path: Path) -> None:
    text = "Zürich won the cup in 1999. The cat sat on the mat all day long and then it left. The cup came from Zürich."
    (tmp_path / "cup.txt").write_text(text)
    asked = (
        tmp_path / "cup.txt",
        "--query",
        "Who won the cup from Zürich?",
        "--ratio",
        0.75,
        "--mark-gaps",
        "--spans",
    )
    _, out, err = pith(*asked)
    assert out == "Zürich won the cup in 1999. […] The cup came from Zürich."
    assert re.search(r"^ *0-27 +0-28 *$", err, re.MULTILINE)
    _, out, _ = pith(*asked, "--json")
    kept = json.loads(out)["kept"]
    assert [text[span["start"] : span["end"]] for span in kept] == [text[:27], text[81:]]
    data = [text.encode()[span["bytes"]["start"] : span["bytes"]["end"]].decode() for span in kept]
    assert data == [text[:27], text[81:]]


def test_a_promise_says_what_it_was_estimated_to_need_and_what_that_rests_on(pith: Run, source: Path) -> None:
    _, _, err = pith(source, "--query", QUERY, "--keep", 0.9)
    said = " ".join(err.split())
    assert re.search(r"for evidence kept with 0\.9 \(estimated to need [01]\.\d{3}\)", said)
    assert re.search(r"evidence kept with a probability of [01]\.\d\d \(calibration \S+\)", said)
    refused = complaint(pith(source, "--model", "words", "--keep", 0.9))
    assert refused == "--keep: this model has no calibration for it; give --ratio instead"


def test_a_file_of_messages_comes_out_as_messages_and_spans_are_of_their_texts(
    pith: Run, tmp_path: Path
) -> None:
    text = 'Zürich "won" the cup in 1999.\nThe cat sat on the mat all day long and then it left.\n' * 2
    messages = [
        {"role": "user", "content": [{"type": "text", "text": text}]},
        {"role": "user", "content": QUERY},
    ]
    (tmp_path / "chat.json").write_text(json.dumps(messages, indent=1))
    asked = (tmp_path / "chat.json", "--query", QUERY, "--ratio", 0.75, "--mark-gaps", "--spans")
    _, out, err = pith(*asked)
    first, *_, last = json.loads(out)
    shown = first["content"][0]["text"]
    assert shown.startswith('Zürich "won" the cup in 1999.\n') and "[…]" in shown and last == messages[-1]
    assert re.search(r"^ *0 +0 +0-\d+ *$", err, re.MULTILINE)
    kept = json.loads(pith(*asked, "--json")[1])["kept"]
    own = [span for span in kept if span["message"] == 0]
    assert own[0] == {"message": 0, "part": 0, "inner": None, "start": 0, "end": own[0]["end"]}
    pieces = "".join(text[span["start"] : span["end"]] for span in own)
    assert "".join(pieces.split()) == "".join(shown.replace("[…]", "").split())


def test_a_dash_reads_standard_input_byte_for_byte(pith: Run) -> None:
    _, out, _ = pith("-", "--ratio", 1, "--json", stdin=SOURCE.encode())
    assert json.loads(out)["output"] == SOURCE


def test_without_a_ratio_it_is_the_models(pith: Run, source: Path, tmp_path: Path) -> None:
    settings = written(tmp_path, [{**LEXICAL, "ratio": {"default": 0.7}}])
    _, out, _ = pith(source, "--json", settings=settings)
    assert json.loads(out)["receipt"]["target_ratio"] == 0.7


def test_another_model_is_chosen_by_its_id(pith: Run, source: Path) -> None:
    _, out, _ = pith(source, "--query", QUERY, "--model", "words", "--json", "--ratio", 0.7)
    found = json.loads(out)
    assert found["model"] == "words" and found["receipt"]["compression_ratio"] <= 0.7


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--ratio", 0), "--ratio: must be greater than 0 and at most 1, not 0.0"),
        (("--ratio", 1.5), "--ratio: must be greater than 0 and at most 1, not 1.5"),
        (("--keep", 1.5), "--keep: must be greater than 0 and less than 1, not 1.5"),
        (("--keep", 0.9, "--ratio", 0.5), "--keep: cannot be given together with --ratio"),
        (("--ratio", "nan"), "--ratio: must be greater than 0 and at most 1, not nan"),
        (("--query", "q" * 20_001), "--query: holds 20,001 characters; the limit is 20,000"),
    ],
)
def test_what_is_asked_wrong_is_named_by_its_option(
    pith: Run, source: Path, words: tuple[object, ...], said: str
) -> None:
    assert complaint(pith(source, *words)) == said


def test_an_unknown_model_is_answered_with_those_there_are(pith: Run, source: Path, config: Path) -> None:
    said = complaint(pith(source, "--model", "large"))
    assert said == f"--model: {config} has no compression model 'large'; it has pith-lexical, words"


def test_a_configuration_without_compression_is_named(pith: Run, source: Path, tmp_path: Path) -> None:
    assert "compression.models: must list at least one model" in complaint(
        pith(source, settings=written(tmp_path, []))
    )


def test_a_file_that_is_not_there_is_named(pith: Run, tmp_path: Path) -> None:
    assert (
        complaint(pith(tmp_path / "none.txt"))
        == f"{tmp_path}/none.txt: cannot be read: No such file or directory"
    )


def test_a_file_that_is_no_text_is_named_with_the_place(pith: Run, tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"ab\xff\xfe")
    assert complaint(pith(tmp_path / "image")) == f"{tmp_path}/image: is not UTF-8 at byte 2"
    assert complaint(pith("-", stdin=b"\xff")).startswith("standard input: is not UTF-8 at byte 0")


def test_an_empty_file_is_named(pith: Run) -> None:
    assert complaint(pith("-")) == "FILE: must hold at least one character"


def test_a_checkpoint_that_is_no_checkpoint_is_named_with_the_model(
    pith: Run, source: Path, tmp_path: Path
) -> None:
    settings = written(tmp_path, [{**WORDS, "checkpoint": str(tmp_path)}])
    assert complaint(pith(source, settings=settings)).startswith(f"words: checkpoint '{tmp_path}': ")


def test_a_tokenizer_that_is_none_is_named_with_the_model(pith: Run, source: Path, tmp_path: Path) -> None:
    settings = written(tmp_path, [{**LEXICAL, "tokenizer": str(tmp_path)}])
    assert complaint(pith(source, settings=settings)).startswith(f"pith-lexical: tokenizer '{tmp_path}': ")


def result_of(source: str, *kept: tuple[int, int]) -> CompressionResult:
    flag = Flag("number_dropped", "warning", 2, (Example(0, 1, "[bold]7\x1b"),))
    receipt = Receipt(10, 5, 0.5, 1.0, "mini", (flag,))
    slices = tuple(Slice(*piece) for piece in kept)
    return CompressionResult("", receipt, slices, (UnitScore(0, len(source), "sentence", 0.25, True),))


def test_kept_text_stands_out_and_the_rest_is_dim() -> None:
    console = Console(file=(out := io.StringIO()), force_terminal=True, color_system="standard", width=80)
    show(console, "one two three", result_of("one two three", (4, 7)))
    assert "\x1b[2mone \x1b[0m\x1b[1mtwo\x1b[0m\x1b[2m three\x1b[0m" in out.getvalue()


def test_a_text_cannot_speak_to_the_terminal() -> None:
    console = Console(file=(out := io.StringIO()), width=80)
    show(console, "a [red]\x1b[31mb\r\x07", result_of("a [red]\x1b[31mb\r\x07", (0, 1)))
    assert "\x1b" not in out.getvalue() and "\x07" not in out.getvalue() and "[red]" in out.getvalue()
    assert "number_dropped x2: [bold]7" in out.getvalue()


def test_offsets_stay_where_they_were_when_a_text_is_made_printable() -> None:
    odd = "a\x00\u202e\r\n\t😀"
    assert len(printable(odd)) == len(odd) and "\n" in printable(odd)


def test_scores_are_left_out_where_none_were_asked_for() -> None:
    result = result_of("one")
    assert "unit_scores" in document("m", result)
    assert "unit_scores" not in document("m", CompressionResult("", result.receipt, ()))
