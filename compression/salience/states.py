"""Lines that report a change: rare among many alike, more severe than what came before, or by their words."""

import re

import numpy as np

from compression.salience.salience import Bools, Floats, Ints
from compression.salience.templates import Templates
from compression.source.units import Segmentation

_CHANGE = re.compile(
    r"(?i)\b(?:start(?:ed|ing)|stopp(?:ed|ing)|connected|disconnected|closed|opened|elected|registered|completed"
    r"|finished|succeeded|failed|killed|exited|terminated|shut(?:ting)? ?down|reboot(?:ed|ing)?|restart(?:ed|ing)"
    r"|promoted|demoted|became|recovered|transition(?:ed|ing)?|chang(?:ed|ing)|from \S{1,40} to \S)|\bstate\b"
)
# A kind of line is rare where it has at most one of so many.
_ONE_IN = 50
_FEWEST_ALIKE = 3


def changes(templates: Templates, level: Floats, is_log: Bools) -> Bools:
    """Of the lines of a log, those that change something."""
    found = np.zeros(len(level), bool)
    lines = np.flatnonzero(is_log)
    if not len(lines):
        return found
    of = templates.of[lines]
    tells = np.array([_CHANGE.search(sample) is not None for sample in templates.samples], bool)[of]
    found[lines] = (_is_rare(templates.sizes, of) | _rises(level[lines]) | tells) & (of >= 0)
    return found


def changed_lines(text: Segmentation) -> Bools:
    """What a diff adds or takes away."""
    found = np.zeros(len(text.units), bool)
    if any(frame.kind == "block" for frame in text.frames):
        for number, unit in enumerate(text.units):
            is_inside = unit.frame is not None and text.frames[unit.frame].kind == "block"
            if is_inside and unit.kind == "line" and text.source[unit.start] in "+-":
                head = text.frames[unit.frame or 0].open
                found[number] = text.source.startswith("@@", text.units[head].start)
    return found


def _is_rare(sizes: Ints, of: Ints) -> Bools:
    """Where most lines have others alike, those that have next to none."""
    size = sizes[of]
    if (size >= _FEWEST_ALIKE).sum() * 2 < len(of):
        return np.zeros(len(of), bool)
    return np.asarray(size <= max(1, len(of) // _ONE_IN // 2))


def _rises(level: Floats) -> Bools:
    before = np.r_[level[:1], level[:-1]]
    return np.asarray(level >= before + 0.25)
