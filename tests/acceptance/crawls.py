"""The conformance test of this project in seconds: its own crawls, in simulated time.

    python -m tests.acceptance.crawls FOLDER trial days

`trial` crawls the scenarios of `walsh_scrapy.testing.conformance` as its command would, without a
kill: first, at once again, forced, and restarted after 50 minutes. `days` crawls a web of twelve
days: a copy of robots.txt expires, a list of opt-outs is refreshed, changed and broken, hosts
refuse over several runs, a feed fails or is gone, the sources file is edited. Then another bot
crawls, paced by domain. A page that is a function answers by the simulated time, in seconds since
the first run. Each is judged by its scenarios or rules, by what the web saw; the days also by their
items and the rows of their state. Then `walsh attest` judges the state. FOLDER gets the `Finding`
objects of each, as JSON.
"""

import json
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from walsh_scrapy.feeds.attest import attest
from walsh_scrapy.feeds.items import EntryItem
from walsh_scrapy.state import State
from walsh_scrapy.testing.conformance import SCENARIOS, Run, Seen, TrialLog
from walsh_scrapy.testing.conformance.optouts import BLOCKLIST_URL
from walsh_scrapy.testing.conformance.trial import declared_by
from walsh_scrapy.testing.crawl import SourceLike, write_sources
from walsh_scrapy.testing.feeds import Post, atom, json_feed, rss
from walsh_scrapy.testing.hit import Hit
from walsh_scrapy.testing.politeness import (
    Manners,
    Rule,
    backed_off,
    not_too_often,
    robots_obeyed,
    violations,
)
from walsh_scrapy.testing.simulated import Simulation, simulate_here
from walsh_scrapy.testing.simulation import SimulatedTime
from walsh_scrapy.testing.site import Page, Reply, Site, redirect

HOUR: Final = 3600.0
DAY: Final = 86_400.0
LIST_URL: Final = "http://operator.example/blocklist.json"
#: It answers 410.
GONE: Final = "http://gone.example/feed"
#: Its interval becomes longer before the run of the second day; nothing else is edited.
EDITED: Final = "http://edited.example/feed"
EDITED_EVERY: Final = 3 * DAY
#: The runs of the feeds. The second one comes before a row of refusals has ended, others come
#: hours after another one, when little is due.
STARTS: Final = tuple(
    day * DAY + hour * HOUR
    for day, hour in (
        (0, 0), (0, 0.25), (0, 2), (0, 8), (1, 1), (1, 9), (2, 2), (3, 3), (4, 4), (5, 5), (7, 7)
    )
)  # fmt: skip
#: Seconds without a refusal that end a row of them.
QUIET: Final = HOUR / 2
#: Its robots.txt denies it from the second day on. On the third one, no older copy counts.
CLOSED: Final = "http://later.example/feed"
#: It asks for visits in these minutes of the day, the last one included.
NIGHT: Final = "http://night.example/feed"
OPEN_MINUTES: Final = range(3 * 60, 23 * 60 + 1)
#: It redirects, and asks for so many seconds before its target is requested.
WAITS: Final = "http://hops.example/waits"
WAITED_FOR: Final = "http://steady.example/waited"
REDIRECT_SECONDS: Final = 40.0
#: The tries that follow a refused one in a run.
MAX_RETRIES: Final = 4
#: Where redirects lead: to a private address, and for the sixth time from host to host.
NEVER_FOLLOWED: Final = ("http://10.1.2.3/feed", "http://ping.example/6")
#: The runs of the feed-less sites, after those.
PAGE_STARTS: Final = (10 * DAY, 10 * DAY + 2 * HOUR, 11 * DAY + HOUR)

_POSTS: Final = ("First", "Second")
_OPEN: Final = "User-agent: *\nDisallow: /private/\n"
#: One file for us and others.
_RULES: Final = "User-agent: *\nDisallow: /\n\nUser-agent: Walsh-Research\nDisallow: /deep/\n"
_NOT_HERE: Final = "User-agent: *\nDisallow: /no\n"
_NO_SECRET: Final = "User-agent: *\nDisallow: /secret\n"
_DELAYS: Final = "User-agent: *\nCrawl-delay: 12\nCrawl-delay: 3\n"
_PAGE: Final = "<!DOCTYPE html><title>Page</title><p>It has no feed.</p>"
_LINKS: Final = "# Site\n\n> Summary\n\n## Docs\n\n- [One](/one.md): first\n- [Two](/two.md)\n"

