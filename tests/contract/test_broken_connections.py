"""A kept connection that breaks loses no page: the retry opens a new one (decision 1)."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.helpers.sites import (
    ADDON,
    IDENTITY,
    LIST_URL,
    blocklist,
    feed,
    judge,
    paths,
    rows_of,
    site,
    write_project,
)
from walsh_scrapy.testing.web import Certificate, Fault, Reply, Site

NAMES = [f"f{number}" for number in range(4)]
BREAKS = [Fault.CLOSE, Fault.RESET, Fault.TRUNCATE]


class Impatient:
    """The pages of a server that breaks each connection at the second request on it."""

    def __init__(self, fault=Fault.CLOSE):
        self._fault = fault
        self._requests = Counter()

    def page(self, reply):
        def answer(hit):
            self._requests[hit.client] += 1
            is_first = self._requests[hit.client] == 1
            return reply if is_first else replace(reply, fault=self._fault)

        return answer

    def site(self, host, **fields):
        """A host with some feeds."""
        pages = {f"/{name}": self.page(feed(host=host)) for name in NAMES}
        return Site(host, self.page(Reply("")), pages, **fields)


def sources_of(scheme, *hosts):
    return [f"{scheme}://{host}/{name}" for host in hosts for name in NAMES]


def assert_all_read(result, number):
    assert result.exit_code == 0
    assert result.stats["walsh/sources/fetched"] == number
    outcomes = rows_of(result, "SELECT DISTINCT outcome FROM sources")
    assert outcomes == [("fetched",)]


@pytest.mark.parametrize("fault", BREAKS)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_each_kept_connection_breaks_and_no_page_is_lost(direct_web, crawl, scheme, fault):
    tls = {"tls": Certificate.GOOD} if scheme == "https" else {}
    web = direct_web(Impatient(fault).site("blog.example", **tls))
    sources = sources_of(scheme, "blog.example")
    result = crawl(web, sources=sources, settings={"WALSH_BACKOFF_BASE": 0.5})
    assert_all_read(result, len(NAMES))
    judge(result)
    sent = rows_of(result, "SELECT count(*) FROM requests")
    assert sent == [(len(result.log),)], "each try is logged as a request of its own"
    assert result.stats["retry/count"] == len(result.log) - len(NAMES) - 1


def test_each_retry_follows_on_a_connection_of_its_own(direct_web, crawl):
    web = direct_web(Impatient().site("blog.example"))
    result = crawl(web, sources=sources_of("http", "blog.example"))
    tried = Counter()
    requests = Counter()
    for hit in result.log:
        tried[hit.path] += 1
        requests[hit.client] += 1
        if tried[hit.path] > 1:
            assert requests[hit.client] == 1
    assert max(tried.values()) == 2


def test_a_broken_connection_is_one_of_retry_times(direct_web, crawl):
    web = direct_web(Impatient().site("blog.example"))
    result = crawl(web, sources=sources_of("http", "blog.example"), settings={"RETRY_TIMES": 0})
    assert len(paths(result.log)) == 1 + len(NAMES)
    assert "retry/count" not in result.stats


def test_pages_through_a_proxy_that_breaks_are_all_read(loopback_web, crawl):
    pages = Impatient()
    hosts = [f"h{number}.example" for number in range(3)]
    web = loopback_web(*(pages.site(host) for host in hosts))
    sources = sources_of("http", *hosts)
    result = crawl(web, sources=sources, settings={"WALSH_BACKOFF_BASE": 0.5})
    assert_all_read(result, len(sources))
    judge(result)


POSTS = """
from scrapy import Request

from tests.helpers.theirs import Urls


class Posts(Urls):
    name = "posts"

    def request(self, url):
        return Request(url, method="POST", body=b"x", errback=self.ended)
"""


def test_a_post_of_another_bot_is_retried_after_its_delay(direct_web, crawl, tmp_path, installed):
    web = direct_web(Impatient().site("blog.example"))
    project = write_project(tmp_path / "project", ADDON | IDENTITY, spiders=POSTS)
    arguments = {"urls": " ".join(sources_of("http", "blog.example"))}
    result = crawl(web, "posts", project=project, arguments=arguments)
    assert {item["url"] for item in result.items} == {*arguments["urls"].split()}
    assert not any("trouble" in item for item in result.items)
    ends = zip(result.log, result.log[1:], strict=False)
    assert min(after.started - before.ended for before, after in ends) >= 0.95


def test_a_blocklist_on_a_broken_connection_is_read(direct_web, crawl):
    """Its robots.txt has used the connection before, and its opt-outs count in this run."""
    pages = Impatient()
    listed = pages.page(blocklist("blocked.example"))
    web = direct_web(
        Site("operator.example", pages.page(Reply("")), {"/blocklist.json": listed}),
        site("blocked.example"),
    )
    settings = {"WALSH_BLOCKLIST_URL": LIST_URL}
    result = crawl(web, sources=["http://blocked.example/feed"], settings=settings)
    assert paths(result.log).count("operator.example/blocklist.json") == 2
    assert rows_of(result, "SELECT outcome FROM sources") == [("denied by blocklist",)]
    judge(result, blocked=["blocked.example"])
