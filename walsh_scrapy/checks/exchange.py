"""One request with its answer, and how exactly its times are known."""

from __future__ import annotations

import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

#: Statuses that ask a bot to come back later (R5).
BUSY: Final = frozenset({429, 503})
_SECONDS: Final = re.compile("[0-9]+")
#: The three forms of RFC 9110 5.6.7.
_DATE: Final = re.compile(
    "[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT"
    "|[A-Z][a-z]{5,8}, [0-9]{2}-[A-Z][a-z]{2}-[0-9]{2} [0-9:]{8} GMT"
    "|[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8} [0-9]{4}"
)


class Precision(NamedTuple):
    """How exactly times are known; all are seconds. In doubt the bot is right."""

    evidence: str  #: where the times come from
    tolerance: float  #: by which a request may seem too early and was in time
    #: The part of the tolerance that counts anew for each delay. What is missing beyond it adds up,
    #: so a bot that is a little early each time is found.
    slack: float
    date: float  #: by which a date of Retry-After may differ from the clock of the times

    def is_before(self, start: float, moment: float) -> bool:
        """Return True if a request certainly began before a moment."""
        return start < moment - self.tolerance


#: The state has when a request was allowed to go out. A crawl compared dates with the same clock.
RECORD: Final = Precision("the record: `attest`, `report`, `why`, `status`", 0.05, 0.05, 1.0)
#: A server reads a request after it was sent, and begins its last write before its end was read.
SERVER: Final = Precision("the log of a server: `assert_polite`, `violations`", 0.0, 0.0, 0.0)
#: Delays count from start to start here: one request that is read late makes the next one early.
TRIAL: Final = Precision("a trial: `conformance`", 0.1, 0.02, 0.0)
PRECISIONS: Final = (RECORD, SERVER, TRIAL)


class Exchange(NamedTuple):
    """One request with its answer. Times are seconds of one clock."""

    start: float
    end: float  #: infinite while the answer is not complete
    host: str  #: the name, or the registrable domain, by which delays are counted
    url: str
    status: int = 0  #: 0 without an answer
    headers: tuple[tuple[str, str], ...] = ()  #: of the answer
    row: int = 0  #: its number in what the caller read

    @property
    def is_busy(self) -> bool:
        """Whether the host asked to be left alone for a while."""
        return self.status in BUSY

    def held_until(self, offset: float = 0.0) -> float | None:
        """Return the end of the Retry-After of a 429 or 503; None without a valid one.

        `offset` must be added to the times of this exchange to get epoch seconds. The longest of
        several headers counts. The crawler reads this header by code of its own.
        """
        if not self.is_busy:
            return None
        values = [value for name, value in self.headers if name.lower() == "retry-after"]
        ends = (self._end_of(value.strip(" \t"), offset) for value in values)
        return max((end for end in ends if end is not None), default=None)

    def _end_of(self, value: str, offset: float) -> float | None:
        if _SECONDS.fullmatch(value):
            return self.end + float(value)
        if not _DATE.fullmatch(value):
            return None
        try:
            moment = parsedate_to_datetime(value)
        except ValueError:  # such as 31 February
            return None
        return moment.replace(tzinfo=UTC).timestamp() - offset
