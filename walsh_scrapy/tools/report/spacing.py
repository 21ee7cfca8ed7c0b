"""The pauses between requests to a host: the spacing asked for, and the spacing kept (R4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from walsh_scrapy.policy.pacing import spacing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from walsh_scrapy.state.requests import RequestRecord

#: Seconds by which the log's times may be off: a request and the lease of its host are two moments.
TOLERANCE: Final = 0.01


class Asked(NamedTuple):
    """The spacing that was asked for before a request: in seconds, and by what."""

    seconds: float
    by: str


#: Returns the spacing between an exchange and the next request to its host.
AskedBetween: TypeAlias = "Callable[[RequestRecord, RequestRecord], Asked]"


class Sent(NamedTuple):
    """One request, and the pause before it; ``kept`` is None for the first one known."""

    record: RequestRecord
    kept: float | None  #: seconds from the end of the exchange before it
    asked: Asked | None

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
        """The largest spacing that was asked for; None if no pause is known."""
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
    records: Iterable[RequestRecord],
    asked_between: AskedBetween,
    is_included: Callable[[RequestRecord], bool],
) -> list[HostLine]:
    """Return the line of each host, those with short pauses first, then the longest.

    ``records`` are sorted by time, and may include others before those that are included: a pause
    counts from the last request of any run.
    """
    lines: dict[str, HostLine] = {}
    before: dict[str, RequestRecord] = {}
    for record in records:
        last = before.get(record.host)
        before[record.host] = record
        if not is_included(record):
            continue
        line = lines.setdefault(record.host, HostLine(record.host))
        if last is None:
            line.sent.append(Sent(record, None, None))
        else:
            kept = record.sent_at - (last.sent_at + last.seconds)
            line.sent.append(Sent(record, kept, asked_between(last, record)))
    return sorted(lines.values(), key=lambda line: (-line.short, -len(line.sent), line.host))


class Terms(NamedTuple):
    """The settings of a run that decide about spacing: seconds, and a factor."""

    min_interval: float
    latency_factor: float


def asked_spacing(terms: Terms, latency: float, robots_interval: float, pause: float) -> Asked:
    """Return the spacing asked for after an exchange of ``latency`` seconds, and by what (R4).

    ``robots_interval`` is what robots.txt asks for and ``pause`` what the operator does, in
    seconds; 0 for neither.
    """
    wanted = spacing(terms.min_interval, robots_interval, terms.latency_factor, latency)
    if pause > wanted:
        return Asked(pause, "your pause")
    if wanted <= terms.min_interval:
        return Asked(wanted, "settings")
    if robots_interval >= wanted:
        return Asked(wanted, "robots.txt")
    return Asked(wanted, "a slow answer")
