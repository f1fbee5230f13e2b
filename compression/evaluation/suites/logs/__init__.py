"""Logs as programs write them, with questions of those who look for what went wrong."""

from compression.evaluation.suites.logs.cases import log_cases

__all__ = ["log_cases"]
