"""The caller of a request, as every later step needs it: identity, whether its usage is metered, and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

MAX_WEIGHT = 1000
# In the place of a tag, which none can be.
EACH_PERSON = "*"


@dataclass(frozen=True, slots=True)
class ProjectLimits:
    """Limits of one project, or of whom else requests count for; None means no limit. Projects that wait for the same
    engine get places and turns in proportion to `weight`."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    max_in_flight: int | None = None
    weight: int = 1
    # By the hours and days of the workspace's time zone.
    requests_per_hour: int | None = None
    requests_per_day: int | None = None
    tokens_per_hour: int | None = None
    tokens_per_day: int | None = None

    def __post_init__(self) -> None:
        if self.weight is None or self.weight > MAX_WEIGHT:
            raise ValueError(f"weight: must be an integer from 1 to {MAX_WEIGHT}, not {self.weight!r}")
        for one in fields(self):
            value = getattr(self, one.name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"{one.name}: must be an integer of at least 1, or none; not {value!r}")

    @property
    def unlimited(self) -> bool:
        return all(getattr(self, name) is None for name in RATES)


NO_LIMITS = ProjectLimits()
LIMITS = tuple(field.name for field in fields(ProjectLimits))
# Those that others than projects may have too.
RATES = tuple(name for name in LIMITS if name != "weight")


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
class PriceTerms:
    """What a caller pays who does not pay the prices in force: so many millionths of those of one list, or of those in
    force if `version` is None."""

    version: int | None
    ppm: int


@dataclass(frozen=True, slots=True)
class KeyPowers:
    """What a key may be used for, by the names of models and of routes; None means all."""

    models: frozenset[str] | None = None
    routes: frozenset[str] | None = None

    def allows_model(self, model_id: str) -> bool:
        return self.models is None or model_id in self.models

    def allows_route(self, route: str) -> bool:
        return self.routes is None or route in self.routes


ALL_POWERS = KeyPowers()


@dataclass(frozen=True, slots=True)
class Caller:
    """The account behind a valid key. Usage of a project that is not metered is neither held nor recorded."""

    workspace_id: str
    project_id: str
    key_id: str
    metered: bool
    limits: ProjectLimits
    # How the project's chats are compressed unless they say so themselves, as JSON.
    compression: str | None = None
    # Where the size of its compressed chats stands, if samples of what compression changes decide it and there is one.
    size_step: float | None = None
    # Replies carry promises that their usage will be in the log.
    proof: bool = False
    # None: the prices in force.
    price_terms: PriceTerms | None = None
    # Nobody waits for its requests: they let all others go first, and limits a minute and in flight do not count them.
    background: bool = False
    # The service tier of its request, which `price_terms` are of: `flex` or `priority`; "": the usual one.
    tier: str = ""
    powers: KeyPowers = ALL_POWERS
    # The key's own, beside the project's. Rotated keys share those of the first, which `limits_key_id` names.
    key_limits: ProjectLimits = NO_LIMITS
    limits_key_id: str = ""
    workspace_limits: ProjectLimits = NO_LIMITS
    # Of its project: limits by tag, and those of `EACH_PERSON`.
    label_limits: Mapping[str, ProjectLimits] = field(default_factory=dict, hash=False)
    # Of its project: whether a person has to be named, and the tags that may be; None: all.
    person_required: bool = False
    allowed_tags: tuple[str, ...] | None = None
    person_key: bytes = field(default=b"", repr=False)
    # Whom and what its request names, as `billing.labels` reads it: a keyed hash, and tags in their order.
    person: str | None = None
    tags: tuple[str, ...] = ()

    def counted_apart(self, what: str) -> Caller:
        """For requests that are no work, such as lists: as often a minute as the project may ask for work, and counted
        apart from it, since clients ask for them as they please. They are for nobody."""
        return replace(
            self,
            project_id=f"{self.project_id}:{what}",
            limits=ProjectLimits(requests_per_minute=self.limits.requests_per_minute),
            key_limits=ProjectLimits(requests_per_minute=self.key_limits.requests_per_minute),
            limits_key_id=f"{self.limits_key_id}:{what}",
            workspace_id=f"{self.workspace_id}:{what}",
            workspace_limits=ProjectLimits(requests_per_minute=self.workspace_limits.requests_per_minute),
            label_limits={},
        )
