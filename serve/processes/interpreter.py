"""What a process that serves requests asks of its Python interpreter."""

import gc
import sys

# Python's own is 5 ms. A ledger's writer, say, needs the interpreter again after each call of SQLite's: it would wait
# that long each time while the event loop has a burst of requests to work on.
SWITCH_INTERVAL_S = 0.0005


def prepare_interpreter() -> None:
    """To be called when all is loaded and no request has come."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    # Full collections then look at requests only, not at up to a million objects of modules.
    gc.collect()
    gc.freeze()
