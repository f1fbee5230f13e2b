"""Lines of the source and cheap tests of what a line looks like, the beginning of a log's line among them."""

import re
from collections.abc import Sequence
from typing import NamedTuple

_CLOCK = r"\d\d?:\d\d(?::\d\d)?"
_MONTH = r"[A-Z][^\W\d_]{2,4}\.?"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6},?"
_LEVELS = "TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|ERR|SEVERE|FATAL|CRITICAL|CRIT|EMERG"
_DATES = (
    # 2015-10-18 18:01:47,978; 2020/01/01T10:00; 2005-06-03-15.42.50; 20171223-22:15:29:606
    r"\d{4}[-/.]\d\d[-/.]\d\d[T ,_:-]{1,3}\d\d[:.]\d\d",
    r"\d{8}[-T ]\d\d?:?\d\d:?\d\d",
    # 17/06/09 20:10:40; 03-17 16:13:38.811; 12.05.2020 10:00; [10.30 16:49:06]
    rf"\d\d?[-/.]\d\d?(?:[-/.]\d\d(?:\d\d)?)?,? {{1,2}}{_CLOCK}(?![^\W_])",
    # 081109 203518
    r"\d{6} \d{6}(?=[ .,])",
    # Jun 14 15:16:01; Sun Dec 04 04:47:44 2005; Mon, 02 Jan 2006 15:04:05; 02/Jan/2006:15:04:05
    rf"(?:{_DAY} )?{_MONTH} {{1,2}}\d\d?(?:,? \d{{4}})? \d\d:\d\d:\d\d",
    rf"(?:{_DAY} )?\d\d?[ /-]{_MONTH}[ /-]\d\d(?:\d\d)?[ :T]\d\d:\d\d",
    # 12:00:01.123; 1131566461 2005.11.09; 1577836800.123
    r"\d\d:\d\d:\d\d(?=[\]).,;|\s])",
    r"\d{10}(?:\.\d{1,9}|\d{3}| \d{4}\.\d\d\.\d\d)[ |,](?=\S)",
)
_TIME = rf"(?:{'|'.join(_DATES)})"
_LOG_LINE = (
    rf"[\[(<]?{_TIME}",
    # - 1117838570 2005.06.03, the first column an alert or none; <34>Oct 11; <34>1 2003-10-11
    r"(?:-|[A-Z][A-Z_]{2,15}) \d{9,10} \d{4}\.\d\d\.\d\d ",
    rf"<\d{{1,3}}>(?:\d )?{_TIME}",
    # api_1  | 2020-01-01 10:00, nova.log.1 2017-05-16 00:00:00, 12345:M 01 Jan 2020 12:00:00, [pod/web-1] 2020-…
    rf"(?:\[[^\]\s]{{1,80}}\]|(?=[a-zA-Z]*[\d_.:-])[\w.:@/-]{{1,100}})(?:[ \t]{{1,20}}\|)?[ \t]{{1,4}}[\[(]?{_TIME}",
    r"\d{1,3}(?:\.\d{1,3}){3} \S{1,40} \S{1,40} \[",
    r"\d{1,3}(?:\.\d{1,3}){3} - ",
    # I1104 12:00:01.123456; E/Tag( 123): ; [    0.000000]
    rf"[IWEFD]\d{{4}} {_CLOCK}",
    r"[VDIWEF]/[\w.$:-]{1,60} *\( *\d{1,6}\): ",
    r"\[ {0,8}\d{1,8}\.\d{3,6}\] ",
    rf"\[?(?:{_LEVELS})\b[\]:| ]",
    rf"\[(?:{_LEVELS.lower()})\][: ]",
    rf"[\[<]?(?i:{_LEVELS})[\]>]?[: |]{{1,8}}[\[(]?{_TIME}",
    # logfmt: two fields at least, the first of them a time, a level or a message
    r"(?:time|ts|timestamp|t|date|level|lvl|severity|at|msg|caller)=(?:\"[^\"\n]{0,200}\"|[^\s\"]{1,80})"
    r" [\w.]{1,40}=\S",
)
LOG_LINE = re.compile(rf"[ \t]{{0,8}}(?:{'|'.join(_LOG_LINE)})")


# Some marks of other scripts look like ASCII ones; they are intended.
# ruff: noqa: RUF001


_LINE = re.compile(r"([^\r\n]*)(?:\r\n|\r|\n|\Z)")
_TERMINAL = re.compile(r"[.!?…。！？｡।؟۔:;：；,，、][\"'”’」』）)\]»*_]*\s*\Z")
FENCE = re.compile(r"[ \t]{0,8}(`{3,}+|~{3,}+)([^`\n]{0,80})\Z")
HEADING = re.compile(r"[ \t]{0,3}#{1,6}[ \t]+\S")
LIST_ITEM = re.compile(r"[ \t]*(?:[-*+•‣▪●–]|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,5})[.)])[ \t]+\S")
SPEAKER = re.compile(
    r"[ \t]*(?:\[[^\]\n]{1,20}\][ \t]*)?(?:\*\*)?[^\W\d_][\w.'’\- ]{0,40}(?:[ \t]?\([^)\n]{1,40}\))?"
    r"(?:\*\*)?[ \t]?[:：](?:\*\*)?(?=\s|\Z|[^\x00-\x7f])"
)


# How sentences begin: three words of letters alone, which no rule takes for the beginning of anything unless the next
# line says so. What apt, pip and logs print may begin so, and bars of progress.
PROSE = re.compile(
    r"(?!Unpack|Setting up|Preparing|Selecting|Process|Collecting|Download|Requirement|Install"
    r"|(?:Trace|Debug|Info|Notice|Warn|Warning|Error|Err|Severe|Fatal|Critical|Crit|Emerg) )"
    r"[A-Z][a-z]{0,30}(?: [A-Za-z][a-z]{0,30}){2}[ ,.;](?![^%\n]{0,90}%)"
)


class Line(NamedTuple):
    """`source[start:end]`, without its line end."""

    start: int
    end: int


def split_lines(source: str, *, most: int) -> list[Line]:
    """Lines ended by LF, CRLF or CR; what other characters Unicode calls line ends stay inside.

    Where there are more than about `most`, which no person writes, several are joined into one.
    """
    if source.count("\n") + source.count("\r") - source.count("\r\n") <= most:
        return [Line(*found.span(1)) for found in _LINE.finditer(source)]
    width = 2 * len(source) // most
    lines: list[Line] = []
    start = end = 0
    for found in _LINE.finditer(source):
        if end > start and found.end(1) - start > width:
            lines.append(Line(start, end))
            start = found.start(1)
        end = found.end(1)
    return [*lines, Line(start, end)]


def trimmed(lines: Sequence[Line], start: int) -> list[Line]:
    """The lines without what is before `start`; those that end before it become empty."""
    return [Line(min(max(line.start, start), line.end), line.end) for line in lines]


def is_blank(source: str, line: Line) -> bool:
    return not source[line.start : line.end].strip()


def ends_sentence(text: str) -> bool:
    """True where `text` ends in a mark that no title ends in."""
    return _TERMINAL.search(text[-12:]) is not None


def looks_like_title(text: str) -> bool:
    """A short line without a mark at its end that is not a list item, a heading mark, a bracket or a row."""
    text = text.strip()
    if not 1 < len(text) <= 120 or ends_sentence(text) or LIST_ITEM.match(text) or LOG_LINE.match(text):
        return False
    if "   " in text:
        # The head of columns.
        return False
    return text[0] not in "{[|<`>" and any(character.isalnum() for character in text[:40])
