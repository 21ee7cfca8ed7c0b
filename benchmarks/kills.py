"""The state after crawls that are killed at every point of a visit, on each database.

    python -m benchmarks.kills [KILLS]

A crawl is killed (SIGKILL) at one of ten points, in turn, at the first to the fourth time that it
reaches it; then the next one goes on. The last one ends by itself. After each crawl a reader reads
the entries, and every fourth time it is killed before it remembers them. Goals: no entry is lost,
known twice or exported twice, and the reader gets each once, or again after it was killed. No
request is missing in the log, and one without an end is of a killed crawl. Neither the audit nor
the log of the servers has a broken MUST.
"""

import json
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from scrapy import signals
from sqlalchemy import create_engine, text

from benchmarks.databases import states
from benchmarks.report import Figure, Report, run
from walsh_scrapy.crawl.hosts import ownedhosts
from walsh_scrapy.crawl.hosts.ownedhosts import Hosts
from walsh_scrapy.feeds import feedcrawl
from walsh_scrapy.feeds.attest import attest
from walsh_scrapy.feeds.stores import Stores, sourcestore
from walsh_scrapy.state import State, ownership
from walsh_scrapy.state.evidence import MAX_IDLE_RUN_SECONDS
from walsh_scrapy.testing.crawl import find_project, run_crawl
from walsh_scrapy.testing.directweb import DirectWeb
from walsh_scrapy.testing.feeds import rss
from walsh_scrapy.testing.politeness import violations
from walsh_scrapy.testing.site import Reply, Site

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

PROJECT = find_project(Path(__file__).parent)
#: The last step before the process is killed.
POINTS = (
    *("taken", "begun", "allowed", "sent", "answered"),
    *("ended", "written", "freed", "committed", "numbered"),
)
#: The maximum number of times that a crawl reaches its point before it is killed.
MAX_REACHED = 4
#: The functions of these steps. Those of the state are followed by a COMMIT, that of the crawl is
#: not.
_FUNCTIONS: Final[dict[str, tuple[Any, str]]] = {
    "taken": (ownership, "take"),
    "begun": (ownership, "begin"),
    "allowed": (Hosts, "begin"),
    "ended": (ownership, "end"),
    "written": (sourcestore, "insert_unseen"),
    "freed": (ownership, "let_go"),
    "committed": (Hosts, "commit"),
    "numbered": (feedcrawl, "number_entries"),
}
#: Entries are numbered with the beat, which would come when all sources are visited.
_KILLED_BEAT_SECONDS: Final = 0.02
#: The reader is killed instead of every fourth time that it would remember what it has got.
READER_KILLS: Final = 4
_AT = "WALSH_KILL_AT"


