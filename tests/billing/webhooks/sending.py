"""A sender in a process of its own, to be killed: `python sending.py DATABASE_URL SECONDS_SINCE_1970`."""

from __future__ import annotations

import asyncio
import sys

from billing.store.database import open_database
from billing.webhooks.dispatcher import Dispatcher
from billing.webhooks.secret_box import SecretBox
from billing.webhooks.sender import HttpSender
from tests.billing.conftest import PEPPER
from tests.billing.webhooks.conftest import LOOPBACK


async def main(url: str, now: float) -> None:
    database = open_database(url, clock=lambda: now)
    await Dispatcher(database, SecretBox(PEPPER), HttpSender(allowed=LOOPBACK)).once()


asyncio.run(main(sys.argv[1], float(sys.argv[2])))
