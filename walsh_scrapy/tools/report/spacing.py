"""The pauses between requests to a host: what was asked for, and what was kept (R4, R5)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from walsh_scrapy.state.history import LoggedRequest

#: Seconds by which the log's times may be off: a request and the lease of its host are two moments.
TOLERANCE: Final = 0.01


class Asked(NamedTuple):
    """The pause that was asked for before a request: in seconds, and as what."""

    seconds: float
    by: Literal["spacing", "hold"]


class Sent(NamedTuple):
    """One request, and the pause before it."""

    record: LoggedRequest
    kept: float | None  #: seconds from the end of the exchange before it; None if none is known
    asked: Asked | None  #: None if that is not recorded

    @property
    def is_short(self) -> bool:
        """Whether the pause before it was shorter than asked for."""
        if self.kept is None or self.asked is None:
            return False
        return self.kept < self.asked.seconds - TOLERANCE


@dataclass(frozen=True, slots=True)
class HostLine:
    """The requests to one host, the first one first."""

    host: str
    sent: list[Sent] = field(default_factory=list)

    @property
    def smallest(self) -> Sent | None:
        """The request after the smallest pause; None if no pause is known."""
        paused = [each for each in self.sent if each.kept is not None]
        return min(paused, key=lambda each: each.kept or 0.0, default=None)

    @property
    def asked(self) -> Asked | None:
        """The longest pause that was asked for; None if none is recorded."""
        asked = (each.asked for each in self.sent if each.asked is not None)
        return max(asked, key=lambda each: each.seconds, default=None)

    @property
    def short(self) -> int:
        """How many pauses were shorter than asked for."""
        return sum(each.is_short for each in self.sent)

    def listed(self, most: int) -> list[Sent]:
        """Return the last requests, and before them the last ones that came too soon.

        Each of the two are ``most`` at most.
        """
        start = max(0, len(self.sent) - most)
        early = [each for each in self.sent[:start] if each.is_short]
        return [*early[-most:], *self.sent[start:]]


def host_lines(
    records: Iterable[LoggedRequest],
    held_name: Callable[[str], str],
    releases: Mapping[str, Sequence[float]],
    is_included: Callable[[LoggedRequest], bool],
) -> list[HostLine]:
    """Return the line of each host, those with short pauses first, then the longest.

    ``records`` are sorted by time, and may include others before those that are included: a pause
    counts from the last request of any run. ``held_name`` returns the name that a hold of a URL's
    host has, and ``releases`` are when the operator lifted holds, by that name.
    """
    lines: dict[str, HostLine] = {}
    before: dict[str, LoggedRequest] = {}
    held: dict[str, LoggedRequest] = {}
    for record in records:
        name = held_name(record.url)
        last, holder = before.get(record.host), held.get(name)
        before[record.host] = held[name] = record
        if not is_included(record):
            continue
        line = lines.setdefault(record.host, HostLine(record.host))
        if last is None:
            line.sent.append(Sent(record, None, None))
        else:
            asked = _asked(record, last, holder, releases.get(name, ()))
            line.sent.append(Sent(record, record.sent_at - last.ended_at, asked))
    return sorted(lines.values(), key=lambda line: (-line.short, -len(line.sent), line.host))


def _asked(
    record: LoggedRequest,
    last: LoggedRequest,
    holder: LoggedRequest | None,
    releases: Sequence[float],
) -> Asked | None:
    """Return what was asked for between ``last`` and ``record``; None if it is not recorded.

    ``holder`` is the last request whose answer could put the host of ``record`` on hold. What its
    log says includes what was left of an earlier hold. By domain it may be older than ``last``.
    """
    rest = 0.0
    if holder is not None:
        if holder.hold is None:
            return None
        lifted = (at for at in releases if holder.ended_at <= at <= record.sent_at)
        rest = holder.hold - (last.ended_at - holder.ended_at)
        rest = min([rest, *(at - last.ended_at for at in lifted)])
    if record.pause is None:
        return None
    return Asked(rest, "hold") if rest > record.pause else Asked(record.pause, "spacing")
