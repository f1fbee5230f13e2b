"""Sending of one event to one receiver over HTTP: in bounded time, with bounded bytes and trust."""

import asyncio
import errno
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Protocol

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from billing.webhooks.endpoint import Attempt, InvalidEndpoint, Outcome, checked_url
from billing.webhooks.secret_box import signature

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

# NAT64: what is behind such an address is an IPv4 address.
_NAT64 = ip_network("64:ff9b::/96")
# Besides what Python's tables say, which change with its version.
_NEVER_PUBLIC: tuple[Network, ...] = tuple(
    ip_network(each)
    for each in (
        # Names for the machine itself, for its link and for its site.
        *("::/96", "fe80::/10", "fec0::/10"),
        # Ways around: 6to4 with its relays, Teredo, local NAT64.
        *("2002::/16", "192.88.99.0/24", "2001::/32", "64:ff9b:1::/48"),
        # Assigned to protocols, for documentation, and a cloud's service for its own machines.
        *("192.0.0.0/24", "3fff::/20", "168.63.129.16/32"),
    )
)


class AddressRefused(OSError):
    """A name resolved to an address that webhooks may not reach."""

    def __init__(self, address: str) -> None:
        super().__init__(errno.EACCES, f"webhooks may not reach {address} (webhooks.allowed_networks)")


class AllowedAddresses:
    """The rule of one server. `networks` are allowed besides the addresses of the Internet."""

    def __init__(self, networks: Sequence[Network] = ()) -> None:
        self._networks = tuple(networks)

    def check(self, address: str) -> None:
        """Raises `AddressRefused`. An address with a scope (`fe80::1%eth0`) is judged without it."""
        try:
            found = _unwrapped(ip_address(address.partition("%")[0]))
        except ValueError:
            raise AddressRefused(address) from None
        if not any(found in network for network in self._networks) and not _is_public(found):
            raise AddressRefused(address)


def _unwrapped(address: Address) -> Address:
    """The IPv4 address inside one of IPv6, where it is only another way to write it."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_public(address: Address) -> bool:
    if address.is_multicast or address.is_reserved or address.is_unspecified:
        return False
    return address.is_global and not any(address in network for network in _NEVER_PUBLIC)


# A receiver's whole answer is its status: of the rest so much is read, so that its server can end in peace.
MOST_BODY_BYTES = 16_384
BODY_S = 1.0
GONE = 410
USER_AGENT = "pith-webhooks/1"


class Sender(Protocol):
    """Sends what a claimed endpoint is to be told. Never raises for what a receiver does."""

    timeout_s: float

    async def send(self, attempt: Attempt, secrets: Sequence[str]) -> Outcome: ...

    async def close(self) -> None: ...


class HttpSender:
    """Follows no redirect, keeps no connection and no cookie, heeds no proxy of the environment.

    The address is checked when the socket is made: a name that resolves to another one the second time gains nothing.
    """

    def __init__(
        self,
        *,
        allowed: AllowedAddresses,
        allow_http: bool = False,
        timeout_s: float = 10.0,
        at_once: int = 32,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`at_once` is how many names may be looked up at the same time."""
        self.timeout_s = timeout_s
        self._allowed = allowed
        self._allow_http = allow_http
        self._clock = clock
        # Of its own: a name server that hangs must not take the threads that others need.
        self._lookups = ThreadPoolExecutor(at_once, thread_name_prefix="webhook-dns")
        self._session: aiohttp.ClientSession | None = None

    async def send(self, attempt: Attempt, secrets: Sequence[str]) -> Outcome:
        """POSTs the payload with its signatures. Any answer but 2xx is a failure."""
        try:
            # Again: the rule may have become stricter since it was added.
            checked_url(attempt.url, allow_http=self._allow_http)
            async with asyncio.timeout(self.timeout_s):
                reply = await self._posted(attempt, secrets)
        except TimeoutError:
            return Outcome("unreachable", error=f"no answer within {self.timeout_s:g} s")
        except (aiohttp.ClientError, OSError, ValueError, InvalidEndpoint) as error:
            return Outcome("unreachable", error=_said(error))
        async with reply:
            await _drop_body(reply)
        return _outcome(reply.status)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
        self._lookups.shutdown(wait=False, cancel_futures=True)

    async def _posted(self, attempt: Attempt, secrets: Sequence[str]) -> aiohttp.ClientResponse:
        """The answer, as far as its headers. aiohttp bounds how long these may be."""
        body, timestamp = attempt.payload.encode(), int(self._clock())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": USER_AGENT,
            "webhook-id": attempt.event_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature(
                secrets, message_id=attempt.event_id, timestamp=timestamp, body=body
            ),
        }
        return await self._opened().post(attempt.url, data=body, headers=headers, allow_redirects=False)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                resolver=Resolver(self._lookups),
                use_dns_cache=False,
                force_close=True,
                limit=0,
                socket_factory=self._checked_socket,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                # Each step has a bound of its own here.
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
                trust_env=False,
            )
        return self._session

    def _checked_socket(self, found: Any) -> socket.socket:
        """A socket for one address that a name resolved to. Raises `AddressRefused`."""
        family, kind, protocol, _, address = found
        self._allowed.check(address[0])
        return socket.socket(family, kind, protocol)


class Resolver(AbstractResolver):
    """Looks names up in threads of its own."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises `OSError`."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
        )
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=port,
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in found
        ]

    async def close(self) -> None:
        return


def _outcome(status: int) -> Outcome:
    if 200 <= status < 300:
        return Outcome("delivered", status)
    return Outcome("gone" if status == GONE else "refused", status, f"it answered {status}")


async def _drop_body(reply: aiohttp.ClientResponse) -> None:
    left = MOST_BODY_BYTES
    try:
        async with asyncio.timeout(BODY_S):
            while left > 0 and (piece := await reply.content.read(left)):
                left -= len(piece)
    except (TimeoutError, aiohttp.ClientError, OSError):
        # It has said what it had to say.
        return


def _said(error: Exception) -> str:
    """One line, without the URL: a query may be a secret of the receiver's."""
    inner = getattr(error, "os_error", None) or error
    text = getattr(inner, "strerror", None) or (str(inner) if isinstance(inner, OSError) else "")
    if isinstance(inner, InvalidEndpoint):
        text = str(inner)
    return " ".join(f"{type(inner).__name__}: {text}".split()) if text else type(inner).__name__
