"""The cost of the add-on in an ordinary broad crawl, against plain Scrapy with its polite settings.

    python -m benchmarks.broad [HOSTS]

A CrawlSpider follows the links of six HTML pages on each host, with up to 100 requests at once and
a second between two requests to a host. Plain Scrapy has ROBOTSTXT_OBEY, DOWNLOAD_DELAY without
jitter, and one request at a time to a host; the same project then gets the line of the add-on. Both
crawl the same loopback web in turn, in two pairs for each database, and the faster run of each
counts. Goals: CPU per page at most 1.25 of plain Scrapy's, and no request too soon. The CPU of
PostgreSQL's server is not included.
"""

import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from benchmarks.databases import states
from benchmarks.report import Figure, Report, run
from walsh_scrapy.testing.crawl import join_environments
from walsh_scrapy.testing.directweb import DirectWeb
from walsh_scrapy.testing.hit import Hit
from walsh_scrapy.testing.web import Reply, Site

PAIRS = 2
PAGES = 6
MAX_RATIO = 1.25
TIMEOUT_SECONDS = 600.0
#: A request counts as too soon if it misses its second by more than this: what a clock may differ.
TOLERANCE_SECONDS = 0.05
PROJECT = """
from scrapy import Request
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class Broad(CrawlSpider):
    name = "broad"
    rules = [Rule(LinkExtractor(), callback="parse_page", follow=True)]
    custom_settings = {{
        "USER_AGENT": "Example-Bot/1.0 (+https://bot.example/)",
        "ROBOTSTXT_OBEY": True,
        "CONCURRENT_REQUESTS": 100,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
        "DOWNLOAD_DELAY": 1,
        "DOWNLOAD_DELAY_JITTER": 0,
        "RANDOMIZE_DOWNLOAD_DELAY": False,
        "LOG_LEVEL": "INFO",
    }}

    async def start(self):
        for number in range({hosts}):
            yield Request(f"http://h{{number}}.example/")

    def parse_page(self, response):
        return {{"url": response.url, "title": response.css("title::text").get()}}
"""


class Cost(NamedTuple):
    """What one crawl took: seconds of CPU and of wall time; and its requests that came too soon."""

    cpu: float
    wall: float
    too_soon: int


def main(report: Report, hosts: int) -> None:
    """Compare both on each database."""
    sites = [_site(number) for number in range(hosts)]
    for name, state in states():
        with DirectWeb(*sites) as web:
            pairs = [(_crawl(web, hosts), _crawl(web, hosts, state)) for _ in range(PAIRS)]
        plain, ours = (list(costs) for costs in zip(*pairs, strict=True))
        pages = hosts * PAGES
        report.add(
            f"{name}: {hosts} hosts with {PAGES} pages each",
            Figure(
                "CPU per page",
                _least(ours, "cpu") / pages * 1e3,
                "ms",
                peer="plain Scrapy",
                peer_value=_least(plain, "cpu") / pages * 1e3,
                max_value=MAX_RATIO,
            ),
            Figure(
                "wall",
                _least(ours, "wall"),
                "s",
                peer="plain Scrapy",
                peer_value=_least(plain, "wall"),
            ),
            Figure("too soon", max(cost.too_soon for cost in ours), max_value=0),
            note=f"plain Scrapy sent {max(cost.too_soon for cost in plain)} too soon",
        )


def _site(number: int) -> Site:
    links = "".join(f'<li><a href="/{page}">Page {page}</a></li>' for page in range(PAGES - 1))
    text = "<p>Words of a page, as many as there are in a short article of the web.</p>" * 60
    body = f"<title>Host {number}</title><ul>{links}<li><a href='/'>Home</a></li></ul>{text}"
    page = Reply(body, content_type="text/html")
    paths = ["/", *(f"/{page}" for page in range(PAGES - 1))]
    robots = "User-agent: *\nDisallow: /private/\n"
    return Site(f"h{number}.example", robots, dict.fromkeys(paths, page))


def _crawl(web: DirectWeb, hosts: int, state: str | None = None) -> Cost:
    """Crawl all hosts, with the add-on if there is a state; a crawl that misses a page is wrong."""
    begun = time.monotonic()
    settings = {"ADDONS": '{"walsh_scrapy.Addon": 500}', "WALSH_STATE_URL": state}
    options = [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "broad.py").write_text(PROJECT.format(hosts=hosts))
        command = [sys.executable, "-m", "scrapy", "runspider", "broad.py", "-O", "items.jsonl"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            command + (options if state else []),
            cwd=folder,
            env=join_environments(os.environ | {"PYTHONPATH": str(Path.cwd())}, web.environment),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    log = [hit for hit in web.log if hit.started >= begun]
    pages = {hit.url for hit in log if hit.path != "/robots.txt"}
    if done.returncode or len(pages) != hosts * PAGES:
        raise SystemExit(f"a crawl requested {len(pages)} pages:\n{done.stderr[-3000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu, time.monotonic() - begun, _count_too_soon(log))


def _count_too_soon(log: Iterable[Hit]) -> int:
    """Return how many requests came less than a second after the end of the one before."""
    ended: dict[str, float] = defaultdict(lambda: -math.inf)
    too_soon = 0
    for hit in sorted(log, key=lambda hit: hit.started):
        too_soon += hit.started < ended[hit.host] + 1.0 - TOLERANCE_SECONDS
        ended[hit.host] = max(ended[hit.host], hit.ended)
    return too_soon


def _least(costs: Iterable[Cost], name: str) -> float:
    return min(float(getattr(cost, name)) for cost in costs)


if __name__ == "__main__":
    run(main, 200)
