"""R4 as the servers' connections show it: one at a time, and sessions of TLS resumed.

Each rule takes the hits as those of `walsh_scrapy.testing.rules` do, and judges `connections`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from walsh_scrapy.testing.connections import FULL, ConnectionRecord
from walsh_scrapy.testing.hit import DEFAULT_PORTS, Hit
from walsh_scrapy.testing.manners import Manners


def one_connection(_: Sequence[Hit], manners: Manners) -> Iterator[str]:
    """R4: no connection is opened while another is open, to any host or to the same origin."""
    opened = sorted(manners.connections, key=lambda each: each.opened)
    last: dict[tuple[str, str], tuple[int, ConnectionRecord]] = {}
    for number, each in enumerate(opened, 1):
        scope = ("", "") if manners.serial else (each.scheme, each.host)
        if scope in last and (shared := last[scope][1].closed - each.opened) > 0:
            before, other = last[scope]
            yield (
                f"R4: {each.host}: connection {number} ({each.scheme}) was opened {shared:.3f} s "
                f"before connection {before} to {other.scheme}://{other.host} was closed"
            )
        if scope not in last or each.closed > last[scope][1].closed:
            last[scope] = number, each


def sessions_resumed(_: Sequence[Hit], manners: Manners) -> Iterator[str]:
    """R4: a host sees no more full handshakes of TLS than are allowed; others resume a session."""
    full = Counter(each.host for each in manners.connections if each.handshake == FULL)
    for host, count in full.items():
        if manners.full_handshakes is not None and count > manners.full_handshakes:
            yield f"R4: {host}: {count} full TLS handshakes; {manners.full_handshakes} are allowed"


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
