"""How many descriptors a crawl of many hosts needs, each host at an address of its own.

    python -m benchmarks.descriptors [HOSTS]

The process may have 64 open, `ulimit -n 64`. Goal: every one of 5,000 sources is fetched. The peer
is plain Scrapy under the same limit, over 200 hosts and without a delay.
"""

import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.overhead import POSTS, feed_of
from benchmarks.peer import run_peer
from benchmarks.report import Figure, Report, run
from walsh_scrapy.testing.crawl import start_crawl
from walsh_scrapy.testing.directweb import DirectWeb
from walsh_scrapy.testing.project import find_project
from walsh_scrapy.testing.web import Reply, Site

LIMIT = 64
WRAPPER = ("sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh")
PEER_HOSTS = 200


def main(report: Report, hosts: int) -> None:
    """Crawl under the limit, with ours and with the peer."""
    urls = [f"http://h{number}.example/feed" for number in range(hosts)]
    sites = [
        Site(f"h{number}.example", "User-agent: *\n", {"/feed": _feed(number)})
        for number in range(hosts)
    ]
    with DirectWeb(*sites) as web, tempfile.TemporaryDirectory() as name:
        code, items, most = _run_ours(web, Path(name), urls)
        report.add(
            f"walsh-scrapy, {hosts} sources",
            Figure("fetched", items // len(POSTS), least=hosts),
            Figure("exit status", code),
            Figure("descriptors", most, most=LIMIT),
            Figure("open connections", web.most_open_connections),
        )
        web.clear()
        few = urls[:PEER_HOSTS]
        status, items = run_peer(web, Path(name, "peer"), few, timeout=300, wrapper=WRAPPER)
        report.add_peer(
            f"plain Scrapy, {len(few)} sources",
            Figure("fetched", items // len(POSTS)),
            Figure("exit status", status),
            Figure("open connections", web.most_open_connections),
            note="killed after 300 s" if status is None else "",
        )


def _run_ours(web: DirectWeb, folder: Path, urls: Sequence[str]) -> tuple[int, int, int]:
    """Return the exit code, the items, and the most descriptors that were seen open."""
    project, most = find_project(Path(__file__).parent), 0
    with start_crawl(
        web, folder=folder / "c", project=project, sources=urls, launcher=_limited
    ) as crawl:
        descriptors = Path(f"/proc/{crawl.pid}/fd")
        while not web.wait_for(lambda _: not crawl.running, 0.1):
            with suppress(OSError):  # the process has ended
                most = max(most, sum(1 for _ in descriptors.iterdir()))
        result = crawl.wait()
    return result.exit_code, len(result.items), most


def _limited(command: Sequence[str], /, **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401
    return subprocess.Popen([*WRAPPER, *command], **options)


def _feed(number: int) -> Reply:
    return Reply(feed_of(number, full=False), content_type="application/rss+xml")


if __name__ == "__main__":
    run(main, 5000)