SOURCES: Final = (
    *(f"http://plain.example/{name}" for name in ("feed", "atom", "json")),
    *(f"http://blog.example/{name}" for name in ("feed", "comments")),
    "http://podcast.example/feed",
    *(f"http://steady.example/{name}" for name in ("strong", "weak", "modified", "bare")),
    *(f"http://rules.example/{name}" for name in ("feed", "deep/feed")),
    NIGHT,
    *(f"http://later.example/{name}" for name in ("feed", "other")),
    *(f"http://unchanged.example/{name}" for name in ("feed", "no")),
    *(f"http://broken.example/{name}" for name in ("feed", "no")),
    *(f"http://mirrored.example/{name}" for name in ("feed", "no")),
    *(f"http://delay.example/{number}" for number in range(3)),
    *(f"http://rate.example/{number}" for number in range(3)),
    *(f"http://slow.example/{number}" for number in range(3)),
    *(f"{origin}/{name}" for name in ("feed", "secret") for origin in (
        "http://ports.example", "https://ports.example", "http://ports.example:8080"
    )),
    *(f"http://busy{number}.example/{name}" for number in range(3) for name in ("feed", "more")),
    *(f"http://tired{number}.example/{name}" for number in range(8) for name in ("feed", "more")),
    *(f"http://never{number}.example/{name}" for number in range(3) for name in ("feed", "more")),
    *(f"http://dated.example/{name}" for name in ("feed", "more")),
    *(f"http://restart.example/{name}" for name in ("feed", "more")),
    *(f"http://hops.example/{name}" for name in (
        "here", "there", "denied", "out", "private", "waits"
    )),
    "http://ping.example/0",
    *(f"http://{name}.example/feed" for name in (
        "out", "www.out", "leaver", "gone", "page", "moody"
    )),
)  # fmt: skip
PAGES: Final = tuple(
    {"url": f"http://{name}.example/", "kind": "llms"} for name in ("text", "markdown")
)
DECLARED: Final = frozenset({
    *SOURCES, EDITED, *(f"{page['url']}{path}" for page in PAGES for path in ("", "llms.txt"))
})  # fmt: skip
#: Another bot, the hosts of its domain, and the delay that one source of them asks for.
BOT: Final = {
    "WALSH_USER_AGENT": "Example-Bot/1.0 (+https://bot.example/)",
    "WALSH_UA_TOKEN": "Example-Bot",
    "WALSH_BLOCKLIST_URL": "",
    "WALSH_SERIAL": False,
    "WALSH_PACE_BY": "domain",
}
BOT_HOSTS: Final = ("a.example.com", "b.example.com")
BOT_DELAY: Final = 9.0
BOT_SOURCES: Final = (
    {"url": f"http://{BOT_HOSTS[0]}/feed", "delay": "PT9S"},
    *(f"http://{BOT_HOSTS[1]}/{name}" for name in ("feed", "more")),
)


def sites() -> list[Site]:
    """Return all sites of this web."""
    return [*_operator(), *_feeds(), *_robots(), *_paced(), *_refusing(), *_hops(), *_feedless()]


def _feed(name: str, **reply: str | float) -> Reply:
    body = rss(name, _POSTS, f"http://{name}.example/")
    return Reply(body, content_type="application/rss+xml", **reply)  # type: ignore[arg-type]


def _site(name: str, robots: Page, *paths: str, **pages: Page) -> Site:
    """Return a site with a feed at each path, and with these pages."""
    feeds = {f"/{path}": _feed(name.partition(":")[0].partition(".")[0]) for path in paths}
    return Site(f"{name}.example", robots, feeds | {f"/{key}": pages[key] for key in pages})


def blocklist(hit: Hit) -> Page:
    """Return the list: one more domain from the third day on; on the fifth day it is broken."""
    domains = ["out.example"] + ["leaver.example"] * (hit.started > 2 * DAY)
    document = {
        "contract": "walsh-research-blocklist/v1",
        "updated": "2026-05-23T00:00:00Z",
        "refresh": "PT6H",
        "blocked": [{"domain": name, "added": "2026-05-23"} for name in domains],
    }
    body = json.dumps(document).encode()
    is_broken = 4 * DAY < hit.started < 5 * DAY
    return Reply(body[:-9] if is_broken else body, content_type="application/json")


def closing_later(hit: Hit) -> Page:
    """Return a robots.txt that denies a path from the second day on."""
    return "User-agent: *\nDisallow: /feed\n" if hit.started > DAY else _OPEN


