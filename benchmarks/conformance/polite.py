"""A polite crawler that knows nothing of this project: `python polite.py SEEDS FOLDER`.

It requests the seeds, one at a time, with the standard library and Protego. It shows that the MUSTs
of the conformance test demand nothing that only this project does.
"""

import json
import random
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator, Mapping
from email.message import Message
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urldefrag, urljoin, urlsplit

from protego import Protego

TOKEN = "Polite-Example"
AGENT = f"Mozilla/5.0 (compatible; {TOKEN}/1.0; +https://polite.example.org/bot)"
BUSY = {0, 429, 500, 503}  # 0: no answer
TRIES = 3
HOPS = 5
#: Seconds: a longer wait ends the requests to that host.
LONGEST = 20

#: Yields the host of the next request, each time it is resumed after a request.
Steps = Iterator[str]


class Stay(urllib.request.HTTPRedirectHandler):
    """Leaves redirects to the crawler, which requests robots.txt first."""

    def redirect_request(self, *_: object) -> None:  # noqa: D102
        return None


def delay_of(rules: Protego | None) -> float:
    """Return the seconds between two requests to a host."""
    return max(1.0, (rules and rules.crawl_delay(TOKEN)) or 0)


class Crawler:
    """Crawls each host with a separate generator."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "polite.json"  # when each host may be requested again
        known = self.file.read_text() if self.file.exists() else "{}"
        self.ready: dict[str, float] = json.loads(known)
        self.robots: dict[str, Protego | None] = {}
        self.opener = urllib.request.build_opener(Stay)

    def run(self, urls: list[str]) -> None:
        """Make one request at a time, always to the host that is ready first."""
        hosts: dict[str, list[str]] = {}
        for url in dict.fromkeys(urldefrag(url).url for url in urls):
            hosts.setdefault(urlsplit(url).netloc, []).append(url)
        waiting = [(host.partition(":")[0], self.crawl(mine)) for host, mine in hosts.items()]
        while waiting:
            waiting.sort(key=lambda each: self.ready.get(each[0], 0))
            host, steps = waiting.pop(0)
            wait = self.ready.get(host, 0) - time.time()
            if wait <= LONGEST:
                time.sleep(max(wait, 0))
                waiting += [(following, steps) for following in [next(steps, "")] if following]

    def crawl(self, urls: list[str]) -> Steps:
        """Request the URLs that robots.txt allows, and follow redirects."""
        for seed in urls:
            url = seed
            for _ in range(HOPS):
                origin = "{0.scheme}://{0.netloc}".format(urlsplit(url))
                if origin not in self.robots:
                    rules = yield from self.read_robots(f"{origin}/robots.txt")
                    self.robots[origin] = rules
                    self.ready[urlsplit(url).hostname or ""] += delay_of(rules) - 1
                rules = self.robots[origin]
                if not (rules and rules.can_fetch(url, TOKEN)):
                    break
                _, _, location = yield from self.ask(url, delay_of(rules))
                if not location:
                    break
                url = urljoin(url, location)

    def read_robots(self, url: str) -> Generator[str, None, Protego | None]:
        """Return the rules; None if they cannot be read, and nothing is allowed."""
        for _ in range(HOPS):
            status, body, location = yield from self.ask(url, 1.0)
            if not location:
                break
            url = urljoin(url, location)
        if status in BUSY:
            return None
        return Protego.parse(body.decode("utf-8-sig", "replace") if status == 200 else "")

    def ask(self, url: str, delay: float) -> Generator[str, None, tuple[int, bytes, str | None]]:
        """Return status, body and Location, after at most `TRIES` tries."""
        host = urlsplit(url).hostname or ""
        for attempt in range(TRIES):
            yield host
            status, headers, body = self.request(url)
            backoff = 2.0 * 2**attempt * random.uniform(1, 1.5) if status in BUSY else 0
            pause = max(delay, self.wait_asked(headers.get("Retry-After")) or backoff)
            self.ready[host] = time.time() + pause
            self.file.write_text(json.dumps(self.ready))
            if status not in BUSY:
                break
        return status, body, headers.get("Location") if 300 < status < 400 else None

    def wait_asked(self, given: str | None) -> float:
        """Return the seconds of a Retry-After."""
        if not given or given.isdecimal():
            return float(given or 0)
        return parsedate_to_datetime(given).timestamp() - time.time() + 1

    def request(self, url: str) -> tuple[int, Mapping[str, str] | Message, bytes]:
        """Return status, headers and body of an answer."""
        try:
            request = urllib.request.Request(url, headers={"User-Agent": AGENT})
            with self.opener.open(request, timeout=10) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, b""
        except OSError:
            return 0, {}, b""


if __name__ == "__main__":
    Crawler(Path(sys.argv[2])).run(Path(sys.argv[1]).read_text().split())
