"""Answers of the catalog and model routes, as `/openapi.json` documents them. Money is a float only in such shapes."""

from pydantic import BaseModel, ConfigDict, Field

from serve.money.prices import document_cached_price


class Model(BaseModel):
    """A model and its prices."""

    model_config = ConfigDict(extra="allow", json_schema_extra=document_cached_price)

    id: str = Field(description="What a request names in `model`.")
    name: str = Field(description="Display name.")
    context_length: int = Field(description="Maximum tokens of prompt and reply together.")
    input_price_per_mtok: float = Field(description="USD per million input tokens.")
    output_price_per_mtok: float = Field(description="USD per million output tokens.")
    minimum_request_charge_usd: float = Field(
        description="The least that a successfully metered request with this model costs, in USD."
    )


class CatalogModel(Model):
    """A model as the public catalog shows it."""

    blurb: str = Field(description="What the model is for, in a sentence or two.")
    is_default: bool = Field(description="Whether a request that names no model gets this one.")


class Catalog(BaseModel):
    """The public models and the version of their price list."""

    pricing_version: int = Field(description="Rises when a price changes; every charge names it.")
    collection_threshold_cents: int = Field(
        ge=1, description="Minimum balance at which charges are collected."
    )
    models: list[CatalogModel] = Field(description="In the operator's order; the first is the default.")
