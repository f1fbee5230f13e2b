"""A mebibyte of the worst that we could think of: read whole, within bounds, and by work that grows with the length.

Work is counted in calls of the parts, and what regular expressions do is held by `tests/patterns`.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from compression.choosing.diversity import diversify
from compression.salience import read_salience
from compression.segmentation import segment

SIZE = 1024 * 1024
CHANCE = random.Random(3)
LINE = "2020-01-01 10:00:00 INFO app.worker: job {} done in {} ms\n"
ATTACKS = {
    "one template": "".join(LINE.format(n, n * 7) for n in range(SIZE // 55)),
    "distinct templates": "".join(
        f"2020-01-01 10:00:00 INFO {''.join(CHANCE.choices('abcdefghijklmnop', k=12))} was seen\n"
        for _ in range(SIZE // 48)
    ),
    "one line of brackets": "[" * SIZE,
    "one line of a log": "2020-01-01 10:00:00 ERROR " + "x" * SIZE,
    "levels": "ERROR " * (SIZE // 6),
    "quotes": "2020-01-01 10:00:00 'a " * (SIZE // 23),
    "hunks": "@@ -1,999999999 +1,999999999 @@\n" * (SIZE // 32),
    "heads of files": "diff --git a/x b/x\n" * (SIZE // 19),
    "columns": "NAME   READY   STATUS\n" * (SIZE // 22),
    "entries of a tree": "│   " * 60 + "├── a\n" + "├── a\n" * (SIZE // 6),
    "failed tests": "____ test_x ____\n" * (SIZE // 17),
    "said twice": "The same sentence of more than thirty letters comes again. " * (SIZE // 59),
}


# Each is like another of the list, and takes long.
LONG = ("failed tests", "heads of files", "columns", "levels")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in LONG else ()) for name in ATTACKS]
)
def test_an_attack_is_read_whole_and_scores_stay_in_bounds(name: str) -> None:
    text = segment(ATTACKS[name])
    salience = read_salience(text)
    assert 0 < len(text.units) <= 32_768
    assert len(salience.level) == len(text.units)
    assert ((salience.level >= 0) & (salience.level <= 1)).all()
    found = np.array(diversify(text, [0.5] * len(text.units), salience))
    assert ((found >= 0) & (found <= 1)).all()


def test_one_template_stands_for_all_of_its_lines() -> None:
    text = segment("".join(LINE.format(n, n * 7) for n in range(5_000)))
    found = np.array(diversify(text, [0.5] * len(text.units), read_salience(text)))
    assert (found > 1e-9).sum() == 2
