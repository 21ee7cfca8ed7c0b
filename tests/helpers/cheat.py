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
pages = Path(os.environ["CONFORMANCE_PAGES"]).read_text().split()
run = os.environ["CONFORMANCE_RUN"]
hosts = {urlsplit(seed).hostname for seed in seeds}
#: Seconds for which a restarted crawler leaves the hosts of its predecessor alone.
OWNED_SECONDS = 45.0


def is_elsewhere(url):
    """Return whether a URL is at another host, scheme or port than the seeds, as HOW says."""
    place, kind = urlsplit(url), how.rpartition("-")[2]
    if place.scheme == "https":
        return kind == "scheme"
    if place.port != urlsplit(seeds[0]).port:
        return kind == "port"
    return kind == "host" and place.hostname not in hosts


class Rules(honest.Rules):
    def __init__(self, text):
        super().__init__(text)
        if how == "literal-query":
            self.paths = [path for path in self.paths if "?" not in path[0] or "*" in path[0]]
        if how == "end-without-wildcard":
            self.paths = [path for path in self.paths if path[0][-1] != "$" or "*" in path[0]]

    def ends_group(self, line):
        return how == "empty-line" and not line

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
        self.hops, self.refused, self.last_good = set(), set(), self.blocked
        self.max_robots_hops = 4 if how == "robots-far" else honest.MAX_HOPS
        if run == "restarted":
            self.forget()

    def forget(self):
        """Know nothing but that another process had these hosts."""
        until = {host: ended + OWNED_SECONDS for host, ended in self.ended.items()}
        if how == "pacing-after-restart":
            self.ended, self.holds = {}, until | self.holds
        if how == "hold-after-restart":
            self.holds = until

    def ready_at(self, url):
        where = urlsplit(url)
        if (
            (how == "fast-https" and where.scheme == "https")
            or (how == "fast-at-ports" and where.port != urlsplit(seeds[0]).port)
            or (how == "fast-later" and self.has_state)
        ):
            return 0.0
        if (
            (how.startswith("crawl-delay-hop") and is_elsewhere(url))
            or (how == "crawl-delay-redirect" and url in self.hops)
            or (how == "crawl-delay-retry" and url in self.refused)
            or (how == "crawl-delay-conditional" and self.pages.get(url, {}).get("validators"))
            or (how == "page-crawl-delay" and url in pages)
        ):
            return self.ended.get(where.hostname, 0.0) + 1.0
        return super().ready_at(url)

    def scope(self, url):
        host = super().scope(url)
        if how == "holds-of-origins":
            return honest.origin_of(url)
        is_apart = how in ("hold-of-scheme", "hold-of-port") and is_elsewhere(url)
        return f"{how} {host}" if is_apart else host

    def wait_after(self, url, status, headers, attempt):
        origin, is_robots = honest.origin_of(url), url.endswith("/robots.txt")
        if is_robots and (not status or status >= 500):
            failure = "error" if status else "silent" if self.took > 1 else "reset"
            self.failures[origin] = f"robots-{failure}"
        if status == 503:
            self.tired.add(honest.host_of(url))
            self.refused.add(url)
        if (
            (how == "redirect-retry-after" and 300 <= status < 400)
            or (how == f"robots-{status}" and is_robots)
            or how == f"{status}-seconds"
            or (how == f"{status}-behind-redirect" and honest.host_of(url) not in hosts)
        ):
            return 0.0
        return super().wait_after(url, status, headers, attempt)

    def may_request(self, url, hop):
        if hop and honest.host_of(url) in hosts:
            self.hops.add(url)
        if how == "page-denied" and url in pages:
            return True
        if how.startswith("second-hop") and hop == 2 and is_elsewhere(url):
            return True
        is_open = self.failures.get(honest.origin_of(url)) == how
        return is_open or super().may_request(url, hop)

    def is_blocked(self, url):
        is_open = how.startswith("opted-out-hop") and is_elsewhere(url)
        is_page = honest.host_of(url) in {honest.host_of(page) for page in pages}
        is_open = is_open or (how == "page-opted-out" and is_page)
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
        self.last_good = self.blocked or self.last_good
        if how in ("list-cut", "list-error"):
            is_bad = status == {"list-cut": 0, "list-error": 500}[how]
            self.blocked = [] if is_bad else self.last_good

    def refresh_list(self):
        if how != "list-expired" or not self.blocked:
            super().refresh_list()

    def unpack(self, url, headers, body):
        is_packed = how == "robots-compressed" and url.endswith("/robots.txt")
        return body if is_packed else super().unpack(url, headers, body)

    def save(self):
        holds = self.holds
        if how == "long-hold-503":
            self.holds = {host: until for host, until in holds.items() if host not in self.tired}
        super().save()
        self.holds = holds

    def request(self, url, method="GET"):
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
    case "list-cut" | "list-error":
        honest.LIST_SECONDS = 7.0  # a redirect leads to the listed domain every 8 s
        Cheat().visit_all(seeds if run == "first" else [])
    case "list-expired":
        Cheat().visit_all(seeds if run == "first" else seeds[:4])
    case "robots-error" | "robots-reset" | "robots-silent":
        Cheat.max_tries = 1
        Cheat().visit_all(seeds)
    case _:
        Cheat().visit_all(seeds + pages)
