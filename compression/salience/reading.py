"""Reads what each unit is. Every compression runs it, so it skips what cannot apply."""

import re

import numpy as np

from compression.salience.characters import Characters
from compression.salience.copies import copies
from compression.salience.levels import level_of_line, level_of_lines, levels_of_prose, raised_in_failed_tests
from compression.salience.noise import LONGEST, is_noise, is_sign_of_life
from compression.salience.salience import Bools, Floats, Ints, Salience
from compression.salience.states import changed_lines, changes
from compression.salience.templates import Templates, find_templates
from compression.segmentation.cutting.log_lines import LOG_LINE
from compression.source.units import FRAMING, Segmentation

# Never chosen for themselves: they come with what they hold.
_ENDS = FRAMING | {"table_header"}
_LONGEST_LINES = 2_000
_LINES = frozenset({"line", "code_block", "list_item"})
_TIMED = re.compile(r'"@?(?:timestamp|time|ts|t|date|datetime|level|severity|lvl|log\.level)"\s?:')


def read_salience(text: Segmentation) -> Salience:
    """What each unit of `text` is; the work grows with its length, and is done once a text."""
    found: Salience | None = text.readings.get("salience")
    if found is None:
        found = text.readings["salience"] = _read(text)
    return found


def _read(text: Segmentation) -> Salience:
    characters = Characters(text)
    letters = characters.letters()
    is_line = np.array([unit.kind in _LINES for unit in text.units], bool)
    is_log = _log_units(text)
    templates = find_templates(text, is_log)
    level = _levels(text, characters, templates, is_log)
    copy_of = copies(text, characters)
    has = templates.of >= 0
    size, first, last = (np.zeros(len(text.units), np.int64) for _ in range(3))
    size[has], first[has], last[has] = (
        values[templates.of[has]] for values in (templates.sizes, templates.first, templates.last)
    )
    at = np.arange(len(text.units))
    return Salience(
        noise=_noise(text, characters, letters, is_line) | _signs_of_life(templates, level, is_log),
        level=level,
        is_log=is_log,
        template=templates.of,
        template_size=size,
        is_first=has & (first == at),
        is_last=has & (last == at),
        changes_state=changes(templates, level, is_log) | changed_lines(text),
        copy_of=copy_of,
        letters=letters,
    )


def _log_units(text: Segmentation) -> Bools:
    source = text.source
    return np.array(
        [
            (unit.kind == "line" and LOG_LINE.match(source, unit.start, unit.end) is not None)
            or (
                unit.kind == "json_member"
                and unit.frame is None
                and source[unit.start] == "{"
                and _TIMED.search(source, unit.start, unit.end) is not None
            )
            for unit in text.units
        ],
        bool,
    )


def _levels(text: Segmentation, characters: Characters, templates: Templates, is_log: Bools) -> Floats:
    has = templates.of >= 0
    levels = levels_of_prose(text, characters.starts, has)
    if len(templates.samples):
        logs = np.zeros(len(templates.samples), bool)
        logs[templates.of[has & is_log]] = True
        own = [
            level_of_line(sample, is_log=log)
            for sample, log in zip(templates.samples, logs.tolist(), strict=True)
        ]
        levels[has] = np.array(own, np.float32)[templates.of[has]]
    # A template is of a unit's first line.
    for unit in np.flatnonzero(has & (characters.ends - characters.starts < _LONGEST_LINES)).tolist():
        if text.source.find("\n", text.units[unit].start, text.units[unit].end) >= 0:
            levels[unit] = max(levels[unit], level_of_lines(text.text(unit)))
    raised_in_failed_tests(text, levels)
    return levels


def _noise(text: Segmentation, characters: Characters, letters: Ints, is_line: Bools) -> Bools:
    """What has no letter; then looks at lines, and of other units at short ones that begin with no letter."""
    noise = letters == 0
    short = characters.ends - characters.starts <= LONGEST
    first = characters.first()
    folded = first | 0x20
    is_letter = (
        ((folded >= 0x61) & (folded <= 0x7A)) | ((first >= 0xC0) & (first < 0x2000)) | (first >= 0x3000)
    )
    for unit in np.flatnonzero(short & ~noise & (is_line | ~is_letter)).tolist():
        noise[unit] = is_noise(text.text(unit), as_line=bool(is_line[unit]) or first[unit] > 0x2000)
    ends = [unit.kind in _ENDS for unit in text.units]
    return np.asarray(noise & ~np.array(ends, bool))


def _signs_of_life(templates: Templates, level: Floats, is_log: Bools) -> Bools:
    """Recurring messages that say that nothing happened."""
    noise = np.zeros(len(is_log), bool)
    if is_log.any():
        alive = np.array([is_sign_of_life(sample) for sample in templates.samples], bool)
        comes_again = templates.sizes[templates.of[is_log]] >= 3
        own = level[is_log]
        noise[is_log] = alive[templates.of[is_log]] & (
            (comes_again & (own < 0.5)) | ((own > 0) & (own < 0.2))
        )
    return noise
