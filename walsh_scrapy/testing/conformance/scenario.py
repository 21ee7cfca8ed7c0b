"""A scenario: simulated hosts with a requirement, and the check of their log.

The hosts have names under `.example`. In front of a web without names the same scenarios have
addresses in their place: see `walsh_scrapy.testing.conformance.crawler`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Unpack

from walsh_scrapy.testing.checks import TRIAL
from walsh_scrapy.testing.feeds import Post, rss
from walsh_scrapy.testing.politeness import Manners
from walsh_scrapy.testing.site import Certificate, Reply, Site, redirect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    from walsh_scrapy.testing.hit import ConnectionRecord, Hit
    from walsh_scrapy.testing.politeness import Rule, Terms
    from walsh_scrapy.testing.site import Page

#: The manners of every crawler. It may measure its delays from the start of one request to the
#: start of the next, and they may look a little shorter to a server than they were.
_MANNERS: Final = Manners(
    serial=False, precision=TRIAL, from_start=True, robots_delayed=False, conditional=True
)
#: Headers of a request and of a response that prove something, shown with its line.
_TELLING: Final = (
    "Cookie",
    "Referer",
    "Authorization",
    "If-None-Match",
    "If-Modified-Since",
    "Signature-Input",
)
_TOLD: Final = ("Retry-After", "Location", "ETag", "Last-Modified")
_MOST_LINES: Final = 8
_COMPATIBLE: Final = re.compile(r"\bcompatible;\s*([A-Za-z_-]+)")
_FIRST: Final = re.compile(r"([A-Za-z][A-Za-z_-]*)")
_BEFORE_PAGE: Final = re.compile(r"([A-Za-z_-]+)/[\w.]+[;,]?\s*\(?\+?https?://")
_MOZILLA: Final = "mozilla"


class Run(StrEnum):
    """One call of the command; all calls have the same folder."""

    FIRST = "first"
    AGAIN = "again"  #: at once, when no source is due yet
    FORCED = "forced"  #: at once, and the command must visit them all the same
    KILLED = "killed"  #: ended by SIGKILL between two requests to a host
    RESTARTED = "restarted"  #: at once after that


class Verdict(StrEnum):
    """The result of one scenario, by the log."""

    PASS = "pass"  # noqa: S105 - no secret
    FAIL = "fail"
    NOT_APPLICABLE = "not applicable"  #: the crawler never came to where it could have failed
    NOT_RUN = "could not run"  #: the time of the run was over before


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A verdict, its reason as a sentence without a full stop, and the lines that prove it."""

    verdict: Verdict
    reason: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """One request, the run it belongs to, and the seconds since the trial began."""

    hit: Hit
    run: Run
    at: float
    original: Hit | None = None  #: as it was sent, if that was to an address

    @property
    def as_sent(self) -> Hit:
        """The request as it was sent: signatures are for the address, not for the name."""
        return self.original or self.hit

    @property
    def is_robots(self) -> bool:
        """True for a request of a robots.txt."""
        return self.hit.path == "/robots.txt"

    def line(self) -> str:
        """Return the request as a line of a log, with the headers that may prove something."""
        hit = self.hit
        sent = [f"{name}: {value}" for name in _TELLING if (value := hit.header(name))]
        got = [f"{name}: {value}" for name in _TOLD if (value := hit.answered(name))]
        parts = [f"{self.at:8.3f} s", self.run, hit.method, hit.url, *sent, "->"]
        return " ".join([*parts, str(hit.status or "no answer"), *got])


