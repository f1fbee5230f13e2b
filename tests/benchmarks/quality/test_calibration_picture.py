"""The diagram of docs/calibration.md is drawn from the figures that the calibration's training wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.load import plots
from benchmarks.quality.calibration_picture import main


def test_a_panel_a_kind_is_drawn_from_the_figures(tmp_path: Path) -> None:
    lines = {kind: {"other questions seen": [(0.1, 0.2), (0.9, 0.8)]} for kind in ("lexical", "encoder")}
    figures, picture = tmp_path / "reliability.json", tmp_path / "calibration.png"
    shares = {kind: {"other questions seen": [0.25, 0.75]} for kind in lines}
    errors = {"lexical": 0.012, "encoder": 0.03}
    figures.write_text(json.dumps({"lines": lines, "shares": shares, "errors": errors}))
    main([str(figures), "--out", str(picture)])
    drawn = plots.read(picture)
    assert [panel.title for panel in drawn.panels] == ["lexical", "encoder"]
    assert "1.2 points (lexical)" in drawn.title


def test_missing_figures_are_named_with_what_writes_them(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"benchmarks\.training\.calibration"):
        main([str(tmp_path / "none.json")])
