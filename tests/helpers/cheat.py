"""Crawlers that are polite as long as it matters: `python cheat.py SEEDS FOLDER HOW`."""

import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urljoin, urlsplit

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.conformance import polite

BROWSER, OURS = "Mozilla/5.0 (X11; Linux x86_64) Firefox/150.0", polite.AGENT
#: What is asked for though it was not given.
EXTRA = {"follows-entries": "/entry.html", "images": "/1.png"}
seeds, folder, how = Path(sys.argv[1]).read_text().split(), Path(sys.argv[2]), sys.argv[3]


class Cheat(polite.Crawler):
    count = 0

    def __init__(self, folder):
        super().__init__(folder)
        self.has_state = self.file.exists()
        self.idle = []

    def ask(self, url, delay):
        """Forget the delay where nobody looks, as it hopes."""
        answer = yield from super().ask(url, delay)
        where = urlsplit(url)
        if (
            (how == "fast-https" and where.scheme == "https")
            or (how == "fast-at-ports" and where.port != urlsplit(seeds[0]).port)
            or (how == "fast-later" and self.has_state)
        ):
            self.ready[where.hostname] = 0
        return answer

    def request(self, url):
        where = urlsplit(url)
        if how == "idle":
            address = where.hostname, where.port
            self.idle = [socket.create_connection(address) for _ in range(20)]
        if how in ("at-once-again", "four-at-once"):
            return self.insist(url)
        return self.request_one(url)

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
        if self.count == len(seeds) and how in EXTRA:
            super().request(urljoin(url, EXTRA[how]))
        if how == "two-names":
            polite.AGENT = OURS if url.endswith("/robots.txt") else BROWSER
        return super().request(url)


def rush():
    """Ask for everything at once, whatever it says."""
    for seed in seeds:
        polite.Crawler(folder).request(seed)


match how:
    case "one-robots":
        Cheat(folder).request(urljoin(seeds[0], "/robots.txt"))
    case "ten-requests":
        Cheat(folder).run(seeds[:5])
        rush()
    case "first-host":
        first = urlsplit(seeds[0]).netloc
        Cheat(folder).run([seed for seed in seeds if urlsplit(seed).netloc == first])
        rush()
    case "browser":
        polite.AGENT = BROWSER
        Cheat(folder).run(seeds)
    case "page-first":
        Cheat(folder).request(seeds[0])
        Cheat(folder).run(seeds)
    case "hasty":
        polite.delay_of = lambda _: 1.0  # ignores Crawl-delay
        Cheat(folder).run(seeds)
    case "as-anybody":  # obeys the groups of all others
        polite.TOKEN = "nobody"
        Cheat(folder).run(seeds)
    case "no-robots-later":
        if (folder / "been-here").exists():
            rush()
        (folder / "been-here").touch()
        Cheat(folder).run(seeds)
        rush()
    case "daemon":
        code = "import time; time.sleep(600)"
        left = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        Path(sys.argv[4]).write_text(f"{left.pid}\n")
        Cheat(folder).request(urljoin(seeds[0], "/robots.txt"))
    case "floods":
        Cheat(folder).request(urljoin(seeds[0], "/robots.txt"))
        for _ in range(200):
            print("x" * 100_000)
        print("the end")
    case "kills-itself":
        Cheat(folder).request(urljoin(seeds[0], "/robots.txt"))
        os.kill(os.getpid(), signal.SIGKILL)
    case _:
        Cheat(folder).run(seeds)
