"""The worst document of each kind that a search finds: processor time and memory to read it.

    python -m benchmarks.hostile [TRIES]

A document is a head, some pieces, each repeated, and a tail. The search begins with random pieces
and changes the worst document found so far: a piece, a number of repetitions, the order. All
documents have at most 15 MiB, and 1 MiB packed. Each is read in a separate process, as a crawl
reads documents; the time of its start is taken off. Goals: 5 s and 200 MiB in that process, which
is ended beyond that; its memory is then unknown.

Then whole crawls of one hostile site each, by the memory of both processes and by the clock. Goals:
350 MiB and 20 s, 5 s from SIGTERM to the end, and 35 s for a site that sends a byte a second.

Then sites that send small pieces without end, at full speed and at 400 kB/s: as the feed, some as
robots.txt and as the blocklist. Goals: 31 s for the longest exchange, 5 s from SIGTERM to the end,
and never 10 s between two beats, by which other workers know that this one lives.

Last a page whose links robots.txt denies, by the processor time of the crawl: a file of 480 KiB may
cost three times as much as one of ten rules.
"""

import gzip
import os
import pickle
import re
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Final, Literal

from benchmarks.report import Figure, Report, run
from walsh_scrapy.crawl.childprocess import PROGRAM
from walsh_scrapy.crawl.isolated import LIMITS
from walsh_scrapy.feeds.metadata.document import Document
from walsh_scrapy.testing.crawl import find_project, run_crawl, start_crawl
from walsh_scrapy.testing.directweb import DirectWeb
from walsh_scrapy.testing.hit import Hit
from walsh_scrapy.testing.site import Certificate, Raw
from walsh_scrapy.testing.web import LoopbackWeb, Reply, Site

