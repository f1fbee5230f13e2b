"""Logs in random layouts, for training: what is learned from them does not depend on any one format."""

import random
from collections.abc import Callable
from dataclasses import replace

from benchmarks.evaluation.suites.logs.message import Entry, LogFormat

_TIMES = ("%Y-%m-%d %H:%M:%S", "%d/%b/%Y:%H:%M:%S", "%H:%M:%S", "%Y/%m/%d %H:%M:%S", "%d.%m.%Y %H:%M:%S",
          "%Y-%m-%dT%H:%M:%SZ", "%b %d %H:%M:%S", "%a %d %b %Y %H:%M:%S")  # fmt: skip
_SPELLINGS: tuple[Callable[[str], str], ...] = (
    str.upper,
    str.lower,
    str.capitalize,
    lambda level: level[0].upper(),
)
_LAYOUTS = (
    "{time} {level} {component}: {text}",
    "[{time}] {level} {component} - {text}",
    "{time} [{level}] [{component}] {text}",
    "{level} {time} {component} {text}",
    "{time} {process} {level:<7} {component}: {text}",
    "[{time}] [{component}] {text}",
    "{time} | {level:<8} | {component} | {text}",
    "{time} {component}[{process}]: {level}: {text}",
    "{time};{level};{component};{text}",
)


def laid_out(chosen: LogFormat, chance: random.Random) -> LogFormat:
    """The messages of one format in a layout that no known program has."""
    time, layout, spell = chance.choice(_TIMES), chance.choice(_LAYOUTS), chance.choice(_SPELLINGS)

    def line(entry: Entry) -> str:
        return layout.format(
            time=f"{entry.time:{time}}", level=spell(entry.message.level), component=entry.message.component,
            process=entry.process, text=entry.text,
        )  # fmt: skip

    return replace(chosen, name=f"{chosen.name} laid out", line=line)
