"""The response of a document is the last one of a download handler, whatever else happens."""

import asyncio
import gzip
from contextlib import suppress
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Request
from scrapy.exceptions import StopDownload
from scrapy.http import HtmlResponse, Response
from scrapy.settings import Settings
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.test import get_crawler

from tests.helpers.sites import AGENT
from walsh_scrapy.crawl.documents.downloads import Documents
from walsh_scrapy.crawl.ticket import end_ticket, note, ticket_of
from walsh_scrapy.exceptions import Denied, NotDelivered, RequestDeferred
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.robots.robotstxt import MAX_OCTETS

URL = "http://a.example/robots.txt"
BODY = b"User-agent: *\nDisallow: /private\n"
LONG = BODY + b"# x\n" * 150_000
MADE_UP = HtmlResponse(URL, body=b"theirs")


def documents():
    options = SimpleNamespace(user_agent=AGENT)
    stats = MemoryStatsCollector(get_crawler())
    return Documents(SimpleNamespace(settings=Settings(), gates=(), options=options, stats=stats))


def request_of(rank=Rank.ROBOTS, **meta):
    request = Request(URL, meta=meta)
    note(request, rank=rank)
    return request


def fetched(*events, outcome=MADE_UP, request=None):
    """The response to a request after these events: answers and errors of a handler, or a gate."""
    ours, request = documents(), request or request_of()

    async def handler(event, _):
        if isinstance(event, Exception):
            raise event
        return event

    async def fetch():
        for event in events:
            if isinstance(event, Denied):
                ours.failed(request, event, is_after=False)
                continue
            with suppress(Exception):  # middlewares may hide any
                await ours.download(partial(handler, event), request)

    with ours.fetching(request) as delivery:
        asyncio.run(fetch())
    return ours.unpack(request, ours.response_of(delivery, outcome))


def answer(body=BODY, **fields):
    return Response(URL, body=body, **fields)


def cut_off(body=BODY[:9], *, fail):
    response = answer(body, flags=["download_stopped"])
    if not fail:
        return response
    error = StopDownload()
    error.response = response
    return error


ANSWERS = st.builds(answer, st.binary(max_size=20), status=st.sampled_from([200, 404, 503]))
ERRORS = st.sampled_from([ValueError("theirs"), OSError(), Denied("scope", "x")])


@given(st.lists(st.one_of(ANSWERS, ERRORS), max_size=5))
def test_the_last_answer_of_a_handler_counts(events):
    answers = [event for event in events if isinstance(event, Response)]
    if answers:
        response = fetched(*events)
        assert (response.status, response.body) == (answers[-1].status, answers[-1].body)
    else:
        with pytest.raises(type(events[-1]) if events else NotDelivered):
            fetched(*events)


def test_an_answer_is_a_copy_with_its_headers():
    packed = answer(gzip.compress(BODY), headers={"Content-Encoding": "gzip", "ETag": '"1"'})
    ours, request = documents(), request_of()

    async def handler(_):
        return packed

    with ours.fetching(request) as delivery:
        asyncio.run(ours.download(handler, request))
        packed.headers.clear()
        packed.status = 404
    response = ours.unpack(request, ours.response_of(delivery, MADE_UP))
    assert (response.status, response.body) == (200, BODY)
    assert response.headers["ETag"] == b'"1"'


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize(
    ("rank", "body", "is_complete"),
    [
        (Rank.ROBOTS, BODY[:9], False),
        (Rank.ROBOTS, LONG[:MAX_OCTETS], False),
        (Rank.ROBOTS, LONG[: MAX_OCTETS + 1], True),
        (Rank.OPERATOR, LONG, False),
    ],
)
def test_only_what_counts_is_complete_when_it_is_stopped(fail, rank, body, is_complete):
    event, request = cut_off(body, fail=fail), request_of(rank)
    if is_complete:
        assert fetched(event, request=request).body == body
    else:
        with pytest.raises(NotDelivered, match="cut off"):
            fetched(event, request=request)


@pytest.mark.parametrize("error", [Denied("night", "x"), RequestDeferred(1.0, "x")])
def test_a_gate_of_a_project_can_deny_and_defer(error):
    with pytest.raises(type(error)) as caught:
        fetched(outcome=error)
    assert isinstance(caught.value.__cause__, NotDelivered), "for the blocklist it is a failure"


def test_limits_are_those_of_our_own_parts():
    request = request_of(download_maxsize=7, download_timeout=3.0)
    seen = {}

    async def handler(given):
        seen.update(given.meta)
        return answer()

    ours = documents()
    with ours.fetching(request):
        request.meta.update(download_maxsize=1, download_fail_on_dataloss=False)
        request.meta["download_timeout"] = 0.001
        asyncio.run(ours.download(handler, request))
    assert (seen["download_maxsize"], seen["download_timeout"]) == (7, 3.0)
    assert "download_fail_on_dataloss" not in seen


def test_a_request_in_place_of_a_document_is_sent_as_such():
    ours, request = documents(), request_of()
    bare, other = Request(URL), Request(f"{URL}?x")
    with ours.fetching(request) as delivery:
        request.meta.clear()
        assert ours.fetched(request, bare) is bare
        assert ticket_of(bare).delivery is delivery
        with pytest.raises(NotDelivered):
            ours.fetched(bare, other)


def test_a_ticket_is_valid_after_a_copy_got_the_response():
    ours, request = documents(), request_of()
    with ours.fetching(request):
        end_ticket(request.copy())
        request.meta.clear()
    assert ticket_of(request).rank is Rank.ROBOTS