class Killed:
    """An extension that kills the process at ``WALSH_KILL_AT``: a point and a number."""

    def __init__(self, crawler: "Crawler") -> None:
        point, _, number = os.environ[_AT].partition(" ")
        self._remaining = int(number)
        if point == "sent":
            crawler.signals.connect(self._pass, signal=signals.headers_received)
        elif point == "answered":
            crawler.signals.connect(self._pass, signal=signals.response_downloaded)
        else:
            if point == "numbered":
                setattr(ownedhosts, "BEAT_SECONDS", _KILLED_BEAT_SECONDS)  # noqa: B010 - to mypy
            owner, name = _FUNCTIONS[point]
            setattr(owner, name, self._passing(getattr(owner, name)))

    @classmethod
    def from_crawler(cls, crawler: "Crawler") -> Self:
        """Build the extension for one crawl."""
        return cls(crawler)

    def _pass(self) -> None:
        self._remaining -= 1
        if not self._remaining:
            os.kill(os.getpid(), signal.SIGKILL)

    def _passing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def passing(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            result = function(*arguments, **options)
            self._pass()
            return result

        return passing


class Reader:
    """A reader of the entries of a state, which may be killed before it remembers them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._once: Counter[str] = Counter()  # by key
        self._again: set[str] = set()  # read when it was killed, so they come once more

    def read(self, *, is_killed: bool = False) -> None:
        """Read what is new, as `walsh new --reader` does."""
        with closing(State(self._url)) as state:
            handover = Stores(state).handover
            with handover.open_reader("reader") as seq:
                last = handover.last_position()
                rows = state.rows(
                    "readable_entries",
                    columns="key",
                    where="seq > :after AND seq <= :last",
                    params={"after": seq or 0, "last": last.seq},
                )
                keys = [row["key"] for row in rows]
                if is_killed:
                    self._again.update(keys)
                    return
                self._again.difference_update(keys)
                self._once.update(keys)
                handover.remember("reader", last.seq, state.now())

    def wrong(self, entries: int) -> int:
        """Return how many of so many entries did not come once, or not again after a kill."""
        read_twice = self._once.total() - len(self._once)
        return abs(entries - len(self._once)) + read_twice + len(self._again)


def main(report: Report, kills: int) -> None:
    """Kill crawls on each database, and check the state."""
    for name, url in states():
        _measure(report, kills, name, url)


def _measure(report: Report, kills: int, name: str, url: str) -> None:
    seeded = random.Random(kills)
    hosts = [f"h{number}.example" for number in range(kills * MAX_REACHED)]
    feeds = {host: rss(host, ["1", "2"], f"http://{host}/") for host in hosts}
    sites = [
        Site(host, "User-agent: *\n", {"/feed": Reply(feeds[host], etag='"1"')}) for host in hosts
    ]
    done: Counter[str] = Counter()
    with DirectWeb(*sites) as web, tempfile.TemporaryDirectory() as folder:
        exported = Path(folder, "all.jsonl")
        options: dict[str, Any] = {
            "folder": Path(folder, "crawl"),
            "project": PROJECT,
            "sources": [f"http://{host}/feed" for host in hosts],
        }
        settings = {
            "WALSH_STATE_URL": url,
            "DOWNLOAD_TIMEOUT": 5,
            "FEEDS": json.dumps({str(exported): {"format": "jsonl"}}),
        }
        killing = settings | {"EXTENSIONS": json.dumps({"benchmarks.kills.Killed": 1})}
        reader = Reader(url)
        while done.total() < kills:
            point = POINTS[done.total() % len(POINTS)]
            at = {_AT: f"{point} {seeded.randint(1, MAX_REACHED)}"}
            ended = run_crawl(web, settings=killing, environment=at, **options)
            if ended.exit_code != -signal.SIGKILL:
                raise SystemExit(f"{at}: a crawl ended with {ended.exit_code}\n{ended.stderr}")
            done[point] += 1
            reader.read(is_killed=done.total() % READER_KILLS == 0)
        if run_crawl(web, settings=settings, **options).exit_code:
            raise SystemExit("the last crawl failed")
        reader.read()
        report.say(f"{name}: killed {', '.join(f'{n} times {point}' for point, n in done.items())}")
        lines = exported.read_text("utf-8").splitlines()
        urls = Counter(json.loads(line)["url"] for line in lines)
        sent = Counter(f"http://{hit.host}{hit.path}" for hit in web.log)
        impolite = violations(web.log)
        entries, logged, unended = _rows(url)
        late, findings = sum((sent - logged).values()), _findings_of(url)
    report.add(
        name,
        Figure("kills", done.total(), min_value=kills),
        Figure("entries lost", 2 * len(hosts) - entries, max_value=0),
        Figure("exported twice", len(lines) - len(urls), max_value=0),
        Figure("entries not read once", reader.wrong(2 * len(hosts)), max_value=0),
        Figure("requests without a row", late, max_value=0),
        Figure("requests without an end, of runs that ended", unended, max_value=0),
        Figure("findings in the state", len(findings), max_value=0),
        Figure("findings at the servers", len(impolite), max_value=0),
        note="; ".join([*findings, *impolite[:3]]),
    )


def _rows(url: str) -> tuple[int, Counter[str], int]:
    """Return the number of entries, the requests by URL, and the number of open ones of a run."""
    engine = create_engine(url)
    with engine.connect() as connection:
        entries = connection.scalar(text("SELECT count(*) FROM entries")) or 0
        logged = Counter(connection.scalars(text("SELECT url FROM requests")))
        unended = connection.scalar(
            text(
                "SELECT count(*) FROM requests JOIN runs ON runs.id = requests.run "
                "WHERE requests.duration IS NULL AND runs.ended_at IS NOT NULL"
            )
        )
    engine.dispose()
    return entries, logged, unended or 0


def _findings_of(url: str) -> list[str]:
    """Return the findings of `walsh attest` about a MUST, once no killed crawl may go on.

    A document that is requested again within a day is none: if it took long, its answer was logged
    before its entries, and the crawl was killed in between.
    """
    with closing(State(url)) as state, state.log() as log:
        rows = attest(log, time.time() + MAX_IDLE_RUN_SECONDS).rows
    findings = [finding for row in rows for finding in row["findings"]]
    return [finding["first"]["what"] for finding in findings if finding["level"] == "MUST"]


if __name__ == "__main__":
    run(main, 100)
