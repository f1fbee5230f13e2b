"""SIGHUP: a service manager's word for taking the configuration anew, and a terminal's for having gone."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

from serve.cluster.reload.asked import Asked
from serve.cluster.reloader import Reloader


def reload_on_hangup(reloader: Reloader) -> None:
    """From here on SIGHUP has the configuration read again, unless it says that the terminal is gone: then it stops the
    server, as before."""
    had_terminal = has_terminal()

    def on_hangup(number: int, frame: FrameType | None) -> None:
        if had_terminal and not has_terminal():
            signal.raise_signal(signal.SIGTERM)
            return
        # Not here: the main thread is to notice the next signal.
        threading.Thread(target=_reload, args=[reloader], name="reload", daemon=True).start()

    signal.signal(signal.SIGHUP, on_hangup)


def has_terminal() -> bool:
    """Whether this process can be hung up."""
    try:
        os.close(os.open(os.ctermid(), os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _reload(reloader: Reloader) -> None:
    reloader.outcome(Asked("signal:SIGHUP"), lambda line: None)
