"""Ticket and visits in request.meta: copies have their own, and only what we made counts."""

import pickle
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace

import pytest
from scrapy import Request
from scrapy.utils.request import request_from_dict

from walsh_scrapy.crawl.ticket import (
    Hop,
    Ticket,
    end_ticket,
    evidence_of,
    first_url,
    note,
    note_answer,
    rank_of,
    repeats,
    resolved,
    set_visit,
    ticket_of,
    visit_of,
)
from walsh_scrapy.feeds.metadata.formats import may_be_feed
from walsh_scrapy.feeds.sources.source import Source
from walsh_scrapy.feeds.sourcevisit import Lifetime, PageResult, SourceVisit, source_of
from walsh_scrapy.policy.frontier import Rank

URL = "http://blog.example/feed"


def test_a_request_without_a_ticket_is_a_target():
    request = Request(URL)
    assert ticket_of(request) == Ticket()
    assert rank_of(request) is Rank.TARGET
    assert source_of(request) is visit_of(request) is None
    assert request.meta == {}


@pytest.mark.parametrize("again", [Request.copy, lambda each: each.replace(priority=1)])
def test_a_copy_takes_the_ticket_along_and_changes_its_own_only(again):
    request = Request(URL)
    note(request, attempt=1, robots_interval=2.0)
    note_answer(request, "blocklist", "not listed")
    set_visit(request, SourceVisit(Source(URL), may_be_feed))
    copy = again(request)
    assert ticket_of(copy) == ticket_of(request)
    note(copy, attempt=2)
    note_answer(copy, "robots", "allowed")
    set_visit(copy, visit_of(copy).passed(Lifetime(URL, 60.0)))
    assert ticket_of(request).attempt == 1
    assert ticket_of(request).answers == {"blocklist": "not listed"}
    assert ticket_of(copy).answers == {"blocklist": "not listed", "robots": "allowed"}
    assert ticket_of(copy).robots_interval == 2.0
    assert visit_of(request).lifetimes == ()


def test_the_next_request_of_a_visit_continues_it():
    page = PageResult(is_gone=True, move=None)
    visit = SourceVisit(
        Source(URL), may_be_feed, None, ("a",), (Lifetime(URL, 1.0),), page, 404, "text/html"
    )
    following = SourceVisit(Source(URL), str.isascii, llmstxt="http://blog.example/llms.txt")
    learned = {"announced": ("a",), "lifetimes": visit.lifetimes, "page": page}
    assert visit.carried_to(following) == replace(following, **learned, status=404)


@pytest.fixture
def with_ticket():
    """A request for robots.txt, as our own parts make it: no gate but pacing would judge it."""
    request = Request(URL)
    note(request, rank=Rank.ROBOTS, hops=(Hop("http://old.example/", 301),), released=True)
    set_visit(request, SourceVisit(Source(URL), may_be_feed, announced=("http://blog.example/a",)))
    return request


def claims_nothing(request):
    return ticket_of(request) == Ticket() and visit_of(request) is None


def test_a_redirected_request_names_the_last_redirect():
    request = Request(URL)
    note(request, hops=(Hop("http://a.example/", 301), Hop("http://b.example/", 302)))
    assert evidence_of(request).redirected_from == "http://b.example/"


def in_a_job(request):
    return request_from_dict(pickle.loads(pickle.dumps(request.to_dict())))


@pytest.mark.parametrize(
    "copied",
    [
        lambda each: each.replace(url="http://blog.example/private"),
        lambda each: Request("http://blog.example/private", meta=each.meta),
        lambda each: each.replace(method="POST"),
        in_a_job,
        lambda each: Request(each.url, meta=deepcopy(each.meta)),
        lambda each: Request(each.url, meta={key: vars_of(each.meta[key]) for key in each.meta}),
    ],
    ids=["another URL", "copied meta", "another method", "a job", "a deep copy", "a look-alike"],
)
def test_what_a_copy_claims_elsewhere_counts_for_nothing(with_ticket, copied):
    assert not claims_nothing(with_ticket)
    assert claims_nothing(copied(with_ticket))


def vars_of(ticket):
    """Another object with the same attributes."""
    return SimpleNamespace(**{name: getattr(ticket, name) for name in ticket.__slots__})


@pytest.mark.parametrize(
    "meta",
    [
        {"walsh_rank": Rank.ROBOTS},
        {"walsh_marks": Ticket(rank=Rank.ROBOTS, hops=(Hop(URL, 301),))},
        {"walsh_visit": SourceVisit(Source(URL), may_be_feed)},
        {"walsh_ticket": Ticket(rank=Rank.ROBOTS)},
        {"redirect_urls": [URL], "redirect_reasons": [301], "redirect_times": 1},
    ],
)
def test_what_meta_says_by_itself_counts_for_nothing(meta):
    assert claims_nothing(Request("http://blog.example/private", meta=meta))
    assert first_url(Request("http://blog.example/private", meta=meta)).endswith("/private")


def test_after_the_response_a_copy_takes_over_the_ticket_once(with_ticket):
    retried = with_ticket.copy()
    end_ticket(retried)
    assert not claims_nothing(retried), "its callback goes on with the visit"
    again = retried.replace(dont_filter=True)
    assert claims_nothing(again)
    assert claims_nothing(with_ticket), "a copy has taken its place"
    assert repeats(retried, again)
    assert not repeats(retried, again.replace(url=URL + "?2"))
    assert not repeats(retried, Request(URL))


def test_a_request_without_dot_segments_keeps_the_ticket():
    request = Request("http://blog.example/a/../feed", meta={"kept": 1}, priority=3)
    note(request, attempt=2)
    set_visit(request, SourceVisit(Source(URL), may_be_feed))
    instead = resolved(request)
    assert (instead.url, instead.priority, instead.meta["kept"]) == (URL, 3, 1)
    assert ticket_of(instead) == ticket_of(request)
    assert source_of(instead) == Source(URL)
    assert resolved(instead) is None
