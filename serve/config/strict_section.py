"""The base of every section of the configuration: unknown keys are refused, and nothing changes later."""

from pathlib import Path
from typing import Any, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_boolean_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        # YAML reads `on` and `yes` as true, which pydantic would take for 1.
        annotation = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and annotation is not bool and bool not in get_args(annotation):
            raise ValueError("must not be true or false")
        return value


class ReplicaCounts(Section):
    """The keys that every kind of model has of its replicas."""

    min: int = Field(1, ge=0, description="Replicas kept up; 0 starts the model on its first request.")
    max: int = Field(1, ge=1, description="Maximum number of replicas.")
    per_node: int | None = Field(
        None,
        ge=1,
        le=100,
        description="Most replicas on one node of a cluster; default: as few as hold `max`, by the nodes at the start.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min ({self.min}) is above max ({self.max})")
        return self


S = TypeVar("S", bound=Section)


def with_files(section: S, folder: Path, *names: str) -> S:
    """The same with the files of these keys under `folder`, where they begin with a dot."""
    files = {name: getattr(section, name) for name in names}
    found = {name: str(folder / file) for name, file in files.items() if file and file.startswith(".")}
    return section.model_copy(update=found)
