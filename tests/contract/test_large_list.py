"""The start of a crawl with many declared sources costs what it costs with few of them."""

import os
import time
from contextlib import closing

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from tests.helpers.sites import feed, trouble
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.state import State
from walsh_scrapy.testing.crawl import write_sources
from walsh_scrapy.testing.web import Site

HOUR = 3600.0
#: The first crawl meets with an empty state; the others are compared.
SOURCES = (2, 10, 10_000)
IDENTITIES = {
    "Walsh-Research": {},
    "ownbot": {
        "WALSH_USER_AGENT": "ownbot/1.0 (+https://bot.example/)",
        "WALSH_UA_TOKEN": "ownbot",
        "WALSH_SCOPE": "declared",
    },
}


@pytest.fixture
def declared(tmp_path, url):
    """Return a function that declares sources, of which one is due, and returns their file."""

    def declare(sources):
        due = f"http://blog.example/{sources}"
        later = [f"http://h{number % 100}.example/{number}" for number in range(1, sources)]
        file = write_sources(tmp_path / f"{sources}.txt", [due, *later])
        hour_ago = time.time() - HOUR
        os.utime(file, (hour_ago, hour_ago))  # a younger file is read again by the next run
        with closing(State(url)) as state:
            Stores(state).sync(file, time.time())
        engine = create_engine(url, poolclass=NullPool)
        with engine.begin() as connection:
            visit = text("UPDATE declared SET visited_at = :at, not_before = :at WHERE url <> :due")
            connection.execute(visit, {"at": hour_ago, "due": due})
        return file

    return declare


@pytest.mark.parametrize("bot", ["Walsh-Research", "ownbot"])
def test_a_large_list_reads_no_more_before_the_first_request(direct_web, crawl, declared, url, bot):
    web = direct_web(Site("blog.example", "", {f"/{number}": feed() for number in SOURCES}))
    settings = {"WALSH_STATE_URL": url} | trouble("CountedStatements") | IDENTITIES[bot]
    costs = []
    for sources in SOURCES:
        result = crawl(web, sources=declared(sources), settings=settings)
        assert result.stats["walsh/sources/fetched"] == 1, result.stderr
        costs.append((result.stats["statements"], result.stats["rows"]))
    _, few, many = costs
    assert few == many
