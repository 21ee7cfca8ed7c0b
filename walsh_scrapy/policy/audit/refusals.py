"""Row 5: how long a host was left alone after it refused (R5; decision 15).

A Retry-After counts as it was recorded, and is read by other code than that of the crawl. Without
one, the holds of refusals in a row double, and chance makes each of them longer.
"""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.policy.audit.checklist import Breach, Case, Kind
from walsh_scrapy.policy.audit.clocks import TOLERANCE
from walsh_scrapy.policy.backoff import LONGEST_SECONDS
from walsh_scrapy.policy.freshness import CLOCK_SKEW
from walsh_scrapy.policy.pacing import QUIET_SECONDS
from walsh_scrapy.policy.wording import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.policy.audit.record import Basis, LoggedRequest

_SECONDS: Final = re.compile("[0-9]{1,10}")
#: The form of a date that every server is to send (RFC 9110 5.6.7).
_DATE: Final = re.compile("[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT")
#: Chance adds up to half of a hold.
_CHANCE: Final = 1.5
#: With chance, so many holds differ by more than a thousandth of themselves.
_MANY: Final = 5
_ALIKE: Final = 0.001


class _Streak(NamedTuple):
    """Refusals of one host in a row."""

    number: int
    ended: float  #: of the last one
    id: int


class RefusalJudge:
    """Judges the hold after each refusal; requests come as `PauseJudge` takes them.

    The record may lack refusals, so a streak is at least as long as it seems. In doubt a new one
    begins: where rows stand in another order than they were written in, clocks were set.
    """

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        self._host: str | None = None
        self._streak: _Streak | None = None
        # What chance added to the holds, as parts of them, and the last request with one.
        self._added: list[float] = []
        self._last: Case | None = None

    def breaches(self, sent: LoggedRequest) -> Iterator[Breach]:
        """Judge the hold that a refusal began."""
        if sent.host != self._host:
            self._host, self._streak = sent.host, None
        asked, streak = _asked_for(sent), self._streak
        since = sent.ended if streak is None else streak.ended
        if streak is not None and sent.id > streak.id and sent.sent_at < streak.ended:
            return  # it was sent before the host refused: both are one burst
        self._streak = streak = _continued(streak, sent)
        if sent.error or not sent.hold:
            return
        if sent.retry_after is not None:
            if sent.hold < asked:
                had = format_seconds(sent.hold)
                what = f"{sent.host} asked for {sent.retry_after!r}, and had {had}"
                yield Breach(Kind.SHORT_HOLD, Case.of(sent, what), asked - sent.hold, sent.ended)
        elif (least := self._least(sent, streak.number)) is not None:
            if sent.hold < least - TOLERANCE:
                had = f"{format_seconds(sent.hold)} after {streak.number} refusals in a row"
                what = f"{sent.host} was left alone for {had}"
                yield Breach(Kind.NO_GROWTH, Case.of(sent, what), least - sent.hold, since)
            self._note_chance(sent, sent.hold / least)

    def end(self) -> Iterator[Breach]:
        """Judge whether there was any chance in the holds."""
        if self._last is None or len(self._added) < _MANY:
            return
        if max(self._added) - min(self._added) < _ALIKE:
            case = self._last._replace(what=f"{len(self._added)} holds have no chance in them")
            yield Breach(Kind.NO_JITTER, case)

    def _least(self, sent: LoggedRequest, number: int) -> float | None:
        """Return the seconds of a hold without chance; None if the run's settings are not known."""
        run = self._basis.run(sent)
        if run is None or not run.facts.backoff_base:
            return None
        base, cap = run.facts.backoff_base, run.facts.backoff_max
        return min(max(base, cap / _CHANCE), base * 2.0 ** min(number - 1, 60))

    def _note_chance(self, sent: LoggedRequest, part: float) -> None:
        """Keep what chance did to a hold, where it had room and its streak is known."""
        run = self._basis.run(sent)
        has_room = run is not None and run.facts.backoff_max >= _CHANCE * run.facts.backoff_base
        if has_room and part <= _CHANCE + _ALIKE and len(self._added) < 1000:
            self._added.append(part)
            self._last = Case.of(sent, "")


def _continued(streak: _Streak | None, sent: LoggedRequest) -> _Streak:
    is_next = (
        streak is not None
        and sent.id > streak.id
        and sent.ended - streak.ended < QUIET_SECONDS - TOLERANCE
    )
    return _Streak(streak.number + 1 if streak and is_next else 1, sent.ended, sent.id)


def _asked_for(sent: LoggedRequest) -> float:
    """Return the seconds that a Retry-After asks for at least; 0 where that is not certain.

    A date is compared with a clock that may be wrong.
    """
    asked = 0.0
    for line in (sent.retry_after or "").split("\n"):
        text = line.strip(" \t")
        if _SECONDS.fullmatch(text):
            asked = max(asked, int(text) - TOLERANCE)
        elif _DATE.fullmatch(text):
            try:
                until = parsedate_to_datetime(text).timestamp()
            except ValueError:
                continue
            asked = max(asked, until - sent.ended - CLOCK_SKEW)
    return min(asked, LONGEST_SECONDS - TOLERANCE)
