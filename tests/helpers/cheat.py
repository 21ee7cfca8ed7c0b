"""Crawlers that are honest as long as it matters: `python cheat.py HOW [FILE]`.

Each breaks one rule in one form. HOW is often the name of the scenario that it fails.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urljoin, urlsplit

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.helpers import honest

BROWSER, OURS = "Mozilla/5.0 (X11; Linux x86_64) Firefox/150.0", honest.AGENT
#: What is requested though it was not given.
EXTRA = {
    "follows-entries": "/entry.html",
    "images": "/1.png",
    "no-parts-of-atom": "/icon.png",
}
how = sys.argv[1]
folder, list_url = os.environ["CONFORMANCE_FOLDER"], os.environ["CONFORMANCE_BLOCKLIST"]
seeds = Path(os.environ["CONFORMANCE_SEEDS"]).read_text().split()


hosts = {urlsplit(seed).hostname for seed in seeds}


def is_elsewhere(url):
    """Return whether a URL is at another host, scheme or port than the seeds, as HOW says."""
    place, kind = urlsplit(url), how.rpartition("-")[2]
    if place.scheme == "https":
        return kind == "scheme"
    if place.port != urlsplit(seeds[0]).port:
        return kind == "port"
    return kind == "host" and place.hostname not in hosts


class Rules(honest.Rules):
    def read_line(self, line):
        if how == "crawl-delay-comment" and "#" in line:
            return "", ""
        name = line.partition(":")[0].strip()
        field, value = super().read_line(line)
        is_known = how != "crawl-delay-case" or name in ("Crawl-delay", "User-agent", "Disallow")
        return (field, value) if is_known else ("", "")

    def choose_delay(self, values):
        if how == "hasty" or not values:
            return 1.0
        return max(1.0, values[-1] if how == "crawl-delay-largest" else max(values))


class Cheat(honest.Crawler):
    rules = Rules
    count = 0

    def __init__(self):
        super().__init__(folder, list_url)
        self.has_state = self.file.exists()
        self.idle, self.failures, self.tired = [], {}, set()

    def ready_at(self, url):
        where = urlsplit(url)
        if (
            (how == "fast-https" and where.scheme == "https")
            or (how == "fast-at-ports" and where.port != urlsplit(seeds[0]).port)
            or (how == "fast-later" and self.has_state)
        ):
            return 0.0
        if how.startswith("crawl-delay-hop") and is_elsewhere(url):
            return self.ended.get(where.hostname, 0.0) + 1.0
        return super().ready_at(url)

    def scope(self, url):
        host = super().scope(url)
        is_apart = how in ("hold-of-scheme", "hold-of-port") and is_elsewhere(url)
        return f"{how} {host}" if is_apart else host

    def wait_after(self, url, status, headers, attempt):
        origin, is_robots = honest.origin_of(url), url.endswith("/robots.txt")
        if is_robots and (not status or status >= 500):
            failure = "error" if status else "silent" if self.took > 1 else "reset"
            self.failures[origin] = f"robots-{failure}"
        if status == 503:
            self.tired.add(honest.host_of(url))
        if (
            (how == f"robots-{status}" and is_robots)
            or how == f"{status}-seconds"
            or (how == f"{status}-behind-redirect" and honest.host_of(url) not in hosts)
        ):
            return 0.0
        return super().wait_after(url, status, headers, attempt)

    def may_request(self, url, hop):
        if how.startswith("second-hop") and hop == 2 and is_elsewhere(url):
            return True
        is_open = self.failures.get(honest.origin_of(url)) == how
        return is_open or super().may_request(url, hop)

    def is_blocked(self, url):
        is_open = how.startswith("opted-out-hop") and is_elsewhere(url)
        return not is_open and super().is_blocked(url)

    def adopt(self, status, body):
        before = self.blocked
        super().adopt(status, body)
        if how == "opted-out-case" and self.blocked is not before:
            self.blocked = [entry["domain"] for entry in json.loads(body)["blocked"]]
        if how == "list-changed" and before:
            self.blocked = before
        if how == "list-of-others" and status == 200:
            self.blocked = [entry["domain"] for entry in json.loads(body).get("blocked", before)]
        if how == "list-cleared" and b'"blocked"' not in body:
            self.blocked = []

    def save(self):
        holds = self.holds
        if how == "long-hold-503":
            self.holds = {host: until for host, until in holds.items() if host not in self.tired}
        super().save()
        self.holds = holds

    def request(self, url):
        where, began = urlsplit(url), time.monotonic()
        if how == "idle" and where.hostname in hosts:
            address = where.hostname, where.port
            self.idle = [socket.create_connection(address) for _ in range(20)]
        again = how in ("at-once-again", "four-at-once")
        answer = self.insist(url) if again else self.request_one(url)
        self.took = time.monotonic() - began
        return answer

    def insist(self, url):
        """Ask again at once where no answer came."""
        answer = super().request(url)
        if answer[0] == 0 and how == "at-once-again":
            answer = super().request(url)
        elif answer[0] == 0:
            with ThreadPoolExecutor(4) as pool:
                answer, *_ = pool.map(super().request, [url] * 4)
        return answer

    def request_one(self, url):
        self.count += 1
        if self.count > len(seeds) and how in EXTRA:
            super().request(urljoin(seeds[0], EXTRA[how]))
        if how == "two-names":
            honest.AGENT = OURS if url.endswith("/robots.txt") else BROWSER
        return super().request(url)

    def visit_all(self, urls):
        self.run(urls, force="CONFORMANCE_FORCE" in os.environ)


def rush():
    """Ask for everything at once, whatever it says."""
    for seed in seeds:
        honest.Crawler(folder).request(seed)


match how:
    case "one-robots":
        Cheat().request(urljoin(seeds[0], "/robots.txt"))
    case "ten-requests":
        Cheat().visit_all(seeds[:5])
        rush()
    case "first-host":
        first = urlsplit(seeds[0]).netloc
        Cheat().visit_all([seed for seed in seeds if urlsplit(seed).netloc == first])
        rush()
    case "browser":
        honest.AGENT = BROWSER
        Cheat().visit_all(seeds)
    case "page-first":
        Cheat().request(seeds[0])
        Cheat().visit_all(seeds)
    case "as-anybody":  # obeys the groups of all others
        honest.TOKEN = "nobody"
        Cheat().visit_all(seeds)
    case "no-robots-later":
        if Path(folder, "been-here").exists():
            rush()
        Path(folder, "been-here").touch()
        Cheat().visit_all(seeds)
        rush()
    case "daemon":
        code = "import time; time.sleep(600)"
        left = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        Path(sys.argv[2]).write_text(f"{left.pid}\n")
        Cheat().request(urljoin(seeds[0], "/robots.txt"))
    case "floods":
        Cheat().request(urljoin(seeds[0], "/robots.txt"))
        for _ in range(200):
            print("x" * 100_000)
        print("the end")
    case "kills-itself":
        Cheat().request(urljoin(seeds[0], "/robots.txt"))
        os.kill(os.getpid(), signal.SIGKILL)
    case "list-changed":
        honest.LIST_SECONDS = 3.0
        Cheat().visit_all(seeds[:2])
    case "robots-error" | "robots-reset" | "robots-silent":
        Cheat.max_tries = 1
        Cheat().visit_all(seeds)
    case _:
        Cheat().visit_all(seeds)
