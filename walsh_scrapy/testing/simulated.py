"""The process of `walsh_scrapy.testing.simulation`, which runs the crawls of a plan.

python -m walsh_scrapy.testing.simulated FOLDER
"""

import asyncio
import logging
import pickle
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import Final, Self, TypeVar
from urllib.parse import urlsplit

import scrapy.utils.asyncio
from scrapy import Request, signals
from scrapy.crawler import AsyncCrawlerRunner, Crawler
from scrapy.exceptions import DownloadFailedError, DownloadTimeoutError, StopDownload
from scrapy.http import Headers, Response
from scrapy.responsetypes import responsetypes
from scrapy.settings import BaseSettings, Settings
from scrapy.utils.project import get_project_settings

import walsh_scrapy.crawl.parts
from walsh_scrapy.addon import Addon
from walsh_scrapy.crawl.network import Network
from walsh_scrapy.crawl.parts import Crawl
from walsh_scrapy.crawl.startup import is_addon
from walsh_scrapy.crawl.ticket import rank_of
from walsh_scrapy.downloadhandler import LastHeaders, endpoint_of, message_of
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.testing.crawl import CrawlResult, keep_empty_blocklist, read_items
from walsh_scrapy.testing.hit import DEFAULT_PORTS, Hit, SharedLog
from walsh_scrapy.testing.simulation import Plan, SimulatedLoop, SimulatedTime
from walsh_scrapy.testing.site import Directory, Fault, Page, Raw, Reply, Site, reply_of

_FORMAT: Final = "%(asctime)s [%(name)s] %(levelname)s: %(message)s"
#: The minimum duration of a response in seconds, unless a simulation has its own.
LATENCY: Final = 0.1


class SimulatedWeb:
    """Answers requests as a `LoopbackWeb` does, also https, in simulated time, and logs them."""

    def __init__(self, sites: Iterable[Site], clock: SimulatedTime, latency: float) -> None:
        self.log = SharedLog[Hit]()
        self._clock = clock
        self._latency = latency
        self._directory = Directory()
        self._directory.add(*(replace(site, tls=None) for site in sites))

    async def answer(
        self, request: Request, sent: Iterable[tuple[bytes, bytes]], crawler: Crawler
    ) -> Response:
        """Return the response to a request with these headers, after its latency and delay."""
        hit, page = self._directory.page_for(self._hit(request, sent))
        key = self.log.open(hit)
        try:
            reply = _reply_of(page, hit)
            response = await self._response(request, reply, crawler)
        except BaseException:
            failed = replace(hit, ended=self._clock.rounded)
            self.log.change(key, lambda _: failed)
            raise
        answered = replace(
            hit,
            ended=self._clock.rounded,
            status=reply.status,
            answer=reply.header_pairs(),
            size=len(response.body),
            complete="download_stopped" not in response.flags,
        )
        self.log.change(key, lambda _: answered)
        return response

    def _hit(self, request: Request, sent: Iterable[tuple[bytes, bytes]]) -> Hit:
        url = urlsplit(request.url)
        return Hit(
            started=self._clock.rounded,
            ended=float("inf"),
            wall=self._clock.now(),
            method=request.method,
            scheme=url.scheme,
            host=(url.hostname or "").rstrip("."),
            port=url.port or DEFAULT_PORTS[url.scheme],
            path=(url.path or "/") + (f"?{url.query}" if url.query else ""),
            headers=tuple((name.decode(), text.decode("latin-1")) for name, text in sent),
        )

    async def _response(self, request: Request, reply: Reply, crawler: Crawler) -> Response:
        seconds = self._latency + reply.delay + reply.drip
        timeout = request.meta["download_timeout"]
        await asyncio.sleep(min(seconds, timeout))
        if seconds > timeout:
            raise DownloadTimeoutError(f"Getting {request.url} took longer than {timeout} seconds.")
        if reply.fault is not None:
            raise DownloadFailedError(f"Connection was lost: {Fault(reply.fault).value}")
        headers = Headers(reply.header_pairs())
        headers.setdefault("Date", formatdate(self._clock.now(), usegmt=True))
        is_stopped = _is_stopped(headers, request, crawler)
        body = b"" if is_stopped else reply.content()
        flags = ["download_stopped"] if is_stopped else []
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
    """Return True if a handler of the signal `headers_received` stops the download of a page."""
    is_page = rank_of(request) is Rank.TARGET
    results = crawler.signals.send_catch_log(
        signals.headers_received,
        headers=headers if is_page else headers.copy(),
        body_length=None,
        request=request,
        dont_log=StopDownload,
    )
    values = (getattr(result, "value", None) for _, result in results)
    return is_page and any(isinstance(value, StopDownload) for value in values)


class SimulatedHandler:
    """A download handler that requests everything from a simulated web. All crawls share it."""

    lazy = False
    web: SimulatedWeb

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        crawl = Crawl.of(crawler)
        self._last_headers = LastHeaders(crawl)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Create the handler of one crawl."""
        return cls(crawler)

    async def download_request(self, request: Request) -> Response:
        """Return the web's response."""
        url = request.url
        _, _, fields = message_of(
            request, url, endpoint_of(url), self._last_headers.fields(request, url)
        )
        return await self.web.answer(request, fields, self._crawler)

    async def close(self) -> None:
        """Do nothing: the next run uses the same web."""