@dataclass(frozen=True, slots=True)
class TrialLog:
    """The requests of a trial, in the order of their start: of all runs, hosts, schemes and ports.

    `contacts` are the requests and the connections on which none came.
    """

    everything: tuple[Seen, ...]
    hosts: frozenset[str]  #: of the scenario that is checked
    connections: tuple[ConnectionRecord, ...] = ()
    silent: tuple[Seen, ...] = ()  #: connections without a request
    user_agent: str | None = None  #: that the caller expects, None if any
    key: Ed25519PublicKey | None = None  #: of the private key that the command was given
    has_proxy: bool = False  #: the hosts have names then, and connections are those to the proxy
    declared: frozenset[str] = frozenset()  #: URLs that the command was given, of all scenarios

    @property
    def contacts(self) -> list[Seen]:
        """Every request, and every connection without one, in the order of their start."""
        return sorted([*self.everything, *self.silent], key=lambda each: each.hit.started)

    def contacts_here(self) -> list[Seen]:
        """Return those of the scenario's hosts."""
        return [each for each in self.contacts if each.hit.host in self.hosts]

    def seen(self, *runs: Run, host: str | None = None) -> list[Seen]:
        """Return the requests to the scenario's hosts, or to one, in these runs (default: all)."""
        hosts = self.hosts if host is None else {host}
        return [
            each
            for each in self.everything
            if each.hit.host in hosts and (not runs or each.run in runs)
        ]

    def pages(self, *runs: Run, host: str | None = None) -> list[Seen]:
        """Return the same without robots.txt."""
        return [each for each in self.seen(*runs, host=host) if not each.is_robots]


def passed(reason: str, seen: Iterable[Seen] = ()) -> Conclusion:
    """Return a pass."""
    return Conclusion(Verdict.PASS, reason, _lines(list(seen)))


def failed(reason: str, seen: Iterable[Seen]) -> Conclusion:
    """Return a failure, proved by these requests."""
    return Conclusion(Verdict.FAIL, reason, _lines(list(seen)))


def failed_by(
    rule: Rule,
    seen: Sequence[Seen],
    reason: str = "",
    after: Sequence[Seen] = (),
    **terms: Unpack[Terms],
) -> Conclusion | None:
    """Return a failure if these requests break a rule of `walsh_scrapy.testing`.

    Without a reason, that of the rule is used. `after` are requests to show before those that break
    it, `terms` are fields of `Manners`.
    """
    manners = replace(_MANNERS, **terms)
    if not (found := list(rule([each.hit for each in seen], manners))):
        return None
    proof = [seen[place] for each in found for place in each.places]
    return failed(reason or found[0].sentence.partition(": ")[2], [*after, *proof])


def kept(
    rule: Rule,
    good: str,
    *,
    of: Callable[[TrialLog], Sequence[Seen]],
    needs: Callable[[TrialLog], str],
    why: str = "",
    shows: Callable[[TrialLog], Iterable[Seen]] = lambda _: (),
    **terms: Unpack[Terms],
) -> Callable[[TrialLog], Conclusion]:
    """Return the check of one rule of `walsh_scrapy.testing`.

    It fails if these requests break the rule: `why`, or the sentence of the rule. Otherwise `needs`
    returns the missing part for a verdict, "" if none; then it passes, proved by `shows`.
    """

    def check(evidence: TrialLog) -> Conclusion:
        if fault := failed_by(rule, of(evidence), why, **terms):
            return fault
        if lacking := needs(evidence):
            return not_applicable(lacking)
        return passed(good, shows(evidence))

    return check


def needs_pages(number: int, lacking: str, *runs: Run) -> Callable[[TrialLog], str]:
    """Return a need of `kept`: so many pages of the scenario's hosts were requested."""
    return lambda evidence: lacking if len(evidence.pages(*runs)) < number else ""


def everything(evidence: TrialLog) -> Sequence[Seen]:
    """Return every request of the trial."""
    return evidence.everything


def not_applicable(reason: str) -> Conclusion:
    """Return that the scenario does not apply to this crawler."""
    return Conclusion(Verdict.NOT_APPLICABLE, reason)


def _lines(seen: Sequence[Seen]) -> tuple[str, ...]:
    unique = list(dict.fromkeys(each.line() for each in seen))
    more = len(unique) - _MOST_LINES
    return (*unique[:_MOST_LINES], *([f"and {more} more"] if more > 0 else []))


