"""The connections of a crawl: how many stay idle, and for how long (decision 26)."""

import asyncio

import pytest
from scrapy.utils.test import get_crawler

from walsh_scrapy.crawl.parts import Crawl
from walsh_scrapy.downloadhandler import HandlerConnections
from walsh_scrapy.exceptions import Denied
from walsh_scrapy.testing.simulation import SimulatedLoop, SimulatedTime
from walsh_scrapy.wire.endpoints import Endpoint

OTHER_BOT = {
    "WALSH_USER_AGENT": "Example-Bot/1.0 (+https://bot.example/)",
    "WALSH_UA_TOKEN": "Example-Bot",
    "WALSH_SERIAL": False,
}


class Stream:
    """A connection that nobody uses."""

    is_open = True
    has_unread = False
    peer = "10.0.0.1"

    def close(self):
        self.is_open = False


def test_no_idle_connection_to_a_private_address_is_used(tmp_path):
    """The name was a private host's, and then a public page linked to it (decision 16)."""
    settings = {**OTHER_BOT, "WALSH_STATE_URL": f"sqlite:///{tmp_path}/state.sqlite3"}
    endpoint, stream = Endpoint("http", "a.example", 80), Stream()

    async def connect():
        crawl = Crawl(get_crawler(settings_dict=settings), SimulatedTime())
        connections = HandlerConnections(crawl)
        connections.idle.keep(endpoint, stream)
        await connections.connect(endpoint, public_only=True, is_new=False)

    with pytest.raises(Denied):
        asyncio.run(connect())
    assert not stream.is_open


@pytest.mark.parametrize(("seconds", "number"), [(14.0, 32), (16.0, 0)])
def test_idle_connections_are_few_and_young(tmp_path, seconds, number):
    settings = {**OTHER_BOT, "WALSH_STATE_URL": f"sqlite:///{tmp_path}/state.sqlite3"}
    streams = [Stream() for _ in range(40)]
    clock = SimulatedTime()

    async def keep_and_wait():
        idle = HandlerConnections(Crawl(get_crawler(settings_dict=settings), clock)).idle
        for port, stream in enumerate(streams):
            idle.keep(Endpoint("http", "a.example", port), stream)
        await asyncio.sleep(seconds)

    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(clock)) as runner:
        runner.run(keep_and_wait())
    assert sum(stream.is_open for stream in streams) == number
