"""Marks and visits in request.meta: copies have their own, and a JOBDIR keeps them."""

import pickle

import pytest
from scrapy import Request
from scrapy.utils.request import request_from_dict

from walsh_scrapy.metadata.mediatypes import may_be_feed
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.runtime.requestmeta import (
    Lifetime,
    Marks,
    PageResult,
    Validators,
    Visit,
    mark,
    marks_of,
    note_answer,
    rank_of,
    set_visit,
    source_of,
    visit_of,
)
from walsh_scrapy.sources import Source

URL = "http://blog.example/feed"


def test_a_request_without_marks_is_a_target():
    request = Request(URL)
    assert marks_of(request) == Marks()
    assert rank_of(request) is Rank.TARGET
    assert source_of(request) is visit_of(request) is None
    assert request.meta == {}


@pytest.mark.parametrize("again", [Request.copy, lambda each: each.replace(url=URL + "?2")])
def test_a_copy_takes_the_marks_along_and_changes_its_own_only(again):
    request = Request(URL)
    mark(request, attempt=1, robots_interval=2.0)
    note_answer(request, "blocklist", "not listed")
    set_visit(request, Visit(Source(URL), may_be_feed))
    copy = again(request)
    assert marks_of(copy) == marks_of(request)
    mark(copy, attempt=2)
    note_answer(copy, "robots", "allowed")
    set_visit(copy, visit_of(copy).passed(Lifetime(URL, 60.0)))
    assert marks_of(request).attempt == 1
    assert marks_of(request).answers == {"blocklist": "not listed"}
    assert marks_of(copy).answers == {"blocklist": "not listed", "robots": "allowed"}
    assert marks_of(copy).robots_interval == 2.0
    assert visit_of(request).lifetimes == ()


def test_the_next_request_of_a_visit_gets_what_the_visit_has_learned_and_nothing_else():
    page = PageResult(is_gone=True, move=None)
    visit = Visit(Source(URL), may_be_feed, None, ("a",), (Lifetime(URL, 1.0),), page, "text/html")
    following = Visit(Source(URL), str.isascii, llmstxt="http://blog.example/llms.txt")
    assert visit.carried_to(following) == Visit(
        Source(URL),
        str.isascii,
        "http://blog.example/llms.txt",
        ("a",),
        (Lifetime(URL, 1.0),),
        page,
    )


def test_a_request_of_a_job_is_the_same_after_a_stop():
    request = Request(URL)
    mark(request, attempt=1, validators=Validators(URL, b'"x"', None), robots_interval=2.0)
    note_answer(request, "robots", "allowed")
    set_visit(request, Visit(Source(URL), may_be_feed, page=PageResult(is_gone=False, move=None)))
    kept = request_from_dict(pickle.loads(pickle.dumps(request.to_dict())))
    assert marks_of(kept) == marks_of(request)
    assert visit_of(kept) == visit_of(request)
