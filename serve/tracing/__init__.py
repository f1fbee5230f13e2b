"""How long each step of a request took, as spans for an OpenTelemetry collector. `otlp` and `export` import
OpenTelemetry, and are themselves imported only where tracing is configured."""
