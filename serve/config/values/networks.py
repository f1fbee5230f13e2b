"""Networks of addresses as a configuration names them."""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_network

LOOPBACK = ("127.0.0.0/8", "::1/128")

Network = IPv4Network | IPv6Network


def networks(given: Iterable[str]) -> tuple[Network, ...]:
    """Raises `ValueError` for an invalid network."""
    return tuple(ip_network(each, strict=False) for each in given)
