"""Where a source moved to: a permanent redirect is believed once it lasts (ruling 21)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

PERMANENT: Final = frozenset({301, 308})
#: A redirect that two runs see so many seconds apart is no accident.
BELIEVED_AFTER: Final = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Move:
    """The address that permanent redirects lead to, and whether to ask there from now on."""

    to: str
    since: float  #: epoch seconds of the first visit that was led there
    is_settled: bool


def led_to(hops: Sequence[str], statuses: Sequence[int]) -> str | None:
    """Return where the permanent redirects of a visit led, None if it began with no such.

    ``hops`` are the addresses from the one asked for to the last, ``statuses`` what each but the
    last answered. A temporary redirect ends the chain.
    """
    target = None
    for following, status in zip(hops[1:], statuses, strict=True):
        if status not in PERMANENT:
            break
        target = following
    return target


def move_of(
    known: Move | None, declared: str, asked: str, target: str | None, now: float
) -> Move | None:
    """Return what is known of a source's move after a visit that brought its document.

    ``asked`` is the address the visit began with, ``target`` where permanent redirects led. The
    same target seen on two visits 7 days apart is settled; a plain step from http to https at once.
    """
    if target is None:
        return known if known and known.is_settled and asked == known.to else None
    if target == declared:
        return None
    if target == f"https{asked.removeprefix('http')}" and asked.startswith("http:"):
        return Move(target, now, is_settled=True)
    if known is None or known.to != target:
        return Move(target, now, is_settled=False)
    return replace(known, is_settled=known.is_settled or now - known.since >= BELIEVED_AFTER)
