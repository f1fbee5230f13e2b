"""Ports of loopback for tests that name them."""

import socket
from contextlib import ExitStack


def neighbours(count: int) -> tuple[int, int]:
    """The first and the last of so many that follow each other and are free."""
    while True:
        with ExitStack() as held:
            first = held.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            try:
                for port in range(first + 1, first + count):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first, first + count - 1
