"""Checks by the log of the servers whether a crawl kept R1 to R8.

    assert_polite(web.log, crawl_delays=web.crawl_delays, blocked=["optedout.example"])
    assert_polite(result.log, connections=result.connections)

Delays, holds and revisits are checked by `walsh_scrapy.testing.checks`. There is no tolerance, and
none is needed. The server reads a request after the crawler has sent it, and starts its last write
before the crawler can have read the end. So a gap in the log is never shorter than the delay of the
crawler. For several runs over one state, pass all their hits.
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
    """The keywords of `violations` and `assert_polite`; `Manners` explains them."""

    interval: float
    user_agent: str
    crawl_delays: Mapping[str, float]
    serial: bool
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
    """The rules that the crawl must keep. A check that needs a value is off by default."""

    interval: float = 1.0  #: seconds from the end of a response to the next request to that host
    user_agent: str = USER_AGENT
    crawl_delays: Mapping[str, float] = field(default_factory=dict)  #: seconds, by host name
    serial: bool = True  #: one request and connection at a time; if False, one for each host
    blocked: Iterable[str] = ()  #: domains that must get no request, subdomains included
    #: Prefixes of URLs that a robots.txt denies; one that ends in `$` is a whole URL.
    denied: Iterable[str] = ()
    declared: Collection[str] | None = None  #: the only targets, with their redirects
    robots_first: bool = True  #: False for a log of a later run, which may have a copy
    robots_exempt: Collection[str] = ()  #: the operator's documents, URLs
    robots_ttl: float = 0.0  #: seconds in which an answered robots.txt is not requested again
    documents_ttl: float = 0.0  #: the same for the operator's documents
    revisit: float = 0.0  #: seconds in which an answered page is not requested again
    conditional: bool = False  #: check that repeated requests have the last validators
    backoff: float = 0.0  #: seconds after the first 429 or 503 without Retry-After; then doubled
    backoff_max: float = 200.0  #: the longest of these holds, before chance lengthens it
    max_retries: int | None = None  #: retries of one URL in a row; None for no limit
    pace_by: Callable[[str], str] = str  #: host name -> the key that the interval is counted by
    connections: Collection[ConnectionRecord] = ()  #: of the same crawl, as the servers saw them
    full_handshakes: int | None = None  #: TLS handshakes of a host that resume no session
    precision: Precision = SERVER  #: the precision of the check of delays and holds
    from_start: bool = False  #: count delays from the start of a request, not from its end
    robots_delayed: bool = True  #: a known Crawl-delay counts before robots.txt as well


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation: a sentence, and the places in the log of the requests that prove it."""

    sentence: str
    places: tuple[int, ...] = ()


#: Takes the hits in the order of their start, and yields each violation.
Rule = Callable[[Sequence[Hit], Manners], Iterator[Violation]]


def plain_names(domains: Iterable[str]) -> frozenset[str]:
    """Return domain names as hits have them: in lower case, without a trailing dot."""
    return frozenset(domain.lower().rstrip(".") for domain in domains)


def is_under(host: str, names: frozenset[str]) -> bool:
    """Return True if the host is one of the names or a subdomain of one; an address has none."""
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


def robots_hits(log: Sequence[Hit]) -> set[int]:
    """Return the places of robots.txt in the log, its redirects included."""
    found, hops = set[int](), set[str]()
    for place, hit in enumerate(log):
        if hit.path == "/robots.txt" or hit.url in hops:
            found.add(place)
            hops |= {target} if (target := redirect_target(hit)) else set()
    return found


def exchanges_of(log: Sequence[Hit], manners: Manners) -> list[Exchange]:
    """Return hits as the checks take them; `row` is the place in the log."""
    return [_exchange(hit, manners.pace_by(hit.host), row) for row, hit in enumerate(log)]


