"""The process of `walsh_scrapy.testing.simulation`: it carries out a plan of crawls.

python -m walsh_scrapy.testing.simulated FOLDER
"""

import asyncio
import logging
import pickle
import sys
from collections.abc import Iterable
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

import scrapy.utils.asyncio
from scrapy import Request, signals
from scrapy.crawler import AsyncCrawlerRunner, Crawler
from scrapy.exceptions import DownloadFailedError, DownloadTimeoutError, StopDownload
from scrapy.http import Headers, Response
from scrapy.responsetypes import responsetypes
from scrapy.settings import BaseSettings, Settings
from scrapy.utils.project import get_project_settings

import walsh_scrapy.crawl
from walsh_scrapy.addon import FORCED, Addon
from walsh_scrapy.crawl import Crawl
from walsh_scrapy.runtime.network import Network
from walsh_scrapy.runtime.startup import ADDON
from walsh_scrapy.testing.clock import SimulatedClock, SimulatedLoop, SimulatedTime
from walsh_scrapy.testing.crawl import CrawlResult, read_items
from walsh_scrapy.testing.directory import Directory
from walsh_scrapy.testing.hit import DEFAULT_PORTS, Hit, SharedLog
from walsh_scrapy.testing.project import keep_empty_blocklist
from walsh_scrapy.testing.reply import Fault, Page, Raw, Reply, reply_of
from walsh_scrapy.testing.simulation import Plan
from walsh_scrapy.testing.site import Site

_FORMAT: Final = "%(asctime)s [%(name)s] %(levelname)s: %(message)s"
#: The least seconds that each response takes.
LATENCY: Final = 0.1


class SimulatedWeb:
    """Answers as `LoopbackWeb` does, https too, in simulated time, and logs every request."""

    def __init__(self, sites: Iterable[Site], clock: SimulatedTime) -> None:
        self.log = SharedLog[Hit]()
        self._clock = clock
        self._directory = Directory()
        self._directory.add(*(replace(site, tls=None) for site in sites))

    async def answer(self, request: Request, crawler: Crawler) -> Response:
        """Return the response to a request, after its latency and delay."""
        hit, page = self._directory.page_for(self._hit(request))
        key = self.log.open(hit)
        try:
            reply = _reply_of(page, hit)
            response = await self._response(request, reply, crawler)
        except BaseException:
            failed = replace(hit, ended=self._clock.kept)
            self.log.change(key, lambda _: failed)
            raise
        answered = replace(
            hit,
            ended=self._clock.kept,
            status=reply.status,
            answer=reply.header_pairs(),
            size=len(response.body),
            complete="download_stopped" not in response.flags,
        )
        self.log.change(key, lambda _: answered)
        return response

    def _hit(self, request: Request) -> Hit:
        url = urlsplit(request.url)
        pairs = request.headers.to_unicode_dict().items()
        return Hit(
            started=self._clock.kept,
            ended=float("inf"),
            wall=self._clock.wall,
            method=request.method,
            scheme=url.scheme,
            host=(url.hostname or "").rstrip("."),
            port=url.port or DEFAULT_PORTS[url.scheme],
            path=(url.path or "/") + (f"?{url.query}" if url.query else ""),
            headers=(("Host", url.netloc), *((str(name), str(text)) for name, text in pairs)),
        )

    async def _response(self, request: Request, reply: Reply, crawler: Crawler) -> Response:
        seconds, most = LATENCY + reply.delay + reply.drip, request.meta["download_timeout"]
        await asyncio.sleep(min(seconds, most))
        if seconds > most:
            raise DownloadTimeoutError(f"Getting {request.url} took longer than {most} seconds.")
        if reply.fault is not None:
            raise DownloadFailedError(f"Connection was lost: {Fault(reply.fault).value}")
        body, headers, flags = reply.content(), Headers(reply.header_pairs()), []
        headers.setdefault("Date", formatdate(self._clock.wall, usegmt=True))
        if _is_stopped(headers, request, crawler):
            body, flags = b"", ["download_stopped"]
        kind = responsetypes.from_args(headers=headers, url=request.url, body=body)
        return kind(
            request.url, status=reply.status, headers=headers, body=body, flags=flags,
            request=request,
        )  # fmt: skip


def _reply_of(page: Page, hit: Hit) -> Reply:
    reply = reply_of(page, hit)
    if isinstance(reply, Raw):
        raise TypeError(f"{hit.url}: a simulation has no wire for raw bytes")
    return reply


def _is_stopped(headers: Headers, request: Request, crawler: Crawler) -> bool:
    """Return True if a listener of `headers_received` stops the download."""
    results = crawler.signals.send_catch_log(
        signals.headers_received,
        headers=headers,
        body_length=None,
        request=request,
        dont_log=StopDownload,
    )
    values = (getattr(result, "value", None) for _, result in results)
    return any(isinstance(value, StopDownload) for value in values)


