"""The targets of redirects and Link headers, as browsers resolve them (decision 16)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Request

from walsh_scrapy.policy.redirects import resolve_reference
from walsh_scrapy.policy.urls import host_of, wire_url
from walsh_scrapy.testing.hit import Hit
from walsh_scrapy.testing.manners import redirect_target

PAGE = "http://a.example/dir/page?q"
# Parts for Location headers, chosen to reach the limits of the syntax.
PIECES = st.sampled_from([
    b"http", b"HTTP", b"https", b"ftp", b":", b"//", b"/", b"\\", b"?", b"#", b"@", b"[", b"]",
    b"%", b"%2e", b"%5c", b"..", b".", b"a", b"b.example", b"B.Example", b"127.1", b"::1", b":80",
    b":443", b"\xe9", "é".encode(), b"\xff\xfe", b"\t", b"\n", b" ", b"\x00", b"user",
])  # fmt: skip
LOCATIONS = st.lists(PIECES, max_size=10).map(b"".join) | st.binary(max_size=40)


@pytest.mark.parametrize(
    ("location", "address"),
    [
        (b"/feed", "http://a.example/feed"),
        (b"feed", "http://a.example/dir/feed"),
        (b"../feed", "http://a.example/feed"),
        (b"?new", "http://a.example/dir/page?new"),
        (b"//b.example", "http://b.example/"),
        (b" http://b.example/x\t ", "http://b.example/x"),
        (b"/a b", "http://a.example/a%20b"),
        (b"/a%2", "http://a.example/a%2"),
        (b"", PAGE),
        # Bytes beyond ASCII, whatever their encoding.
        (b"/caf\xe9", "http://a.example/caf%E9"),
        ("/café".encode(), "http://a.example/caf%C3%A9"),
        (b"/\xe9?\xe9=\xff", "http://a.example/%E9?%E9=%FF"),
        ("http://bücher.example/".encode(), "http://xn--bcher-kva.example/"),
        # Backslashes count as slashes, and two or more are followed by a host.
        (rb"http:\\b.example\x", "http://b.example/x"),
        (rb"\\b.example\x", "http://b.example/x"),
        (rb"/\b.example\x", "http://b.example/x"),
        (rb"\x\y?a\b", "http://a.example/x/y?a%5Cb"),
        (b"///b.example/x", "http://b.example/x"),
        (b"http:////b.example/x", "http://b.example/x"),
        (b"ht\ntp:/\t/b.example/x", "http://b.example/x"),
        # The page's own scheme may come without a host; after another scheme there is one.
        (b"http:x", "http://a.example/dir/x"),
        (b"HTTP:/x", "http://a.example/x"),
        (b"https:b.example/x", "https://b.example/x"),
        (b"https:/b.example/x", "https://b.example/x"),
        # No request can go there.
        (b"http://[bad", None),
        (b"http://b.example:99999/", None),
        (b"http://b\xfccher.example/", None),
        (b"ftp://b.example/", None),
        (b"mailto:me@b.example", None),
        (b"http://", None),
        (b"//:/x", None),
        (b"http://b.example\x11?", None),
        # Longer than the state can store, or than a host name can be.
        (b"/" + b"x" * 4079, "http://a.example/" + "x" * 4079),
        (b"/" + b"x" * 4080, None),
        (b"/" + b"\xff" * 1400, None),
        (b"http://" + b"x." * 127 + b"example/", None),
    ],
)
def test_a_location_is_resolved_as_browsers_do(location, address):
    assert resolve_reference(PAGE, location) == address


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
