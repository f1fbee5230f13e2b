"""The configuration with the encoder beside what another one has."""

from __future__ import annotations

from pathlib import Path

import yaml

from benchmarks.quality.with_encoder import MODEL, with_encoder


def test_the_encoder_stands_behind_the_models_that_were_there() -> None:
    given = Path("configs/tiny.yaml").read_text(encoding="utf-8")
    made = yaml.safe_load(with_encoder(given, Path("/some/checkpoint")))
    before = yaml.safe_load(given)
    *models, encoder = made["compression"]["models"]
    assert models == before["compression"]["models"]
    assert (encoder["id"], encoder["kind"], encoder["checkpoint"]) == (MODEL, "encoder", "/some/checkpoint")
    del made["compression"], before["compression"]
    assert made == before
