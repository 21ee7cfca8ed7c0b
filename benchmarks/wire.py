"""The time of a crawl against the cost of its lines: no proxy, and each host at a separate address.

    python -m benchmarks.wire [HOSTS [http|https]]

Every host is 30 ms away, and the lookup of its name takes 100 ms. The bound is the sum of all
exchanges and of all handshakes, one after the other, since the crawl is serial. The servers measure
both: an exchange from its request to its response, and a handshake from the accepted connection to
its first request (one round trip for TCP, one more for TLS 1.3, and the computation of both sides).
Names are not part of the bound, because they can be looked up ahead. Goals: at most 1.1 of the
bound, one connection open, one full handshake per host, the first feed read within 2 s of the first
request, and half of them after at most 60 % of the requests.

The peer is plain Scrapy, serial, with a delay of one second for each host. It waits for each host
in turn, so it gets only as many hosts as take it two minutes.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.makespan import reading_of
from benchmarks.overhead import POSTS, feed_of
from benchmarks.peer import POLITE, run_peer
from benchmarks.report import Figure, Report, run
from walsh_scrapy.testing.crawl import find_project, run_crawl
from walsh_scrapy.testing.directweb import DirectWeb
from walsh_scrapy.testing.hit import FULL, RESUMED, ConnectionRecord, Hit
from walsh_scrapy.testing.site import Answer
from walsh_scrapy.testing.web import Certificate, Reply, Site

LATENCY = 0.03
LOOKUP = Answer(delay=0.1)
PEER_HOSTS = 100


def main(report: Report, hosts: int, *schemes: str) -> None:
    """Crawl over http and over https, with ours and with the peer."""
    peer_hosts = min(hosts, PEER_HOSTS)
    for scheme in schemes or ("http", "https"):
        report.add(f"{scheme}, walsh-scrapy, {hosts} hosts", *_measure(hosts, scheme, _run_ours))
        report.add_peer(
            f"{scheme}, plain Scrapy, {peer_hosts} hosts", *_measure(peer_hosts, scheme, _run_peer)
        )


def _measure(
    hosts: int, scheme: str, crawl: Callable[[DirectWeb, Path, list[str]], tuple[int | None, int]]
) -> tuple[Figure, ...]:
    urls = [f"{scheme}://h{number}.example/feed" for number in range(hosts)]
    with (
        DirectWeb(*_sites(hosts, scheme), latency=LATENCY) as web,
        tempfile.TemporaryDirectory() as name,
    ):
        code, items = crawl(web, Path(name), urls)
        log, connections = web.log, web.connections
        began = min(lookup.started for lookup in web.lookups)
        most_open = web.most_open_connections
    if (code, items) != (0, hosts * len(POSTS)):
        raise SystemExit(f"the crawl ended with {code} and {items} items")
    took = max(hit.ended for hit in log) - began
    exchanges = sum(hit.ended - hit.started for hit in log)
    handshakes = _handshakes(log, connections)
    bound = exchanges + handshakes
    return (
        Figure("time", took, "s", peer="bound", peer_value=bound, max_value=1.1),
        Figure("a host", took / hosts * 1e3, "ms"),
        Figure("exchanges", exchanges, "s"),
        Figure("handshakes", handshakes, "s"),
        Figure("connections", len(connections)),
        Figure("open at once", most_open, max_value=1),
        *_kinds(connections),
        *reading_of(log, max_values=(2.0, 60.0)),
    )


def _handshakes(log: Sequence[Hit], connections: Sequence[ConnectionRecord]) -> float:
    """Return the seconds from each connection to its first request, added up."""
    first = {(hit.host, hit.client): hit.started for hit in reversed(log)}
    return sum(
        first[connection.host, connection.client] - connection.opened for connection in connections
    )


def _kinds(connections: Sequence[ConnectionRecord]) -> tuple[Figure, ...]:
    """Return the numbers of full TLS handshakes, and of those that resumed a session."""
    full = Counter(connection.host for connection in connections if connection.handshake == FULL)
    resumed = sum(connection.handshake == RESUMED for connection in connections)
    if not full:
        return ()
    return (
        Figure("full handshakes", full.total()),
        Figure("of one host", max(full.values()), max_value=1),
        Figure("resumed", resumed),
    )


def _run_ours(web: DirectWeb, folder: Path, urls: list[str]) -> tuple[int | None, int]:
    project = find_project(Path(__file__).parent)
    result = run_crawl(web, folder=folder / "c", project=project, sources=urls, timeout=3600)
    return result.exit_code, len(result.items)


def _run_peer(web: DirectWeb, folder: Path, urls: list[str]) -> tuple[int | None, int]:
    return run_peer(web, folder, urls, POLITE)


def _sites(hosts: int, scheme: str) -> list[Site]:
    certificate = Certificate.GOOD if scheme == "https" else None
    feeds = [feed_of(number, full=True) for number in range(hosts)]
    pages = [Reply(feed, content_type="application/rss+xml") for feed in feeds]
    return [
        Site(
            f"h{number}.example",
            "User-agent: *\n",
            {"/feed": page},
            tls=certificate,
            dns=LOOKUP,
        )
        for number, page in enumerate(pages)
    ]


if __name__ == "__main__":
    run(main, 2000, names=("http", "https"))
