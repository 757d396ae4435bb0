"""Odd names, addresses and networks, as the gateway reads them."""

from __future__ import annotations

import ipaddress

import pytest

from gateway.listening import Addresses
from gateway.settings import parse_networks
from gateway.tokens import check_subject
from sequencing.errors import UsageError


@pytest.mark.parametrize("subject", ["al\u3164ice", "alice\ufe0f", "\u2800", "ma*", "a~b", "anybody", "x" * 200, "", 7])
def test_odd_subjects_are_refused(subject: object) -> None:
    with pytest.raises(UsageError, match=r"^sub "):
        check_subject(subject, "sub")


def test_one_network_of_ipv6_and_one_address_of_ipv4_count_as_one() -> None:
    addresses = Addresses(2)
    for one, same, third in (
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", "2001:db8:1:2::77"),
        ("192.0.2.7", "::ffff:192.0.2.7", "::ffff:c000:207"),
        ("fe80::1%eth0", "fe80::2%eth0", "fe80::3"),
        ("unknown", "unknown", "unknown"),
    ):
        assert addresses.enter(one)
        assert addresses.enter(same)
        assert not addresses.enter(third)
        assert addresses.of(third) == 2
        addresses.leave(third)
        addresses.leave(one)
        assert addresses.of(same) == 0
    assert addresses.enter("2001:db8:1:3::1")
    assert addresses.enter("192.0.2.8")


def test_proxies_may_be_given_as_ipv6_shows_ipv4() -> None:
    assert parse_networks(["::ffff:10.0.0.0/104", "::ffff:192.0.2.1", "fd00::/8"]) == (
        ipaddress.ip_network("10.0.0.0/8"),
        ipaddress.ip_network("192.0.2.1/32"),
        ipaddress.ip_network("fd00::/8"),
    )
