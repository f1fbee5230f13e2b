"""`pith tune` as an ML engineer meets it: what it prints and writes, and how it ends when a row is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from compression.build import build_model
from serve.cli.main import main
from serve.config.compression_models import spec_of
from serve.config.settings import load_anchored
from tests.serve.served import settings_document

LEXICAL = {"id": "pith-lexical", "name": "Lexical", "blurb": "The default.", "kind": "lexical"}
WORDS = {**LEXICAL, "id": "words", "kind": "token_classifier", "checkpoint": "embedded:small"}
TOWNS = ("Arden", "Borough", "Calder", "Dunmore", "Elstow", "Fenwick", "Garth", "Hexham")
Run = Callable[..., tuple[int, str, str]]


def row(seed: int) -> dict[str, Any]:
    """A question whose words do not always tell where its answer is."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(100, 999, len(TOWNS))
    parts = [f"{town} is a town. Its bridge is {length} metres long. Its market opens early on {day} days."
             for town, length, day in zip(TOWNS, lengths, rng.integers(1, 9, len(TOWNS)), strict=True)]  # fmt: skip
    wanted = int(rng.integers(len(TOWNS)))
    query = (
        f"How long is the bridge of {TOWNS[wanted]}?"
        if seed % 2
        else "Tell me about the longest way over water."
    )
    return {"query": query, "input": "\n\n".join(parts), "answers": [f"{lengths[wanted]} metres"]}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "pith.yaml"
    path.write_text(yaml.safe_dump(settings_document(tmp_path, compression={"models": [LEXICAL, WORDS]})))
    return path


@pytest.fixture
def tune(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, config: Path
) -> Run:
    """Runs `pith tune` on rows, in this process; gives the exit code and what was printed."""

    def run(rows: list[Any], *words: str) -> tuple[int, str, str]:
        data = tmp_path / "rows.jsonl"
        data.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in rows))
        line = [
            "pith",
            "tune",
            str(data),
            "--config",
            str(config),
            "--out",
            str(tmp_path / "out"),
            "--workers",
            "1",
        ]
        monkeypatch.setattr(sys, "argv", [*line, *words])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run


def test_rows_become_a_curve_a_plot_a_calibration_and_what_to_paste(
    tune: Run, tmp_path: Path, config: Path
) -> None:
    code, out, err = tune([row(seed) for seed in range(60)])
    assert code == 0, err
    assert "pith-lexical, 60 questions" in out and "recommended: " in out
    assert (tmp_path / "out/curves.svg").read_text().startswith("<svg")
    assert (tmp_path / "out/report.txt").read_text() in out
    (found,) = json.loads((tmp_path / "out/report.json").read_text())["models"]
    assert found["questions"] == 60 and found["ms"] > 0 and found["calibration"].endswith("lexical.json")
    pasted = yaml.safe_load(out[out.index("# pith-lexical: paste") : out.index("plot: ")])
    assert 0 < pasted["flags"]["at_risk_critical"] < pasted["flags"]["at_risk_warning"] < 1
    document = settings_document(tmp_path, compression={"models": [{**LEXICAL, **pasted}]})
    config.write_text(yaml.safe_dump(document))
    (model,) = load_anchored(config).compression.models
    assert spec_of(model).calibration == str(tmp_path / "out/calibration-pith-lexical.json")


def test_a_model_that_chooses_words_is_measured_beside_others_and_json_is_printed(
    tune: Run, tmp_path: Path
) -> None:
    code, out, err = tune([row(1), row(2)], "--model", "words", "--model", "pith-lexical", "--json")
    assert code == 0, err
    words, lexical = json.loads(out)["models"]
    assert json.loads(out) == json.loads((tmp_path / "out/report.json").read_text())
    assert words["thresholds"] is None and "no calibration can be fitted" in words["why_not"]
    for found in (words, lexical):
        assert found["ms"] > 0 and len(found["points"]) == 14
        assert all(point["ratio"] <= point["target_ratio"] for point in found["points"])
    text = (tmp_path / "out/report.txt").read_text()
    assert "smallest ratio" in text and text.index("words") < text.index("pith-lexical, 2 questions")


@pytest.mark.long
async def test_a_model_with_the_calibration_takes_a_promise_and_names_it(tune: Run, tmp_path: Path) -> None:
    from compression.pipeline.compression_model import CompressionRequest
    from serve.config.compression_models import CompressionModelSettings

    code, _, err = tune([row(seed) for seed in range(60)])
    assert code == 0, err
    path = str(tmp_path / "out/calibration-pith-lexical.json")
    settings = CompressionModelSettings.model_validate({**LEXICAL, "calibration": path})
    model = build_model(spec_of(settings))
    try:
        asked = row(101)
        receipt = (
            await model.compress(CompressionRequest(asked["query"], asked["input"], None, keep=0.9))
        ).receipt
    finally:
        await model.close()
    assert receipt.calibration is not None and receipt.calibration.name == "pith-lexical"
    assert receipt.keep == 0.9 and receipt.estimated_ratio is not None


def test_few_rows_give_a_curve_and_say_what_a_calibration_needs(tune: Run, tmp_path: Path) -> None:
    code, out, _ = tune([row(seed) for seed in range(5)])
    assert code == 0
    assert "keep: 5 questions" in out and "a calibration needs 50" in out
    assert not list((tmp_path / "out").glob("calibration-*"))


def test_every_bad_row_is_named_with_its_line_and_nothing_is_compressed(tune: Run, tmp_path: Path) -> None:
    code, _, err = tune([row(1), "{", {**row(2), "answers": ["nowhere"]}, row(3)])
    assert code == 2
    assert "line 2: is not JSON" in err and "line 3: answers: none of them is in the input" in err
    assert "2 of 4 rows are wrong" in err
    assert not (tmp_path / "out").exists()


def test_bad_rows_can_be_passed_over_and_are_named_all_the_same(tune: Run) -> None:
    code, out, err = tune([row(1), "{"], "--skip-bad")
    assert code == 0
    assert "line 2: is not JSON" in err and "1 questions" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--keep", "1"], "--keep: must be greater than 0 and less than 1"),
        (["--model", "nope"], "has no compression model 'nope'"),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_anything_runs(tune: Run, words: list[str], said: str) -> None:
    code, _, err = tune([row(1)], *words)
    assert code == 2 and said in err


def test_a_file_that_is_not_there_is_named(tune: Run, tmp_path: Path, config: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from serve.cli.main import main; main()", "tune", "nowhere.jsonl",
         "--config", str(config)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and "nowhere.jsonl: cannot be read: No such file" in done.stderr