class SimulatedAddon(Addon):
    """The add-on, with the simulated clock and download handler."""

    clock: SimulatedTime

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        """Set up no log."""

    @staticmethod
    def check_reactor(settings: BaseSettings) -> None:
        """Require no Twisted reactor: it has a real clock, and only real downloads need it."""

    def update_settings(self, settings: Settings) -> None:
        """Apply the add-on's settings, then the download handler and clock of the simulation."""
        super().update_settings(settings)
        handlers = dict.fromkeys(DEFAULT_PORTS, SimulatedHandler)
        del settings["DOWNLOAD_HANDLERS"]
        settings.set("DOWNLOAD_HANDLERS", handlers)
        Crawl(self._crawler, self.clock)


class SimulatedNetwork(Network):
    """Looks up no names, because a real DNS answer would take hours of simulated time."""

    def has_proxy_for(self, _: str) -> bool:
        """Return True, because names are not looked up for requests through a proxy."""
        return True


class Simulation:
    """Runs crawls of one web, one after the other, with the Scrapy project of this process.

    Each response takes at least `latency` seconds.
    """

    def __init__(
        self, sites: Iterable[Site], clock: SimulatedTime, latency: float = LATENCY
    ) -> None:
        self.clock = clock
        self._web = SimulatedHandler.web = SimulatedWeb(sites, clock, latency)

    async def crawl(
        self, spider: str, settings: Mapping[str, object], arguments: Mapping[str, object],
        folder: Path,
    ) -> CrawlResult:  # fmt: skip
        """Run one crawl, which writes its files into this folder."""
        self._web.log.clear()
        started = self.clock.at
        items = folder / "items.jsonl"
        log = folder / "stderr"
        handler = logging.FileHandler(log, encoding="utf-8")
        handler.setFormatter(logging.Formatter(_FORMAT))
        logging.getLogger().addHandler(handler)
        all_settings = self._settings(items, settings)
        if "WALSH_BLOCKLIST_URL" not in settings:
            keep_empty_blocklist(all_settings["WALSH_STATE_URL"], self.clock.now())
        runner = AsyncCrawlerRunner(all_settings)
        names = runner.spider_loader.list()
        if spider not in names:
            raise SystemExit(
                f"this project has no spider {spider!r}; name one with spider=: "
                f"{', '.join(sorted(names))}"
            )
        crawler = runner.create_crawler(spider)
        try:
            await runner.crawl(crawler, **arguments)
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
            seconds=self.clock.at - started,
            folder=folder,
        )

    def _settings(self, items: Path, settings: Mapping[str, object]) -> Settings:
        merged = get_project_settings()
        addons = {
            addon: order
            for addon, order in merged.getdict("ADDONS").items()
            if order is not None and not is_addon(addon)
        }
        forced: dict[str, object] = {
            "ADDONS": addons | {SimulatedAddon: 500},
            "TWISTED_REACTOR_ENABLED": False,
            "WALSH_PROGRESS": "off",
            "FEEDS": {str(items): {"format": "jsonlines", "overwrite": True}},
        }
        merged.setdict(forced | dict(settings), priority="cmdline")
        return merged


_Result = TypeVar("_Result")


def simulate_here(
    run: Callable[[SimulatedTime], Coroutine[None, None, _Result]],
    clock: SimulatedTime | None = None,
) -> _Result:
    """Run crawls in simulated time, by a new clock unless one is passed.

    Afterwards this process cannot crawl in real time.
    """
    logging.getLogger().setLevel(logging.INFO)
    for name in ("scrapy.addons", "scrapy.crawler", "scrapy.middleware"):
        logging.getLogger(name).setLevel(logging.WARNING)  # or each run would list its components
    logging.captureWarnings(capture=True)
    clock = SimulatedAddon.clock = clock or SimulatedTime()
    setattr(walsh_scrapy.crawl.parts, "Network", SimulatedNetwork)  # noqa: B010 - the same
    # Otherwise Scrapy's periodic calls would come too early, by the real duration of the
    # simulation.
    setattr(scrapy.utils.asyncio, "time", clock)  # noqa: B010 - a module, to mypy
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(clock)) as runner:
        return runner.run(run(clock))


async def _carry_out(plan: Plan, folder: Path, clock: SimulatedTime) -> list[CrawlResult]:
    simulation = Simulation(plan.sites, clock)
    results: list[CrawlResult] = []
    for number, start in enumerate(plan.starts):
        clock.at = max(clock.at, start)
        place = folder / f"run-{number}"
        place.mkdir()
        results.append(await simulation.crawl(plan.spider, plan.settings, plan.arguments, place))
    return results


def main(folder: Path) -> None:
    """Read the plan in a folder, run its crawls, and write their results there."""
    plan: Plan = pickle.loads((folder / "plan").read_bytes())  # noqa: S301 - our parent's
    results = simulate_here(lambda clock: _carry_out(plan, folder, clock))
    (folder / "results").write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
