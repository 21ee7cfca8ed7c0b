"""Random days: what happens to the crawls of a few simulated days, drawn from a seed.

`draw` is a pure function from a seed to `Days`, which are plain data: their `repr` is a case that
outlives every change of `draw`. A page changes at moments, in seconds since the first crawl by the
true time of the servers. The clock of the crawler is `ahead` of that, and is set between crawls.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import formatdate
from functools import partial
from random import Random
from typing import Final, TypeAlias

from walsh_scrapy.testing.feeds import Post, rss
from walsh_scrapy.testing.hit import Hit
from walsh_scrapy.testing.simulated import LATENCY
from walsh_scrapy.testing.site import Fault, Page, Reply, Site, redirect

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
LIST_HOST: Final = "operator.example"
LIST_URL: Final = f"http://{LIST_HOST}/blocklist.json"
REFRESH: Final = 6 * HOUR
#: No redirect of a public host may lead there.
PRIVATE_HOST: Final = "10.1.2.3"
#: Where a redirected robots.txt is; no source is there.
RULES_PATH: Final = "/rules.txt"
#: A page answers no sooner than this, which is more than any timeout.
_NEVER: Final = 500.0
#: Seconds between two posts of a feed.
_POST_EVERY: Final = 12 * HOUR


@dataclass(frozen=True, slots=True)
class Answer:
    """What a page answers: a feed, unless its fields say something else."""

    status: int = 200
    retry_after: int | None = None  #: seconds
    as_date: bool = False  #: whether Retry-After is a date
    to: str | None = None  #: the URL to which a redirect leads
    fault: str | None = None  #: the name of a `Fault`
    delay: float = 0.0  #: seconds until it comes
    has_etag: bool = False

    def __str__(self) -> str:
        words = [str(self.status)]
        if self.fault:
            words = [f"no whole answer ({self.fault})"]
        if self.to:
            words.append(f"to {self.to}")
        if self.retry_after is not None:
            words.append(f"with Retry-After {self.retry_after}{' as a date' * self.as_date}")
        if self.delay:
            words.append(f"after {self.delay:g} s")
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Robots:
    """A robots.txt."""

    disallow: tuple[str, ...] = ()
    crawl_delay: int = 0
    rate: int = 0  #: seconds for one document
    opens: tuple[int, int] | None = None  #: the first and the last hour of its Visit-time
    is_named: bool = False  #: the group is for this bot, and another one denies all to others
    has_etag: bool = False

    @property
    def delay(self) -> float:
        """The seconds that it asks for between two requests."""
        return float(max(self.crawl_delay, self.rate))

    def __str__(self) -> str:
        lines = ["User-agent: *", "Disallow: /", ""] if self.is_named else []
        lines += [f"User-agent: {'Walsh-Research' if self.is_named else '*'}"]
        lines += [f"Disallow: {path}" for path in self.disallow] or ["Disallow:"]
        lines += [f"Crawl-delay: {self.crawl_delay}"] if self.crawl_delay else []
        lines += [f"Request-rate: 1/{self.rate}"] if self.rate else []
        if self.opens:
            first, last = self.opens
            lines += [f"Visit-time: {first:02}00-{last:02}00"]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class OptOuts:
    """The domains on the blocklist; a list that is not valid is cut short."""

    domains: tuple[str, ...] = ()
    is_valid: bool = True

    def __str__(self) -> str:
        return f"{'' if self.is_valid else 'a broken '}list of {', '.join(self.domains) or 'none'}"


@dataclass(frozen=True, slots=True)
class Phase:
    """What a page is from a moment on."""

    since: float
    page: Answer | Robots | OptOuts


#: The phases of a page, in their order; the first one begins at 0.
Phases: TypeAlias = tuple[Phase, ...]


@dataclass(frozen=True, slots=True)
class Host:
    """A host with its robots.txt and its pages by their paths."""

    name: str
    robots: Phases
    pages: tuple[tuple[str, Phases], ...]


@dataclass(frozen=True, slots=True)
class Kill:
    """A worker is killed after its n-th request was sent or answered: turns and seconds later."""

    request: int
    is_answered: bool
    turns: int
    seconds: float

    def __str__(self) -> str:
        done = "answered" if self.is_answered else "sent"
        return f"killed {self.turns} turns and {self.seconds:g} s after {done} {self.request}"


@dataclass(frozen=True, slots=True)
class Worker:
    """One process of a crawl, which starts some seconds after it."""

    late: float = 0.0
    kill: Kill | None = None


@dataclass(frozen=True, slots=True)
class Crawl:
    """One or two workers that crawl the same sources at once."""

    at: float
    sources: tuple[str, ...]
    workers: tuple[Worker, ...] = (Worker(),)
    ahead: float = 0.0  #: seconds by which their clock is ahead
    force: bool = False

    def __str__(self) -> str:
        workers = "; ".join(
            f"a worker {worker.late:g} s later{f', {worker.kill}' * bool(worker.kill)}"
            for worker in self.workers
        )
        forced = ", forced" * self.force
        return f"crawl{forced}, clock {self.ahead:+g} s, of {', '.join(self.sources)}: {workers}"


@dataclass(frozen=True, slots=True)
class Act:
    """What the operator does: `release` or `delay` a host, or `resume` a source."""

    at: float
    what: str
    subject: str
    seconds: float = 0.0
    ahead: float = 0.0

    def __str__(self) -> str:
        return f"the operator: {self.what} {self.subject} {self.seconds or ''}".rstrip()


Step: TypeAlias = Crawl | Act


@dataclass(frozen=True, slots=True)
class Days:
    """All that happens in a few days."""

    hosts: tuple[Host, ...]
    blocklist: Phases
    steps: tuple[Step, ...]


def describe(days: Days) -> Iterator[str]:
    """Yield the days in words, line by line."""
    pages = [(LIST_URL, days.blocklist)]
    for host in days.hosts:
        pages.append((f"http://{host.name}/robots.txt", host.robots))
        pages += [(f"http://{host.name}{path}", phases) for path, phases in host.pages]
    for url, phases in pages:
        for phase in phases:
            shown = str(phase.page).replace("\n", " | ")
            yield f"{shown_time(phase.since)}  {url}: {shown}"
    for step in days.steps:
        yield f"{shown_time(step.at)}  {step}"


def shown_time(at: float) -> str:
    """Return a moment as days, hours, minutes and seconds."""
    minutes, seconds = divmod(at, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours // 24}d {hours % 24:02}:{minutes:02}:{seconds:06.3f}"


# ---- the web of some days ----


def sites(days: Days) -> Iterator[Site]:
    """Yield the sites, whose pages depend on the true time alone."""
    pages = {"/blocklist.json": partial(_page, days.blocklist)}
    yield Site(LIST_HOST, "User-agent: *\nDisallow:\n", pages)
    yield Site(PRIVATE_HOST, None, {"/feed": "intranet"})
    for host in days.hosts:
        pages = {path: partial(_page, phases) for path, phases in host.pages}
        yield Site(host.name, partial(_page, host.robots), pages)


def phase_at(phases: Phases, at: float) -> Phase:
    """Return the phase of a page at a moment."""
    return [phase for phase in phases if phase.since <= max(0.0, at)][-1]


def _page(phases: Phases, hit: Hit) -> Page:
    phase = phase_at(phases, hit.started)
    page = phase.page
    if isinstance(page, Robots):
        etag = f'"robots-{phase.since:g}"' if page.has_etag else None
        return Reply(f"{page}\n", etag=etag)
    if isinstance(page, OptOuts):
        return _blocklist(page, phase.since)
    if page.to:
        return _with_retry_after(redirect(page.to, page.status), page, hit)
    if page.status != 200:
        return _with_retry_after(Reply("No.\n", page.status, delay=page.delay), page, hit)
    number = posts_until(hit.started)
    return Reply(
        rss(hit.host, _posts(hit, number), f"http://{hit.host}/"),
        content_type="application/rss+xml",
        etag=f'"{hit.path}-{number}"' if page.has_etag else None,
        fault=Fault[page.fault] if page.fault else None,
        delay=page.delay,
    )


def _with_retry_after(reply: Reply, answer: Answer, hit: Hit) -> Reply:
    if answer.retry_after is None:
        return reply
    value = str(answer.retry_after)
    if answer.as_date:
        value = formatdate(hit.wall + answer.retry_after, usegmt=True)
    headers = [*reply.header_pairs(), ("Retry-After", value)]
    return Reply(reply.body, reply.status, None, headers, delay=reply.delay)


def posts_until(at: float) -> int:
    """Return the number of the newest post at a moment."""
    return int(at // _POST_EVERY) + 2


def _posts(hit: Hit, number: int) -> list[Post]:
    link = f"http://{hit.host}{hit.path}"
    return [Post(f"{link} {post}", f"{link}/{post}") for post in range(number, number - 2, -1)]


def _blocklist(opt_outs: OptOuts, since: float) -> Reply:
    document = {
        "contract": "walsh-research-blocklist/v1",
        "updated": "2026-05-23T00:00:00Z",
        "refresh": f"PT{REFRESH / HOUR:g}H",
        "blocked": [{"domain": name, "added": "2026-05-23"} for name in opt_outs.domains],
    }
    body = json.dumps(document)
    body = body if opt_outs.is_valid else body[:-9]
    return Reply(body, content_type="application/json", etag=f'"list-{since:g}"')


# ---- the draw ----

_PATHS: Final = ("/feed", "/more", "/private/feed")
_GAPS: Final = (20.0, 300.0, 0.7 * HOUR, 2 * HOUR, 7 * HOUR, 20 * HOUR, 25 * HOUR, 49 * HOUR)
_CLOCK_STEPS: Final = (-5 * HOUR, -HOUR, -30.0, -2.0, 2.0, 30.0, HOUR, 5 * HOUR)
#: Much more would be a wrong date, which no Retry-After date survives.
_MAX_AHEAD: Final = 18 * HOUR


def draw(seed: int) -> Days:
    """Return the days of a seed."""
    return _Draw(Random(seed)).days()


class _Draw:
    """Draws some days. Most of what happens is what a crawler meets every day."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._names = ["a.example", "b.example", "sub.b.example", "c.example", "d.example"]
        self._names = self._names[: random.randint(3, 5)]
        self._starts = [0.0]
        for _ in range(random.choice((1, 2, 2, 3, 3, 4))):
            self._starts.append(self._starts[-1] + random.choice(_GAPS))

    def days(self) -> Days:
        hosts = tuple(self._host(name) for name in self._names)
        return Days(hosts, self._blocklist(), tuple(self._steps(hosts)))

    def _is(self, chance: float) -> bool:
        return self._random.random() < chance

    def _moment(self) -> float:
        """Return when something changes: before a crawl, or in it."""
        start = self._random.choice(self._starts)
        return max(0.0, start + self._random.choice((-1.0, -1.0, 3.0, 8.0, 30.0)))

    def _phases(self, first: Answer | Robots | OptOuts, *others: Answer | Robots | OptOuts):
        moments = sorted(self._moment() for _ in others)
        phases = [Phase(0.0, first)]
        for moment, other in zip(moments, others, strict=True):
            if moment > phases[-1].since:
                phases.append(Phase(moment, other))
        return tuple(phases)

    # ---- hosts ----

    def _host(self, name: str) -> Host:
        paths = _PATHS[: self._random.choice((1, 2, 2, 3))]
        pages = []
        for path in paths:
            answers = [self._answer(name)]
            answers += [self._answer(name) for _ in range(self._random.choice((0, 1, 1, 2)))]
            pages.append((path, self._phases(*answers)))
        pages.append((RULES_PATH, self._phases(self._rules())))
        files = [self._robots(name) for _ in range(self._random.choice((1, 1, 2, 3)))]
        return Host(name, self._phases(*files), tuple(pages))

    def _answer(self, name: str) -> Answer:
        random = self._random
        if self._is(0.5):
            return Answer(has_etag=self._is(0.5))
        kind = random.choice(("refusal", "refusal", "redirect", "redirect", "error", "fault"))
        if kind == "refusal":
            return self._refusal()
        if kind == "redirect":
            asked = random.choice((20, 400)) if self._is(0.1) else None
            status = random.choice((301, 302, 307, 308))
            return Answer(status, asked, to=self._target(name))
        if kind == "error":
            asked = random.choice((30, 5000)) if self._is(0.2) else None
            return Answer(random.choice((404, 403, 410, 500, 500, 502)), asked)
        if self._is(0.3):
            return Answer(delay=random.choice((4.0, 25.0, _NEVER)))
        return Answer(fault=random.choice(tuple(Fault)).name)

    def _refusal(self) -> Answer:
        asked = self._random.choice((None, None, 1, 15, 120, 1200, 4000, 30 * 3600))
        as_date = asked is not None and self._is(0.4)
        return Answer(self._random.choice((429, 503)), asked, as_date)

    def _target(self, name: str) -> str:
        """Return where a redirect leads: mostly to another host, sometimes to its own page."""
        if self._is(0.05):
            return f"http://{PRIVATE_HOST}/feed"
        other = self._random.choice([*self._names, name])
        scheme = "https" if self._is(0.15) else "http"
        return f"{scheme}://{other}{self._random.choice(_PATHS)}"

    def _robots(self, name: str) -> Answer | Robots:
        if self._is(0.75):
            return self._rules()
        if self._is(0.3):
            other = self._random.choice(self._names)
            return Answer(302, to=f"http://{other}{RULES_PATH}")
        if self._is(0.4):
            return self._refusal()
        return Answer(self._random.choice((404, 403, 500, 500)))

    def _rules(self) -> Robots:
        random = self._random
        opens = random.choice(((0, 12), (6, 20), (8, 9))) if self._is(0.12) else None
        return Robots(
            ("/",) if self._is(0.06) else random.choice(((), ("/private/",), ("/more",))),
            random.choice((0, 0, 0, 2, 5, 40, 1000)),
            random.choice((0, 0, 0, 0, 7)),
            opens,
            is_named=self._is(0.3),
            has_etag=self._is(0.3),
        )

    def _blocklist(self) -> Phases:
        lists: list[Answer | OptOuts] = [OptOuts(self._domains())]
        lists += [self._later_list() for _ in range(self._random.choice((0, 1, 1, 2)))]
        if self._is(0.15):
            self._random.shuffle(lists)
        return self._phases(*lists)

    def _later_list(self) -> Answer | OptOuts:
        others = (
            OptOuts(self._domains()),
            OptOuts(self._domains()),
            OptOuts(self._domains(), is_valid=False),
            Answer(500),
            Answer(404),
            Answer(fault=Fault.CLOSE.name),
            Answer(503, 40000 if self._is(0.5) else 20),
            Answer(delay=_NEVER),
        )
        return self._random.choice(others)

    def _domains(self) -> tuple[str, ...]:
        return tuple(name for name in self._names if self._is(0.15))

    # ---- steps ----

    def _steps(self, hosts: tuple[Host, ...]) -> Iterator[Step]:
        urls = [
            f"http://{host.name}{path}"
            for host in hosts
            for path, _ in host.pages
            if path != RULES_PATH
        ]
        declared = [url for url in urls if self._is(0.85)] or urls
        ahead = 0.0
        for number, start in enumerate(self._starts):
            if number and self._is(0.3):
                declared = [url for url in urls if (url in declared) != self._is(0.2)] or urls
            if number and self._is(0.2):
                step = self._random.choice(_CLOCK_STEPS)
                ahead = max(-_MAX_AHEAD, min(_MAX_AHEAD, ahead + step))
            if number and self._is(0.25):
                yield self._act(start - 2.0, urls, ahead)
            # Otherwise most crawls within a day would have nothing to do.
            force = bool(number) and self._is(0.6 if start - self._starts[0] < DAY else 0.3)
            yield Crawl(start, tuple(declared), tuple(self._workers()), ahead, force)

    def _workers(self) -> Iterator[Worker]:
        yield Worker(0.0, self._kill() if self._is(0.2) else None)
        if self._is(0.2):
            late = self._random.choice((0.5, 3.0, 20.0))
            yield Worker(late, self._kill() if self._is(0.3) else None)

    def _kill(self) -> Kill:
        random = self._random
        is_answered = self._is(0.6)
        seconds = random.choice((0.0, 0.0, 0.5, 2.0)) if is_answered else LATENCY / 2
        return Kill(random.randint(1, 9), is_answered, random.randint(0, 6), seconds)

    def _act(self, at: float, urls: list[str], ahead: float) -> Act:
        what = self._random.choice(("release", "resume", "delay"))
        if what == "resume":
            return Act(at, what, self._random.choice(urls), 0.0, ahead)
        seconds = self._random.choice((0.0, 8.0, 50.0)) if what == "delay" else 0.0
        return Act(at, what, self._random.choice(self._names), seconds, ahead)
