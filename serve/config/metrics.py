"""What of the metrics is chosen."""

from pydantic import Field

from serve.config.strict_section import Section


class TenantSettings(Section):
    top: int = Field(
        ge=1, le=1000, description="Workspaces whose usage metrics name: those that cost most this month."
    )


class MetricsSettings(Section):
    engines: bool = Field(
        True,
        description="vLLM's own metrics (vllm:*); counting them takes a replica's process some 3 microseconds a token.",
    )
    tenants: TenantSettings | None = Field(
        None, description="Usage of the month by workspace, in /metrics; default: no metric names one."
    )
