"""Decisions 5, 16 and 19: hosts of URLs, which of them are public, and which URLs are one entry."""

from contextlib import suppress
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address
from socket import inet_aton

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Request

from tests.helpers import cases
from walsh_scrapy.feeds.freshness import (
    SETTLED_AFTER,
    Move,
    are_permanent,
    move_after_deferral,
    move_after_document,
    move_after_failure,
    move_after_intermediate,
    permanent_targets,
)
from walsh_scrapy.policy import urls
from walsh_scrapy.policy.urls import (
    canonical_url,
    format_ip,
    host_of,
    is_private_host,
    is_public,
    origin_of,
    parse_ip,
    parse_ipv4,
    registrable_domain,
    resolve_reference,
    robots_url,
    wire_url,
    without_dot_segments,
)
from walsh_scrapy.testing.hit import Hit, redirect_target

# Parts of real URLs, chosen to reach the limits of the syntax.


@cases(
    "url",
    "host",
    more=[
        ("http://" + "\u00ad" * 400 + "example.com/", "example.com"),
        ("http://" + "u" * 5000 + "@example.com/", "example.com"),
        ("http://example.com:" + "0" * 5000 + "80/", "example.com"),
    ],
)
def test_host_of(url, host):
    assert host_of(url) == host


@pytest.mark.parametrize("unit", ["/..", "/a/..", "//"])
@pytest.mark.usefixtures("linear")
def test_many_dot_segments_take_linear_time(unit):
    assert canonical_url("http://a.example" + unit * 400_000) == "http://a.example"


def test_only_urls_that_can_be_requested_are_kept_in_memory():
    urls._cached.cache_clear()
    for length in (100, 5000):
        assert host_of("http://u@a.example/" + "a" * length) == "a.example"
    assert urls._cached.cache_info().currsize == 1


@cases("url", "canonical")
def test_canonical_url(url, canonical):
    assert canonical_url(url) == canonical


@cases(
    "url",
    "origin",
    "robots",
    more=[
        (f"http://{'a.' * 126}a/", f"http://{'a.' * 126}a:80", f"http://{'a.' * 126}a/robots.txt"),
        (f"http://{'a.' * 126}aa/", "", ""),
    ],
)
def test_origin_and_robots_url(url, origin, robots):
    assert (origin_of(url), robots_url(url)) == (origin, robots)


@pytest.mark.parametrize(
    ("url", "wire"),
    [
        ("HTTP://faß.de:80/Feed/?q#f", "http://xn--fa-hia.de/Feed/?q"),
        ("http://a.example", "http://a.example/"),
        ("http://a.example?q", "http://a.example/?q"),
        ("http://user:pw@a.example/p/", "http://a.example/p/"),
        ("http:\\\\a.example\\p", "http://a.example/p"),
        ("http://a.example/[é|?[é|", "http://a.example/%5B%C3%A9%7C?%5B%C3%A9%7C"),
        (" mailto:x ", "mailto:x"),
    ],
)
def test_wire_url(url, wire):
    assert wire_url(url) == wire


@pytest.mark.parametrize("part", ["/{}x", "/x{}/", "/?{}x", "/?x{}"])
def test_scrapys_request_keeps_a_url_as_it_is_judged(part):
    for character in map(chr, range(0x180)):
        wire = wire_url(f"http://a.example{part.format(character)}")
        assert Request(wire).url == wire == wire_url(wire)


#: Given path, path without dot segments; the first two are RFC 3986 5.2.4's own.
WITHOUT = ["", "/", "/feed?to=/../x", "/.../..a/a../.a", "/..;/x", "/%252e%252e/x", "/a..%2fb"]


@cases("given", "resolved")
def test_dot_segments_are_removed(given, resolved):
    assert without_dot_segments(f"http://a.example{given}") == f"http://a.example{resolved}"
    wire = f"http://a.example{resolved}".partition("#")[0]
    assert wire_url(f"http://a.example{given}") == wire
    assert canonical_url(f"http://a.example{given}") == canonical_url(wire)


@pytest.mark.parametrize("path", WITHOUT)
def test_a_url_without_dot_segments_stays_as_it_is(path):
    assert without_dot_segments(f"HTTP://A.example{path}") == f"HTTP://A.example{path}"


@cases("host", "domain")
def test_registrable_domain(host, domain):
    assert registrable_domain(host) == domain


@cases("address")
def test_public_addresses(address):
    assert is_public(address)
    assert not is_private_host(address)


@cases("address")
def test_addresses_that_are_not_public(address):
    assert not is_public(address)


@cases("text", "address", more=[("9" * 5000, None)])
def test_ipv4_in_every_form(text, address):
    assert parse_ipv4(text) == (address and IPv4Address(address))


@cases("text", "spelling")
def test_an_address_has_one_spelling_on_every_python(text, spelling):
    assert format_ip(parse_ip(text)) == spelling


MAPPED = st.ip_addresses(v=4).map(lambda carried: IPv6Address(0xFFFF << 32 | int(carried)))