def retry_after(hit: Hit) -> float | None:
    """Return the end of the Retry-After of a 429 or 503, on the clock of the log, or None."""
    # A date is on the wall clock; the hit shows its difference from the clock of the log.
    return _exchange(hit, hit.host, 0).held_until(offset=hit.wall - hit.started)


def _exchange(hit: Hit, host: str, row: int) -> Exchange:
    return Exchange(hit.started, hit.ended, host, hit.url, hit.status, hit.answer, row)


def shown(log: Sequence[Hit], place: int) -> str:
    """Return a hit as text: its number from 1, method, URL and status."""
    hit = log[place]
    return f"#{place + 1} {hit.method} {hit.url} ({hit.status or 'no answer'})"


def violation(rule: str, log: Sequence[Hit], place: int, words: str, *earlier: int) -> Violation:
    """Return the violation of a rule by one request, after the `earlier` ones that prove it."""
    return Violation(f"{rule}: {log[place].host}: {shown(log, place)} {words}", (*earlier, place))


def violations(log: Iterable[Hit], **terms: Unpack[Terms]) -> list[str]:
    """Return a sentence for each violation: the rule, the host, the hits and the numbers."""
    manners = Manners(**terms)
    seen = list(log)
    hits = [*seen, *without_requests(manners.connections, seen)]
    hits.sort(key=lambda hit: hit.started)
    return [found.sentence for rule in RULES for found in rule(hits, manners)]


def assert_polite(log: Iterable[Hit], **terms: Unpack[Terms]) -> None:
    """Raise AssertionError with every violation, or if the log is empty and so proves nothing."""
    hits = list(log)
    if not hits and not terms.get("connections"):
        raise AssertionError("the log is empty: no request was made, so it proves nothing")
    if broken := violations(hits, **terms):
        lines = "\n".join(f"- {sentence}" for sentence in broken)
        raise AssertionError(f"{len(broken)} violation{'s' * (len(broken) != 1)}:\n{lines}")


_GONE: Final = 410
_PRIVATE: Final = ("Cookie", "Referer", "Authorization", "Proxy-Authorization")
_VALIDATORS: Final = (("ETag", "If-None-Match"), ("Last-Modified", "If-Modified-Since"))


