"""The visits of a crawl (R6, R8)."""

import asyncio

import pytest
from scrapy import Request
from scrapy.utils.test import get_crawler

from walsh_scrapy.crawl.crawl import Crawl
from walsh_scrapy.crawl.hosts import HostLost
from walsh_scrapy.crawl.outcome import Outcomes
from walsh_scrapy.crawl.ticket import Visit, set_visit
from walsh_scrapy.crawl.visits import MOST_OF_HOST, DueSources
from walsh_scrapy.exceptions import (
    MachineTrouble,
    PutOff,
    RequestDeferred,
    StateUnavailable,
    StillDue,
)
from walsh_scrapy.policy.frontier import FEW
from walsh_scrapy.scheduler import Scheduler
from walsh_scrapy.sources.source import Source
from walsh_scrapy.state.sources import DueSource, Selection

PAGE = MOST_OF_HOST - FEW


@pytest.mark.parametrize("read", [1, PAGE])
def test_of_a_host_that_was_lost_no_further_source_is_visited(tmp_path, monkeypatch, read):
    """What is due there stays due, and the sources of the other hosts are visited."""
    file = tmp_path / "sources.toml"
    urls = [f"http://a.example/{number}" for number in range(3 * PAGE)] + ["http://b.example/"]
    file.write_text("\n".join(f'[[source]]\nurl = "{url}"' for url in urls))
    crawler = get_crawler(settings_dict={"WALSH_STATE_URL": f"sqlite:///{tmp_path}/state.sqlite3"})
    Scheduler.from_crawler(crawler)
    crawl = Crawl.of(crawler)
    monkeypatch.setattr(crawl.hosts, "beat", lambda: None)
    number = crawl.context.state.sync(file, crawl.context.clock.now()).id

    async def visited():
        found = []
        async for due in DueSources(crawl.visits, Selection(number, "feed")).each():
            found.append(due.url)
            if len(found) == read:
                crawl.hosts._drop("a.example")
        return found

    found = asyncio.run(visited())
    assert len(found) == read + 1
    assert found[-1] == "http://b.example/"


NOW = 1e9


@pytest.mark.parametrize(
    ("error", "others"),
    [
        (RequestDeferred(NOW, "it is on hold"), "deferred"),
        (PutOff(NOW, "it refused 5 requests in a row", 503), "deferred"),
        (PutOff(NOW, "this machine has no route to it", gives_up=False), "ours"),
        (StillDue(NOW, "the crawl ends"), "ours"),
        (StateUnavailable(NOW, "no connection"), "ours"),
        (MachineTrouble(NOW, "no route"), "ours"),
        (HostLost(NOW, "another worker has it"), "ours"),
    ],
)
def test_our_own_trouble_defers_nobody_else(tmp_path, error, others):
    url = f"sqlite:///{tmp_path}/state.sqlite3"
    ours, other = (Crawl.of(get_crawler(settings_dict={"WALSH_STATE_URL": url})) for _ in range(2))
    source, request = Source("http://a.example/"), Request("http://a.example/")
    set_visit(request, Visit(source, bool))
    assert other.hosts is not None, "its run has begun"
    assert ours.queue.own("a.example", ours) == "ours"
    ours.visits.begin("a.example", DueSource(source, None))
    ours.hosts.let_go("a.example", ours)
    Outcomes(ours.stats, ours.troubles, ours.visits).ended(request, error)
    assert other.hosts.take("a.example", other) == others