@given(st.ip_addresses(v=4) | st.ip_addresses(v=6) | MAPPED)
def test_formatted_ip_address_parses_back_and_is_its_own_host(address):
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


@cases("host", "private")
def test_hosts_of_a_local_network(host, private):
    assert is_private_host(host) is private


# Targets are resolved as browsers do; moves that last are remembered (R8, decisions 16, 21).

DAY = 86_400.0
OLD, NEW, NEWER = "http://old.example/feed", "http://new.example/feed", "https://newer.example/"
SECURE, WWW = "https://old.example/feed", "https://www.old.example/feed"
LONG = f"http://new.example/{'x' * 2048}"
PAGE = "http://a.example/dir/page?q"
# Parts for Location headers, chosen to reach the limits of the syntax.
PIECES_REDIRECTS = st.sampled_from([
    b"http", b"HTTP", b"https", b"ftp", b":", b"//", b"/", b"\\", b"?", b"#", b"@", b"[", b"]",
    b"%", b"%2e", b"%5c", b"..", b".", b"a", b"b.example", b"B.Example", b"127.1", b"::1", b":80",
    b":443", b"\xe9", "é".encode(), b"\xff\xfe", b"\t", b"\n", b" ", b"\x00", b"user",
])  # fmt: skip
LOCATIONS = st.lists(PIECES_REDIRECTS, max_size=10).map(b"".join) | st.binary(max_size=40)


@cases(
    "location",
    "address",
    more=[
        (b"/caf\xe9", "http://a.example/caf%E9"),
        (b"/\xe9?\xe9=\xff", "http://a.example/%E9?%E9=%FF"),
        (b"http://b\xfccher.example/", None),
        # Longer than the state can store, or than a host name can be.
        ("/" + "x" * 4079, "http://a.example/" + "x" * 4079),
        ("/" + "x" * 4080, None),
        (b"/" + b"\xff" * 1400, None),
        ("http://" + "x." * 127 + "example/", None),
    ],
)
def test_a_location_is_resolved_as_browsers_do(location, address):
    reference = location.encode() if isinstance(location, str) else location
    assert resolve_reference(PAGE, reference) == address


def test_the_judge_of_a_log_resolves_locations_in_the_same_way():
    for location in [
        b"/feed",
        b"//b.example",
        b" http://B.example:80/x#y ",
        b"/a b",
        b"/caf\xe9",
        "/café?é".encode(),
        rb"http:\\b.example\x",
        rb"\\b.example\x?a",
        b"http:///b.example/x",
        b"http://[::1]:81/x",
        b"http://b.example/x/../y",
        b"/x/%2E./y/%2e?a=/../b",
    ]:
        hit = Hit(0, 1, 0, "GET", "http", "a.example", 80, "/dir/page?q", status=301)
        answer = (("Location", location.decode("latin-1")),)
        assert redirect_target(replace(hit, answer=answer)) == resolve_reference(PAGE, location)
    assert redirect_target(replace(hit, answer=(("Location", "http://[bad"),))) is None


@given(LOCATIONS, st.sampled_from(["http", "https"]))
def test_the_host_that_the_gates_judge_is_the_one_requested(location, scheme):
    target = resolve_reference(f"{scheme}://a.example/dir/", location)
    if target is not None:
        assert target.isascii()
        assert wire_url(target) == target
        assert Request(target).url == target
        assert resolve_reference("https://other.example/", target.encode()) == target
        assert host_of(target)


@pytest.mark.parametrize(
    ("statuses", "hops", "targets"),
    [
        ((), (OLD,), ()),
        ((301,), (OLD, NEW), (NEW,)),
        ((308,), (OLD, NEW), (NEW,)),
        ((302,), (OLD, NEW), ()),
        ((307,), (OLD, NEW), ()),
        ((301, 301), (OLD, NEW, NEWER), (NEW, NEWER)),
        ((301, 302), (OLD, NEW, NEWER), (NEW,)),
        ((302, 301), (OLD, NEW, NEWER), ()),
        ((301, 301), (OLD, NEW, LONG), (NEW,)),
    ],
)
def test_a_temporary_redirect_ends_the_chain(statuses, hops, targets):
    assert permanent_targets(hops, statuses) == targets


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [((), True), ((301, 308), True), ((302,), False), ((301, 307), False), ((303, 301), False)],
)
def test_410_after_permanent_redirects_only_is_the_sources(statuses, expected):
    assert are_permanent(statuses) is expected


class History:
    """The visits of a source declared as OLD; each begins at the address that is then settled."""

    def __init__(self):
        self.move = None

    @property
    def address(self):
        return self.move.to if self.move and self.move.is_settled else OLD

    def visited(self, day, *targets):
        self.move = move_after_document(self.move, OLD, self.address, targets, day * DAY)
        return self

    def failed(self, day):
        self.move = move_after_failure(self.move, OLD, self.address, day * DAY)
        return self


def settled():
    return History().visited(1, NEW).visited(8, NEW)