_FEED: Final = rss("Feed", [Post("One", link=None, id="tag:feed.example,2026:1")], "")


class Level(StrEnum):
    """The level of the contract. A scenario of MAY never fails."""

    MUST = "MUST"
    SHOULD = "SHOULD"
    MAY = "MAY"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One requirement, its sites, the URLs for the crawler, the check.

    `pages` are URLs of feed-less sites. They are given apart from the seeds, which are feeds.
    """

    name: str
    rule: str  #: R1 to R9
    asks: str  #: the requirement, as a sentence without a full stop
    check: Callable[[TrialLog], Conclusion]
    sites: tuple[Site, ...]
    seeds: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()
    runs: tuple[Run, ...] = (Run.FIRST,)
    level: Level = Level.MUST

    @property
    def hosts(self) -> frozenset[str]:
        """The names of the scenario's hosts."""
        return frozenset(site.host for site in self.sites)


def scenario(
    rule: str,
    name: str,
    asks: str,
    check: Callable[[TrialLog], Conclusion],
    *sites: Site,
    paths: Iterable[str] | None = None,
    runs: tuple[Run, ...] = (Run.FIRST,),
    level: Level = Level.MUST,
) -> Scenario:
    """Return a scenario whose seeds are these paths of its first site, by default all its pages."""
    given = sites[0].pages if paths is None else paths
    seeds = tuple(f"http://{sites[0].host}{path}" for path in given)
    return Scenario(name, rule, asks, check, sites, seeds, (), runs, level)


#: The differences between the origin of a page and the origin to which its redirect leads.
HOPS: Final = ("host", "scheme", "port")


def second_hop(name: str, kind: str, text: str, path: str) -> tuple[str, tuple[Site, ...]]:
    """Return an origin with this robots.txt and a feed, and its sites.

    The path `/1` of the first site leads to the feed in two redirects: the first one stays at its
    origin, the second one changes the host, the scheme or the port.
    """
    host = f"{name}-{kind}.example"
    origins = {
        "host": f"http://{name}-there.example",
        "scheme": f"https://{host}",
        "port": f"http://{host}:8080",
    }
    origin, rules, feeds = origins[kind], robots(text), {path: feed()}
    hops = {"/1": redirect("/2"), "/2": redirect(f"{origin}{path}")}
    if kind == "scheme":

        def by_scheme(hit: Hit) -> Page:
            return rules if hit.scheme == "https" else ""

        return origin, (Site(host, by_scheme, hops | feeds, tls=Certificate.GOOD),)
    return origin, (Site(host, "", hops), Site(origin.removeprefix("http://"), rules, feeds))


def feed(body: str = _FEED, *, etag: str | None = None, modified: str | None = None) -> Reply:
    """Return a feed without links."""
    return Reply(body, content_type="application/rss+xml", etag=etag, last_modified=modified)


def robots(text: str, *, content_type: str = "text/plain", end: str = "\n") -> Page:
    """Return a robots.txt in which `{token}` is the product token of the requesting crawler.

    `{closed}` becomes a window of Visit-time that opens in two hours. `end` is put in the place of
    each line end.
    """

    def page(hit: Hit) -> Reply:
        token = token_of(hit.header("User-Agent") or "") or "nobody"
        hour = int(hit.wall // 3600) % 24
        closed = f"{(hour + 2) % 24:02}00-{(hour + 3) % 24:02}00"
        body = text.replace("{token}", token).replace("{TOKEN}", token.upper())
        body = body.replace("{closed}", closed).replace("\n", end)
        return Reply(body.encode(), content_type=content_type)

    return page


def token_of(user_agent: str) -> str | None:
    """Return the product token: after `compatible;`, else its first word; None without one.

    Where that is the Mozilla of all browsers, the product right before a page counts.
    """
    found = _COMPATIBLE.search(user_agent) or _FIRST.search(user_agent)
    if found and found[1].lower() == _MOZILLA:
        found = _BEFORE_PAGE.search(user_agent) or found
    return found[1] if found else None
