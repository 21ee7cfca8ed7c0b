"""An honest crawler that knows only the rules R1 to R9: `python honest.py SEEDS FOLDER`.

It requests one URL at a time, always of the host that is ready first, with the standard library
alone. It shows that the conformance test demands nothing that only this project does.
"""

import gzip
import json
import os
import random
import re
import ssl
import sys
import time
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

TOKEN = "Honest-Example"
AGENT = f"Mozilla/5.0 (compatible; {TOKEN}/1.0; +https://honest.example.org/bot)"
DAY = 86_400.0
MAX_HOPS = 5
#: Seconds: a request that must wait for longer is left for a later run.
MAX_WAIT = 70.0
#: Seconds after which the list of opt-outs is requested again.
LIST_SECONDS = 30.0
CONDITIONS = {"ETag": "If-None-Match", "Last-Modified": "If-Modified-Since"}
LIST_FORMAT = "walsh-research-blocklist/v1"


def origin_of(url):
    return "{0.scheme}://{0.netloc}".format(urlsplit(url))


def host_of(url):
    return urlsplit(url).hostname


class Rules:
    """The group of a robots.txt for this crawler."""

    def __init__(self, text):
        groups, agents, is_open = {}, [], False
        for line in re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff")):
            if self.ends_group(line):
                agents = []
            field, value = self.read_line(line)
            if field == "user-agent":
                agents = [*agents, value.lower()] if is_open else [value.lower()]
                is_open = True
                groups.setdefault(value.lower(), [])
            elif field in ("allow", "disallow", "crawl-delay"):
                is_open = False
                for agent in agents:
                    groups[agent].append((field, value))
        lines = groups.get(TOKEN.lower(), groups.get("*", []))
        self.paths = [(unquote(value), field) for field, value in lines if value]
        self.delay = self.choose_delay([float(v) for field, v in lines if field == "crawl-delay"])

    def ends_group(self, line):
        """Return whether the rules after a line have no group: no line ends one by itself."""
        return False

    def read_line(self, line):
        field, _, value = line.partition("#")[0].partition(":")
        return field.strip().lower(), value.strip()

    def choose_delay(self, values):
        return max([1.0, *values])

    def allow(self, url):
        parts = urlsplit(url)
        path = unquote(parts.path or "/") + (f"?{unquote(parts.query)}" if parts.query else "")
        matches = [
            (len(pattern), field == "allow")
            for pattern, field in self.paths
            if field != "crawl-delay" and self.matches(pattern, path)
        ]
        return max(matches, default=(0, True))[1]

    def matches(self, pattern, path):
        if not path.startswith(re.split(r"[*$]", pattern, maxsplit=1)[0]):
            return False
        written = ".*".join(re.escape(part) for part in pattern.removesuffix("$").split("*"))
        return re.match(written + ("$" if pattern.endswith("$") else ""), path) is not None


