"""The connections of a crawl: how many stay idle, and for how long (decision 26)."""

import asyncio

import pytest
from scrapy.utils.test import get_crawler

from walsh_scrapy.crawl.parts import Crawl
from walsh_scrapy.downloadhandler import HandlerConnections
from walsh_scrapy.testing.simulation import SimulatedLoop, SimulatedTime
from walsh_scrapy.wire.unreachable import Endpoint

OTHER_BOT = {
    "WALSH_USER_AGENT": "Example-Bot/1.0 (+https://bot.example/)",
    "WALSH_UA_TOKEN": "Example-Bot",
    "WALSH_SERIAL": False,
}


class Stream:
    """A connection that nobody uses."""

    is_open = True

    def close(self):
        self.is_open = False


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
