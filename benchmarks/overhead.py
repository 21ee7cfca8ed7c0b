"""The CPU cost of politeness: a crawl of hosts with nothing to wait for, against plain Scrapy.

    python -m benchmarks.overhead [HOSTS]

The peer is a Scrapy project of a few lines with ROBOTSTXT_OBEY and a feedparser spider, one request
at a time. Both crawl the same loopback web, in turn, and the fastest of three runs of each is
reported, because whatever else the machine does only adds to it. Goals: CPU per target at
most 0.38 of the peer's with summaries, and 0.95 with titles alone; a revisit that is all 304 at
most half of the first run.
"""

import resource
import tempfile
from collections.abc import Callable
from html import escape
from pathlib import Path

from benchmarks.peer import run_peer
from benchmarks.report import Figure, Report, run
from walsh_scrapy.testing.crawl import find_project, run_crawl
from walsh_scrapy.testing.directweb import DirectWeb
from walsh_scrapy.testing.feeds import rss
from walsh_scrapy.testing.web import Reply, Site

ROUNDS = 3
POSTS = [f"Post number {number}" for number in range(20)]
#: The usual parts of an entry in addition to its title: a summary in HTML, authors and tags.
SUMMARY = '<p>Words with a <a href="/link">link</a> in them.</p> ' * 15
DETAILS = (
    "<dc:creator>Somebody</dc:creator><category>News</category><category>Notes</category>"
    f"<description>{escape(SUMMARY)}</description></item>"
)


def main(report: Report, hosts: int) -> None:
    """Compare both on feeds with summaries, as usual, and on feeds with titles alone."""
    _compare(report, hosts, "20 entries with summaries, 20 kB", 0.38, full=True)
    _compare(report, hosts, "20 entries of title, link, id and date, 4 kB", 0.95, full=False)


def _compare(report: Report, hosts: int, description: str, max_ratio: float, *, full: bool) -> None:
    """Crawl with the peer, with ours, and with ours again; report CPU per target and ratios."""
    pages = {
        f"h{number}.example": Reply(
            feed_of(number, full=full), content_type="application/rss+xml", etag='"1"'
        )
        for number in range(hosts)
    }
    sites = [Site(host, "User-agent: *\n", {"/feed": page}) for host, page in pages.items()]
    urls = [f"http://{host}/feed" for host in pages]
    with DirectWeb(*sites) as web, tempfile.TemporaryDirectory() as name:
        rounds = [_round(web, Path(name, str(number)), urls) for number in range(ROUNDS)]
    peer, ours, again = (min(cpu) / hosts * 1e3 for cpu in zip(*rounds, strict=True))
    report.add(
        f"CPU per target over {hosts} hosts, one feed each of {description}",
        Figure("first run", ours, "ms", peer="plain Scrapy", peer_value=peer, max_value=max_ratio),
        Figure("again, 304", again, "ms", peer="first run", peer_value=ours, max_value=0.5),
    )


def _round(web: DirectWeb, folder: Path, urls: list[str]) -> tuple[float, float, float]:
    """Return the CPU seconds of the peer's crawl, of our first, and of our second."""
    folder.mkdir()
    return (
        _cpu(lambda: _run_peer(web, folder, urls)),
        _cpu(lambda: _run_ours(web, folder, urls)),
        _cpu(lambda: _run_ours(web, folder, urls, force="1")),
    )


def feed_of(number: int, *, full: bool) -> str:
    """Return a feed of 20 posts, with summaries if ``full``."""
    feed = rss(f"Blog {number}", POSTS, f"http://h{number}.example/")
    if not full:
        return feed
    named = feed.replace("<rss ", '<rss xmlns:dc="http://purl.org/dc/elements/1.1/" ')
    return named.replace("</item>", DETAILS)


def _cpu(run: Callable[[], None]) -> float:
    """Return the CPU seconds, user and system, that the processes started by ``run`` took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _run_ours(web: DirectWeb, folder: Path, urls: list[str], **arguments: str) -> None:
    project = find_project(Path(__file__).parent)
    result = run_crawl(
        web, folder=folder / "ours", project=project, sources=urls, arguments=arguments, timeout=900
    )
    _check(result.exit_code, len(result.items), 0 if arguments else len(urls) * len(POSTS))


def _run_peer(web: DirectWeb, folder: Path, urls: list[str]) -> None:
    code, items = run_peer(web, folder, urls)
    _check(code, items, len(urls) * len(POSTS))


def _check(exit_code: int | None, items: int, wanted: int) -> None:
    if (exit_code, items) != (0, wanted):
        raise SystemExit(f"a crawl ended with {exit_code} and {items} items instead of {wanted}")


if __name__ == "__main__":
    run(main, 2000)
