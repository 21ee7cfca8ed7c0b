"""Checks whether a crawl was polite, by the log of the servers that it visited.

    assert_polite(web.log, crawl_delays=web.crawl_delays, blocked=["optedout.example"])
    assert_polite(result.log, connections=result.connections)

The rules are called R1 to R8: identity (R1), robots.txt (R2), opt-outs (R3), delays (R4), backoff
(R5), scope (R6), conditional requests (R7) and frequency (R8). If several runs share a state, pass
the hits of all of them.

There is no tolerance, and none is needed. A server logs a request after the crawler has sent it,
and logs the end of a response before the crawler can have read it. So no gap in the log is shorter
than the crawler's delay. `walsh_scrapy.testing.checks` measures delays, holds and revisits.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final, TypedDict, Unpack
from urllib.parse import unquote

from walsh_scrapy.identity import USER_AGENT
from walsh_scrapy.testing.checks import (
    SERVER,
    AtOnce,
    Delay,
    Exchange,
    Hold,
    Precision,
    Retries,
    Revisit,
)
from walsh_scrapy.testing.hit import FULL, ConnectionRecord, Hit, redirect_target, without_requests


class Terms(TypedDict, total=False):
    """The keyword arguments of `violations` and `assert_polite`; `Manners` describes them."""

    interval: float
    user_agent: str
    crawl_delays: Mapping[str, float]
    serial: bool
    anonymous: bool
    blocked: Iterable[str]
    denied: Iterable[str]
    declared: Collection[str] | None
    robots_first: bool
    robots_exempt: Collection[str]
    robots_ttl: float
    documents_ttl: float
    revisit: float
    conditional: bool
    backoff: float
    backoff_max: float
    max_retries: int | None
    pace_by: Callable[[str], str]
    connections: Collection[ConnectionRecord]
    full_handshakes: int | None
    precision: Precision
    from_start: bool
    robots_delayed: bool


@dataclass(frozen=True, slots=True)
class Manners:
    """What the crawl had to respect. Checks that need a value are off by default."""

    interval: float = 1.0  #: seconds from the end of a response to the next request to that host
    user_agent: str = USER_AGENT
    crawl_delays: Mapping[str, float] = field(default_factory=dict)  #: seconds, by host name
    serial: bool = True  #: one request and connection at a time; if False, one for each host
    anonymous: bool = True  #: no Cookie, Referer or credentials; False for a project's own crawl
    blocked: Iterable[str] = ()  #: domains that must get no request, subdomains included
    #: Prefixes of URLs that a robots.txt denies; one that ends in `$` is a whole URL.
    denied: Iterable[str] = ()
    declared: Collection[str] | None = None  #: the only URLs to request, apart from redirects
    robots_first: bool = True  #: False for a later run, which may have a cached robots.txt
    robots_exempt: Collection[str] = ()  #: URLs that need no robots.txt, such as the blocklist
    robots_ttl: float = 0.0  #: seconds in which an answered robots.txt is not requested again
    documents_ttl: float = 0.0  #: the same for the URLs of `robots_exempt`
    revisit: float = 0.0  #: seconds in which an answered page is not requested again
    conditional: bool = False  #: check that repeated requests send the last validators
    backoff: float = 0.0  #: seconds after the first 429 or 503 without Retry-After; then doubled
    backoff_max: float = 200.0  #: the maximum of these holds, without jitter
    max_retries: int | None = None  #: retries of one URL in a row; None for no limit
    pace_by: Callable[[str], str] = str  #: from a host name to the name that delays apply to
    connections: Collection[ConnectionRecord] = ()  #: of the same crawl, as the servers saw them
    full_handshakes: int | None = None  #: maximum TLS handshakes per host that resume no session
    precision: Precision = SERVER  #: how precisely the log knows its times
    from_start: bool = False  #: measure delays from the start of a request, not from its end
    robots_delayed: bool = True  #: a known Crawl-delay applies to requests for robots.txt too


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: a sentence, and the places in the log of the requests that prove it."""

    sentence: str
    places: tuple[int, ...] = ()


