"""Salience of units, whatever the query: noise, an error, one of many alike, a change, a repetition."""

import re
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from compression.salience.log_lines import (
    Bools,
    Floats,
    Ints,
    Templates,
    find_templates,
    level_of_line,
    level_of_lines,
    levels_of_prose,
    raised_in_failed_tests,
)
from compression.segmentation.lines import LOG_LINE
from compression.source.units import FRAMING, Segmentation


@dataclass(frozen=True)
class Salience:
    """One value a unit in every array.

    `noise`: rules, bare markers, progress, passed tests, heartbeats: nothing that should displace content.
    `level`: 0..1, how severe the unit says it is: debug 0.15, info 0.3, a warning 0.6, an error 0.85, fatal 1; 0 where
    it says nothing. `is_log`: a line of a log, or a JSON object that is one.
    `template`: units that say the same but for numbers, ids, paths and names have the same number, -1 where none was
    looked for; `template_size` units have it (0 without one), `is_first` and `is_last` are its ends in the source.
    `changes_state`: a line that is rare among many alike, more severe than those before it, or reports a start, an end,
    a failure or a transition. `copy_of`: the first unit with the same text but for white space and quotation marks
    (`>`), itself where there is none before it; `repeats`: there is one. `letters`: how many letters and digits it has.
    """

    noise: Bools
    level: Floats
    is_log: Bools
    template: Ints
    template_size: Ints
    is_first: Bools
    is_last: Bools
    changes_state: Bools
    copy_of: Ints
    letters: Ints

    @property
    def repeats(self) -> Bools:
        return np.asarray(self.copy_of != np.arange(len(self.copy_of)))

    @property
    def is_plain(self) -> bool:
        """True where nothing in the text is noise, one of many alike, or there twice."""
        return not (self.noise.any() or self.repeats.any() or (self.template_size > 1).any())


_BEYOND = 0x3040
_WIDE = (0xFF00, 0xFFF0)
_SPACE_AND_QUOTES = " \t\r\n\f\v>\u00a0\u3000"
_LARGEST = 65_536


class Characters:
    """`starts` and `ends` of the units, the code points of the source, and sums over them."""

    def __init__(self, text: Segmentation) -> None:
        self.starts = np.array([unit.start for unit in text.units], np.int64)
        self.ends = np.array([unit.end for unit in text.units], np.int64)
        self._points = _code_points(text.source)
        self._bounds = np.stack([self.starts, self.ends], axis=1).ravel()

    def first(self) -> Ints:
        """The first code point of each unit."""
        return self._points[self.starts].astype(np.int64)

    def letters(self) -> Ints:
        """Numbers of letters and digits by unit."""
        return self._sums(_is_letter()[self._points]).astype(np.int64)

    def marks(self) -> Ints:
        """A number that two units share where their text is the same but for white space and `>`, and seldom else."""
        return self._sums(_numbers()[self._points]).astype(np.int64)

    def _sums(self, values: NDArray[np.generic]) -> NDArray[np.uint32]:
        """Sums over each unit. The last value is an end that no unit holds."""
        if not len(self._bounds):
            return np.zeros(0, np.uint32)
        return np.add.reduceat(values, self._bounds, dtype=np.uint32)[::2]


def _code_points(source: str) -> NDArray[np.generic]:
    """One number a character, those beyond the first plane as one, and a last one for the end."""
    if source.isascii():
        return np.frombuffer(source.encode("ascii") + b"\0", np.uint8)
    points = np.frombuffer((source + "\0").encode("utf-32-le", "surrogatepass"), np.uint32)
    return np.minimum(points, _LARGEST)


@cache
def _is_letter() -> NDArray[np.uint8]:
    """1 for letters, digits, and what writes or draws a meaning: all of CJK and everything beyond the first plane."""
    table = np.ones(_LARGEST + 1, np.uint8)
    for start, end in ((0, _BEYOND), _WIDE):
        table[start:end] = [chr(point).isalnum() for point in range(start, end)]
    return table


@cache
def _numbers() -> NDArray[np.uint32]:
    table = np.random.default_rng(11).integers(1, 2**32, _LARGEST + 1, np.uint32)
    table[[ord(character) for character in _SPACE_AND_QUOTES]] = 0
    return table


_QUOTE_MARKS = re.compile(r"(?m)^[ \t>]+")


def copies(text: Segmentation, characters: Characters) -> Ints:
    """For each unit the first one that has its text, white space and quotation marks aside."""
    first = np.arange(len(text.units))
    marks = characters.marks()
    _, of, counts = np.unique(marks, return_inverse=True, return_counts=True)
    seen: dict[str, int] = {}
    for unit in np.flatnonzero(counts[of] > 1).tolist():
        first[unit] = seen.setdefault(_plain(text.text(unit)), unit)
    return first


def _plain(text: str) -> str:
    if ">" in text:
        text = _QUOTE_MARKS.sub("", text)
    return " ".join(text.split())


