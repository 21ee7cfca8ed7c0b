"""How many descriptors a crawl of many hosts needs, each host at an address of its own.

    python -m benchmarks.descriptors [HOSTS]

The process may have 64 open, `ulimit -n 64`. Goal: every one of 5,000 sources is fetched. The peer
is plain Scrapy under the same limit, over 200 hosts and without a delay.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.overhead import POSTS, feed_of
from benchmarks.peer import run_peer
from walsh_scrapy.testing.crawl import start_crawl
from walsh_scrapy.testing.directweb import DirectWeb
from walsh_scrapy.testing.project import find_project
from walsh_scrapy.testing.web import Reply, Site

LIMIT = 64
WRAPPER = ("sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh")
PEER_HOSTS = 200


def main(hosts: int) -> None:
    """Crawl under the limit, with ours and with the peer."""
    urls = [f"http://h{number}.example/feed" for number in range(hosts)]
    sites = [
        Site(f"h{number}.example", "User-agent: *\n", {"/feed": _feed(number)})
        for number in range(hosts)
    ]
    with DirectWeb(*sites) as web, tempfile.TemporaryDirectory() as name:
        code, items, most = _run_ours(web, Path(name), urls)
        print(f"at most {LIMIT} descriptors")
        print(
            f"  walsh-scrapy: {items // len(POSTS)} of {hosts} sources (goal: all), "
            f"exit {code}, {most} descriptors at most, {web.most_open_connections} connections"
        )
        web.clear()
        few = urls[:PEER_HOSTS]
        code, items = run_peer(web, Path(name, "peer"), few, timeout=300, wrapper=WRAPPER)
        print(
            f"  plain Scrapy: {items // len(POSTS)} of {len(few)} sources, "
            f"exit {'none, killed after 300 s' if code is None else code}, "
            f"{web.most_open_connections} connections"
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
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)
