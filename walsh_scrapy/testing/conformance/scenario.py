"""A scenario: simulated hosts with a requirement, and the check of their log.

The hosts have names under `.example`. Where the crawler must use addresses instead of names,
`walsh_scrapy.testing.conformance.crawler` translates between both.
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

#: What every crawler must respect. It may measure delays from the start of one request to the start
#: of the next, and a delay may look a little shorter to the server than it was.
_MANNERS: Final = Manners(
    serial=False, precision=TRIAL, from_start=True, robots_delayed=False, conditional=True
)
#: The headers that are shown in the log lines of a finding.
_REQUEST_HEADERS: Final = (
    "Cookie",
    "Referer",
    "Authorization",
    "If-None-Match",
    "If-Modified-Since",
    "Signature-Input",
)
_RESPONSE_HEADERS: Final = ("Retry-After", "Location", "ETag", "Last-Modified")
_MAX_LINES: Final = 8
_COMPATIBLE: Final = re.compile(r"\bcompatible;\s*([A-Za-z_-]+)")
_FIRST: Final = re.compile(r"([A-Za-z][A-Za-z_-]*)")
_BEFORE_PAGE: Final = re.compile(r"([A-Za-z_-]+)/[\w.]+[;,]?\s*\(?\+?https?://")
_MOZILLA: Final = "mozilla"


class Run(StrEnum):
    """One call of the command. All calls of a trial share a folder, and follow at once."""

    FIRST = "first"
    AGAIN = "again"  #: no source is due yet
    FORCED = "forced"  #: no source is due yet, but the command must visit all of them
    KILLED = "killed"  #: ended by SIGKILL between two requests to a host
    RESTARTED = "restarted"  #: the call after the one that was killed


class Verdict(StrEnum):
    """The result of one scenario."""

    PASS = "pass"  # noqa: S105 - no secret
    FAIL = "fail"
    NOT_APPLICABLE = "not applicable"  #: the crawler never got to where it could fail
    NOT_RUN = "could not run"  #: the run was cut short before that


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A verdict, its reason (a sentence without full stop), and the log lines that prove it."""

    verdict: Verdict
    reason: str
    lines: tuple[str, ...] = ()
    is_final: bool = False  #: True if a longer run could not lead to another verdict


@dataclass(frozen=True, slots=True)
class Seen:
    """One request of a trial."""

    hit: Hit  #: the request, with a host name even if it was sent to an address
    run: Run
    at: float  #: seconds since the trial began
    original: Hit | None = None  #: the request as it was sent, if that was to an address

    @property
    def as_sent(self) -> Hit:
        """The request as it was sent. Signatures are made for the address, not for the name."""
        return self.original or self.hit

    @property
    def is_robots(self) -> bool:
        """True for a request for robots.txt."""
        return self.hit.path == "/robots.txt"

    def line(self) -> str:
        """Return the request as a line for a report, with the headers that may prove something."""
        hit = self.hit
        sent = [f"{name}: {value}" for name in _REQUEST_HEADERS if (value := hit.header(name))]
        got = [f"{name}: {value}" for name in _RESPONSE_HEADERS if (value := hit.answered(name))]
        parts = [f"{self.at:8.3f} s", self.run, hit.method, hit.url, *sent, "->"]
        return " ".join([*parts, str(hit.status or "no answer"), *got])


