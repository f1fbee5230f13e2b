"""Setup of a process that serves requests: its interpreter, and its limit of open files."""

import gc
import resource
import sys

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
