"""The process of `walsh_scrapy.testing.simulation`: it carries out a plan of crawls.

python -m walsh_scrapy.testing.simulated FOLDER
"""

import asyncio
import logging
import pickle
import sys
from pathlib import Path
from typing import Final

import scrapy.utils.asyncio
from scrapy.crawler import AsyncCrawlerRunner
from scrapy.settings import BaseSettings, Settings
from scrapy.utils.project import get_project_settings

from walsh_scrapy.addon import FORCED, Addon
from walsh_scrapy.crawl import Crawl
from walsh_scrapy.runtime.startup import ADDON
from walsh_scrapy.testing.blocklist import keep_empty_blocklist
from walsh_scrapy.testing.hit import DEFAULT_PORTS
from walsh_scrapy.testing.result import CrawlResult, read_items
from walsh_scrapy.testing.simulatedtime import SimulatedClock, SimulatedLoop, SimulatedTime
from walsh_scrapy.testing.simulatedweb import SimulatedHandler, SimulatedWeb
from walsh_scrapy.testing.simulation import Plan

_FORMAT: Final = "%(asctime)s [%(name)s] %(levelname)s: %(message)s"


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
    # Scrapy's periodic calls would come sooner by the real seconds that the simulation has taken.
    setattr(scrapy.utils.asyncio, "time", SimulatedAddon.clock)  # noqa: B010 - a module, to mypy
    simulation = Simulation(plan, folder, clock)
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(clock)) as runner:
        results = runner.run(simulation.run())
    (folder / "results").write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
