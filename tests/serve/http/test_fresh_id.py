"""Ids are new each time, in a forked child too."""

from __future__ import annotations

import re
import subprocess
import sys

from serve.http.middleware import IDS_PER_DRAW, fresh_id


def test_ids_are_32_hexadecimal_digits_and_all_different() -> None:
    ids = [fresh_id() for _ in range(3 * IDS_PER_DRAW)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in ids)


FORKING = """
import os
from serve.http.middleware import IDS_PER_DRAW, fresh_id
fresh_id()
receiving, sending = os.pipe()
if os.fork() == 0:
    os.write(sending, fresh_id().encode())
    os._exit(0)
os.wait()
print(os.read(receiving, 32).decode() in {fresh_id() for _ in range(IDS_PER_DRAW)})
"""


def test_a_forked_child_gives_out_other_ids_than_its_parent() -> None:
    # In a process of its own, which has no other threads.
    ran = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
