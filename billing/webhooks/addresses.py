"""Which addresses a webhook may reach: those of the Internet, and the networks that the operator allows.

Otherwise whoever names a URL could have the server speak to its own machine, its neighbours, or a cloud's metadata.
"""

import errno
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

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
