"""Redirects: where a Location leads, and which permanent redirects of a source are remembered.

References in headers (Location, Link) are resolved as browsers do (decision 16; RFC 3986 5.2).

A move is settled once two visits at least seven days apart saw the same permanent redirect
(decision 21). From then on the source is requested at its new address. A redirect from there is
observed in the same way: it is the onward move. If all visits to the new address fail for seven
days, the move is doubted: visits then go to the declared address and to the new one alternately,
until one brings a document. Failures never remove a move. It is removed when a visit ends at the
declared address, and replaced when the declared address redirects elsewhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin

from w3lib.url import safe_url_string

from walsh_scrapy.policy.urls import (
    LONGEST_DECLARED,
    LONGEST_FOLLOWED,
    origin_of,
    replace_backslashes,
    strip_controls,
    wire_url,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

#: How many of the URLs that a page announces are tried, until one answers as markdown.
MOST_ANNOUNCED: Final = 3
_BEYOND_ASCII: Final = re.compile(rb"[\x80-\xff]")


def resolve_reference(base: str, reference: bytes) -> str | None:
    r"""Return the http or https URL to request for a reference in a header of the page `base`.

    Bytes beyond ASCII are percent-encoded as they are, whatever their encoding: `/caf\xe9` becomes
    `/caf%E9`. None if no request can go there, or if the URL is longer than `LONGEST_FOLLOWED`
    characters. Never raises.

    >>> resolve_reference("http://a.example/dir/page", b"//b.example/x y")
    'http://b.example/x%20y'
    """
    text = _BEYOND_ASCII.sub(lambda byte: b"%%%02X" % byte[0][0], reference).decode("ascii")
    try:
        absolute = _join(base, replace_backslashes(strip_controls(text)))
        target = safe_url_string(wire_url(absolute))
    except ValueError:
        return None
    origin = origin_of(absolute)
    # Without its last `?` or `:` a text that no request can go to may become one with a host.
    is_web = origin.startswith(("http://", "https://")) and origin == origin_of(target)
    return target if is_web and len(target) <= LONGEST_FOLLOWED else None


def _join(base: str, reference: str) -> str:
    """Return an absolute URL.

    `urljoin` reads some references as paths that browsers read as hosts (WHATWG URL 4.4): in them
    the base's own scheme in front changes nothing, and two slashes or more are followed by a host.
    """
    scheme = f"{base.partition(':')[0]}:"
    rest = reference[len(scheme) :] if reference.lower().startswith(scheme) else reference
    return scheme + rest if rest.startswith("//") else urljoin(base, reference)


#: The statuses of permanent redirects (RFC 9110 15.4.2, 15.4.9).
PERMANENT: Final = frozenset({301, 308})
#: Seconds between the two visits that have to see the same redirect before a move is settled.
SETTLED_AFTER: Final = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Move:
    """The new address of a source, and whether it is requested there. Times are epoch seconds."""

    to: str
    since: float  #: the first visit that was redirected there
    is_settled: bool  #: the source is requested at the new address
    onward: Move | None = None  #: the move from there, which is not settled yet
    failing_since: float | None = None  #: the first of the latest visits, all of which failed there

    @property
    def is_doubted(self) -> bool:
        """Return True if it was settled, and visits failed so long that it no longer is."""
        return self.failing_since is not None and not self.is_settled


def permanent_targets(urls: Sequence[str], statuses: Sequence[int]) -> tuple[str, ...]:
    """Return the targets of a visit's permanent redirects, up to its first temporary one.

    ``urls`` are the requested URLs, from the first to the last; ``statuses`` are those of the
    redirects, one fewer. A target that is too long to be declared ends the chain as well.
    """
    found: list[str] = []
    for target, status in zip(urls[1:], statuses, strict=True):
        if status not in PERMANENT or len(target) > LONGEST_DECLARED:
            break
        found.append(target)
    return tuple(found)


def are_permanent(statuses: Sequence[int]) -> bool:
    """Return True if no redirect of a visit is temporary: a 410 at its end is for the source."""
    return PERMANENT.issuperset(statuses)


def move_after_document(
    known: Move | None, declared: str, requested: str, targets: Sequence[str], now: float
) -> Move | None:
    """Return a source's move after a visit that ended at its document, or None if it has none.

    ``requested`` is the URL of the visit's first request, ``targets`` what `permanent_targets`
    returns for it. If ``requested`` is neither the declared nor the new address, the document is
    an additional one, and says nothing about a move.

    A redirect from http to https that changes nothing else is settled at once.
    """
    here = known if known and requested == known.to else None
    if here is None and requested != declared:
        return replace(known, failing_since=None) if known and known.is_settled else known
    if (targets[-1] if targets else requested) == declared:
        return None
    if targets and _is_https_upgrade(requested, targets[0]):
        here, targets = Move(targets[0], now, is_settled=True), targets[1:]
        if known and known.to == here.to:  # an earlier visit may have seen the onward move
            here = replace(here, onward=known.onward)
    if here is None:
        return _observation(known, targets[-1], now)
    if not targets:
        return replace(here, onward=None, failing_since=None)
    onward = _observation(here.onward, targets[-1], now)
    return onward if onward.is_settled else replace(here, onward=onward, failing_since=None)


def move_after_intermediate(
    known: Move | None, declared: str, requested: str, targets: Sequence[str], now: float
) -> Move | None:
    """Return a source's move after an intermediate page, which led the visit to its document.

    As `move_after_document`, but failures count on: the visit can still fail.
    """
    move = move_after_document(known, declared, requested, targets, now)
    if known is None or move is None or move.to != known.to:
        return move
    return known if known.is_doubted else replace(move, failing_since=known.failing_since)


def move_after_failure(
    known: Move | None, declared: str, requested: str, now: float
) -> Move | None:
    """Return a source's move after a visit that brought no document."""
    if known is None:
        return None
    if known.is_settled and requested == known.to:
        since = now if known.failing_since is None else known.failing_since
        return replace(known, failing_since=since, is_settled=now - since < SETTLED_AFTER)
    if known.is_doubted and requested == declared:
        return replace(known, is_settled=True)
    return known


def _observation(known: Move | None, target: str, now: float) -> Move:
    """Return a move to ``target``, which is settled if it was first seen long enough ago."""
    since = known.since if known and known.to == target else now
    return Move(target, since, is_settled=now - since >= SETTLED_AFTER)


def _is_https_upgrade(url: str, target: str) -> bool:
    return url.startswith("http:") and target == f"https{url.removeprefix('http')}"
