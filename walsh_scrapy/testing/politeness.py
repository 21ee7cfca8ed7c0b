"""Judges by the log of the servers whether a crawl kept R1 to R8.

    assert_polite(web.log, crawl_delays=web.crawl_delays, blocked=["optedout.example"])
    assert_polite(result.log, connections=result.connections)

There is no tolerance, and none is needed. The server reads a request after the crawler has sent it,
and starts its last write before the crawler can have read the end. So a gap in the log is never
shorter than the pause that the crawler made. For several runs over one state, pass all their hits.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Unpack
from urllib.parse import unquote

from walsh_scrapy.testing.hit import Hit
from walsh_scrapy.testing.manners import (
    Breach,
    Manners,
    Rule,
    Terms,
    breach,
    is_under,
    plain_names,
    redirect_target,
    repeats,
    robots_hits,
    shown,
)
from walsh_scrapy.testing.timing import (
    backed_off,
    holds_kept,
    one_at_a_time,
    one_connection,
    sessions_resumed,
    spaced,
    without_requests,
)

__all__ = ["Manners", "Terms", "assert_polite", "violations"]


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


def exact_user_agent(log: Sequence[Hit], manners: Manners) -> Iterator[Breach]:
    """R1: every request has exactly one User-Agent, and it is the expected one."""
    for place, hit in enumerate(log):
        sent = hit.header_values("User-Agent")
        if hit.method != "CONNECT" and sent != [manners.user_agent]:
            words = f"has User-Agent {sent}, not {manners.user_agent!r}"
            yield breach("R1", log, place, words)


def nothing_private(log: Sequence[Hit], _: Manners) -> Iterator[Breach]:
    """R1: no request has a Cookie, a Referer or credentials."""
    for place, hit in enumerate(log):
        for name in _PRIVATE:
            if hit.header(name) is not None:
                yield breach("R1", log, place, f"carries {name}: {hit.header(name)}")


def robots_first(log: Sequence[Hit], manners: Manners) -> Iterator[Breach]:
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
            yield breach("R2", log, place, f"came before any {hit.origin}/robots.txt")
        elif hit.started < log[file].ended:
            yield breach("R2", log, place, f"came before {shown(log, file)} had ended", file)


def robots_cached(log: Sequence[Hit], manners: Manners) -> Iterator[Breach]:
    """R2: a robots.txt that was answered, also with a 404, is not requested again too soon."""

    def is_good(hit: Hit) -> bool:
        answered = 200 <= hit.status < 500 and hit.status != 429
        return hit.path == "/robots.txt" and answered

    return _fetched_again("R2", log, manners.robots_ttl, is_good)


def documents_cached(log: Sequence[Hit], manners: Manners) -> Iterator[Breach]:
    """R3: the blocklist and its schema, once answered, are not requested again too soon."""

    def is_good(hit: Hit) -> bool:
        return hit.status in {200, 304} and hit.url in manners.robots_exempt

    return _fetched_again("R3", log, manners.documents_ttl, is_good)


def robots_obeyed(log: Sequence[Hit], manners: Manners) -> Iterator[Breach]:
    """R2: no URL is requested that a robots.txt denies."""
    # Crawlers differ in what they percent-encode (RFC 3986 6.2).
    denied = tuple(map(unquote, manners.denied))
    for place, hit in enumerate(log):
        if f"{unquote(hit.url)}$".startswith(denied) and hit.path != "/robots.txt":
            yield breach("R2", log, place, "is denied to us by robots.txt")


def blocklist_kept(log: Sequence[Hit], manners: Manners) -> Iterator[Breach]:
    """R3: no request goes to a blocked domain or its subdomains, not even for robots.txt."""
    names = plain_names(manners.blocked)
    for place, hit in enumerate(log):
        if is_under(hit.host, names):
            yield breach("R3", log, place, "reached a blocked domain")


def read_only(log: Sequence[Hit], _: Manners) -> Iterator[Breach]:
    """R6: the only methods are GET, HEAD, and CONNECT for https URLs through a proxy."""
    for place, hit in enumerate(log):
        if hit.method not in {"GET", "HEAD", "CONNECT"}:
            yield breach("R6", log, place, "is neither GET nor HEAD")


def in_scope(log: Sequence[Hit], manners: Manners) -> Iterator[Breach]:
    """R6: only declared targets, the targets of their redirects, and robots.txt are requested."""
    if manners.declared is None:
        return
    robots, targets = robots_hits(log), {url.partition("#")[0] for url in manners.declared}
    targets.update(manners.robots_exempt)
    for place, hit in enumerate(log):
        if hit.url in targets:
            targets |= {target} if (target := redirect_target(hit)) else set()
        elif place not in robots and hit.method != "CONNECT":
            yield breach("R6", log, place, "was never declared")


def validators_echoed(log: Sequence[Hit], manners: Manners) -> Iterator[Breach]:
    """R7: a repeated request has the validators of the last response, byte for byte, or none."""
    served = dict[str, Hit]()
    for place, hit in enumerate(log if manners.conditional else ()):
        for field, condition in _VALIDATORS:
            known = served[hit.url].answered(field) if hit.url in served else None
            sent = hit.header(condition)
            if sent != known and hit.path != "/robots.txt":
                yield breach(
                    "R7",
                    log,
                    place,
                    f"has {condition}: {sent}; the latest {field} served was {known}",
                )
        if hit.status in {200, 304} and hit.complete:
            served[hit.url] = hit


def not_too_often(log: Sequence[Hit], manners: Manners) -> Iterator[Breach]:
    """R8: a page that was answered, also with 410 (gone), is not requested again too soon."""

    def is_good(hit: Hit) -> bool:
        is_page = hit.method != "CONNECT" and hit.path != "/robots.txt"
        return is_page and (200 <= hit.status < 400 or hit.status == _GONE)

    return _fetched_again("R8", log, manners.revisit, is_good)


def _fetched_again(
    rule: str, log: Sequence[Hit], ttl: float, is_good: Callable[[Hit], bool]
) -> Iterator[Breach]:
    for earlier, later in repeats(log):
        gap = log[later].started - log[earlier].ended
        if gap < ttl and is_good(log[earlier]):
            words = f"came {gap:.3f} s after the answered {shown(log, earlier)}; "
            words += f"it is good for {ttl:.3f} s"
            yield breach(rule, log, later, words, earlier)


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
