"""Where a source moved to: a permanent redirect is believed once it lasts (decision 21).

Two visits seven days apart decide. What both saw is believed: then the source is asked for at its
new address, and what leads on from there is watched in its turn. Where both failed is doubted: then
the declared address and the new one are asked by turns, until one answers. Only a document forgets
a move, one that the declared address brings itself, or by another way; no failure does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.urls import LONGEST_DECLARED

if TYPE_CHECKING:
    from collections.abc import Sequence

PERMANENT: Final = frozenset({301, 308})
#: What two visits see so many seconds apart is no accident.
BELIEVED_AFTER: Final = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Move:
    """The address that permanent redirects lead to, and whether to ask there from now on."""

    to: str
    since: float  #: epoch seconds of the first visit that was led there
    is_settled: bool
    onward: Move | None = None  #: what leads on from there, not believed yet
    failing_since: float | None = None  #: the first of the visits in a row that failed there

    @property
    def is_doubted(self) -> bool:
        """Tell whether it was settled, and failed so long that the declared address has a turn."""
        return self.failing_since is not None and not self.is_settled


def led_along(hops: Sequence[str], statuses: Sequence[int]) -> tuple[str, ...]:
    """Return the addresses that permanent redirects led a visit to, one after the other.

    ``hops`` are the addresses from the one asked for to the last, ``statuses`` what each but the
    last answered. A temporary redirect ends the chain, and so does an address so long that nobody
    could declare it.
    """
    found: list[str] = []
    for following, status in zip(hops[1:], statuses, strict=True):
        if status not in PERMANENT or len(following) > LONGEST_DECLARED:
            break
        found.append(following)
    return tuple(found)


def move_of(
    known: Move | None, declared: str, asked: str, way: Sequence[str], now: float
) -> Move | None:
    """Return what is known of a source's move after a visit that brought its document.

    ``asked`` is the address its request began with, ``way`` where permanent redirects led from
    there. What is neither the declared nor the new address is a document beside them.
    The same end of the way on two visits 7 days apart is settled; a plain step from http to https
    at once, and what leads on from there is watched.
    """
    here = known if known and asked == known.to else None
    if here is None and asked != declared:
        return replace(known, failing_since=None) if known and known.is_settled else known
    if (way[-1] if way else asked) == declared:
        return None
    if way and _is_plain_step(asked, way[0]):
        here, way = Move(way[0], now, is_settled=True), way[1:]
        if known and known.to == here.to:  # what leads on from there may have been seen before
            here = replace(here, onward=known.onward)
    if here is None:
        return _watched(known, way[-1], now)
    if not way:
        return replace(here, onward=None, failing_since=None)
    onward = _watched(here.onward, way[-1], now)
    return onward if onward.is_settled else replace(here, onward=onward, failing_since=None)


def passing(
    known: Move | None, declared: str, asked: str, way: Sequence[str], now: float
) -> Move | None:
    """Return the same after a page that a visit only comes by, on its way to another document.

    Where the page is says nothing of whether the visit will bring anything.
    """
    move = move_of(known, declared, asked, way, now)
    if known is None or move is None or move.to != known.to:
        return move
    return known if known.is_doubted else replace(move, failing_since=known.failing_since)


def after_failure(known: Move | None, declared: str, asked: str, now: float) -> Move | None:
    """Return what is known of a source's move after a visit that brought nothing."""
    if known is None:
        return None
    if known.is_settled and asked == known.to:
        since = now if known.failing_since is None else known.failing_since
        return replace(known, failing_since=since, is_settled=now - since < BELIEVED_AFTER)
    if known.is_doubted and asked == declared:
        return replace(known, is_settled=True)
    return known


def is_for_good(statuses: Sequence[int]) -> bool:
    """Tell whether each redirect of a visit is permanent: what is gone there (410) is gone."""
    return PERMANENT.issuperset(statuses)


def _watched(known: Move | None, target: str, now: float) -> Move:
    """Return a move to a target that is settled if it was first seen long ago."""
    since = known.since if known and known.to == target else now
    return Move(target, since, is_settled=now - since >= BELIEVED_AFTER)


def _is_plain_step(address: str, target: str) -> bool:
    return address.startswith("http:") and target == f"https{address.removeprefix('http')}"
