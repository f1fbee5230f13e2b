"""Where traces may go: what cannot reach its collector is refused at the start."""

import pytest
from pydantic import ValidationError

from serve.config.server_settings import TracingSettings

COLLECTOR = "https://collector.example:4317"


def test_engines_that_would_speak_without_tls_to_a_collector_that_wants_it_are_refused() -> None:
    with pytest.raises(
        ValidationError, match=r"vLLM speaks gRPC without TLS.*protocol: http, or engine: false"
    ):
        TracingSettings(endpoint=COLLECTOR, protocol="grpc")
    alone = TracingSettings(endpoint=COLLECTOR, protocol="grpc", engine=False)
    assert alone.terms is not None and alone.engine_terms is None
    for terms in (
        TracingSettings(endpoint=COLLECTOR, protocol="http").engine_terms,
        TracingSettings(endpoint="http://collector.example:4317", protocol="grpc").engine_terms,
    ):
        assert terms is not None
