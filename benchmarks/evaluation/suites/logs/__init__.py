"""Logs as programs write them, with questions about what went wrong."""

from benchmarks.evaluation.suites.logs.cases import log_cases

__all__ = ["log_cases"]
