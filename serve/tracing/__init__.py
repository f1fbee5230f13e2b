"""Records of requests, and traces: the time of each step, as spans for an OpenTelemetry collector. `otlp` imports
OpenTelemetry, and is itself imported only where tracing is configured."""
