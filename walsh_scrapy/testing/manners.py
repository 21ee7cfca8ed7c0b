"""What the judge of a log checks, and what it has to know about the web behind the log."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final, TypedDict
from urllib.parse import urljoin, urlsplit

from walsh_scrapy.checks.exchange import SERVER, Exchange, Precision
from walsh_scrapy.identity import USER_AGENT
from walsh_scrapy.testing.hit import DEFAULT_PORTS, ConnectionRecord, Hit

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_UNWRITTEN: Final = re.compile(r"[^\x21-\x7e]")  # never in a URL; sent percent-encoded
_DOT_SEGMENT: Final = re.compile(r"(?<=/)(?:%2e|\.){1,2}(?=/|$)", re.IGNORECASE)
_SLASHES: Final = re.compile(r"^(https?:)?/{2,}", re.IGNORECASE)


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
    """What the crawl has to keep. A check that needs a value is off by default."""

    interval: float = 1.0  #: seconds from the end of a response to the next request to that host
    user_agent: str = USER_AGENT
    crawl_delays: Mapping[str, float] = field(default_factory=dict)  #: seconds, by host name
    serial: bool = True  #: one request and connection at a time; if False, one for each host
    blocked: Iterable[str] = ()  #: domains that must get no request, subdomains included
    #: Prefixes of URLs that a robots.txt denies; one that ends in `$` is a whole URL.
    denied: Iterable[str] = ()
    declared: Collection[str] | None = None  #: the only targets, with their redirects
    robots_first: bool = True  #: False for a log of a later run, which may have a copy
    robots_exempt: Collection[str] = ()  #: the operator's own documents, URLs
    robots_ttl: float = 0.0  #: seconds in which an answered robots.txt is not requested again
    documents_ttl: float = 0.0  #: the same for the operator's own documents
    revisit: float = 0.0  #: seconds in which an answered page is not requested again
    conditional: bool = False  #: check that repeated requests have the last validators
    backoff: float = 0.0  #: seconds after the first 429 or 503 without Retry-After; then doubled
    backoff_max: float = 200.0  #: the longest of these waits, before chance lengthens it
    max_retries: int | None = None  #: retries of one URL in a row; None is no limit
    pace_by: Callable[[str], str] = str  #: host name -> the key that the interval is counted by
    connections: Collection[ConnectionRecord] = ()  #: of the same crawl, as the servers saw them
    full_handshakes: int | None = None  #: TLS handshakes of a host that resume no session
    precision: Precision = SERVER  #: how exactly delays and holds are judged
    from_start: bool = False  #: count pauses from the start of a request, not from its end
    robots_delayed: bool = True  #: a known Crawl-delay counts before robots.txt as well


@dataclass(frozen=True, slots=True)
class Breach:
    """One violation: a sentence, and the places in the log of the requests that prove it."""

    sentence: str
    places: tuple[int, ...] = ()


#: Takes the hits in the order of their start, and yields each violation.
Rule = Callable[[Sequence[Hit], Manners], Iterator[Breach]]


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


def redirect_target(hit: Hit) -> str | None:
    """Return the URL that the response redirects to, spelled as a hit would show it, or None."""
    location = hit.answered("Location")
    if hit.status not in _REDIRECTS or location is None:
        return None
    mark = min((at for at in map(location.find, "?#") if at >= 0), default=len(location))
    written = location[:mark].replace("\\", "/") + location[mark:]
    written = _UNWRITTEN.sub(lambda found: f"%{ord(found[0]):02X}", written.strip())
    try:
        parts = urlsplit(urljoin(hit.url, _SLASHES.sub(r"\1//", written)))
        host, port = (parts.hostname or "").rstrip("."), parts.port
        host = f"[{host}]" if ":" in host else host
    except ValueError:  # not a URL
        return None
    netloc = host if port in (None, DEFAULT_PORTS.get(parts.scheme)) else f"{host}:{port}"
    query = f"?{parts.query}" if parts.query else ""
    path = _DOT_SEGMENT.sub(lambda found: found[0].lower().replace("%2e", "."), parts.path)
    if not path.startswith("//"):  # which would be read as a host
        path = urlsplit(urljoin("http://judge.example/", path)).path
    return f"{parts.scheme}://{netloc}{path or '/'}{query}"


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
    # A date is on the wall clock; the hit shows how far that is from the clock of the log.
    return _exchange(hit, hit.host, 0).held_until(offset=hit.wall - hit.started)


def _exchange(hit: Hit, host: str, row: int) -> Exchange:
    return Exchange(hit.started, hit.ended, host, hit.url, hit.status, hit.answer, row)


def shown(log: Sequence[Hit], place: int) -> str:
    """Return a hit as text: its number from 1, method, URL and status."""
    hit = log[place]
    return f"#{place + 1} {hit.method} {hit.url} ({hit.status or 'no answer'})"


def breach(rule: str, log: Sequence[Hit], place: int, words: str, *earlier: int) -> Breach:
    """Return the violation of a rule by one request, after the `earlier` ones that prove it."""
    return Breach(f"{rule}: {log[place].host}: {shown(log, place)} {words}", (*earlier, place))
