"""Traces: the time of each step of a request, as spans for an OpenTelemetry collector. `otlp` imports OpenTelemetry,
and is itself imported only where tracing is configured."""