class SimulatedHandler:
    """The download handler of each crawl; all of them share one web."""

    lazy = False
    web: SimulatedWeb

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the handler of one crawl."""
        return cls(crawler)

    async def download_request(self, request: Request) -> Response:
        """Return the web's response."""
        return await self.web.answer(request, self._crawler)

    async def close(self) -> None:
        """Do nothing: the next run uses the same web."""


class SimulatedAddon(Addon):
    """The add-on, with our clock and our download handler."""

    clock: SimulatedClock

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        """Require no reactor: only real downloads need Twisted's, which runs in real time."""

    def update_settings(self, settings: Settings) -> None:
        """Force what the add-on forces, then set the web and the clock of the simulation."""
        super().update_settings(settings)
        for scheme in DEFAULT_PORTS:
            settings["DOWNLOAD_HANDLERS"].set(scheme, SimulatedHandler, priority=FORCED)
        Crawl(self._crawler, self.clock)


class SimulatedNetwork(Network):
    """Looks up no names: the answer of a resolver would come after hours, in simulated time."""

    def has_proxy_for(self, _: str) -> bool:
        """Return True: behind a proxy, which looks up the names, only names are judged."""
        return True


class Simulation:
    """The runs of a plan, one after the other."""

    def __init__(self, plan: Plan, folder: Path, clock: SimulatedTime) -> None:
        self._plan = plan
        self._folder = folder
        self._clock = clock
        self._web = SimulatedHandler.web = SimulatedWeb(plan.sites, clock)

    async def run(self) -> list[CrawlResult]:
        """Run each crawl of the plan, and return the results."""
        results = []
        for number, start in enumerate(self._plan.starts):
            self._clock.now = max(self._clock.now, start)
            folder = self._folder / f"run-{number}"
            folder.mkdir()
            results.append(await self._crawl(folder))
        return results

    async def _crawl(self, folder: Path) -> CrawlResult:
        self._web.log.clear()
        started, items, log = self._clock.now, folder / "items.jsonl", folder / "stderr"
        handler = logging.FileHandler(log, encoding="utf-8")
        handler.setFormatter(logging.Formatter(_FORMAT))
        logging.getLogger().addHandler(handler)
        settings = self._settings(items)
        if "WALSH_BLOCKLIST_URL" not in self._plan.settings:
            keep_empty_blocklist(settings["WALSH_STATE_URL"], self._clock.wall)
        runner = AsyncCrawlerRunner(settings)
        names = runner.spider_loader.list()
        if self._plan.spider not in names:
            raise SystemExit(
                f"this project has no spider {self._plan.spider!r}; name one with spider=: "
                f"{', '.join(sorted(names))}"
            )
        crawler = runner.create_crawler(self._plan.spider)
        try:
            await runner.crawl(crawler, **self._plan.arguments)
        finally:
            logging.getLogger().removeHandler(handler)
            handler.close()
        stats = crawler.stats.get_stats() if crawler.stats else {}
        return CrawlResult(
            exit_code=0,
            stdout="",
            stderr=log.read_text(encoding="utf-8"),
            items=read_items(items),
            stats=dict(stats),
            log=self._web.log.entries(),
            seconds=self._clock.now - started,
            folder=folder,
        )

    def _settings(self, items: Path) -> Settings:
        settings = get_project_settings()
        addons = {
            path: order for path, order in settings.getdict("ADDONS").items() if path != ADDON
        }
        given: dict[str, object] = {
            "ADDONS": addons | {SimulatedAddon: 500},
            "TWISTED_REACTOR_ENABLED": False,
            "WALSH_PROGRESS": "off",
            "WALSH_SIGNING_KEY": "",  # requests that are not sent are not signed
            "FEEDS": {str(items): {"format": "jsonlines", "overwrite": True}},
        }
        settings.setdict(given | self._plan.settings, priority="cmdline")
        return settings


def main(folder: Path) -> None:
    """Carry out the plan in a folder, and write the results there."""
    plan: Plan = pickle.loads((folder / "plan").read_bytes())  # noqa: S301 - our parent's
    logging.getLogger().setLevel(logging.INFO)
    for name in ("scrapy.addons", "scrapy.crawler", "scrapy.middleware"):
        logging.getLogger(name).setLevel(logging.WARNING)  # each run would list its parts
    logging.captureWarnings(capture=True)
    clock = SimulatedTime()
    SimulatedAddon.clock = SimulatedClock(clock)
    setattr(walsh_scrapy.crawl, "Network", SimulatedNetwork)  # noqa: B010 - the same
    # Scrapy's periodic calls would come sooner by the real seconds that the simulation has taken.
    setattr(scrapy.utils.asyncio, "time", SimulatedAddon.clock)  # noqa: B010 - a module, to mypy
    simulation = Simulation(plan, folder, clock)
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(clock)) as runner:
        results = runner.run(simulation.run())
    (folder / "results").write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