def exact_user_agent(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R1: every request has exactly one User-Agent, and it is the expected one."""
    for place, hit in enumerate(log):
        sent = hit.header_values("User-Agent")
        if hit.method != "CONNECT" and sent != [manners.user_agent]:
            words = f"has User-Agent {sent}, not {manners.user_agent!r}"
            yield violation("R1", log, place, words)


def nothing_private(log: Sequence[Hit], _: Manners) -> Iterator[Violation]:
    """R1: no request has a Cookie, a Referer or credentials."""
    for place, hit in enumerate(log):
        for name in _PRIVATE:
            if hit.header(name) is not None:
                yield violation("R1", log, place, f"carries {name}: {hit.header(name)}")


def robots_first(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R2: no page of a scheme, host and port is requested before its robots.txt was answered."""
    robots, files, reported = robots_hits(log), dict[str, int](), set[str]()
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
    """R2: a robots.txt that was answered, even with a 404, is not requested again too soon."""

    def is_good(hit: Hit) -> bool:
        answered = 200 <= hit.status < 500 and hit.status != 429
        return hit.path == "/robots.txt" and answered

    return _fetched_again("R2", log, manners, manners.robots_ttl, is_good)


def documents_cached(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R3: the blocklist and its schema, once answered, are not requested again too soon."""

    def is_good(hit: Hit) -> bool:
        return hit.status in {200, 304} and hit.url in manners.robots_exempt

    return _fetched_again("R3", log, manners, manners.documents_ttl, is_good)


def robots_obeyed(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R2: no URL is requested that a robots.txt denies."""
    # Crawlers percent-encode different characters (RFC 3986 6.2).
    denied = tuple(map(unquote, manners.denied))
    for place, hit in enumerate(log):
        if f"{unquote(hit.url)}$".startswith(denied) and hit.path != "/robots.txt":
            yield violation("R2", log, place, "is denied to us by robots.txt")


def blocklist_kept(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R3: no request goes to a blocked domain or its subdomains, not even for robots.txt."""
    names = plain_names(manners.blocked)
    for place, hit in enumerate(log):
        if is_under(hit.host, names):
            yield violation("R3", log, place, "reached a blocked domain")


def read_only(log: Sequence[Hit], _: Manners) -> Iterator[Violation]:
    """R6: the only methods are GET, HEAD, and CONNECT for https URLs through a proxy."""
    for place, hit in enumerate(log):
        if hit.method not in {"GET", "HEAD", "CONNECT"}:
            yield violation("R6", log, place, "is neither GET nor HEAD")


def in_scope(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R6: only declared targets, the targets of their redirects, and robots.txt are requested."""
    if manners.declared is None:
        return
    robots, targets = robots_hits(log), {url.partition("#")[0] for url in manners.declared}
    targets.update(manners.robots_exempt)
    for place, hit in enumerate(log):
        if hit.url in targets:
            targets |= {target} if (target := redirect_target(hit)) else set()
        elif place not in robots and hit.method != "CONNECT":
            yield violation("R6", log, place, "was never declared")


def validators_echoed(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R7: a repeated request has the validators of the last response, byte for byte, or none."""
    served = dict[str, Hit]()
    for place, hit in enumerate(log if manners.conditional else ()):
        for name, condition in _VALIDATORS:
            known = served[hit.url].answered(name) if hit.url in served else None
            sent = hit.header(condition)
            if sent != known and hit.path != "/robots.txt":
                yield violation(
                    "R7",
                    log,
                    place,
                    f"has {condition}: {sent}; the latest {name} served was {known}",
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
    known: defaultdict[str, Revisit] = defaultdict(lambda: Revisit(manners.precision))
    for each in exchanges_of(log, manners):
        gap = known[each.url].see(each, ttl, is_answered=is_good(log[each.row]))
        if gap is not None and gap.is_early:
            words = f"came {gap.seconds:.3f} s after the answered {shown(log, gap.before.row)}; "
            words += f"it is good for {ttl:.3f} s"
            yield violation(rule, log, each.row, words, gap.before.row)


def one_at_a_time(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R4: no request starts before the last one has ended, with any host or with the same host."""
    checks: defaultdict[str, AtOnce] = defaultdict(lambda: AtOnce(SERVER))
    for each in exchanges_of(log, manners):
        if manners.serial or not _is_tunnel(log[each.row]):
            gap = checks["" if manners.serial else each.host].see(each)
            if gap is not None and gap.is_early:
                words = f"began {gap.missing:.3f} s before {shown(log, gap.before.row)} had ended"
                yield violation("R4", log, each.row, words, gap.before.row)


def spaced(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R4: from the end of a response to the next request to a host, max(1 s, Crawl-delay) pass."""
    edge = "start" if manners.from_start else "end"
    checks: defaultdict[str, Delay] = defaultdict(
        lambda: Delay(manners.precision, from_start=manners.from_start)
    )
    robots, read = robots_hits(log), set[str]()
    for each in _requests(log, manners):
        hit = log[each.row]
        # Before a robots.txt was read, a crawler cannot know its Crawl-delay.
        is_exempt = each.row in robots and not (hit.host in read and manners.robots_delayed)
        crawl_delay = 0.0 if is_exempt else manners.crawl_delays.get(hit.host, 0.0)
        gap = checks[each.host].see(each, max(manners.interval, crawl_delay))
        # `one_at_a_time` reports a request that began before the end of the last one.
        if gap is not None and gap.is_early and gap.seconds >= 0:
            yield Violation(
                f"R4: {hit.host}: {gap.seconds:.3f} s from the {edge} of "
                f"{shown(log, gap.before.row)} to the start of {shown(log, each.row)}; at least "
                f"{gap.least:.3f} s are required",
                (gap.before.row, each.row),
            )
        read |= {hit.host} if each.row in robots and 200 <= hit.status < 300 else set()


def holds_kept(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R5: after a 429 or 503 with Retry-After, no request goes to that host until then."""
    holds: defaultdict[str, Hold] = defaultdict(lambda: Hold(manners.precision))
    for each in _requests(log, manners):
        hold = holds[each.host]
        gap = hold.see(each)
        if gap is not None and gap.is_early:
            cause = gap.before.row
            words = f"came {gap.missing:.3f} s before the Retry-After: "
            words += f"{log[cause].answered('Retry-After')} of {shown(log, cause)} had passed"
            yield violation("R5", log, each.row, words, cause)
        if (end := retry_after(log[each.row])) is not None:
            hold.begin(each, end)


def backed_off(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R5: without Retry-After each wait is at least twice the last; the retries are limited."""
    rows: defaultdict[str, Retries] = defaultdict(Retries)
    last = dict[str, Exchange]()
    for each in exchanges_of(log, manners):
        row, earlier = rows[each.url], last.get(each.url)
        count = row.before(each)
        if earlier is not None and count:
            wait = Retries.least_wait(count, manners.backoff, manners.backoff_max)
            gap = each.start - earlier.end
            if log[earlier.row].answered("Retry-After") is None and gap < wait:
                words = f"came {gap:.3f} s after {shown(log, earlier.row)}, its {count}. failure "
                words += f"in a row; at least {wait:.3f} s are required"
                yield violation("R5", log, each.row, words, earlier.row)
            if manners.max_retries is not None and count > manners.max_retries:
                words = f"is retry {count} in a row; {manners.max_retries} are allowed"
                yield violation("R5", log, each.row, words, earlier.row)
        row.see(each, is_refused=each.is_busy)
        last[each.url] = each


def _requests(log: Sequence[Hit], manners: Manners) -> list[Exchange]:
    """Return the requests to hosts. A tunnel that was opened is not a request to one."""
    return [each for each in exchanges_of(log, manners) if not _is_tunnel(log[each.row])]


def _is_tunnel(hit: Hit) -> bool:
    return hit.method == "CONNECT" and hit.status == 200


def one_connection(log: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R4: no connection is opened while another is open, to any host or to the same host."""
    opened = sorted(manners.connections, key=lambda each: each.opened)
    last: dict[str, tuple[int, ConnectionRecord]] = {}
    for number, each in enumerate(opened, 1):
        scope = "" if manners.serial else each.host
        if scope in last and (shared := last[scope][1].closed - each.opened) > 0:
            before, other = last[scope]
            clients = {other.client, each.client}
            yield Violation(
                f"R4: {each.host}: connection {number} ({each.scheme}) was opened {shared:.3f} s "
                f"before connection {before} to {other.scheme}://{other.host} was closed",
                tuple(place for place, hit in enumerate(log) if hit.client in clients),
            )
        if scope not in last or each.closed > last[scope][1].closed:
            last[scope] = number, each


def sessions_resumed(_: Sequence[Hit], manners: Manners) -> Iterator[Violation]:
    """R4: a host sees no more full handshakes of TLS than are allowed; others resume a session."""
    full = Counter(each.host for each in manners.connections if each.handshake == FULL)
    for host, count in full.items():
        if manners.full_handshakes is not None and count > manners.full_handshakes:
            allowed = manners.full_handshakes
            yield Violation(f"R4: {host}: {count} full TLS handshakes; {allowed} are allowed")


RULES: Final[tuple[Rule, ...]] = (
    exact_user_agent,
    nothing_private,
    robots_first,
    robots_cached,
    robots_obeyed,
    blocklist_kept,
    documents_cached,
    one_at_a_time,
    one_connection,
    sessions_resumed,
    spaced,
    holds_kept,
    backed_off,
    read_only,
    in_scope,
    validators_echoed,
    not_too_often,
)
