"""Decision 16: which addresses and hosts are public, in every form."""

# ruff: noqa: RUF001 - look-alikes are what is tested
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from socket import inet_aton

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walsh_scrapy.policy.hosts import (
    format_ip,
    is_private_host,
    is_public,
    parse_ip,
    parse_ipv4,
)
from walsh_scrapy.policy.urls import host_of

PUBLIC = [
    "8.8.8.8",
    "93.184.216.34",
    "1.1.1.1",
    "0x08080808",
    "134744072",
    "8.8.2056",
    "172.32.0.1",
    "192.0.1.1",
    "100.128.0.1",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "[2606:4700:4700::1111]",
    "2a00:1450:4001:80e::200e",
    "2001:200::1",
    "2001:4860:4860::8888",
    "::ffff:8.8.8.8",
]

NOT_PUBLIC = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "127.0.0.1",
    "127.1",
    "127.255.255.255",
    "2130706433",
    "0x7f.1",
    "0x7f000001",
    "0X7F.0.0.1",
    "0177.0.0.1",
    "017700000001",
    "169.254.169.254",
    "0xa9fea9fe",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.9",
    "192.0.0.10",
    "192.0.2.1",
    "192.31.196.1",
    "192.52.193.1",
    "192.88.99.1",
    "192.168.1.1",
    "192.168.257",
    "192.175.48.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "233.252.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "[::1]",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:224.0.0.1",
    "::ffff:0:8.8.8.8",
    "64:ff9b::808:808",
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:2::1",
    "2001:10::1",
    "2001:20::1",
    "2001:db8::1",
    "2002:808:808::1",
    "2002:7f00:1::",
    "2620:4f:8000::1",
    "3fff::1",
    "4000::1",
    "5f00::1",
    "fc00::1",
    "fd12:3456::1",
    "fe80::1",
    "fe80::1%eth0",
    "[fe80::1%25eth0]",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
    "",
    "localhost",
    "example.com",
    "256.256.256.256",
    "1.2.3.4.5",
    "１.1.1.1",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses(address):
    assert is_public(address)
    assert not is_private_host(address)


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_addresses_that_are_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("1.2.3.4", "1.2.3.4"),
        ("1.2.3.4.", "1.2.3.4"),
        ("1.2.772", "1.2.3.4"),
        ("1.131844", "1.2.3.4"),
        ("16909060", "1.2.3.4"),
        ("0x1.0x2.03.4", "1.2.3.4"),
        ("0x.0.0.1", "0.0.0.1"),
        ("0", "0.0.0.0"),
        ("4294967295", "255.255.255.255"),
        ("4294967296", None),
        ("1.2.3.256", None),
        ("1.256.3.4", None),
        ("1.2.65536", None),
        ("08.0.0.1", None),
        ("0xg", None),
        ("1..2.3", None),
        ("1.2.3.4..", None),
        (".1", None),
        ("+1", None),
        ("1_0", None),
        ("٣", None),
        ("", None),
        (".", None),
        ("9" * 5000, None),
    ],
)
def test_ipv4_in_every_form(text, address):
    assert parse_ipv4(text) == (address and IPv4Address(address))


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("0x7f.1", "127.0.0.1"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("[fe80::1%eth0]", "fe80::1"),
        ("::ffff:192.0.2.9", "::ffff:c000:209"),
        ("0:0:0:0:0:ffff:C000:0209", "::ffff:c000:209"),
        ("::ffff:0.0.0.0", "::ffff:0:0"),
        ("::192.0.2.9", "::c000:209"),
        ("64:ff9b::192.0.2.9", "64:ff9b::c000:209"),
    ],
)
def test_an_address_has_one_spelling_on_every_python(text, spelling):
    assert format_ip(parse_ip(text)) == spelling


MAPPED = st.ip_addresses(v=4).map(lambda carried: IPv6Address(0xFFFF << 32 | int(carried)))


@given(st.ip_addresses(v=4) | st.ip_addresses(v=6) | MAPPED)
def test_the_spelling_of_an_address_is_read_as_that_address_and_as_that_host(address):
    spelling = format_ip(address)
    assert parse_ip(spelling) == address
    assert (":" in spelling, "." in spelling) == (address.version == 6, address.version == 4)
    assert host_of(f"http://{spelling if address.version == 4 else f'[{spelling}]'}/") == spelling


@given(st.ip_addresses(v=4) | st.ip_addresses(v=6))
def test_no_address_that_is_private_for_python_is_public(address):
    if not address.is_global:
        assert not is_public(str(address))


@given(st.ip_addresses(v=4))
def test_all_forms_of_an_ipv4_address_are_judged_alike(address):
    judged = is_public(str(address))
    assert is_public(str(int(address))) is judged
    assert is_public(hex(int(address))) is judged
    assert is_public(str(IPv6Address(f"::ffff:{address}"))) is judged
    assert not is_public(str(IPv6Address(int(address))))
    assert not is_public(str(IPv6Address((0x64FF9B << 96) | int(address))))


@given(st.text(alphabet="0123456789abcdefx.", max_size=20))
def test_each_address_that_the_resolver_accepts_is_recognised(text):
    with suppress(OSError):
        packed = inet_aton(text)
        assert parse_ipv4(text) == IPv4Address(packed)


@given(st.text())
def test_no_text_raises(text):
    assert is_public(text) in {True, False}
    assert is_private_host(text) in {True, False}
    with suppress(ValueError):
        assert parse_ip(text) == ip_address(text.strip())


@pytest.mark.parametrize(
    ("host", "private"),
    [
        ("localhost", True),
        ("LOCALHOST.", True),
        ("a.localhost", True),
        ("printer.local", True),
        ("metadata.google.internal", True),
        ("router.home.arpa", True),
        ("nas.lan", True),
        ("intranet", True),
        ("ai", True),
        ("x.onion", True),
        ("127.0.0.1", True),
        ("2130706433", True),
        ("::1", True),
        ("", True),
        ("example.com", False),
        ("blog.example", False),
        ("local.example.com", False),
        ("notlocal.com", False),
        ("mylocal", True),
        ("arpa.example", False),
        ("93.184.216.34", False),
    ],
)
def test_hosts_of_a_local_network(host, private):
    assert is_private_host(host) is private
