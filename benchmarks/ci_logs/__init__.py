"""Recording of CI logs: small projects of many kinds with faults put in, built and tested by real tools."""