@dataclass(frozen=True, slots=True)
class TrialLog:
    """The log of a trial, as the check of one scenario sees it."""

    everything: tuple[Seen, ...]  #: all requests of the trial, in the order of their start
    hosts: frozenset[str]  #: the hosts of the scenario
    connections: tuple[ConnectionRecord, ...] = ()
    silent: tuple[Seen, ...] = ()  #: connections on which no request came
    user_agent: str | None = None  #: the User-Agent that the caller expects; None for any
    key: Ed25519PublicKey | None = None  #: belongs to the private key that the command was given
    has_proxy: bool = False  #: hosts have names, and all connections are to the proxy
    declared: frozenset[str] = frozenset()  #: the URLs that the command was given or may know

    @property
    def contacts(self) -> list[Seen]:
        """All requests, and all connections without a request, in the order of their start."""
        return sorted([*self.everything, *self.silent], key=lambda request: request.hit.started)

    def contacts_here(self, url: str = "") -> list[Seen]:
        """Return the contacts with the scenario's hosts, at URLs that begin with `url`."""
        contacts = (contact for contact in self.contacts if contact.hit.host in self.hosts)
        return [contact for contact in contacts if contact.hit.url.startswith(url)]

    def seen(self, *runs: Run, host: str | None = None) -> list[Seen]:
        """Return the requests to the scenario's hosts (or to one), in these runs (or in all)."""
        hosts = self.hosts if host is None else {host}
        return [
            request
            for request in self.everything
            if request.hit.host in hosts and (not runs or request.run in runs)
        ]

    def pages(self, *runs: Run, host: str | None = None) -> list[Seen]:
        """Return the same requests as `seen`, without those for robots.txt."""
        return [request for request in self.seen(*runs, host=host) if not request.is_robots]


def passed(reason: str, requests: Iterable[Seen] = ()) -> Conclusion:
    """Return a pass, with the requests that show it."""
    return Conclusion(Verdict.PASS, reason, _lines(list(requests)))


def failed(reason: str, requests: Iterable[Seen]) -> Conclusion:
    """Return a failure, with the requests that prove it."""
    return Conclusion(Verdict.FAIL, reason, _lines(list(requests)))


def failed_by(
    rule: Rule,
    requests: Sequence[Seen],
    reason: str = "",
    after: Sequence[Seen] = (),
    **terms: Unpack[Terms],
) -> Conclusion | None:
    """Return a failure if these requests break a rule of `walsh_scrapy.testing.politeness`.

    The default reason is the sentence of the rule. The requests in `after` are shown before those
    that break the rule. `terms` are fields of `Manners`.
    """
    manners = replace(_MANNERS, **terms)
    if not (violations := list(rule([violation.hit for violation in requests], manners))):
        return None
    proof = [requests[number] for violation in violations for number in violation.places]
    return failed(reason or violations[0].sentence.partition(": ")[2], [*after, *proof])


def check_rule(
    rule: Rule,
    pass_reason: str,
    *,
    requests: Callable[[TrialLog], Sequence[Seen]],
    missing: Callable[[TrialLog], str],
    fail_reason: str = "",
    proof: Callable[[TrialLog], Iterable[Seen]] = lambda _: (),
    **terms: Unpack[Terms],
) -> Callable[[TrialLog], Conclusion]:
    """Return the check of one rule of `walsh_scrapy.testing.politeness`.

    The check fails if the `requests` break the rule, with `fail_reason` or the sentence of the
    rule. Otherwise `missing` tells why the log allows no verdict; if it returns "", the check
    passes with `pass_reason`, and the report shows the requests that `proof` returns.
    """

    def check(evidence: TrialLog) -> Conclusion:
        if fault := failed_by(rule, requests(evidence), fail_reason, **terms):
            return fault
        if reason := missing(evidence):
            return not_applicable(reason)
        return passed(pass_reason, proof(evidence))

    return check


def lacks_pages(number: int, reason: str, *runs: Run) -> Callable[[TrialLog], str]:
    """Return a `missing` for `check_rule`: fewer pages than `number` were requested."""
    return lambda evidence: reason if len(evidence.pages(*runs)) < number else ""


def everything(evidence: TrialLog) -> Sequence[Seen]:
    """Return all requests of the trial."""
    return evidence.everything


def not_applicable(reason: str, *, is_final: bool = False) -> Conclusion:
    """Return that the scenario does not apply to this crawler, for this reason.

    With `is_final` that is so even if a time limit ended the run.
    """
    return Conclusion(Verdict.NOT_APPLICABLE, reason, is_final=is_final)


def _lines(requests: Sequence[Seen]) -> tuple[str, ...]:
    unique = unique_of(request.line() for request in requests)
    more = len(unique) - _MAX_LINES
    return (*unique[:_MAX_LINES], *([f"and {more} more"] if more > 0 else []))


