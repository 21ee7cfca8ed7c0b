"""Real crawls, one after another, in a process where time leaps to whatever is waited for next.

    runs = runs_of(Plan(...), folder=tmp_path, project=pytestconfig.rootpath)

Engine, scheduler, gates, spider and state are those of a crawl. Made up are the clock and the web:
every path but robots.txt is a feed with one post more for each day. A week of runs takes seconds.
"""

import asyncio
import json
import os
import selectors
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

DAY = 86_400.0
#: Where time begins: 2026-01-01 00:00:00 UTC, in epoch seconds.
EPOCH = 1_767_225_600.0
LATENCY = 0.1

SETTINGS = {
    "TWISTED_REACTOR_ENABLED": False,
    "WALSH_BLOCKLIST_URL": "",
    "WALSH_BLOCKLIST_SCHEMA_URL": "",
    "WALSH_PROGRESS": "off",
}


@dataclass(frozen=True)
class Plan:
    sources: list[str]
    starts: list[float]  #: of the runs, in seconds from the beginning
    robots: dict[str, str]  #: the file of each host
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    host: str
    page: str  #: the path without its slash
    started: float  #: in seconds from the beginning, as `ended`
    ended: float


@dataclass(frozen=True)
class Run:
    requests: list[Request]
    stats: dict[str, Any]  #: without "walsh/"


def runs_of(plan: Plan, *, folder: Path, project: Path) -> list[Run]:
    """Carry out a plan, in a process of its own: the reactor and clock of this one stay alone."""
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(folder)],
        input=json.dumps(asdict(plan)),
        cwd=project,
        env={name: value for name, value in os.environ.items() if not name.startswith("SCRAPY_")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    runs = map(json.loads, done.stdout.splitlines())
    return [Run([Request(*each) for each in requests], stats) for requests, stats in runs]


class LeapingSelector(selectors.DefaultSelector):
    """Where a loop would wait for its next timer, its time is come."""

    now = 0.0

    def select(self, timeout=None):
        if timeout is not None:
            self.now += max(0.0, timeout)
            timeout = 0.0
        return super().select(timeout)


class LeapingLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock):
        self._leaping = clock
        super().__init__(clock)

    def time(self):
        return self._leaping.now


class MadeUpWeb:
    """Stands where the download handler of each crawl does."""

    lazy = True

    def __init__(self, plan, clock):
        self._plan = plan
        self._clock = clock
        self.requests = []

    def from_crawler(self, crawler):
        return self

    async def download_request(self, request):
        from scrapy.http import TextResponse

        url, started = urlsplit(request.url), self._clock.now
        await asyncio.sleep(LATENCY)
        self.requests.append((url.hostname, url.path[1:], started, self._clock.now))
        if url.path == "/robots.txt":
            return TextResponse(request.url, body=self._plan.robots[url.hostname].encode())
        return TextResponse(request.url, body=self._feed(request.url).encode())

    async def close(self):
        pass

    def _feed(self, url):
        from walsh_scrapy.testing.feeds import Post, rss

        today = int(self._clock.now // DAY)
        return rss("Feed", [Post(f"Day {day}", f"{url}?{day}") for day in range(today + 1)])


async def carry_out(plan, settings, sources, clock, web):
    from scrapy.crawler import AsyncCrawlerRunner

    runner = AsyncCrawlerRunner(settings)
    for start in plan.starts:
        clock.now, web.requests = max(clock.now, start), []
        crawler = runner.create_crawler("feeds")
        await runner.crawl(crawler, sources=sources)
        stats = crawler.stats.get_stats().items()
        kept = {name[6:]: value for name, value in stats if name.startswith("walsh/")}
        print(json.dumps((web.requests, kept)))


def main(folder):
    from scrapy.utils.project import get_project_settings

    import walsh_scrapy.downloadhandler
    from walsh_scrapy.addon import Addon
    from walsh_scrapy.runtime.clock import SystemClock
    from walsh_scrapy.state.database import Database
    from walsh_scrapy.testing.sources import write_sources

    plan, clock = Plan(**json.load(sys.stdin)), LeapingSelector()
    web = walsh_scrapy.downloadhandler.DownloadHandler = MadeUpWeb(plan, clock)
    # Only real downloads need Twisted's reactor, whose time does not leap.
    Addon.update_pre_crawler_settings = lambda _settings: None
    SystemClock.now = lambda _self: EPOCH + clock.now
    Database.now = lambda _self, _connection: EPOCH + clock.now
    SystemClock.monotonic = lambda _self: clock.now
    settings = get_project_settings()
    state = {"WALSH_STATE_URL": f"sqlite:///{folder}/walsh.sqlite3"}
    settings.setdict(SETTINGS | state | plan.settings, priority="cmdline")
    sources = write_sources(Path(folder, "sources.toml"), plan.sources)
    with asyncio.Runner(loop_factory=lambda: LeapingLoop(clock)) as runner:
        runner.run(carry_out(plan, settings, str(sources), clock, web))


if __name__ == "__main__":
    main(sys.argv[1])