def by_scheme(hit: Hit) -> Page:
    """Return a robots.txt that denies a path over https only."""
    return _NO_SECRET if hit.scheme == "https" else _OPEN


def failing(hit: Hit) -> Page:
    """Return a robots.txt that cannot be read any more from the fourth day on."""
    failed = Reply("Internal error.\n", 500)
    return failed if hit.started > 3 * DAY else _NOT_HERE


def until_date(hit: Hit) -> Page:
    """Return a refusal for half an hour, as a date."""
    asked = formatdate(hit.wall + HOUR / 2, usegmt=True)
    return Reply("Too many requests.\n", 429, headers={"Retry-After": asked})


def _operator() -> list[Site]:
    return [
        Site("operator.example", _OPEN, {"/blocklist.json": blocklist}),
        _site("out", _OPEN, "feed"),
        _site("www.out", _OPEN, "feed"),
        _site("leaver", _OPEN, "feed"),
    ]


def _feeds() -> list[Site]:
    post = Post("A post", "http://blog.example/post")
    answer = Post("Re: A post", "http://blog.example/post#comment-1", "?p=1#comment-1")
    link = "http://podcast.example"
    media = f'<enclosure url="{link}/1.mp3" length="9" type="audio/mpeg"/></item>'
    podcast = rss("Podcast", _POSTS, f"{link}/").replace("</item>", media)
    dated = "Thu, 01 Jan 2026 12:00:00 GMT"
    return [
        Site("plain.example", None, {
            "/feed": _feed("plain"),
            "/atom": Reply(atom("Atom", _POSTS, "http://plain.example/a/"),
                           content_type="application/atom+xml"),
            "/json": Reply(json_feed("JSON", _POSTS, "http://plain.example/j/"),
                           content_type="application/feed+json"),
        }),
        Site("blog.example", _OPEN, {
            "/feed": Reply(rss("Blog", [post], "http://blog.example/")),
            "/comments": Reply(rss("Comments", [answer], "http://blog.example/")),
            "/post": _PAGE,
        }),
        Site("podcast.example", _OPEN, {
            "/feed": Reply(podcast, content_type="application/rss+xml"), "/1.mp3": "audio",
            "/1": _PAGE, "/2": _PAGE, "/1.png": "image",
        }),
        _site("steady", _OPEN, strong=_feed("steady", etag='"v1"'),
              weak=_feed("steady", etag='W/"v1"'), modified=_feed("steady", last_modified=dated),
              bare=_feed("steady"), there=_feed("steady"), waited=_feed("steady")),
        _site("edited", _OPEN, "feed"),
        _site("moody", _OPEN, feed=[
            _feed("moody", etag='"v1"'), Reply("No feed.\n", 404, headers={"ETag": '"error"'}),
            _feed("moody", etag='"v2"'),
        ]),
        Site("gone.example", _OPEN, {"/feed": Reply("Gone.\n", 410)}),
        Site("page.example", _OPEN, {"/feed": Reply(_PAGE, content_type="text/html")}),
    ]  # fmt: skip


def _robots() -> list[Site]:
    kept = Reply(_NOT_HERE, etag='"r1"')
    return [
        _site("rules", _RULES, "feed", "deep/feed"),
        _site("night", "User-agent: *\nVisit-time: 0300-2300\n", "feed"),
        _site("later", closing_later, "feed", "other"),
        _site("unchanged", kept, "feed", "no"),
        _site("broken", failing, "feed", "no"),
        _site("mirrored", redirect("http://delay.example/rules", 302), "feed", "no"),
        *(
            Site(name, robots, {f"/{path}": _feed("ports") for path in ("feed", "secret")})
            for name, robots in (("ports.example", by_scheme), ("ports.example:8080", _NO_SECRET))
        ),
    ]  # fmt: skip


def _paced() -> list[Site]:
    numbers = [str(number) for number in range(3)]
    return [
        _site("delay", _DELAYS, *numbers, rules=f"# Mirrored\n{_NOT_HERE}"),
        _site("rate", "User-agent: *\nRequest-rate: 1/7\n", *numbers),
        _site("slow", Reply(_OPEN, delay=5.0),
              **{number: _feed("slow", delay=5.0) for number in numbers}),
        *(Site(host, _OPEN, dict.fromkeys(("/feed", "/more"), _feed("bot"))) for host in BOT_HOSTS),
    ]  # fmt: skip


