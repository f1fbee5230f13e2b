"""Processes that begin within milliseconds: forked from one that has imported the service, and has no threads."""

from __future__ import annotations

import multiprocessing

processes = multiprocessing.get_context("forkserver")
# All users of it share the one server of their process, so what any of them runs is named here.
processes.set_forkserver_preload(["tests.faults.ingress", "tests.serve.batches.dying_server"])
