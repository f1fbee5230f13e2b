"""How many lines of batches this process runs at once: few while it has requests that somebody waits for."""

from dataclasses import dataclass

from serve.money.interactive import Interactive

# After the last interactive request, before batches have the process to themselves again.
QUIET_S = 2.0


@dataclass(frozen=True, slots=True)
class Pace:
    """`alone` lines at once, or `beside` interactive requests."""

    interactive: Interactive
    alone: int
    beside: int

    def lines(self) -> int:
        is_quiet = self.interactive.quiet_s() >= QUIET_S
        return self.alone if is_quiet else min(self.alone, self.beside)