def _refusing() -> list[Site]:
    hour = Reply("Too many requests.\n", 429, headers={"Retry-After": "3600"})
    later = Reply("Back in two days.\n", 503, headers={"Retry-After": "150000"})
    tired = Reply("Back soon.\n", 503)
    return [
        *(_site(f"busy{n}", _OPEN, "more", feed=[hour, _feed(f"busy{n}")]) for n in range(3)),
        *(_site(f"tired{n}", _OPEN, "more", feed=[*[tired] * 3, _feed("tired")]) for n in range(8)),
        *(_site(f"never{n}", _OPEN, feed=tired, more=tired) for n in range(3)),
        _site("dated", _OPEN, "more", feed=[until_date, _feed("dated")]),
        _site("restart", _OPEN, "more", feed=[later, _feed("restart")]),
    ]


def _hops() -> list[Site]:
    here = redirect("/feed", 302)
    there = redirect("http://steady.example/there", 302)
    waits = {"Location": WAITED_FOR, "Retry-After": f"{REDIRECT_SECONDS:.0f}"}
    return [
        _site("hops", _OPEN, "feed", here=here, there=there,
              waits=Reply(status=302, headers=waits, content_type=None),
              denied=redirect("http://rules.example/deep/feed", 302),
              out=redirect("http://www.out.example/feed", 302),
              private=redirect("http://10.1.2.3/feed", 302)),
        Site("10.1.2.3", _OPEN, {"/feed": _feed("intranet")}),
        *(
            _site(name, _OPEN, **{f"{number}": redirect(f"http://{other}.example/{number + 1}", 302)
                                  for number in range(12)})
            for name, other in (("ping", "pong"), ("pong", "ping"))
        ),
    ]  # fmt: skip


def _feedless() -> list[Site]:
    page = Reply(_PAGE, content_type="text/html; charset=utf-8")
    listed = Reply(_LINKS, content_type="text/markdown")
    text = {"/": page, "/llms.txt": Reply(_LINKS), "/llms-full.txt": Reply(_LINKS * 9)}
    return [
        Site("text.example", _OPEN, text),
        Site("markdown.example", _OPEN, {"/": listed, "/llms-full.txt": Reply(_LINKS * 9)}),
    ]


