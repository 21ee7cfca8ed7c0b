"""How long the event loop of a crawl stands still at most, for hostile documents one by one.

    python -m benchmarks.standstill [NAME ...]

Each document is the only one of a crawl, and is crawled twice: the second time all of its entries
are known. A heartbeat in the crawl's process measures how late it is at most: in seconds on the
clock, and in processor time of the thread, which other programs change less. Another thread looks
which function was running. Goal: 0.5 s.
"""

import asyncio
import json
import os
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from scrapy import signals

from benchmarks.report import Figure, Report, run
from walsh_scrapy.testing.crawl import run_crawl
from walsh_scrapy.testing.directweb import DirectWeb
from walsh_scrapy.testing.project import find_project
from walsh_scrapy.testing.reply import Reply
from walsh_scrapy.testing.site import Site

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

BEAT: Final = 0.005
#: Seconds after which the other thread looks where the event loop is.
LATE: Final = 0.05
MOST: Final = 10_000  # entries of one document
RSS: Final = "application/rss+xml"
JSON: Final = "application/feed+json"
MARKDOWN: Final = "text/markdown"
_RESULT: Final = "WALSH_HEARTBEAT"
#: Methods of all transactions and iterations, which say nothing about where the time goes.
_PLUMBING: Final = frozenset({"<lambda>", "<genexpr>", "<listcomp>", "run_each", "_drive", "_run"})


class Heartbeat:
    """An extension that measures how long the event loop does nothing else."""

    def __init__(self, crawler: "Crawler") -> None:
        self._beat = self._used = 0.0
        self._seconds = self._cpu = 0.0
        self._where = Counter[str]()
        self._thread = threading.get_ident()
        self._over = threading.Event()
        crawler.signals.connect(self._start, signal=signals.spider_opened)
        crawler.signals.connect(self._end, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: "Crawler") -> Self:
        """Build the extension for one crawl."""
        return cls(crawler)

    def _start(self) -> None:
        self._beat, self._used = time.monotonic(), time.thread_time()
        asyncio.get_running_loop().call_later(BEAT, self._look)
        threading.Thread(target=self._watch, daemon=True).start()

    def _look(self) -> None:
        beat, used = time.monotonic(), time.thread_time()
        self._seconds = max(self._seconds, beat - self._beat - BEAT)
        self._cpu = max(self._cpu, used - self._used)
        self._beat, self._used = beat, used
        if not self._over.is_set():
            asyncio.get_running_loop().call_later(BEAT, self._look)

    def _watch(self) -> None:
        while not self._over.wait(0.01):
            if time.monotonic() - self._beat > LATE:
                stack = traceback.extract_stack(sys._current_frames()[self._thread])  # noqa: SLF001
                names = [each.name for each in stack if each.name not in _PLUMBING]
                self._where[names[-1]] += 1

    def _end(self) -> None:
        self._look()
        self._over.set()
        where = ", ".join(name for name, _ in self._where.most_common(2))
        found = {"seconds": self._seconds, "cpu": self._cpu, "where": where}
        Path(os.environ[_RESULT]).write_text(json.dumps(found), encoding="utf-8")


def _feed(items: Iterable[Mapping[str, object]], **more: object) -> str:
    version = "https://jsonfeed.org/version/1.1"
    return json.dumps({"version": version, **more, "items": list(items)})


def _names(length: int) -> list[dict[str, str]]:
    return [{"name": f"{at:0{length}}"} for at in range(100)]


def _rss(item: str, number: int = MOST) -> str:
    items = "".join(item.replace("#", f"{at:05}") for at in range(number))
    return f"<rss version='2.0'><channel>{items}</channel></rss>"


#: By name: a Content-Type, and what makes the document.
DOCUMENTS: Final[dict[str, tuple[str, Callable[[], str]]]] = {
    "10,000 short items": (
        RSS,
        lambda: _rss("<item><title>#</title><link>https://a.example/#</link></item>"),
    ),
    "10,000 items of 800 bytes": (RSS, lambda: _rss(f"<item><guid>#{'a' * 700}</guid></item>")),
    "2,500 items with URLs that are refused": (
        JSON,
        lambda: _feed({"id": at, "url": f"/{at}?{'/' * 4090}"} for at in range(2500)),
    ),
    "3,500 items with ids that are refused": (
        RSS,
        lambda: _rss(f"<item><guid>#{'a' * 4096}</guid></item>", 3500),
    ),
    "100 long authors of all 10,000 items": (
        JSON,
        lambda: _feed(({"id": at} for at in range(MOST)), authors=_names(290)),
    ),
    "100 short authors of all 10,000 items": (
        JSON,
        lambda: _feed(({"id": at} for at in range(MOST)), authors=_names(1)),
    ),
    "100 short authors of 2,350 items": (
        JSON,
        lambda: _feed(({"id": at} for at in range(2350)), authors=_names(1)),
    ),
    "5,000 items with 100 tags each": (
        JSON,
        lambda: _feed(
            {"id": at, "title": "ä" * 299, "tags": list(map(str, range(100)))} for at in range(5000)
        ),
    ),
    "14,900 links": (
        MARKDOWN,
        lambda: "# T\n" + "".join(f"[a](/{at})\n" for at in range(14_900)),
    ),
    "14,900 bare URLs with notes": (
        MARKDOWN,
        lambda: "# T\n" + "".join(f"- https://a.example/{at}: b\n" for at in range(14_900)),
    ),
    "15 MiB of nothing": (RSS, lambda: "<rss version='2.0'><channel/></rss>" + " " * (15 << 20)),
    "25,000 references": (
        RSS,
        lambda: "<rss version='2.0'><channel><item><title>" + "&#97;" * 25_000,
    ),
    "10,000 of each mark of emphasis": (
        MARKDOWN,
        lambda: "# T\n[a](/a)\n" + ("*_" * 1000 + "\n") * 10,
    ),
}


def main(report: Report, *names: str) -> None:
    """Crawl each document, or each of those named."""
    for name in names or DOCUMENTS:
        content_type, make = DOCUMENTS[name]
        for visit, found in zip(("first", "again"), _measured(content_type, make()), strict=True):
            report.add(
                f"{name}, {visit}",
                Figure("on the clock", found["seconds"], "s", most=0.5),
                Figure("CPU", found["cpu"], "s"),
                note=f"mostly in {found['where']}" if found["where"] else "",
            )


def _measured(content_type: str, document: str) -> list[dict[str, Any]]:
    kind, path = ("llms", "/llms.txt") if content_type == MARKDOWN else ("feed", "/feed")
    page = Reply(document.encode(), content_type=content_type, gzip=True)
    site = Site("blog.example", "User-agent: *\n", {path: page})
    found = []
    with DirectWeb(site) as web, tempfile.TemporaryDirectory() as name:
        file = Path(name, "heartbeat.json")
        for _ in range(2):
            run_crawl(
                web,
                "llms" if kind == "llms" else "feeds",
                folder=Path(name, "crawl"),
                project=find_project(Path(__file__).parent),
                sources=[{"url": f"http://blog.example{path}", "kind": kind}],
                settings={"EXTENSIONS": json.dumps({"benchmarks.standstill.Heartbeat": 1})},
                arguments={"force": "1"},
                environment={_RESULT: str(file)},
            )
            found.append(json.loads(file.read_text("utf-8")))
    return found


if __name__ == "__main__":
    run(main)
