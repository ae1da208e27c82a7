"""Addresses of servers."""

from __future__ import annotations

import ipaddress


def format_address(host: str, port: int) -> str:
    """Return the URL of a host, whose IPv6 address stands in brackets."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether an address belongs to the loopback interface.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