#: The runs of the trial. A kill has no place in simulated time.
_RUNS: Final = (Run.FIRST, Run.AGAIN, Run.FORCED, Run.RESTARTED)
#: Seconds before the last run: a Retry-After of an hour that is cut to minutes is over by then.
_NEARLY_AN_HOUR: Final = 3000.0
#: Seconds: so short that few retries wait in a queue, where their pauses could not be seen.
_LATENCY: Final = 0.005
_AGENT: Final = "https://bot.example/.well-known/http-message-signatures-directory"
#: Of the kind "feed" and of the kind "llms": which spider visits them.
_SPIDERS: Final = {"feeds": "feed", "llms": "llms"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one scenario, one rule or one row of the audit says."""

    name: str
    verdict: str  #: "pass", "fail" or "not applicable"; of the audit "holds" or else
    level: str = "MUST"
    reason: str = ""


class Acceptance:
    """The crawls of one web over one state, and what is found."""

    def __init__(self, simulation: Simulation, folder: Path) -> None:
        self._simulation = simulation
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._state = f"sqlite:///{folder}/walsh.sqlite3"
        self.errors: list[str] = []  #: each traceback in a log
        self.items = Counter[tuple[str, ...]]()  #: how often each source gave each entry

    async def crawl(
        self, spider: str, sources: Iterable[SourceLike], settings: Mapping[str, object],
        **arguments: str,
    ) -> list[Hit]:  # fmt: skip
        """Run one crawl of these sources, and return what the web saw."""
        place = Path(tempfile.mkdtemp(prefix="run-", dir=self._folder))
        # One file for all runs, so that the state sees an edit of it.
        declared = write_sources(self._folder / f"{spider}.toml", sources)
        given = {
            "WALSH_SOURCES": str(declared),
            "WALSH_STATE_URL": self._state,
            "WALSH_BLOCKLIST_SCHEMA_URL": "",
        }
        result = await self._simulation.crawl(spider, given | dict(settings), arguments, place)
        _, found, trace = result.stderr.partition("Traceback (most recent call last)")
        self.errors += [trace[-400:]] if found else []
        self.items.update((item["source"], item["id"], item["url"]) for item in result.items)
        return result.log

    def column(self, query: str) -> list[str]:
        """Return the first column of a query to the state."""
        with closing(sqlite3.connect(self._folder / "walsh.sqlite3")) as connection:
            return [row[0] for row in connection.execute(query)]

    def audited(self) -> Iterator[Finding]:
        """Yield what the audit of the state says of each row of the checklist."""
        now = self._simulation.clock.now() + 3 * DAY
        with closing(State(self._state)) as state, state.log() as log:
            rows = attest(log, now).rows
        for row in rows:
            kinds = [
                _named(row_finding["kind"], row_finding["level"]) for row_finding in row["findings"]
            ]
            yield Finding(f"row {row['row']}", row["verdict"], reason=", ".join(kinds))


def _named(name: str, level: str) -> str:
    return name if level == "MUST" else f"{name} ({level})"


async def trial(folder: Path, clock: SimulatedTime) -> list[Finding]:
    """Crawl and judge the scenarios of the conformance test."""
    served = {site.name: site for scenario in SCENARIOS for site in scenario.sites}
    acceptance = Acceptance(Simulation(served.values(), clock, _LATENCY), folder)
    key, file = Ed25519PrivateKey.generate(), folder / "key.pem"
    file.touch(0o600)
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    settings = {
        "WALSH_BLOCKLIST_URL": BLOCKLIST_URL,
        "WALSH_SIGNING_KEY": str(file),
        "WALSH_SIGNATURE_AGENT": _AGENT,
    }
    seen: list[Seen] = []
    for run in _RUNS:
        if run is Run.RESTARTED:
            clock.at += _NEARLY_AN_HOUR
        force = {} if run is Run.AGAIN else {"force": "1"}
        mine = [scenario for scenario in SCENARIOS if run in scenario.runs]
        for spider, kind in _SPIDERS.items():
            urls = [
                url
                for scenario in mine
                for url in (scenario.seeds if kind == "feed" else scenario.pages)
            ]
            if sources := [{"url": url, "kind": kind} for url in dict.fromkeys(urls)]:
                hits = await acceptance.crawl(spider, sources, settings, **force)
                seen += (Seen(hit, run, hit.started) for hit in hits)
    everything, declared = tuple(seen), declared_by(SCENARIOS)
    found = []
    for scenario in SCENARIOS:
        log = TrialLog(
            everything, scenario.hosts, key=key.public_key(), has_proxy=True, declared=declared
        )
        finding = scenario.check(log)
        found.append(Finding(scenario.name, finding.verdict, scenario.level, finding.reason))
    return [*found, *acceptance.audited(), *_crashes(acceptance)]


async def days(folder: Path, clock: SimulatedTime) -> list[Finding]:
    """Crawl and judge the web of days."""
    simulation = Simulation(sites(), clock)
    acceptance = Acceptance(simulation, folder)
    runs: list[list[Hit]] = []
    begun = clock.at
    for start in STARTS:
        clock.at = max(clock.at, start)
        every = {"every": "P3D"} if start > DAY else {}
        sources = [*SOURCES, {"url": EDITED, **every}]
        runs.append(await acceptance.crawl("feeds", sources, {"WALSH_BLOCKLIST_URL": LIST_URL}))
    for start in PAGE_STARTS:
        clock.at = max(clock.at, start)
        runs.append(await acceptance.crawl("llms", PAGES, {"WALSH_BLOCKLIST_URL": LIST_URL}))
    seen = [hit for run in runs for hit in run]
    bot = Acceptance(simulation, folder / "bot")
    bot_hits = await bot.crawl("feeds", BOT_SOURCES, BOT)
    broken = [
        *_contract_faults(seen),
        *_project_faults(seen, begun),
        *_retry_faults(runs),
        *_state_faults(acceptance, seen),
    ]
    broken += violations(
        bot_hits,
        user_agent=BOT["WALSH_USER_AGENT"],
        serial=False,
        crawl_delays=dict.fromkeys(BOT_HOSTS, BOT_DELAY),
        pace_by=lambda host: ".".join(host.split(".")[-2:]),
    )
    sentences = {f"R{number}": list[str]() for number in range(1, 9)}
    for sentence in broken:
        sentences[sentence[:2]].append(sentence)
    findings = [
        Finding(rule, "fail" if reasons else "pass", reason=reasons[0] if reasons else "")
        for rule, reasons in sentences.items()
    ]
    return [*findings, *acceptance.audited(), *_crashes(acceptance), *_crashes(bot)]


def _contract_faults(seen: Sequence[Hit]) -> Iterator[str]:
    """Yield a sentence for each violation of the contract that the log of the web shows."""
    yield from violations(
        seen,
        crawl_delays={"delay.example": 12.0, "rate.example": 7.0, "slow.example": 5.0},
        blocked=["out.example"],
        denied=[
            "http://unchanged.example/no$",
            "http://broken.example/no$",
            "http://mirrored.example/no$",
            "http://ports.example:8080/secret$",
            "https://ports.example/secret$",
        ],
        declared=DECLARED,
        robots_exempt=[LIST_URL],
        robots_ttl=DAY,
        documents_ttl=6 * HOUR,
        conditional=True,
    )
    pages = [hit for hit in seen if hit.url != LIST_URL]
    of_edited = [hit for hit in seen if hit.url == EDITED]
    later = [hit for hit in seen if hit.started > 2 * DAY]
    checks: list[tuple[Rule, Sequence[Hit], Manners]] = [
        (not_too_often, pages, Manners(revisit=DAY)),
        (not_too_often, of_edited, Manners(revisit=EDITED_EVERY)),
        (robots_obeyed, later, Manners(denied=[CLOSED])),
        *((backed_off, row, Manners(backoff=2.0)) for row in _rows(seen)),
    ]
    for rule, hits, manners in checks:
        yield from (violation.sentence for violation in rule(hits, manners))


def _rows(seen: Iterable[Hit]) -> list[list[Hit]]:
    """Return the log in parts. Between them no request came until a row of refusals had ended.

    A host counts as one URL in them, because whatever it refuses belongs to its row.
    """
    rows: list[list[Hit]] = [[]]
    for hit in seen:
        if rows[-1] and hit.started - rows[-1][-1].ended > QUIET:
            rows.append([])
        rows[-1].append(replace(hit, path="/"))
    return rows


def _project_faults(seen: Sequence[Hit], begun: float) -> Iterator[str]:
    """Yield a sentence for each promise of this project, beyond the contract, that is broken."""
    urls = Counter(hit.url for hit in seen)
    if seen[0].started - begun >= 1.0:
        yield "R4: the first request to a host is held back"
    if urls[GONE] > 1:
        yield f"R8: {GONE} is requested again, although it is gone (410)"
    for url in NEVER_FOLLOWED:
        if urls[url]:
            yield f"R6: a redirect is followed to {url}"
    for hit in seen:
        if hit.url == NIGHT and int(hit.wall % DAY) // 60 not in OPEN_MINUTES:
            yield f"R2: {NIGHT} is requested outside of its Visit-time"
    ends = [hit.ended for hit in seen if hit.url == WAITS]
    hops = [hit.started for hit in seen if hit.url == WAITED_FOR]
    if any(hop - end < REDIRECT_SECONDS for end, hop in zip(ends, hops, strict=False)):
        yield f"R5: {WAITED_FOR} is requested before the Retry-After of its redirect ends"


def _retry_faults(runs: Iterable[Sequence[Hit]]) -> Iterator[str]:
    """Yield a sentence for each URL that one run requested too often, though it was refused."""
    for run in runs:
        for violation in backed_off(run, Manners(max_retries=MAX_RETRIES)):
            yield violation.sentence


def _state_faults(acceptance: Acceptance, seen: Iterable[Hit]) -> Iterator[str]:
    """Yield a sentence for each row that is missing, or has too much, and for repeated items."""
    logged = Counter(acceptance.column("SELECT url FROM requests"))
    for url in Counter(hit.url for hit in seen) - logged:
        yield f"R4: the request log has not all requests of {url}"
    columns = {
        name for item in acceptance.column("SELECT item FROM entries") for name in json.loads(item)
    }
    for name in columns - {field.name for field in fields(EntryItem)}:
        yield f"R6: entries have {name}"
    for (source, *_), count in acceptance.items.items():
        if count > 1:
            yield f"R7: an entry of {source} is reported {count} times"


def _crashes(acceptance: Acceptance) -> list[Finding]:
    return [Finding("crash", "fail", reason=error) for error in acceptance.errors]


PARTS: Final = {"trial": trial, "days": days}


def main(folder: Path, parts: Iterable[str]) -> None:
    """Run these parts, each from the same moment on, and write what it found into the folder."""
    for part in parts:
        place = folder / part
        place.mkdir(parents=True)
        found = simulate_here(partial(PARTS[part], place))
        text = json.dumps([asdict(finding) for finding in found], indent=1)
        (folder / f"{part}.json").write_text(text, "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
