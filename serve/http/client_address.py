"""Addresses of clients: the one client behind all those that its network lets it use, and proxies' networks."""

from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address

from serve.config.values import Network

# An IPv6 client has at least this much of the address space to itself, and could use a new address each time.
IPV6_CLIENT_BITS = 64
UNKNOWN = "unknown"


def client_of(address: str | None) -> str:
    """The client behind an address: an IPv4 address itself, an IPv6 address's network."""
    try:
        parsed = ip_address(plain_address(address))
    except ValueError:
        return UNKNOWN
    if isinstance(parsed, IPv6Address):
        return f"{int(parsed) >> (128 - IPV6_CLIENT_BITS):x}"
    return str(parsed)


def plain_address(address: str | None) -> str:
    """Without a zone, and an IPv4-mapped IPv6 address as plain IPv4."""
    text = (address or "").partition("%")[0]
    if text.lower().startswith("::ffff:"):
        mapped = IPv6Address(text).ipv4_mapped
        return str(mapped) if mapped is not None else text
    return text


def is_in_networks(address: str | None, among: Iterable[Network]) -> bool:
    """True if the address belongs to one of the networks."""
    try:
        parsed = ip_address(plain_address(address))
    except ValueError:
        return False
    return any(parsed in network for network in among)
