"""Who is asking, as every later step needs it: identity, whether its usage is metered, and its limits."""

from dataclasses import dataclass, fields

MAX_WEIGHT = 1000


@dataclass(frozen=True, slots=True)
class ProjectLimits:
    """Limits of one project; None means no limit. Projects that wait for the same engine get places and turns in
    proportion to `weight`."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    max_in_flight: int | None = None
    weight: int = 1

    def __post_init__(self) -> None:
        if self.weight is None or self.weight > MAX_WEIGHT:
            raise ValueError(f"weight: must be an integer from 1 to {MAX_WEIGHT}, not {self.weight!r}")
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"{field.name}: must be an integer of at least 1, or none; not {value!r}")

    @property
    def unlimited(self) -> bool:
        return (
            self.requests_per_minute is None and self.tokens_per_minute is None and self.max_in_flight is None
        )


NO_LIMITS = ProjectLimits()


@dataclass(frozen=True, slots=True)
class WindowState:
    """What a client is told about one limit. Unused for `reset_s`, `remaining` is back at `limit`."""

    limit: int
    remaining: int
    reset_s: float


@dataclass(frozen=True, slots=True)
class LimitState:
    """The limits of a project at one moment; None where it has no such limit."""

    requests: WindowState | None
    tokens: WindowState | None


@dataclass(frozen=True, slots=True)
class Caller:
    """The account behind a valid key. Usage of a project that is not metered is neither held nor recorded."""

    workspace_id: str
    project_id: str
    key_id: str
    metered: bool
    limits: ProjectLimits
