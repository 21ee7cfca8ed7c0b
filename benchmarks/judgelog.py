"""`walsh judge`: a log of 1 GB of thirty bots and fifty browsers, on one core.

    python -m benchmarks.judgelog [GIGABYTES]

Goals: under 60 s a GB, under 200 MiB. The log is written beside the temporary files, and deleted.
"""

import random
import resource
import tempfile
import time
from pathlib import Path
from string import ascii_uppercase
from typing import IO

from benchmarks.report import Figure, Report, run
from walsh_scrapy.testing.judgelog.judge import Judge
from walsh_scrapy.testing.judgelog.logfile import open_log

ROBOTS = b"User-agent: *\nDisallow: /private\nDisallow: /*?q=1*\nCrawl-delay: 2\n"
BEGIN = 1_779_516_000.0
BLOCK = 100_000
STATUSES = (200, 200, 200, 200, 200, 200, 304, 404, 429)


def agents() -> list[str]:
    """Return the User-Agents of the log: half of its requests are of browsers."""
    bots = [
        f"Mozilla/5.0 (compatible; Bot{letter}/1.0; +https://b.example/)"
        for letter in ascii_uppercase
    ]
    bots += ["GPTBot/1.1", "feedreader/2.0", "python-requests/2.32", "-"]
    browsers = [
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
        f"Chrome/{version}.0.0.0 Safari/537.36"
        for version in range(80, 130)
    ]
    return [*bots, *random.choices(bots, k=20), *browsers]


def write(file: IO[bytes], size: int) -> None:
    """Write `size` bytes of a log in Combined Log Format."""
    random.seed(1)
    names, moment = agents(), BEGIN
    while file.tell() < size:
        lines = []
        for _ in range(BLOCK):
            moment += random.random() * 0.15
            stamp = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(moment))
            path = random.choice(
                ("", "robots.txt", "feed.xml", f"private/{random.randrange(1000)}",
                 f"a/{random.randrange(100_000)}?q={random.randrange(100)}",
                 f"page-{random.randrange(3000)}.html")
            )  # fmt: skip
            lines.append(
                f'192.0.2.{random.randrange(255)} - - [{stamp}] "GET /{path} HTTP/1.1" '
                f'{random.choice(STATUSES)} 5120 "https://blog.example/" "{random.choice(names)}"\n'
            )
        file.write("".join(lines).encode())


def main(report: Report, gigabytes: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "access.log")
        with log.open("wb") as file:
            write(file, int(gigabytes * 1e9))
        size = log.stat().st_size / 1e9
        before, judge = time.process_time(), Judge(ROBOTS)
        with open_log(str(log)) as opened:
            judge.read_log(opened, "access.log")
        seconds = time.process_time() - before
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    report.add(
        f"{size:.2f} GB, {judge.read:,} lines, {judge.unread} not read",
        Figure("CPU a GB", seconds / size, "s", most=60),
        Figure("memory", memory, "MiB", most=200),
    )


if __name__ == "__main__":
    run(main, 1.0)
