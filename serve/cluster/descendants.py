"""Makes sure that no process outlives the server: engines start children of their own, which a crash orphans."""

import ctypes
import os
from collections.abc import Collection, Iterator

import psutil

PR_SET_CHILD_SUBREAPER = 36
TERMINATE_S = 0.5


def adopt_orphans() -> None:
    """Make this process the parent of every orphaned descendant (Linux), so that it can find and stop them."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children_of_this_process() -> frozenset[int]:
    """The ids of direct children: those that this process started, and those that it adopted."""
    return frozenset(child.pid for child in psutil.Process().children())


def started_since(before: Collection[int]) -> Iterator[psutil.Process]:
    """Direct children other than those of `before`, with their descendants."""
    for child in psutil.Process().children():
        if child.pid not in before:
            yield child
            try:
                yield from child.children(recursive=True)
            except psutil.NoSuchProcess:
                continue


def reap_orphans(started: Collection[int]) -> None:
    """Take the exit status of adopted processes that have ended; those in `started` have a parent that asks."""
    for child in psutil.Process().children():
        try:
            if child.pid not in started and child.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(child.pid, os.WNOHANG)
        except (psutil.NoSuchProcess, ChildProcessError):
            continue


def stop_descendants() -> None:
    """Stop every process that this one started, directly or not: first asked, then killed."""
    for ask in (psutil.Process.terminate, psutil.Process.kill):
        running = psutil.Process().children(recursive=True)
        for process in running:
            try:
                ask(process)
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(running, timeout=TERMINATE_S)