#: A function that takes the hits in the order of their start, and yields each violation.
Rule = Callable[[Sequence[Hit], Manners], Iterator[Violation]]


def plain_names(domains: Iterable[str]) -> frozenset[str]:
    """Return domain names as hits spell them: in lower case, without a trailing dot."""
    return frozenset(domain.lower().rstrip(".") for domain in domains)


def is_under(host: str, names: frozenset[str]) -> bool:
    """Return True if the host is one of the names, or a subdomain of one of them."""
    labels = host.split(".")
    depth = 1 if is_address(host) else len(labels)
    return any(".".join(labels[start:]) in names for start in range(depth))


def is_address(host: str) -> bool:
    """Return True for an IP address, in brackets or not."""
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def robots_hits(log: Sequence[Hit]) -> dict[int, str]:
    """Return the places in the log of requests for robots.txt, each with the host that it is for.

    The target of a redirect is requested for the host whose robots.txt led there.
    """
    places: dict[int, str] = {}
    hops: dict[str | None, str] = {}
    for place, hit in enumerate(log):
        if hit.path == "/robots.txt":
            places[place] = hops.pop(hit.url, hit.host)
        elif hit.url in hops:
            places[place] = hops[hit.url]
        else:
            continue
        hops[redirect_target(hit)] = places[place]
    return places


def exchanges_of(log: Sequence[Hit], manners: Manners) -> list[Exchange]:
    """Return the hits as `walsh_scrapy.testing.checks` needs them, in the same order."""
    return [_exchange(hit, manners.pace_by(hit.host), row) for row, hit in enumerate(log)]


def retry_after(hit: Hit) -> float | None:
    """Return when the Retry-After of a 429 or 503 ends, on the clock of the log; None without."""
    # A Retry-After date is on the wall clock, which differs from the clock of the log.
    return _exchange(hit, hit.host, 0).held_until(offset=hit.wall - hit.started)


def _exchange(hit: Hit, host: str, row: int) -> Exchange:
    return Exchange(hit.started, hit.ended, host, hit.url, hit.status, hit.answer, row)


def shown(log: Sequence[Hit], place: int) -> str:
    """Return a hit as text: its number (from 1), method, URL and status."""
    hit = log[place]
    return f"#{place + 1} {hit.method} {hit.url} ({hit.status or 'no answer'})"


def violation(rule: str, log: Sequence[Hit], place: int, words: str, *earlier: int) -> Violation:
    """Return the violation of a rule by the request at `place`; `earlier` ones help to prove it."""
    return Violation(f"{rule}: {log[place].host}: {shown(log, place)} {words}", (*earlier, place))


def violations(log: Iterable[Hit], **terms: Unpack[Terms]) -> list[str]:
    """Return one sentence for each broken rule: what was requested, and what would be right.

    The keyword arguments are the same as for `assert_polite`.
    """
    manners = Manners(**terms)
    requests = list(log)
    hits = [*requests, *without_requests(manners.connections, requests)]
    hits.sort(key=lambda hit: hit.started)
    return [violation.sentence for rule in RULES for violation in rule(hits, manners)]


def assert_polite(log: Iterable[Hit], **terms: Unpack[Terms]) -> None:
    """Raise AssertionError if a request in the log was impolite; the message lists all of them.

    `Manners` describes the keyword arguments, for example `crawl_delays` and `user_agent`. An empty
    log proves nothing, so it fails as well.
    """
    hits = list(log)
    if not hits and not terms.get("connections"):
        raise AssertionError("the log is empty: the crawler made no request, so nothing is shown")
    if broken := violations(hits, **terms):
        lines = "\n".join(f"- {sentence}" for sentence in broken)
        raise AssertionError(f"{len(broken)} violation{'s' * (len(broken) != 1)}:\n{lines}")


