"""Targets are resolved as browsers do; moves that last are remembered (R8, decisions 16, 21)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Request

from walsh_scrapy.policy.freshness import (
    SETTLED_AFTER,
    Move,
    are_permanent,
    move_after_document,
    move_after_failure,
    move_after_intermediate,
    permanent_targets,
)
from walsh_scrapy.policy.urls import host_of, resolve_reference, wire_url
from walsh_scrapy.testing.hit import Hit, redirect_target

DAY = 86_400.0
OLD, NEW, NEWER = "http://old.example/feed", "http://new.example/feed", "https://newer.example/"
SECURE, WWW = "https://old.example/feed", "https://www.old.example/feed"
LONG = f"http://new.example/{'x' * 2048}"
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
def test_only_permanent_redirects_let_a_410_count_for_the_source(statuses, expected):
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


def test_a_move_is_settled_once_two_visits_seven_days_apart_saw_it():
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


def test_a_visit_without_redirect_removes_a_move_that_is_not_settled():
    assert History().visited(1, NEW).visited(2).move is None
    assert History().visited(1, NEW).visited(2).visited(8, NEW).address == OLD
    assert settled().visited(9).address == NEW


def test_another_target_replaces_a_move_and_a_redirect_back_removes_it():
    assert History().visited(1, NEW).visited(5, NEWER).visited(9, NEWER).address == OLD
    assert settled().visited(9, OLD).move is None


def test_an_onward_move_is_settled_in_the_same_way():
    moved_on = settled().visited(20, NEWER)
    assert (moved_on.address, moved_on.move.onward.to) == (NEW, NEWER)
    assert moved_on.visited(26, NEWER).address == NEW
    assert moved_on.visited(27, NEWER).move == Move(NEWER, 20 * DAY, is_settled=True)
    assert settled().visited(20, NEWER).visited(23).visited(28, NEWER).address == NEW


def test_an_upgrade_to_https_is_settled_apart_from_the_move_after_it():
    chain = History().visited(1, SECURE, WWW)
    assert chain.address == SECURE
    assert chain.visited(5, WWW).address == SECURE
    assert chain.visited(8, WWW).address == WWW
    later = History().visited(1, SECURE).visited(30, WWW)
    assert later.address == SECURE
    assert later.visited(37, WWW).address == WWW


def test_failures_do_not_remove_a_move():
    assert settled().failed(9).address == NEW
    assert settled().failed(9).failed(12).visited(14).failed(17).failed(23.9).address == NEW
    assert History().visited(1, NEW).failed(4).visited(8, NEW).address == NEW


def test_after_a_week_of_failures_both_addresses_are_visited_alternately():
    lost = settled().failed(9).failed(16)
    assert lost.address == OLD
    assert lost.failed(20).address == NEW
    assert lost.failed(28).address == OLD


def test_the_first_of_both_addresses_that_brings_a_document_decides():
    def lost():
        return settled().failed(9).failed(16)

    assert lost().visited(20).move is None
    assert lost().visited(20, NEW).move == Move(NEW, DAY, is_settled=True)
    assert lost().visited(20, NEWER).move == Move(NEWER, 20 * DAY, is_settled=False)
    assert lost().failed(20).visited(28).move == Move(NEW, DAY, is_settled=True)


def test_an_additional_document_ends_the_failures_and_changes_nothing_else():
    lost, beside = settled().failed(9).move, "http://new.example/llms.txt"
    assert move_after_document(lost, OLD, beside, (), 12 * DAY) == settled().move
    assert move_after_document(lost, OLD, beside, (NEWER,), 12 * DAY) == settled().move
    http = "http://old.example/llms.txt"
    assert move_after_document(None, OLD, http, ("https://old.example/llms.txt",), DAY) is None


def test_an_intermediate_page_can_move_but_does_not_end_the_failures():
    lost = settled().failed(9)
    assert move_after_intermediate(None, OLD, OLD, (NEW,), DAY) == Move(NEW, DAY, is_settled=False)
    assert move_after_intermediate(Move(NEW, DAY, is_settled=False), OLD, OLD, (), 9 * DAY) is None
    assert move_after_intermediate(lost.move, OLD, NEW, (), 12 * DAY) == lost.move
    assert move_after_intermediate(lost.move, OLD, NEW, (NEWER,), 12 * DAY).failing_since == 9 * DAY
    doubted = lost.failed(16).move
    assert move_after_intermediate(doubted, OLD, OLD, (NEW,), 20 * DAY) == doubted
    assert move_after_intermediate(doubted, OLD, OLD, (), 20 * DAY) is None
