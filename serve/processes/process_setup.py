"""Setup of a server's process: its open files, its turns of the interpreter, and the end of what it has started."""

import ctypes
import gc
import os
import resource
import sys
from collections.abc import Collection, Iterator

import psutil

# Open files that are no connections of clients: the ledger's, the spool's, those to replicas, libraries.
OTHER_FILES = 512

# Python's own is 5 ms. A ledger's writer, say, needs the interpreter again after each call of SQLite's: it would wait
# that long each time while the event loop has a burst of requests to work on.
SWITCH_INTERVAL_S = 0.0005


def prepare_interpreter() -> None:
    """To be called when all is loaded and no request has come."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    # Full collections then look at requests only, not at up to a million objects of modules.
    gc.collect()
    gc.freeze()


def files_to_spare() -> int:
    """The number of connections that this process may hold, each of which is an open file."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else max(1, soft - OTHER_FILES)


def allow_open_files() -> None:
    """Raise the soft limit of this process to the hard one: many shells and service managers start a process at 1,024,
    and over the limit no connection is taken in."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


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