LONGEST = 240
_MARKER = re.compile(
    r"\[/?[A-Za-z][\w .#:-]{0,40}+\]:?\Z|</?[A-Za-z][\w:-]{0,40}+/?>\Z"
    r"|(?:[Pp]age|Seite|Página) \d{1,4}(?: (?:of|von|de|/) ?\d{1,4})?\Z"
    r"|\(\d{1,9} rows?\)\Z|!{5,}+ [^!\n]{1,80} !{5,}+\Z"
    r"|[-=*#~]{2,}+[ \t]{0,8}[^\W\d_]{1,20}(?: [^\W\d_]{1,20}){0,4}[ \t]{0,8}[-=*#~]{2,}+\Z"
)
_BAR = r"[█▏▎▍▌▋▊▉░▒▓━─╸╺╴#=>.\-]"
_DOING = (
    "Receiving|Resolving|Compressing|Counting|Enumerating|Writing|Unpacking|Downloading|Uploading|Updating files"
    "|Extracting|Progress|Loading|Fetching"
)
_PROGRESS = re.compile(
    # 45%|███   | 45/100; [=====>    ] 45; [ 45%] Building; ━━━━━ 1.2/3.4 MB
    rf"[^%\n]{{0,80}}\d%[ \t]*+[|\[]?{_BAR}{{3,}}|[^\[|\n]{{0,80}}[\[|]{_BAR}{{4,}}[ \t]{{0,40}}[\]|][^\n]{{0,20}}\d"
    r"|\[? {0,3}\d{1,3}(?:\.\d+)? ?%\]?(?: (?!of\b)|\Z)|(?:\S{1,40} ){0,3}[━╸╺─█]{5,}"
    rf"|(?:remote: )?(?:{_DOING})\b[^\n%]{{0,80}}\d ?%"
    # apt and dpkg
    r"|(?:Get|Hit|Ign):\d+ https?:|(?:Reading package lists|Building dependency tree|Reading state information)\.\.\."
    r"|(?:\(Reading database|Preparing to unpack|Selecting previously unselected|Processing triggers for )"
)
_PASSED = re.compile(
    # pytest, unittest, cargo, go, jest, TAP, googletest
    r"[^\s:]{1,200}+::\S.{0,200} PASSED\b|[^\s.]\S{0,200} [.sx]++ *(?:\[ *\d+%\])?\Z|[.sx]{10,} *(?:\[ *\d+%\])?\Z"
    r"|test \S.{0,200} \.\.\. (?:ok|ignored)\Z|test_\w+ \([\w.]+\).{0,120} \.\.\. (?:ok|skipped.{0,80})\Z"
    r"|=== (?:RUN|PAUSE|CONT) |--- (?:PASS|SKIP): |ok[ \t]{1,4}\S+[ \t]{1,4}[\d.]+s"
    r"|\?[ \t]{1,4}\S+[ \t]{1,4}\[no test files\]|PASS(?:\Z|[ \t]+\S+\.\w{2,3}\b)|[✓✔√] |ok \d+\b(?!.{0,80}# TODO)"
    r"|\[ *(?:OK|RUN|PASSED) *\] |\[[-=]{8,}\]"
)
_SIGN_OF_LIFE = re.compile(
    r"(?i)\b(?:heart ?beat(?:ing)?|keep-?alive|health[ _-]?(?:checks?|probes?)|liveness)\b"
    r"|(?i:still (?:running|alive|waiting))\b"
    r"|\bGET /(?:health|healthz|ping|ready|readyz|livez|live|metrics|status)\b"
)


def is_noise(text: str, *, as_line: bool) -> bool:
    """True for a unit's text that is a bare marker or, where it is a line of its own, progress or a passed test."""
    if len(text) > LONGEST:
        return False
    if _MARKER.match(text) is not None:
        return True
    return as_line and (_PROGRESS.match(text) is not None or _PASSED.match(text) is not None)


def is_sign_of_life(line: str) -> bool:
    return _SIGN_OF_LIFE.search(line) is not None


_CHANGE = re.compile(
    r"(?i)\b(?:start(?:ed|ing)|stopp(?:ed|ing)|connected|disconnected|closed|opened|elected|registered|completed"
    r"|finished|succeeded|failed|killed|exited|terminated|shut(?:ting)? ?down|reboot(?:ed|ing)?|restart(?:ed|ing)"
    r"|promoted|demoted|became|recovered|transition(?:ed|ing)?|chang(?:ed|ing)|from \S{1,40} to \S)|\bstate\b"
)
# A kind of line is rare where it has at most one of so many.
_ONE_IN = 50
_FEWEST_ALIKE = 3


def changes(templates: Templates, level: Floats, is_log: Bools) -> Bools:
    """The lines of a log that change something."""
    found = np.zeros(len(level), bool)
    lines = np.flatnonzero(is_log)
    if not len(lines):
        return found
    of = templates.of[lines]
    tells = np.array([_CHANGE.search(sample) is not None for sample in templates.samples], bool)[of]
    found[lines] = (_is_rare(templates.sizes, of) | _rises(level[lines]) | tells) & (of >= 0)
    return found


def changed_lines(text: Segmentation) -> Bools:
    """Lines that a diff adds or takes away."""
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


# Never chosen for themselves: they come with what they hold.
_ENDS = FRAMING | {"table_header"}
_LONGEST_LINES = 2_000
_LINES = frozenset({"line", "code_block", "list_item"})
_TIMED = re.compile(r'"@?(?:timestamp|time|ts|t|date|datetime|level|severity|lvl|log\.level)"\s?:')


def read_salience(text: Segmentation) -> Salience:
    """The salience of each unit of `text`; the work grows with its length, and is done once a text."""
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
