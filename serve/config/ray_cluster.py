"""The Ray cluster of a server: its own, or one that runs already, and what must be open between the nodes of that."""

from __future__ import annotations

from pydantic import Field, model_validator

from serve.config.strict_section import Section

# As `server.host`: each HTTP process listens on the address of the node where it is.
NODE = "node"


class RaySettings(Section):
    logical_cpus: int = Field(16, ge=1, description="CPUs that Ray counts; replicas ask for one each.")
    object_store_mb: int = Field(128, ge=80, description="Megabytes of Ray's shared-memory object store.")
    address: str | None = Field(
        None, description="A running cluster to join; default: one is started for this server."
    )
    start_limit_s: float = Field(
        7200,
        gt=0,
        description="Seconds until the models that are kept up must run, downloads included; then the start ends and "
        "says which do not.",
    )
    replica_ports: tuple[int, int] | None = Field(
        None,
        description="First and last port that engines' replicas listen on, one each, on the nodes of `address`; "
        "default: any that is free.",
    )

    @model_validator(mode="after")
    def _a_range_of_ports(self) -> RaySettings:
        if self.replica_ports is None:
            return self
        first, last = self.replica_ports
        if not 1024 <= first <= last <= 65535:
            raise ValueError(f"replica_ports: {first} to {last} is no range of ports between 1024 and 65535")
        if self.address is None:
            raise ValueError("replica_ports: without ray.address no other machine reaches an engine")
        return self
