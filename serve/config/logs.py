"""What a server writes of itself, and how."""

from pathlib import Path

from pydantic import Field

from serve.config.strict_section import Section
from serve.logs.lines import LogFormat
from serve.logs.outlet import LogLevel, LogPlan


class LogSettings(Section):
    format: LogFormat = Field(
        "text", description="Lines on standard error: `text` to be read by people, `json` one object a line."
    )
    level: LogLevel = Field(
        "warning", description="The least level that is written: `debug`, `info`, `warning` or `error`."
    )
    access: bool = Field(False, description="Write a line for each request when it is over.")

    def plan(self, socket: Path | None) -> LogPlan:
        return LogPlan(self.format, self.level, socket)