class Crawler:
    """Crawls with one generator for each seed, which yields the URL of its next request."""

    rules = Rules
    max_tries = 4
    max_robots_hops = MAX_HOPS

    def __init__(self, folder, list_url=""):
        self.file = Path(folder) / "honest.json"
        self.list_url, self.list_asked = list_url, 0.0
        self.ended, self.holds, self.pages, self.robots, self.blocked = {}, {}, {}, {}, []
        if self.file.exists():
            for name, value in json.loads(self.file.read_text()).items():
                setattr(self, name, value)
        self.read = {origin: self.rules(text) for origin, (_, text) in self.robots.items()}

    def save(self):
        names = ("ended", "holds", "pages", "robots", "blocked")
        self.file.write_text(json.dumps({name: getattr(self, name) for name in names}))

    def run(self, urls, *, force=False):
        """Visit the seeds that are due, or all of them."""
        plain = dict.fromkeys(urldefrag(url).url for url in urls)
        due = [url for url in plain if self.is_due(url, force=force)]
        if due and self.list_url:
            self.refresh_list()
        self.work([self.visit(url) for url in due])

    def is_due(self, url, *, force):
        page = self.pages.get(url, {"at": 0.0, "status": 0})
        return page["status"] != 410 and (force or page["at"] < time.time() - DAY)

    def work(self, visits):
        waiting = []
        while visits or waiting:
            # A host that was never requested is ready at once, so visits begin first.
            waiting += [(url, visit) for visit in visits for url in [next(visit, None)] if url]
            visits = []
            waiting.sort(key=lambda each: self.ready_at(each[0]))
            if waiting:
                url, visit = waiting.pop(0)
                visits = [visit] if self.wait_for(url) else []

    def wait_for(self, url):
        """Return False if a request may not be sent in this run."""
        while True:
            if self.list_url and host_of(url) != host_of(self.list_url):
                self.refresh_list()
            pause = self.ready_at(url) - time.time()
            if pause <= 0 or pause > MAX_WAIT:
                return pause <= 0
            time.sleep(min(pause, LIST_SECONDS))

    def ready_at(self, url):
        rules = None if url.endswith("/robots.txt") else self.read.get(origin_of(url))
        delay = rules.delay if rules else 1.0
        return max(self.ended.get(host_of(url), 0.0) + delay, self.holds.get(self.scope(url), 0.0))

    def scope(self, url):
        """Return what a hold is for."""
        return host_of(url)

    def visit(self, seed):
        url = seed
        for hop in range(MAX_HOPS):
            if self.is_blocked(url):
                return
            yield from self.read_robots(origin_of(url))
            if not self.may_request(url, hop):
                return
            status, _, location = yield from self.ask(url)
            self.pages.setdefault(seed, {}).update(at=time.time(), status=status)
            if not location:
                return
            url = urljoin(url, location)

    def may_request(self, url, hop):
        rules = self.read.get(origin_of(url))
        return rules is not None and rules.allow(url)

    def is_blocked(self, url):
        names = host_of(url).split(".")
        return any(".".join(names[start:]) in self.blocked for start in range(len(names)))

    def read_robots(self, origin, tries=None):
        """Read a robots.txt that is not known, or is a day old; there are no rules without it."""
        if self.knows(origin):
            return
        url = f"{origin}/robots.txt"
        for _ in range(self.max_robots_hops + 1):
            status, body, location = yield from self.ask(url, tries)
            if not location:
                break
            url = urljoin(url, location)
        if 200 <= status < 500 and status not in (304, 429):
            text = body.decode("utf-8", "replace") if status < 300 else ""
            self.robots[origin] = time.time(), text
            self.read[origin] = self.rules(text)

    def knows(self, origin):
        return origin in self.read and self.robots[origin][0] > time.time() - DAY

    def refresh_list(self):
        if self.list_asked > time.time() - LIST_SECONDS:
            return
        self.list_asked = time.time()
        answers = []
        self.work([self.read_list(answers)])
        for status, body in answers:
            self.adopt(status, body)

    def read_list(self, answers):
        yield from self.read_robots(origin_of(self.list_url), tries=1)
        if self.may_request(self.list_url, 0):
            status, body, _ = yield from self.ask(self.list_url, tries=1)
            answers.append((status, body))

    def adopt(self, status, body):
        """Keep the last list if this is none."""
        try:
            document = json.loads(body)
            domains = [entry["domain"].lower() for entry in document["blocked"]]
        except (ValueError, KeyError, TypeError):
            return
        if status == 200 and document["contract"] == LIST_FORMAT:
            self.blocked = domains
            self.save()

    def ask(self, url, tries=None, method="GET"):
        """Return status, body and Location of the last try."""
        for attempt in range(tries or self.max_tries):
            yield url
            if self.is_blocked(url):
                return 0, b"", None
            if url.endswith("/robots.txt") and self.knows(origin_of(url)):
                return 304, b"", None  # another visit has read it meanwhile
            status, headers, body = self.request(url, method)
            self.ended[host_of(url)] = time.time()
            if wait := self.wait_after(url, status, headers, attempt):
                self.holds[self.scope(url)] = time.time() + wait
            if method == "GET":
                self.keep_validators(url, status, headers)
            self.save()
            if status and status != 429 and status < 500:
                break
        return status, body, headers.get("Location") if 300 < status < 304 else None

    def wait_after(self, url, status, headers, attempt):
        """Return the seconds for which a host is left alone after this answer."""
        value = headers.get("Retry-After")
        if status and status != 429 and status < 500 and not (value and 300 <= status < 400):
            return 0.0
        if value is None:
            return random.uniform(1, 3) * 2**attempt
        if value.isdecimal():
            return float(value)
        zone = "" if value.endswith("GMT") else " GMT"  # the form of asctime has none
        return parsedate_to_datetime(value + zone).timestamp() - time.time() + 1

    def keep_validators(self, url, status, headers):
        if status == 200:
            kept = {name: headers[name] for name in CONDITIONS if headers.get(name)}
            self.pages.setdefault(url, {"at": 0.0, "status": 0})["validators"] = kept

    def fields(self, url, method):
        """Return the headers of a request."""
        headers = {"User-Agent": AGENT, "Accept": "text/markdown, */*", "Connection": "close"}
        headers["Accept-Encoding"] = "gzip"
        if method == "GET":
            for name, value in self.pages.get(url, {}).get("validators", {}).items():
                headers[CONDITIONS[name]] = value
        return headers

    def unpack(self, url, headers, body):
        return gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body

    def request(self, url, method="GET"):
        """Return status, headers and body of one exchange; status 0 without an answer."""
        try:
            status, headers, body = self.exchange(url, method, self.fields(url, method))
            return status, headers, self.unpack(url, headers, body) if body else b""
        except (OSError, HTTPException):
            return 0, {}, b""

    def exchange(self, url, method, fields):
        """Return status, headers and body, over a connection of its own."""
        parts = urlsplit(url)
        made = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        given = {"context": ssl.create_default_context()} if parts.scheme == "https" else {}
        connection, target = made(parts.hostname, parts.port, timeout=10, **given), url
        if proxy := urlsplit(os.environ.get("HTTP_PROXY", "")).netloc:
            connection = made(proxy, timeout=10, **given)
            if parts.scheme == "https":
                connection.set_tunnel(parts.hostname, parts.port)
        if not proxy or parts.scheme == "https":
            target = url.removeprefix(origin_of(url)) or "/"
        try:
            connection.request(method, target, headers=fields)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()


def main(crawler=Crawler):
    """Crawl the seeds and pages that the environment names."""
    environment = os.environ
    files = [environment["CONFORMANCE_SEEDS"], environment["CONFORMANCE_PAGES"]]
    urls = [url for file in files for url in Path(file).read_text().split()]
    made = crawler(environment["CONFORMANCE_FOLDER"], environment["CONFORMANCE_BLOCKLIST"])
    made.run(urls, force="CONFORMANCE_FORCE" in environment)


if __name__ == "__main__":
    sys.exit(main())