def test_move_is_settled_by_two_visits_seven_days_apart():
    assert History().visited(1, NEW).move == Move(NEW, DAY, is_settled=False)
    assert History().visited(1, NEW).visited(2, NEW).visited(7.9, NEW).address == OLD
    assert settled().address == NEW
    assert SETTLED_AFTER == 7 * DAY


@pytest.mark.parametrize(
    ("requested", "target", "is_settled"),
    [
        (OLD, SECURE, True),
        (OLD, "https://old.example/other", False),
        (OLD, WWW, False),
        (SECURE, OLD, False),
    ],
)
def test_an_upgrade_to_https_is_settled_at_once(requested, target, is_settled):
    assert move_after_document(None, requested, requested, (target,), DAY).is_settled is is_settled


def test_visit_without_redirect_removes_an_unsettled_move():
    assert History().visited(1, NEW).visited(2).move is None
    assert History().visited(1, NEW).visited(2).visited(8, NEW).address == OLD
    assert settled().visited(9).address == NEW


def test_new_target_replaces_a_move_and_redirect_back_removes_it():
    assert History().visited(1, NEW).visited(5, NEWER).visited(9, NEWER).address == OLD
    assert settled().visited(9, OLD).move is None


def test_an_onward_move_is_settled_in_the_same_way():
    moved_on = settled().visited(20, NEWER)
    assert (moved_on.address, moved_on.move.onward.to) == (NEW, NEWER)
    assert moved_on.visited(26, NEWER).address == NEW
    assert moved_on.visited(27, NEWER).move == Move(NEWER, 20 * DAY, is_settled=True)
    assert settled().visited(20, NEWER).visited(23).visited(28, NEWER).address == NEW


def test_https_upgrade_is_settled_apart_from_the_following_move():
    chain = History().visited(1, SECURE, WWW)
    assert chain.address == SECURE
    assert chain.visited(5, WWW).address == SECURE
    assert chain.visited(8, WWW).address == WWW
    later = History().visited(1, SECURE).visited(30, WWW)
    assert later.address == SECURE
    assert later.visited(37, WWW).address == WWW


@pytest.mark.parametrize(
    ("previous", "requested", "targets", "expected"),
    [
        (None, OLD, (NEW,), Move(NEW, DAY, is_settled=True)),
        (None, OLD, (NEW, NEWER), Move(NEWER, DAY, is_settled=True)),
        (Move(NEW, 0.0, is_settled=True), NEW, (NEWER,), Move(NEWER, DAY, is_settled=True)),
        (Move(NEW, 0.0, is_settled=True), NEW, (OLD,), None),
        (Move(NEW, 0.0, is_settled=False), OLD, (), Move(NEW, 0.0, is_settled=False)),
        (None, "http://old.example/llms.txt", (NEW,), None),
    ],
)
def test_a_redirect_that_must_wait_for_long_is_settled_at_once(
    previous, requested, targets, expected
):
    assert move_after_deferral(previous, OLD, requested, targets, DAY) == expected


def test_failures_do_not_remove_a_move():
    assert settled().failed(9).address == NEW
    assert settled().failed(9).failed(12).visited(14).failed(17).failed(23.9).address == NEW
    assert History().visited(1, NEW).failed(4).visited(8, NEW).address == NEW


def test_after_a_week_of_failures_both_addresses_are_tried():
    lost = settled().failed(9).failed(16)
    assert lost.address == OLD
    assert lost.failed(20).address == NEW
    assert lost.failed(28).address == OLD


def test_first_address_with_a_document_decides_about_the_move():
    def lost():
        return settled().failed(9).failed(16)

    assert lost().visited(20).move is None
    assert lost().visited(20, NEW).move == Move(NEW, DAY, is_settled=True)
    assert lost().visited(20, NEWER).move == Move(NEWER, 20 * DAY, is_settled=False)
    assert lost().failed(20).visited(28).move == Move(NEW, DAY, is_settled=True)


def test_additional_document_only_ends_the_failures():
    lost, beside = settled().failed(9).move, "http://new.example/llms.txt"
    assert move_after_document(lost, OLD, beside, (), 12 * DAY) == settled().move
    assert move_after_document(lost, OLD, beside, (NEWER,), 12 * DAY) == settled().move
    http = "http://old.example/llms.txt"
    assert move_after_document(None, OLD, http, ("https://old.example/llms.txt",), DAY) is None


def test_intermediate_page_can_move_but_ends_no_failures():
    lost = settled().failed(9)
    assert move_after_intermediate(None, OLD, OLD, (NEW,), DAY) == Move(NEW, DAY, is_settled=False)
    assert move_after_intermediate(Move(NEW, DAY, is_settled=False), OLD, OLD, (), 9 * DAY) is None
    assert move_after_intermediate(lost.move, OLD, NEW, (), 12 * DAY) == lost.move
    assert move_after_intermediate(lost.move, OLD, NEW, (NEWER,), 12 * DAY).failing_since == 9 * DAY
    doubted = lost.failed(16).move
    assert move_after_intermediate(doubted, OLD, OLD, (NEW,), 20 * DAY) == doubted
    assert move_after_intermediate(doubted, OLD, OLD, (), 20 * DAY) is None
