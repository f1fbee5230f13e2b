"""Settings of money and of what is kept for customers: ledger, webhooks, batches, files, originals, responses."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from models.engine import ServiceTier
from serve.config.values import Section, parse_networks

IN_MEMORY = "memory://"


# The part of a model's prices; see `billing.price.MAX_PPM`.
Factor = Annotated[Decimal, Field(ge=0, le=4, decimal_places=6)]


class ArchiveSettings(Section):
    keep_months: int | None = Field(
        None,
        ge=1,
        le=1200,
        description="Whole months before the present one whose usage events `pith archive` leaves in the ledger; "
        "none: all of them.",
    )
    folder: Path = Field(
        Path("var/archive"),
        description="Folder of the files of archived months: part of the books, as the ledger.",
    )


class BillingSettings(Section):
    database_url: str = Field("sqlite:///var/pith.db", description="SQLAlchemy URL of the ledger.")
    spool_path: Path = Field(
        Path("var/spool.db"), description="Local file that keeps usage while the ledger is down."
    )
    collection_threshold_cents: int = Field(
        500, ge=1, description="Minimum uncollected balance, in cents, at which a collection is cut."
    )
    collection_hook: list[str] = Field(
        [], description="Program and arguments that hand a collection to a payment system; none: by hand."
    )
    collection_hook_timeout_s: float = Field(
        30, gt=0, le=600, description="Seconds that one run of the collection hook may take."
    )
    upkeep_s: float = Field(
        30,
        gt=0,
        description="Seconds between replays of the spool, and between checks for due collections.",
    )
    key_cache_s: float = Field(5, ge=0, le=5, description="Seconds for which a checked key is cached.")
    key_outage_s: float = Field(
        60,
        ge=0,
        le=3600,
        description="Seconds for which a checked key goes on working while the ledger is down.",
    )
    spool_max_rows: int = Field(
        100_000,
        ge=1,
        description="Usage events in the spool at which no more work is taken on without a ledger.",
    )
    offline_allowance_usd: Annotated[Decimal, Field(ge=0, le=1_000_000, decimal_places=9)] = Field(
        Decimal(0),
        description="US dollars that each workspace may spend in each ingress replica while the ledger is down.",
    )
    rate_limit_storage: str = Field(
        IN_MEMORY,
        description="Where rate limits are counted: memory://, for one machine, or a Redis that several share.",
    )
    rate_limit_outage: Literal["refuse", "allow"] = Field(
        "refuse",
        description="Without Redis, or for limits by hour and day without the ledger: refuse (503), or allow what each "
        "replica counts.",
    )
    archive: ArchiveSettings = ArchiveSettings()
    service_tiers: dict[Literal["flex", "priority"], Factor] = Field(
        {},
        description="The part of a model's prices that a chat of each service tier is charged, such as `{flex: 0.5, "
        "priority: 2}`, from 0 to 4; a tier without one is not offered.",
    )

    @property
    def tiers_ppm(self) -> dict[ServiceTier, int]:
        """What is charged in each tier that is offered, in millionths of a price."""
        return {tier: int(factor * 10**6) for tier, factor in self.service_tiers.items()}

    @field_validator("collection_hook")
    @classmethod
    def _runnable(cls, argv: list[str]) -> list[str]:
        if argv and not argv[0]:
            raise ValueError("the first item must name a program")
        if any("\0" in item for item in argv):
            raise ValueError("must not contain NUL")
        return argv

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, url: str) -> str:
        names_a_file = url.startswith("sqlite:///") and url not in ("sqlite:///", "sqlite:///:memory:")
        if not names_a_file and not url.startswith("postgresql+asyncpg://"):
            raise ValueError("use sqlite:///PATH or postgresql+asyncpg://USER@HOST/NAME")
        return url

    @field_validator("rate_limit_storage")
    @classmethod
    def _known_storage(cls, uri: str) -> str:
        # Never repeated whole: it may hold a password.
        scheme, separator, rest = uri.partition("://")
        shared = separator and rest and scheme in ("redis", "rediss", "unix")
        if uri != IN_MEMORY and not shared:
            raise ValueError("use memory://, redis://HOST:PORT/DB, rediss://HOST:PORT/DB or unix:///SOCKET")
        return uri


class WebhookSettings(Section):
    allowed_networks: list[str] = Field(
        [],
        description="Networks (10.0.0.0/8) that webhooks may reach besides public addresses; loopback is one, too.",
    )
    allow_http: bool = Field(
        False,
        description="Whether URLs may be http on other hosts than loopback: their contents can be read.",
    )
    timeout_s: float = Field(
        10, gt=0, le=60, description="Seconds within which a receiver must answer a webhook."
    )
    max_per_workspace: int = Field(
        10, ge=1, le=1000, description="Webhooks that a workspace may have, and the whole service besides."
    )

    @field_validator("allowed_networks")
    @classmethod
    def _are_networks(cls, given: list[str]) -> list[str]:
        return [str(network) for network in parse_networks(given)]


class BatchSettings(Section):
    deployment: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="Name shared by the servers that run one another's batches: they serve the same models and share "
        "state_dir/files. By default what one `pith serve` starts is a deployment of its own.",
    )
    price_factor: Annotated[Decimal, Field(ge=0, le=1, decimal_places=6)] = Field(
        Decimal("0.5"), description="The part of a model's prices that a line of a batch is charged."
    )
    concurrency: int = Field(
        4, ge=0, le=1024, description="Lines of batches that each HTTP process runs at once; 0: none."
    )
    concurrency_beside: int = Field(
        1,
        ge=0,
        le=1024,
        description="The same while this HTTP process has interactive requests under way.",
    )
    window_hours: float = Field(
        24,
        gt=0,
        le=31 * 24,
        description="Hours after which the lines of a batch that have not run are given up.",
    )
    max_lines: int = Field(50_000, ge=1, le=1_000_000, description="Lines that one batch may have.")
    max_unfinished_per_project: int = Field(
        100, ge=1, le=100_000, description="Batches of one project that have not ended."
    )
    max_file_mb: int = Field(200, ge=1, le=100_000, description="Megabytes that one uploaded file may have.")
    max_files_per_project: int = Field(1000, ge=1, le=1_000_000, description="Files of one project.")
    max_mb_per_project: int = Field(
        2048, ge=1, le=1_000_000, description="Megabytes that the files of one project may have together."
    )
    file_days: float = Field(
        30, gt=0, le=3650, description="Days for which a file is kept unless its upload says less."
    )

    @property
    def price_ppm(self) -> int:
        """The part of a price, in millionths, that a line is charged."""
        return int(self.price_factor * 10**6)


class RetentionSettings(Section):
    max_s: int = Field(
        86_400,
        ge=0,
        le=31 * 86_400,
        description="Most seconds for which a request may have originals kept (`compression.retain_s`); 0: none.",
    )
    max_mb_per_project: int = Field(
        256,
        ge=1,
        le=1_000_000,
        description="Megabytes of text that one project's originals may have together.",
    )


class ResponseSettings(Section):
    store_s: int = Field(
        3600,
        ge=0,
        le=31 * 86_400,
        description="Seconds for which a response is kept, unless its request says `store: false`; 0: none is. No "
        "longer than `compression.retention.max_s`, and within its `max_mb_per_project`.",
    )
