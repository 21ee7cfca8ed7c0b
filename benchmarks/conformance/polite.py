"""A polite crawler that knows nothing of this project: `python polite.py SEEDS FOLDER`.

It asks for the seeds, one at a time, by the standard library alone. It shows that the MUSTs of the
conformance test ask for nothing that only this project does.
"""

import json
import random
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator, Mapping
from email.message import Message
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes, urldefrag, urljoin, urlsplit

TOKEN = "Polite-Example"
AGENT = f"Mozilla/5.0 (compatible; {TOKEN}/1.0; +https://polite.example.org/bot)"
BUSY = {0, 429, 500, 503}  # 0: no answer
TRIES = 3
HOPS = 5
#: Seconds: a longer wait ends the requests to that host.
LONGEST = 20

#: Yields the host that is asked next, each time it is resumed after a request.
Steps = Iterator[str]


class Stay(urllib.request.HTTPRedirectHandler):
    """Leaves redirects to the crawler, which asks robots.txt first."""

    def redirect_request(self, *_: object) -> None:  # noqa: D102
        return None


def normal(path: str) -> str:
    """Return a path with one spelling of each character; `*`, `$`, `?` and `/` stay."""
    pieces = re.split(r"(%2[AF]|%24|%3F|[/*$?=&])", path, flags=re.IGNORECASE)
    return "".join(p if i % 2 else quote(unquote_to_bytes(p)) for i, p in enumerate(pieces))


class Robots:
    """The rules of all groups that name us, or else of `*`."""

    def __init__(self, text: str) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        names, in_rules = list[str](), False
        for line in re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff")):
            key, _, value = (part.strip() for part in line.partition("#")[0].partition(":"))
            if key.lower() == "user-agent":
                names, in_rules = ([] if in_rules else names), False
                names.append(re.sub(r"[^a-z_*-].*", "", value.lower()))
                groups.setdefault(names[-1], [])
            elif key.lower() in ("allow", "disallow", "crawl-delay"):
                in_rules = True
                for name in names:
                    groups[name].append((key.lower(), value))
        rules = groups.get(TOKEN.lower(), groups.get("*", []))
        delays = [v for key, v in rules if key == "crawl-delay" and re.fullmatch(r"[\d.]+", v)]
        self.delay = max([1.0, *map(float, delays)])
        self.paths = [(path, key == "allow") for key, path in rules if path and "allow" in key]

    def allows(self, url: str) -> bool:
        """Return whether the longest rule for a URL is an Allow; an Allow wins a tie."""
        parts = urlsplit(url)
        path = normal((parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
        best = (-1, True)
        for rule, is_allow in self.paths:
            pieces = [re.escape(normal(piece)) for piece in rule.removesuffix("$").split("*")]
            if re.match(".*".join(pieces) + "$" * rule.endswith("$"), path):
                best = max(best, (len(rule), is_allow))
        return best[1]


class Crawler:
    """Crawls each host by a generator of its own."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "polite.json"  # when each host may be asked again
        known = self.file.read_text() if self.file.exists() else "{}"
        self.ready: dict[str, float] = json.loads(known)
        self.robots: dict[str, Robots | None] = {}
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
        """Ask for what robots.txt allows, and follow redirects."""
        for seed in urls:
            url = seed
            for _ in range(HOPS):
                origin = "{0.scheme}://{0.netloc}".format(urlsplit(url))
                if origin not in self.robots:
                    rules = yield from self.read_robots(f"{origin}/robots.txt")
                    self.robots[origin] = rules
                    if rules:  # its Crawl-delay counts from here on
                        self.ready[urlsplit(url).hostname or ""] += rules.delay - 1
                rules = self.robots[origin]
                if not (rules and rules.allows(url)):
                    break
                _, _, location = yield from self.ask(url, rules.delay)
                if not location:
                    break
                url = urljoin(url, location)

    def read_robots(self, url: str) -> Generator[str, None, Robots | None]:
        """Return the rules; None if they cannot be read, and nothing is allowed."""
        for _ in range(HOPS):
            status, body, location = yield from self.ask(url, 1.0)
            if not location:
                break
            url = urljoin(url, location)
        if status in BUSY:
            return None
        return Robots(body[: 500 * 1024].decode("utf-8", "replace") if status == 200 else "")

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
