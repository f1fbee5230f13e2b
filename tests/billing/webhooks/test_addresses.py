"""Which addresses a webhook may reach."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from billing.webhooks.sender import AddressRefused, AllowedAddresses

PUBLIC = ("8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808")
NOT_PUBLIC = (
    "127.0.0.1",
    "127.9.9.9",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.169.254",
    "198.18.0.1",
    "192.0.2.1",
    "224.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1%eth0",
    "fd00:ec2::254",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::7f00:1",
    "2002:7f00:1::",
    "2001:0:7f00:1::",
    "2001:db8::1",
    "fec0::1",
    "192.0.0.9",
    "192.0.0.170",
    "192.88.99.1",
    "3fff:ffe::1",
    "168.63.129.16",
    "::ffff:168.63.129.16",
    "no address",
)


@pytest.mark.parametrize("address", PUBLIC)
def test_the_public_internet_is_reached(address: str) -> None:
    AllowedAddresses().check(address)


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_only_addresses_of_the_public_internet_are_reached(address: str) -> None:
    with pytest.raises(AddressRefused, match="may not reach"):
        AllowedAddresses().check(address)


def test_what_the_operator_allows_is_reached_however_it_is_written() -> None:
    allowed = AllowedAddresses([ip_network("10.0.0.0/8"), ip_network("fd00::/8")])
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::a01:203", "fd00::1"):
        allowed.check(address)
    with pytest.raises(AddressRefused):
        allowed.check("11.0.0.256")