_GONE: Final = 410
_PRIVATE: Final = ("Cookie", "Referer", "Authorization", "Proxy-Authorization")
_VALIDATORS: Final = (("ETag", "If-None-Match"), ("Last-Modified", "If-Modified-Since"))


def exact_user_agent(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R1: every request has exactly one User-Agent header, with the expected value."""
    for place, hit in enumerate(log):
        sent = hit.header_values("User-Agent")
        if hit.method != "CONNECT" and sent != [manners.user_agent]:
            words = f"has User-Agent {sent}, not {manners.user_agent!r}"
            yield violation("R1", log, place, words)


def nothing_private(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R1: no request has a Cookie, a Referer or credentials."""
    for place, hit in enumerate(log if manners.anonymous else ()):
        for name in _PRIVATE:
            if hit.header(name) is not None:
                yield violation("R1", log, place, f"carries {name}: {hit.header(name)}")


def robots_first(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R2: no page is requested before the robots.txt of its scheme, host and port was answered."""
    robots = robots_hits(log)
    files: dict[str, int] = {}  # the first request for the robots.txt of each origin
    reported: set[str] = set()
    for place, hit in enumerate(log if manners.robots_first else ()):
        file = files.get(hit.origin)
        exempt = hit.method == "CONNECT" or hit.url in manners.robots_exempt or place in robots
        if hit.path == "/robots.txt":
            files.setdefault(hit.origin, place)
        elif exempt or hit.origin in reported:
            continue
        elif file is None:
            reported.add(hit.origin)
            yield violation("R2", log, place, f"came before any {hit.origin}/robots.txt")
        elif hit.started < log[file].ended:
            yield violation("R2", log, place, f"came before {shown(log, file)} had ended", file)


def robots_cached(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R2: a robots.txt that was answered, even with a 404, is not requested again too soon.

    A redirect is an answer if its target answered before the same robots.txt was requested again.
    """
    never = len(log)
    # By URL: the place of the request that comes next, and whether that was answered.
    following: dict[str, tuple[int, bool]] = {}
    good: set[Hit] = set()
    for place, hit in reversed([*enumerate(log)]):
        target = redirect_target(hit)
        is_answer = 200 <= hit.status < 500 and hit.status != 429
        if target is not None:
            followed, is_answer = following.get(target, (never, False))
            again, _ = following.get(hit.url, (never, False))
            is_answer = is_answer and followed < again
        following[hit.url] = place, is_answer
        if is_answer:
            good.add(hit)

    def is_good(hit: Hit) -> bool:
        return hit.path == "/robots.txt" and hit in good

    return _fetched_again("R2", log, manners, manners.robots_ttl, is_good)


def documents_cached(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R3: the blocklist and its schema, once answered, are not requested again too soon."""

    def is_good(hit: Hit) -> bool:
        return hit.status in {200, 304} and hit.url in manners.robots_exempt

    return _fetched_again("R3", log, manners, manners.documents_ttl, is_good)


def robots_obeyed(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R2: no URL is requested that a robots.txt denies."""
    # Decoded, because crawlers differ in what they percent-encode (RFC 3986 6.2).
    denied = tuple(unquote(url) for url in manners.denied)
    for place, hit in enumerate(log):
        if f"{unquote(hit.url)}$".startswith(denied) and hit.path != "/robots.txt":
            yield violation("R2", log, place, "is denied by robots.txt")


def blocklist_kept(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R3: no request goes to a blocked domain or its subdomains, not even for robots.txt."""
    names = plain_names(manners.blocked)
    for place, hit in enumerate(log):
        if is_under(hit.host, names):
            yield violation("R3", log, place, "reached a domain that is on the blocklist")


def read_only(log: Sequence[Hit], _: Manners) -> Iterator[Violation]:
    """R6: the only methods are GET, HEAD, and CONNECT for https URLs through a proxy."""
    for place, hit in enumerate(log):
        if hit.method not in {"GET", "HEAD", "CONNECT"}:
            yield violation("R6", log, place, "is neither GET nor HEAD")


def in_scope(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R6: only declared targets, the targets of their redirects, and robots.txt are requested."""
    if manners.declared is None:
        return
    robots = robots_hits(log)
    targets = {url.partition("#")[0] for url in manners.declared} | {*manners.robots_exempt, None}
    for place, hit in enumerate(log):
        if hit.url in targets:
            targets.add(redirect_target(hit))
        elif place not in robots and hit.method != "CONNECT":
            yield violation("R6", log, place, "is not among the declared URLs and their redirects")


def validators_echoed(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R7: a repeated request sends exactly the validators of the last response, or none."""
    served: dict[str, Hit] = {}
    for place, hit in enumerate(log if manners.conditional else ()):
        for name, condition in _VALIDATORS:
            served_value = served[hit.url].answered(name) if hit.url in served else None
            sent = hit.header(condition)
            if sent != served_value and hit.path != "/robots.txt":
                yield violation(
                    "R7",
                    log,
                    place,
                    f"has {condition}: {sent}, but the last {name} of this URL was {served_value}",
                )
        if hit.status in {200, 304} and hit.complete:
            served[hit.url] = hit


def not_too_often(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R8: a page that was answered, even with 410 (gone), is not requested again too soon."""

    def is_good(hit: Hit) -> bool:
        is_page = hit.method != "CONNECT" and hit.path != "/robots.txt"
        return is_page and (200 <= hit.status < 400 or hit.status == _GONE)

    return _fetched_again("R8", log, manners, manners.revisit, is_good)


def _fetched_again(
    rule: str, log: Sequence[Hit], manners: Manners, ttl: float, is_good: Callable[[Hit], bool]
) -> Iterator[Violation]:
    revisits: defaultdict[str, Revisit] = defaultdict(lambda: Revisit(manners.precision))
    for exchange in exchanges_of(log, manners):
        gap = revisits[exchange.url].see(exchange, ttl, is_answered=is_good(log[exchange.row]))
        if gap is not None and gap.is_early:
            words = f"came {gap.seconds:.3f} s after {shown(log, gap.before.row)}, which was "
            words += f"answered and stays valid for {ttl:.3f} s"
            yield violation(rule, log, exchange.row, words, gap.before.row)


def one_at_a_time(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R4: no request starts before the previous one has ended, at any host or at the same host."""
    checks: defaultdict[str, AtOnce] = defaultdict(lambda: AtOnce(SERVER))
    for exchange in exchanges_of(log, manners):
        if manners.serial or not _is_tunnel(log[exchange.row]):
            gap = checks["" if manners.serial else exchange.host].see(exchange)
            if gap is not None and gap.is_early:
                words = f"began {gap.missing:.3f} s before {shown(log, gap.before.row)} had ended"
                yield violation("R4", log, exchange.row, words, gap.before.row)


def spaced(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R4: at least `interval` or the Crawl-delay passes between two requests to a host."""
    edge = "start" if manners.from_start else "end"
    checks: defaultdict[str, Delay] = defaultdict(
        lambda: Delay(manners.precision, from_start=manners.from_start)
    )
    robots = robots_hits(log)
    read: set[str] = set()  # hosts whose robots.txt was read
    for exchange in _requests(log, manners):
        hit = log[exchange.row]
        # A crawler cannot know a Crawl-delay before it has read the robots.txt.
        is_exempt = exchange.row in robots and not (hit.host in read and manners.robots_delayed)
        crawl_delay = 0.0 if is_exempt else manners.crawl_delays.get(hit.host, 0.0)
        gap = checks[exchange.host].see(exchange, max(manners.interval, crawl_delay))
        # A negative gap is left to `one_at_a_time`, which reports simultaneous requests.
        if gap is not None and gap.is_early and gap.seconds >= 0:
            yield Violation(
                f"R4: {hit.host}: {gap.seconds:.3f} s from the {edge} of "
                f"{shown(log, gap.before.row)} to the start of {shown(log, exchange.row)}; at "
                f"least {gap.required:.3f} s are required",
                (gap.before.row, exchange.row),
            )
        if exchange.row in robots and 200 <= hit.status < 300:
            read.add(robots[exchange.row])


def holds_kept(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R5: after a 429 or 503, the host gets no request until its Retry-After has passed."""
    holds: defaultdict[str, Hold] = defaultdict(lambda: Hold(manners.precision))
    for exchange in _requests(log, manners):
        hold = holds[exchange.host]
        gap = hold.see(exchange)
        if gap is not None and gap.is_early:
            cause = gap.before.row
            words = f"came {gap.missing:.3f} s before the end of the Retry-After: "
            words += f"{log[cause].answered('Retry-After')} of {shown(log, cause)}"
            yield violation("R5", log, exchange.row, words, cause)
        if (end := retry_after(log[exchange.row])) is not None:
            hold.begin(exchange, end)


def backed_off(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R5: without Retry-After each wait is at least twice the last, and retries are limited."""
    rows: defaultdict[str, Retries] = defaultdict(Retries)
    last: dict[str, Exchange] = {}
    for exchange in exchanges_of(log, manners):
        row = rows[exchange.url]
        earlier = last.get(exchange.url)
        count = row.before(exchange)
        if earlier is not None and count:
            wait = Retries.min_wait(count, manners.backoff, manners.backoff_max)
            gap = exchange.start - earlier.end
            if log[earlier.row].answered("Retry-After") is None and gap < wait:
                words = f"came {gap:.3f} s after {shown(log, earlier.row)}, failure number {count} "
                words += f"in a row; at least {wait:.3f} s are required"
                yield violation("R5", log, exchange.row, words, earlier.row)
            if manners.max_retries is not None and count > manners.max_retries:
                words = f"is retry {count} in a row; {manners.max_retries} are allowed"
                yield violation("R5", log, exchange.row, words, earlier.row)
        row.see(exchange, is_refused=exchange.is_busy)
        last[exchange.url] = exchange


def _requests(log: Sequence[Hit], manners: Manners) -> list[Exchange]:
    """Return the exchanges with hosts: a CONNECT that opened a tunnel is one with the proxy."""
    requests = exchanges_of(log, manners)
    return [request for request in requests if not _is_tunnel(log[request.row])]


def _is_tunnel(hit: Hit) -> bool:
    return hit.method == "CONNECT" and hit.status == 200


def one_connection(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R4: no connection is opened while another one is open, to any host or to the same host."""
    opened = sorted(manners.connections, key=lambda connection: connection.opened)
    last: dict[str, tuple[int, ConnectionRecord]] = {}
    for number, connection in enumerate(opened, 1):
        scope = "" if manners.serial else connection.host
        if scope in last and (shared := last[scope][1].closed - connection.opened) > 0:
            before, earlier = last[scope]
            clients = {earlier.client, connection.client}
            yield Violation(
                f"R4: {connection.host}: connection {number} ({connection.scheme}) was opened "
                f"{shared:.3f} s before connection {before} to {earlier.scheme}://"
                f"{earlier.host} was closed",
                tuple(place for place, hit in enumerate(log) if hit.client in clients),
            )
        if scope not in last or connection.closed > last[scope][1].closed:
            last[scope] = number, connection


def sessions_resumed(_: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R4: a host sees at most `full_handshakes` TLS handshakes that resume no session."""
    full = Counter(record.host for record in manners.connections if record.handshake == FULL)
    for host, count in full.items():
        if manners.full_handshakes is not None and count > manners.full_handshakes:
            allowed = manners.full_handshakes
            yield Violation(f"R4: {host}: {count} full TLS handshakes; {allowed} are allowed")


RULES: Final[tuple[Rule, ...]] = (
    exact_user_agent, nothing_private, robots_first, robots_cached, robots_obeyed,
    blocklist_kept, documents_cached, one_at_a_time, one_connection, sessions_resumed, spaced,
    holds_kept, backed_off, read_only, in_scope, validators_echoed, not_too_often,
)  # fmt: skip
