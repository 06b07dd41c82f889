"""Which addresses of the network may be asked for a page. Pure; nothing is
resolved or opened here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

WEB_PORTS = frozenset({80, 443})

METADATA_HOSTS = frozenset(
    [
        "instance-data",
        "instance-data.ec2.internal",
        "metadata",
        "metadata.goog",
        "metadata.google.internal",
        "metadata.internal",
        "metadata.tencentyun.com",
        "metadata.azure.com",
        "metadata.azure.internal",
        "metadata.platformequinix.com",
    ]
)
"""Names under which clouds give credentials to their machines."""


def _networks(text: str) -> tuple[Network, ...]:
    return tuple(ip_network(part) for part in text.split())


METADATA = _networks(
    "169.254.169.0/24 169.254.170.0/24 169.254.0.23/32 "
    "100.100.100.200/32 168.63.129.16/32 192.0.0.192/32 "
    "fd00:ec2::/32 fd20:ce::/32"
)
"""Where clouds give credentials to their machines; refused whatever the settings say."""

PRIVATE = (
    ("a loopback address", _networks("127.0.0.0/8 ::1/128")),
    ("a private address", _networks("10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10")),
    ("a carrier-grade address", _networks("100.64.0.0/10")),
)
"""Refused unless the source allows private addresses."""

FORBIDDEN = (
    ("a link-local address", _networks("169.254.0.0/16 fe80::/10")),
    ("a multicast address", _networks("224.0.0.0/4 ff00::/8")),
    ("an unspecified address", _networks("0.0.0.0/8 ::/128")),
    (
        "an IPv4 address within IPv6",
        _networks("::ffff:0:0/96 ::ffff:0:0:0/96 ::/96 64:ff9b::/96 64:ff9b:1::/48"),
    ),
    ("a tunnel's address", _networks("2002::/16 2001::/32 192.88.99.0/24")),
    (
        "a reserved address",
        _networks(
            "192.0.0.0/24 192.0.2.0/24 192.31.196.0/24 192.52.193.0/24 "
            "192.175.48.0/24 198.18.0.0/15 198.51.100.0/24 "
            "203.0.113.0/24 240.0.0.0/4 100::/64 2001::/23 2001:db8::/32 "
            "3fff::/20 2620:4f:8000::/48 5f00::/16"
        ),
    ),
)
"""Refused always: the special-purpose registries of IANA (RFC 6890 and its updates)."""

_UNICAST = IPv6Network("2000::/3")
_NUMBER = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)", re.IGNORECASE)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressRules:
    """Which addresses and ports may be asked. The default is the public web alone."""

    allow_private: bool = False
    """Also private, loopback and carrier-grade addresses, and every port."""
    ports: frozenset[int] = WEB_PORTS
    allowed: tuple[Network, ...] = ()
    """Networks that may be asked although they are private."""

    def refuses_port(self, port: int) -> bool:
        """Say whether a port may not be asked."""
        return not 0 < port < 65_536 or (port not in self.ports and not self.allow_private)

    def refusal(self, address: Address) -> str | None:
        """Return what kind of address it is if it may not be asked, else None."""
        if _within(address, METADATA):
            return "an address of cloud metadata"
        kind = _kind(address, PRIVATE)
        if kind is not None:
            return None if self.allow_private or _within(address, self.allowed) else kind
        kind = _kind(address, FORBIDDEN)
        if kind is not None:
            return kind
        if isinstance(address, IPv6Address):
            # Address space that nobody has been given yet is not the public web either.
            return (
                None if address in _UNICAST and address.scope_id is None else "a reserved address"
            )
        return None


def is_private(address: Address) -> bool:
    """Say whether an address may be asked only where a source allows private ones."""
    return not _within(address, METADATA) and _kind(address, PRIVATE) is not None


def _kind(address: Address, kinds: Sequence[tuple[str, tuple[Network, ...]]]) -> str | None:
    return next((kind for kind, networks in kinds if _within(address, networks)), None)


def _within(address: Address, networks: Sequence[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def literal_address(host: str) -> Address | None:
    """Return the address that a host is written as, None for a name.

    Raises:
        ValueError: it is a number in another than the usual form (`0x7f.1`, `2130706433`, `127.1`),
            an address with a zone, or no name that can be resolved.
    """
    if ":" in host or "%" in host:
        if "%" in host:
            raise ValueError("has a zone or an escaped character")
        return IPv6Address(host)
    name = host.removesuffix(".")
    labels = name.lower().split(".")
    if _NUMBER.fullmatch(labels[-1]):
        # Resolvers read `0x7f.1` and `2130706433` as addresses; browsers and checks read them
        # differently.
        return IPv4Address(name)
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("is not a host name")
    return None


def is_metadata_host(host: str) -> bool:
    """Say whether a name is one under which clouds give credentials to their machines."""
    return host.lower().rstrip(".") in METADATA_HOSTS


def parsed(text: str) -> Address:
    """Return the address that a resolver gave."""
    return ip_address(text)
