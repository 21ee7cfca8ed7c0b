"""R4 and R5 as the server's log shows them: spacing, one request at a time, Retry-After, backoff.

Each function takes the hits in the order of their start and yields each violation.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from walsh_scrapy.testing.connections import FULL, ConnectionRecord
from walsh_scrapy.testing.hit import DEFAULT_PORTS, Hit
from walsh_scrapy.testing.manners import (
    BUSY,
    Breach,
    Manners,
    breach,
    repeats,
    retry_after,
    robots_hits,
    shown,
)
from walsh_scrapy.testing.tallies import Hold, Retries, Spacing


def one_at_a_time(log: Sequence[Hit], manners: Manners) -> Iterator[Breach]:
    """R4: no request starts before the last one has ended, with any host or with the same host."""
    all_hosts = {"": list(range(len(log)))} if log else {}
    for places in (all_hosts if manners.serial else _by_host(log, manners)).values():
        last = places[0]
        for place in places[1:]:
            if (shared := log[last].ended - log[place].started) > 0:
                words = f"began {shared:.3f} s before {shown(log, last)} had ended"
                yield breach("R4", log, place, words, last)
            last = max(last, place, key=lambda n: log[n].ended)


def spaced(log: Sequence[Hit], manners: Manners) -> Iterator[Breach]:
    """R4: from the end of a response to the next request to a host, max(1 s, Crawl-delay) pass."""
    robots = robots_hits(log)
    for places in _by_host(log, manners).values():
        read = {place for place in places if place in robots and 200 <= log[place].status < 300}
        last, spacing = places[0], Spacing()
        for place in places:
            hit = log[place]
            # Before a robots.txt was read, a crawler cannot know its Crawl-delay.
            known = any(log[n].host == hit.host for n in read if n < place)
            is_exempt = place in robots and not (known and manners.robots_delayed)
            asked = 0.0 if is_exempt else manners.crawl_delays.get(hit.host, 0.0)
            asked = max(manners.interval, asked)
            ended = None if manners.from_start else hit.ended
            is_short = spacing.add(hit.started, asked, manners.resolution, ended=ended)
            edge, since = _edge(log[last], manners)
            # `one_at_a_time` reports a request that began before the end of the last one.
            if is_short and hit.started >= since:
                yield Breach(
                    f"R4: {hit.host}: {hit.started - since:.3f} s from the {edge} of "
                    f"{shown(log, last)} to the start of {shown(log, place)}; at least "
                    f"{asked:.3f} s are asked for",
                    (last, place),
                )
            last = max(last, place, key=lambda n: _edge(log[n], manners)[1])


def _edge(hit: Hit, manners: Manners) -> tuple[str, float]:
    """Return the edge of a request from which the pause counts, and its moment."""
    return ("start", hit.started) if manners.from_start else ("end", hit.ended)


def holds_kept(log: Sequence[Hit], manners: Manners) -> Iterator[Breach]:
    """R5: after a 429 or 503 with Retry-After, no request goes to that host until then."""
    for places in _by_host(log, manners).values():
        hold, cause = Hold(), places[0]
        for place in places:
            hit = log[place]
            if hold.is_broken(hit.started, manners.resolution):
                early, asked = hold.until - hit.started, log[cause].answered("Retry-After")
                words = f"came {early:.3f} s before the Retry-After: {asked} of "
                words += f"{shown(log, cause)} had passed"
                yield breach("R5", log, place, words, cause)
            if (end := retry_after(hit)) is not None and hold.begin(hit.ended, end):
                cause = place


def backed_off(log: Sequence[Hit], manners: Manners) -> Iterator[Breach]:
    """R5: without Retry-After each wait is at least twice the last; the retries are limited."""
    rows: defaultdict[str, Retries] = defaultdict(Retries)
    for earlier, later in repeats(log):
        hit, retry = log[earlier], log[later]
        row = rows[hit.url]
        row.answered(hit.ended, is_refusal=hit.status in BUSY)
        count = row.add(retry.started)
        wait = min(manners.backoff * 2 ** max(0, min(count, 60) - 1), manners.backoff_max)
        gap = retry.started - hit.ended
        if count and hit.answered("Retry-After") is None and gap < wait:
            words = f"came {gap:.3f} s after {shown(log, earlier)}, its {count}. failure in a row; "
            words += f"at least {wait:.3f} s are asked for"
            yield breach("R5", log, later, words, earlier)
        if manners.max_retries is not None and count > manners.max_retries:
            words = f"is retry {count} in a row; {manners.max_retries} are allowed"
            yield breach("R5", log, later, words, earlier)


def _by_host(log: Sequence[Hit], manners: Manners) -> dict[str, list[int]]:
    """Return the places of the hits of each host. A tunnel that was opened is no request to it."""
    places: dict[str, list[int]] = {}
    for place, hit in enumerate(log):
        if not (hit.method == "CONNECT" and hit.status == 200):
            places.setdefault(manners.pace_by(hit.host), []).append(place)
    return places


def one_connection(log: Sequence[Hit], manners: Manners) -> Iterator[Breach]:
    """R4: no connection is opened while another is open, to any host or to the same origin."""
    opened = sorted(manners.connections, key=lambda each: each.opened)
    last: dict[tuple[str, str], tuple[int, ConnectionRecord]] = {}
    for number, each in enumerate(opened, 1):
        scope = ("", "") if manners.serial else (each.scheme, each.host)
        if scope in last and (shared := last[scope][1].closed - each.opened) > 0:
            before, other = last[scope]
            clients = {other.client, each.client}
            yield Breach(
                f"R4: {each.host}: connection {number} ({each.scheme}) was opened {shared:.3f} s "
                f"before connection {before} to {other.scheme}://{other.host} was closed",
                tuple(place for place, hit in enumerate(log) if hit.client in clients),
            )
        if scope not in last or each.closed > last[scope][1].closed:
            last[scope] = number, each


def sessions_resumed(_: Sequence[Hit], manners: Manners) -> Iterator[Breach]:
    """R4: a host sees no more full handshakes of TLS than are allowed; others resume a session."""
    full = Counter(each.host for each in manners.connections if each.handshake == FULL)
    for host, count in full.items():
        if manners.full_handshakes is not None and count > manners.full_handshakes:
            allowed = manners.full_handshakes
            yield Breach(f"R4: {host}: {count} full TLS handshakes; {allowed} are allowed")


def without_requests(connections: Iterable[ConnectionRecord], log: Iterable[Hit]) -> list[Hit]:
    """Return a hit for each connection without a request: its host was contacted all the same.

    It is a CONNECT without an answer, as a tunnel is in which TLS failed. It ends as it starts: the
    server cannot tell how long the client had been gone when it noticed. Connections to a proxy are
    left out.
    """
    idle = {id(each): each for each in connections if each.host}
    by_client: dict[int, list[ConnectionRecord]] = {}
    for each in sorted(idle.values(), key=lambda each: each.opened):
        by_client.setdefault(each.client, []).append(each)
    for hit in log:
        earlier = [each for each in by_client.get(hit.client, ()) if each.opened <= hit.started]
        if earlier:
            idle.pop(id(earlier[-1]), None)
    return [
        Hit(
            started=each.opened,
            ended=each.opened,
            wall=0.0,
            method="CONNECT",
            scheme=each.scheme,
            host=each.host,
            port=DEFAULT_PORTS[each.scheme],
            path="",
            client=each.client,
        )
        for each in idle.values()
    ]