def unique_of(texts: Iterable[str]) -> list[str]:
    """Return each text once, in the order of the first ones."""
    unique: list[str] = []
    for text in texts:
        if text not in unique:
            unique.append(text)
    return unique


_FEED: Final = rss("Feed", [Post("One", link=None, id="tag:feed.example,2026:1")], "")


class Level(StrEnum):
    """How binding a requirement is (RFC 2119). A scenario with MAY never fails."""

    MUST = "MUST"
    SHOULD = "SHOULD"
    MAY = "MAY"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One requirement, the sites that test it, the URLs to crawl, and the check of the log.

    `seeds` are URLs of feeds, `pages` URLs of sites without a feed. The crawler gets them in two
    files.
    """

    name: str
    rule: str  #: R1 to R9
    requirement: str  #: a sentence without full stop
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
    requirement: str,
    check: Callable[[TrialLog], Conclusion],
    *sites: Site,
    paths: Iterable[str] | None = None,
    runs: tuple[Run, ...] = (Run.FIRST,),
    level: Level = Level.MUST,
) -> Scenario:
    """Return a scenario. Its seeds are `paths` of its first site, by default all its pages."""
    chosen_paths = sites[0].pages if paths is None else paths
    seeds = tuple(f"http://{sites[0].host}{path}" for path in chosen_paths)
    return Scenario(name, rule, requirement, check, sites, seeds, (), runs, level)


#: In what the target of a redirect may differ from the redirecting URL.
HOPS: Final = ("host", "scheme", "port")


def second_hop(name: str, kind: str, text: str, path: str) -> tuple[str, tuple[Site, ...]]:
    """Return an origin with this robots.txt and a feed at `path`, and the sites that lead to it.

    The path `/1` of the first site leads to the feed in two redirects. The first redirect stays at
    its origin, the second one changes the host, the scheme or the port (`kind`).
    """
    host = f"{name}-{kind}.example"
    origins = {
        "host": f"http://{name}-there.example",
        "scheme": f"https://{host}",
        "port": f"http://{host}:8080",
    }
    origin = origins[kind]
    rules = robots(text)
    feeds = {path: feed()}
    hops = {"/1": redirect("/2"), "/2": redirect(f"{origin}{path}")}
    if kind == "scheme":

        def by_scheme(hit: Hit) -> Page:
            return rules if hit.scheme == "https" else ""

        return origin, (Site(host, by_scheme, hops | feeds, tls=Certificate.GOOD),)
    return origin, (Site(host, "", hops), Site(origin.removeprefix("http://"), rules, feeds))


def feed(body: str = _FEED, *, etag: str | None = None, modified: str | None = None) -> Reply:
    """Return a reply with a feed that has no links."""
    return Reply(body, content_type="application/rss+xml", etag=etag, last_modified=modified)


def robots(
    text: str, *, content_type: str = "text/plain", end: str = "\n", gzip: bool = False
) -> Page:
    """Return a robots.txt in which `{token}` is replaced by the crawler's product token.

    `{closed}` is replaced by a Visit-time window that opens in two hours, each line end by `end`.
    With `gzip` it is compressed for a crawler that accepts that.
    """

    def page(hit: Hit) -> Reply:
        token = token_of(hit.header("User-Agent") or "") or "nobody"
        hour = int(hit.wall // 3600) % 24
        closed = f"{(hour + 2) % 24:02}00-{(hour + 3) % 24:02}00"
        body = text.replace("{token}", token).replace("{TOKEN}", token.upper())
        body = body.replace("{closed}", closed).replace("\n", end)
        return Reply(body.encode(), content_type=content_type, gzip=gzip)

    return page


def token_of(user_agent: str) -> str | None:
    """Return the product token of a User-Agent, or None.

    It is the word after `compatible;`, otherwise the first word. If that is Mozilla, as in every
    browser's User-Agent, it is the product directly before a URL, if there is one.
    """
    match = _COMPATIBLE.search(user_agent) or _FIRST.search(user_agent)
    if match and match[1].lower() == _MOZILLA:
        match = _BEFORE_PAGE.search(user_agent) or match
    return match[1] if match else None
