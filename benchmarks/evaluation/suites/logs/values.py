"""The values that lines of a log differ in: hosts, addresses, ids, sizes, names, drawn from one log's own pools."""

import random
from collections.abc import Callable

_USERS = (
    "root",
    "admin",
    "alice",
    "bob",
    "guest",
    "oracle",
    "webmaster",
    "test",
    "deploy",
    "postgres",
    "nagios",
    "jenkins",
)
_WORDS = (
    "orders",
    "users",
    "billing",
    "search",
    "cache",
    "images",
    "reports",
    "invoices",
    "sessions",
    "events",
    "audit",
    "metrics",
)
_FOLDERS = ("/var/lib/{}", "/srv/{}/data", "/user/{}/part", "/opt/{}/conf", "/tmp/{}", "/data/{}/logs")


class Values(dict[str, str]):
    """Asked for a name, draws a value of its kind; hosts, users and jobs come from few, as in one system's log."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        prefix = chance.choice(("node", "mesos-slave", "web", "worker", "db", "msra-sa", "dn"))
        hosts = [f"{prefix}-{chance.randint(1, 99):02}" for _ in range(5)]
        ips = [".".join(str(chance.randint(1, 250)) for _ in range(4)) for _ in range(8)]
        self.job = f"job_{chance.randint(10**12, 10**13)}_{chance.randint(1, 60):04}"
        self._pools = {"host": hosts, "ip": ips, "user": chance.sample(_USERS, 5), "job": [self.job]}

    def __missing__(self, name: str) -> str:
        draw = _DRAWS.get(name)
        if draw is not None:
            return draw(self._chance)
        return self._chance.choice(self._pools[name])


def _uuid(chance: random.Random) -> str:
    text = f"{chance.getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"


def _path(chance: random.Random) -> str:
    return f"{chance.choice(_FOLDERS).format(chance.choice(_WORDS))}/{chance.getrandbits(32):08x}"


_DRAWS: dict[str, Callable[[random.Random], str]] = {
    "n": lambda chance: str(chance.randint(0, 99)),
    "big": lambda chance: str(chance.randint(1_000, 90_000_000)),
    "ms": lambda chance: str(chance.randint(1, 9_000)),
    "port": lambda chance: str(chance.randint(1_024, 65_000)),
    "hex": lambda chance: f"{chance.getrandbits(64):016x}",
    "uuid": _uuid,
    "blk": lambda chance: f"blk_{chance.choice(('', '-'))}{chance.getrandbits(62)}",
    "word": lambda chance: chance.choice(_WORDS),
    "path": _path,
    "float": lambda chance: f"{chance.uniform(0, 99):.2f}",
}
