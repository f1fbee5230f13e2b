"""Files and batches: what they may be, what a batch is charged, and how much of the server it may have."""

from decimal import Decimal
from typing import Annotated

from pydantic import Field

from serve.config.strict_section import Section


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
