"""What a forked process does before its work: it will die with its parent, and first where memory runs out."""

import ctypes
import os
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1
# Of 1000. A kernel that is out of memory is to end a worker before it ends the server.
_OOM_SCORE = 500
_libc: ctypes.CDLL | None = None


def load_prctl() -> None:
    """Before the fork, so that it is there after it."""
    global _libc
    _libc = ctypes.CDLL(None, use_errno=True)


def became_worker(parent: int, niceness: int) -> None:
    """To be called in the child at once. `parent` is the process that forked it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        # It died before the death signal was set.
        os._exit(1)
    os.nice(niceness)
    try:
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))
    except OSError:
        # A sandbox without it has its own rules for memory.
        return
