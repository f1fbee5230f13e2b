"""What time it is in the simulated world: the true time, and what the database and each server take it for."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass
class Clock:
    """The time of the loop as a date, off by so much, which may change at any time."""

    loop: asyncio.AbstractEventLoop
    began_at: datetime
    off_by: timedelta = timedelta(0)

    def now(self) -> datetime:
        return self.began_at + self.off_by + timedelta(seconds=self.loop.time())

    def now_s(self) -> float:
        """Seconds since 1970."""
        return self.now().timestamp()
