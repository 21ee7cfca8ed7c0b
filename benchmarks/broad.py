"""How long a broad crawl takes, of many hosts at once, against what politeness itself costs.

    python -m benchmarks.broad [WORKLOAD ...]

A project of another bot, with the add-on, WALSH_SERIAL = False and CONCURRENT_REQUESTS = 32,
follows links over 200 hosts. The bound is the larger of two: all service times over 32, and the
slowest host's own chain of requests and pauses. Goal: at most 1.1 of it.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import Figure, Report, run
from walsh_scrapy.testing.crawl import run_crawl
from walsh_scrapy.testing.hit import Hit
from walsh_scrapy.testing.politeness import assert_polite, most_in_flight
from walsh_scrapy.testing.web import LoopbackWeb, Page, Reply, Site

HOSTS = 200
AT_ONCE = 32
USER_AGENT = "Broad-Bot/1.0 (+http://bot.example/)"
SETTINGS = f"""
SPIDER_MODULES = ["broad.spiders"]
ADDONS = {{"walsh_scrapy.addon.Addon": 500}}
WALSH_USER_AGENT = {USER_AGENT!r}
WALSH_UA_TOKEN = "Broad-Bot"
WALSH_SCOPE = "any"
WALSH_SERIAL = False
CONCURRENT_REQUESTS = {AT_ONCE}
LOG_LEVEL = "INFO"
"""
SPIDER = f"""
import scrapy


class PagesSpider(scrapy.Spider):
    name = "pages"
    start_urls = [f"http://h{{number}}.example/" for number in range({HOSTS})]

    def parse(self, response):
        yield {{"url": response.url, "title": response.xpath("//title/text()").get()}}
        yield from response.follow_all(xpath="//a")
"""


class Workload:
    """Hosts by name, each with its Crawl-delay and the seconds that its pages take, one by one."""

    def __init__(self, name: str, plan: dict[str, tuple[float, Sequence[float]]]) -> None:
        self.name = name
        self.pages = sum(len(pages) for _, pages in plan.values())
        self._delays = {host: delay for host, (delay, _) in plan.items()}
        self.sites = [_site(host, delay, pages) for host, (delay, pages) in plan.items()]

    def bound(self, log: Sequence[Hit]) -> float:
        """Return the seconds that no crawl as polite as this one can undercut."""
        service = sum(hit.ended - hit.started for hit in log)
        chains = (self._chain([hit for hit in log if hit.host == host]) for host in self._delays)
        return max(service / AT_ONCE, *chains)

    def _chain(self, hits: Sequence[Hit]) -> float:
        """Return one host's exchanges, and the pauses that each asks for: its own time at least."""
        pauses = [max(self._delays[hit.host], hit.ended - hit.started) for hit in hits[:-1]]
        return sum(hit.ended - hit.started for hit in hits) + sum(pauses)


def workloads() -> tuple[Workload, ...]:
    """Return one that waits for its slowest host, and one that is kept by slow answers."""
    return (
        Workload(
            f"{HOSTS} hosts, 1 to 12 pages, Crawl-delay 1 to 3 s",
            {f"h{n}.example": (1.0 + n % 3, [0.02] * (1 + n * 7 % 12)) for n in range(HOSTS)},
        ),
        Workload(
            f"{HOSTS} hosts of 12 pages that take 0.2 to 0.9 s each",
            {
                f"h{n}.example": (1.0, [0.2 + (n + page) % 8 / 10 for page in range(12)])
                for n in range(HOSTS)
            },
        ),
    )


def main(report: Report, *chosen: str) -> None:
    """Run each workload."""
    for number, workload in enumerate(workloads(), 1):
        if not chosen or str(number) in chosen:
            report.add(f"{number}. {workload.name}", *_measure(workload))


def _measure(workload: Workload) -> tuple[Figure, Figure]:
    with LoopbackWeb(*workload.sites) as web, tempfile.TemporaryDirectory() as folder:
        result = run_crawl(
            web, "pages", folder=Path(folder) / "c", project=_project(Path(folder)), timeout=900
        )
        log = web.log
    if (result.exit_code, len(result.items)) != (0, workload.pages):
        raise SystemExit(f"{result.exit_code}: {len(result.items)} of {workload.pages} pages")
    assert_polite(log, serial=False, user_agent=USER_AGENT, crawl_delays=web.crawl_delays)
    took = max(hit.ended for hit in log) - min(hit.started for hit in log)
    return (
        Figure("time", took, "s", peer="bound", peer_value=workload.bound(log), most=1.1),
        Figure("requests at once", most_in_flight(log)),
    )


def _project(folder: Path) -> Path:
    project = folder / "project"
    spiders = project / "broad" / "spiders"
    spiders.mkdir(parents=True)
    (project / "scrapy.cfg").write_text("[settings]\ndefault = broad.settings\n")
    (project / "broad" / "settings.py").write_text(SETTINGS)
    (spiders / "__init__.py").write_text(SPIDER)
    return project


def _site(host: str, delay: float, seconds: Sequence[float]) -> Site:
    """Return a host whose front page links to its other pages."""
    links = (f'<a href="/{number}">{number}</a>' for number in range(1, len(seconds)))
    front = f"<title>{host}</title>{''.join(links)}"
    pages: dict[str, Page] = {
        f"/{number or ''}": Reply(
            f"<title>{number}</title>" if number else front, content_type="text/html", delay=wait
        )
        for number, wait in enumerate(seconds)
    }
    return Site(host, f"User-agent: *\nCrawl-delay: {delay}\n", pages)


if __name__ == "__main__":
    run(main)
