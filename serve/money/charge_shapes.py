"""What every charged reply says of its charge, as `/openapi.json` documents it."""

from pydantic import BaseModel, ConfigDict, Field

from billing.usage import MeteringStatus
from serve.money.service_block import document_cached_price


class Metering(BaseModel):
    """Whether the usage was recorded."""

    persisted: bool = Field(description="True once it is committed in the ledger.")
    status: MeteringStatus = Field(
        description="`persisted`: in the ledger. `degraded`: kept on disk and brought to it later, exactly "
        "once. `not_applicable`: this project is not metered."
    )


class Billing(BaseModel):
    """What a request cost and why."""

    model_config = ConfigDict(json_schema_extra=document_cached_price)

    input_price_per_mtok: float = Field(description="USD per million input tokens of the selected model.")
    output_price_per_mtok: float = Field(description="USD per million output tokens of the selected model.")
    minimum_request_charge_usd: float = Field(description="The selected model's minimum per request, in USD.")
    minimum_applied: bool = Field(description="True when the minimum determined the cost.")
    request_cost_usd: float = Field(description="The greater of the tokens' price and the minimum, in USD.")