_RESIDENT: Final = re.compile(r"VmRSS:\s*(\d+)")
_PEAK: Final = re.compile(r"VmHWM:\s*(\d+)")
RAW: Final = 15 * 1024 * 1024
PACKED: Final = 1024 * 1024
URL: Final = "https://blog.example/feed"
ATOM: Final = "http://www.w3.org/2005/Atom"
BASE: Final = "https://blog.example/" + "a/" * 450
MARKUP: Final = (
    "<a/>", "<item>", "</item>", "<item/>", "<entry>", "</entry>", "<entry/>", "<title>",
    "</title>", "<title type='html'>&lt;b&gt;x", "<link>a</link>", "<link href='a'/>",
    "<author>a (at) b</author>", "<author><name>a</name></author>", "<category>a</category>",
    "<category term='a'/>", "<pubDate>Sat, 23 May 2026 00:00:00 GMT</pubDate>",
    "<updated>2026-05-23</updated>", "<guid>a</guid>", "<id>a</id>", "<source>", "</source>",
    "<description>", "</description>", "<x>", "</x>", "<!--", "-->", "<![CDATA[", "]]>", "&#97;",
    "&amp;", "&lt;!--", "&x;", "a", " ", "\n", "a@b.example ", "<x a='' b='' c='' d=''/>",
    f"<x {' '.join(f'a{number}=``' for number in range(100))}/>".replace("`", "'"),
    f"<item xml:base='{BASE}'>", "<x xml:base='a/'>", "<x xmlns:a='b'/>", "<div>", "</div>",
)  # fmt: skip
VALUES: Final = (
    '{"id":1},', '{"id":"a","title":"a"},', "{},", "[],", "1,", '"a",', '{"id":1,"tags":["a"]},',
    '{"id":1,"url":"a"},', '{"id":1,"date_published":"2026-05-23T00:00:00Z"},', '{"a":', "[", '"',
    "\\\\", "\\u0061", "a", " ", '{"id":1,"authors":[{"name":"a"}]},', '{"id":1,"title":"<!--"},',
)  # fmt: skip
LINES: Final = (
    "- [a](b)\n", "[a](b)", "[a][b]\n", "[b]: c\n", "# a\n", "> ", "- ", "* a", "\n", "a ",
    "![", "](", "![a](", "[a](" + "x" * 80, "![a](" + "x" * 80, "http://a", "~)",
    "<a>", "<!--", "`", "**", "_", "https://a.example/ ", "|a", "|-", "\\", "&amp;", "    ", "[",
    "]",
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A kind of document."""

    name: str
    reader: Literal["feed", "llms"]
    pieces: tuple[str, ...]
    head: str
    tail: str = ""


KINDS: Final = (
    Kind("RSS", "feed", MARKUP, "<rss version='2.0'><channel>", "</channel></rss>"),
    Kind("RSS, base", "feed", MARKUP, f"<rss xml:base='{BASE}'><channel>", "</channel></rss>"),
    Kind("Atom", "feed", MARKUP, f"<feed xmlns='{ATOM}'>", "</feed>"),
    Kind(
        "JSON Feed",
        "feed",
        VALUES,
        '{"version":"https://jsonfeed.org/version/1.1","items":[',
        '{"id":0}]}',
    ),
    Kind("markdown", "llms", LINES, "# Links\n[a](https://a.example/)\n"),
)


HOST: Final = "blog.example"
READING_SECONDS: Final = 1.0  #: after the end of a document it is read for longer than that
_NAMES: Final = "".join(
    f"<author><name>{number} {'ü' * 290}</name></author>" for number in range(100)
)
_ENTRIES: Final = "".join(
    f"<entry><id>{number}</id><link href='/{number}'/><title>{'a' * 290}</title></entry>"
    for number in range(10_000)
)
_ATTRIBUTES: Final = " ".join(f"a{number}=''" for number in range(40_000))
#: Pages of which a crawl could get too slow or too large.
PAGES: Final = {
    "the same authors in 10,000 entries": f"<feed xmlns='{ATOM}'>{_NAMES}{_ENTRIES}</feed>",
    "40,000 attributes": f"<rss {_ATTRIBUTES}><channel/></rss>",
    "1,000,000 elements": f"<rss><channel>{'<item><title>a</title></item>' * 500_000}",
}


#: Responses that never end: how they begin, and what follows.
_CHUNKED: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
FLOODS: Final = {
    "one-byte chunks": (_CHUNKED, b"1\r\nx\r\n"),
    "ten-byte chunks": (_CHUNKED, b"a\r\nxxxxxxxxxx\r\n"),
    "chunk extensions": (_CHUNKED, b"1;" + b"x" * 1000 + b"\r\nx\r\n"),
    "long chunk extensions": (_CHUNKED, b"1;" + b"x" * 200_000 + b"\r\nx\r\n"),
    "trailers": (_CHUNKED + b"0\r\n", b"X: 1\r\n"),
    "100 Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a head of fields": (b"HTTP/1.1 200 OK\r\n", b"X: 1\r\n"),
}
#: These are robots.txt and the blocklist too.
FLOODED_DOCUMENTS: Final = ("one-byte chunks", "100 Continue")
#: One retry, soon.
FEW_RETRIES: Final = {"RETRY_TIMES": 0, "WALSH_MAX_RETRIES": 1, "WALSH_BACKOFF_BASE": 0.1}
PIECE_BYTES: Final = 20_000
PIECES: Final = 2_500
RATES: Final = {"full speed": 0.0, "400 kB/s": PIECE_BYTES / 400_000}
DENIED: Final = (200, 10_000)  #: links of a page
#: 480 KiB: each link is denied by another rule.
MANY_RULES: Final = "User-agent: *\n" + "".join(f"Disallow: /{n:x}\n" for n in range(31_000))
TEN_RULES: Final = "User-agent: *\n" + "".join(f"Disallow: /{n:x}\n" for n in range(10))
#: Files of 480 KiB that deny the same links.
DENYING: Final = {
    "rules": MANY_RULES,
    "wildcard rules": TEN_RULES + "".join(f"Disallow: /*{n:035x}\n" for n in range(10_000)),
    "groups": "".join(f"User-agent: *\nDisallow: /{n:x}\n" for n in range(16_500)),
    "rates": TEN_RULES + "".join(f"Request-rate: 1/1 0000-{n % 24:02}00\n" for n in range(17_500)),
}
SPIDER: Final = """
import scrapy

class Pages(scrapy.Spider):
    name = "pages"
    start_urls = ["http://blog.example/zoo"]

    def parse(self, response):
        yield from response.follow_all(css="a")
"""
SETTINGS: Final = """
SPIDER_MODULES = ["theirs"]
ADDONS = {"walsh_scrapy.Addon": 500}
WALSH_USER_AGENT = "Example-Bot/1.0 (+https://bot.example/)"
WALSH_UA_TOKEN = "Example-Bot"
WALSH_SCOPE = "any"
"""


@dataclass(frozen=True)
class Recipe:
    """Pieces and their repetitions; all of them are repeated `times`."""

    parts: tuple[tuple[str, int], ...]
    times: int

    def document(self, kind: Kind) -> Document:
        """Return the document, cut where it would be too long."""
        middle = "".join(piece * number for piece, number in self.parts)
        times = min(self.times, max(1, (RAW - 10_000) // max(1, len(middle))))
        body = f"{kind.head}{(middle * times)[: RAW - 10_000]}{kind.tail}".encode()
        return Document(kind.reader, body, URL, None, URL)


def main(report: Report, tries: int) -> None:
    """Search in each kind."""
    start, _ = _cost(Document("feed", b"<rss/>", URL, None, URL))
    for kind in KINDS:
        recipe, (seconds, memory) = _worst(kind, tries)
        body = recipe.document(kind).body
        parts = " ".join(f"{piece[:24]!r}*{number}" for piece, number in recipe.parts)
        report.add(
            kind.name,
            Figure("CPU", seconds - start, "s", max_value=5.0),
            Figure("memory", memory or None, "MiB", max_value=200 if memory else None),
            Figure("length", len(body), "bytes"),
            Figure("packed", len(gzip.compress(body)), "bytes"),
            note=f"({parts})*{recipe.times}",
        )
    for name, page in PAGES.items():
        site = Site(HOST, "User-agent: *\n", {"/feed": Reply(page)})
        seconds, memory = _crawl(site)
        report.add(
            f"crawl, {name}",
            Figure("run", seconds, "s", max_value=20),
            Figure("memory of both processes", memory, "MiB", max_value=350),
        )
        seconds, _ = _crawl(site, ends=True)
        report.add(f"crawl, {name}", Figure("end after SIGTERM", seconds, "s", max_value=5))
    pieces: list[bytes | float] = [b"HTTP/1.1 200 OK\r\n\r\n"]
    for _ in range(200):
        pieces += [1.0, b"#"]
    seconds, _ = _crawl(Site(HOST, Raw(pieces), {"/feed": Raw(pieces)}))
    report.add("crawl, a byte a second", Figure("run", seconds, "s", max_value=35))
    for name, (begin, repeated) in FLOODS.items():
        for rate, pause in RATES.items():
            times = PIECE_BYTES // len(repeated) + 1
            endless: list[bytes | float] = [pause, repeated * times] * PIECES
            flood = Raw([begin, *endless])
            _flood(report, f"{name}, {rate}", Site(HOST, "", {"/feed": flood}))
            if name in FLOODED_DOCUMENTS:
                for place, site in _flooded(flood).items():
                    _flood(report, f"{name}, {rate}, {place}", site)
    records = Raw([b"HTTP/1.1 200 OK\r\n\r\n", *[b"x"] * 1_000_000])
    _flood(
        report, "TLS records of a byte", Site(HOST, "", {"/feed": records}, tls=Certificate.GOOD)
    )
    for links in DENIED:
        few = _follow(links, TEN_RULES)
        for name, robots in DENYING.items():
            figure = Figure("CPU", _follow(links, robots), "s", "ten rules", few, max_value=3)
            report.add(f"crawl, {links:,} links denied by 480 KiB of {name}", figure)


def _follow(links: int, robots: str) -> float:
    """Return the CPU seconds of a crawl of one page with so many links, all of them denied."""
    page = "".join(f"<a href='/{number % 10:x}{number:x}'>a</a>" for number in range(links))
    site = Site(HOST, robots, {"/zoo": Reply(page, content_type="text/html")})
    with LoopbackWeb(site) as web, tempfile.TemporaryDirectory() as name:
        project = Path(name)
        (project / "scrapy.cfg").write_text("[settings]\ndefault = settings\n")
        (project / "settings.py").write_text(SETTINGS)
        (project / "theirs.py").write_text(SPIDER)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        path = os.pathsep.join([name, str(find_project(Path(__file__).parent))])
        result = run_crawl(
            web, "pages", folder=project, project=project, environment={"PYTHONPATH": path}
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if result.stats.get("walsh/robots/denied") != links:
        raise SystemExit(f"a crawl ended with {result.exit_code}: {result.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _flooded(flood: Raw) -> dict[str, Site]:
    return {
        "robots.txt": Site(HOST, flood, {"/feed": Reply("<rss/>")}),
        "blocklist": Site(HOST, "", {"/feed": Reply("<rss/>"), "/list": flood}),
    }


def _flood(report: Report, subject: str, site: Site) -> None:
    """Add the figures of a crawl that the site floods, and of the end of another one."""
    watch = Watch()
    seconds, _ = _crawl(site, watch=watch, further=FEW_RETRIES)
    ending, _ = _crawl(site, ends=True, further=FEW_RETRIES)
    report.add(
        subject,
        Figure("run", seconds, "s"),
        Figure("longest exchange", watch.longest, "s", max_value=31),
        Figure("end after SIGTERM", ending, "s", max_value=5),
        Figure("between two beats", watch.max_gap, "s", max_value=10),
    )


class Watch:
    """What the state of a crawl shows while it runs."""

    def __init__(self) -> None:
        self.max_gap = 0.0  #: seconds between two beats of the worker
        self.longest = 0.0  #: seconds of an exchange
        self._expires_at: float | None = None
        self._since = time.monotonic()

    def look(self, state: Path) -> None:
        """Look whether the worker has beaten since the last look."""
        with (
            suppress(sqlite3.Error),
            closing(sqlite3.connect(f"file:{state}?mode=ro", uri=True)) as connection,
        ):
            rows = connection.execute("SELECT expires_at FROM workers").fetchall()
            now = time.monotonic()
            expires_at = rows[0][0] if rows else None
            if expires_at != self._expires_at:
                self._expires_at = expires_at
                self._since = now
            elif rows:
                self.max_gap = max(self.max_gap, now - self._since)
            ((self.longest,),) = connection.execute(
                "SELECT coalesce(max(duration), 0.0) FROM requests"
            ).fetchall()


def _crawl(
    site: Site,
    *,
    ends: bool = False,
    watch: Watch | None = None,
    further: Mapping[str, object] = MappingProxyType({}),
) -> tuple[float, float]:
    """Return the seconds and the peak memory in MiB of a crawl with these further settings.

    With `ends` the crawl gets SIGTERM while its document is read, or still comes; the seconds count
    from then.
    """
    web = DirectWeb(site) if site.tls else LoopbackWeb(site)
    with web, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scheme = "https" if site.tls else "http"
        settings: dict[str, object] = {"WALSH_STATE_URL": f"sqlite:///{folder / 'state.sqlite3'}"}
        if "/list" in site.pages:
            settings["WALSH_BLOCKLIST_URL"] = f"{scheme}://{HOST}/list"
        started = time.monotonic()
        running = start_crawl(
            web,
            folder=folder,
            project=find_project(Path(__file__).parent),
            sources=[f"{scheme}://{HOST}/feed"],
            settings={**settings, **further},
        )
        peak = 0.0
        while running.running:
            peak = max(peak, _memory(running.pid))
            if watch:
                watch.look(folder / "state.sqlite3")
            if ends and any(_is_hostile(site, hit) for hit in web.log):
                time.sleep(READING_SECONDS)
                os.kill(running.pid, signal.SIGTERM)
                started = time.monotonic()
                break
            time.sleep(0.01)
        running.wait(300)
        seconds = time.monotonic() - started
        if watch:
            watch.look(folder / "state.sqlite3")
        return seconds, peak


def _is_hostile(site: Site, hit: Hit) -> bool:
    """Return True if the hostile document has come, or if it comes without end."""
    page = site.robots if hit.path == "/robots.txt" else site.pages.get(hit.path)
    return isinstance(page, Raw) or (hit.path == "/feed" and hit.complete)


def _memory(pid: int) -> float:
    """Return the memory of a process and its children, in MiB."""
    total = 0
    with suppress(OSError):  # one has ended
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for number in (pid, *children):
            resident = _RESIDENT.search(Path(f"/proc/{number}/status").read_text())
            total += int(resident[1]) if resident else 0
    return total / 1024


def _worst(kind: Kind, tries: int) -> tuple[Recipe, tuple[float, float]]:
    random = Random(kind.name)
    worst, cost = Recipe((("a", 1),), 1), (0.0, 0.0)
    for number in range(tries):
        changed = _any(kind, random) if number < tries // 3 else _changed(worst, kind, random)
        recipe = _fitting(changed, kind)
        if recipe and (found_cost := _cost(recipe.document(kind))) > cost:
            worst, cost = recipe, found_cost
    return worst, cost


def _fitting(recipe: Recipe, kind: Kind) -> Recipe | None:
    """Return the recipe with fewer repetitions, so that it is within the limits of the search."""
    length = len("".join(piece * number for piece, number in recipe.parts))
    recipe = replace(recipe, times=max(1, min(recipe.times, RAW // max(1, length))))
    while True:
        document = recipe.document(kind)
        if len(gzip.compress(document.body, 1)) <= PACKED:
            return recipe
        if recipe.times == 1:
            return None
        recipe = replace(recipe, times=recipe.times * 2 // 3 or 1)


def _any(kind: Kind, random: Random) -> Recipe:
    parts = [(random.choice(kind.pieces), 1) for _ in range(random.randint(1, 4))]
    return Recipe(tuple(parts), 4_000_000)


def _changed(recipe: Recipe, kind: Kind, random: Random) -> Recipe:
    parts = list(recipe.parts)
    at = random.randrange(len(parts))
    piece, number = parts[at]
    match random.randrange(4):
        case 0:
            parts[at] = (random.choice(kind.pieces), number)
        case 1:
            parts[at] = (piece, random.choice((1, 10, 100, 1000, 10_000)))
        case 2:
            parts.insert(at, (random.choice(kind.pieces), 1))
        case _:
            random.shuffle(parts)
    return Recipe(tuple(parts), 4_000_000)


def _cost(document: Document) -> tuple[float, float]:
    """Return the CPU seconds of a process that reads a document, and its peak memory in MiB."""
    command = [sys.executable, "-c", PROGRAM % (LIMITS.seconds, LIMITS.memory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(pickle.dumps((Document.read, (document,), {})))
        process.stdin.flush()
        with suppress(EOFError):  # it may cost so much that the system ended it
            pickle.load(process.stdout)
        peak = _PEAK.search(Path(f"/proc/{process.pid}/status").read_text())  # Linux
        process.stdin.close()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime, int(peak[1]) / 1024 if peak else 0.0


if __name__ == "__main__":
    run(main, 12)
