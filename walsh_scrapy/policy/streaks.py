"""Streaks of a host, after which a run puts off its other requests (decisions 15 and 28)."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Final

from walsh_scrapy.policy.backoff import is_good, is_redirect, is_refusal
from walsh_scrapy.policy.readyhosts import Rank
from walsh_scrapy.policy.wording import count_of

#: Requests in a row that a host may leave without an answer.
TIMEOUTS: Final = 2
#: Different URLs in a row to which a host may answer 403: more are a ban, and no answer to a URL.
FORBIDDEN: Final = 3


@dataclass(slots=True)
class _Streak:
    """What one host did in a row."""

    refusals: Counter[Rank] = field(default_factory=Counter)  #: by the rank of the request
    timeouts: int = 0
    forbidden: set[str] = field(default_factory=set)  #: URLs


class Streaks:
    """What each host of a run did in a row, by host names.

    A host may refuse as many requests as it gets tries, whatever their URLs. It may let two
    requests time out, the second one a target, and answer 403 to three URLs. A redirect is no
    answer to a URL: what it leads to has not answered yet.
    """

    def __init__(self) -> None:
        self._hosts: defaultdict[str, _Streak] = defaultdict(_Streak)

    def record_answer(self, host: str, url: str, status: int, rank: Rank) -> None:
        """Record an answer to a request of ``rank``."""
        if is_good(status) and status != 403:
            self._hosts.pop(host, None)
            return
        streak = self._hosts[host]
        streak.timeouts = 0
        if is_refusal(status, for_robots=rank is Rank.ROBOTS):
            streak.refusals[rank] += 1
        elif not is_redirect(status):
            streak.refusals.clear()
        if status == 403:
            streak.forbidden.add(url)

    def record_silence(self, host: str, rank: Rank, *, timed_out: bool) -> None:
        """Record a request without an answer. For robots.txt that is a refusal (decision 12)."""
        self._hosts[host].timeouts += timed_out
        self._hosts[host].refusals[rank] += is_refusal(0, for_robots=rank is Rank.ROBOTS)

    def refusals(self, host: str, rank: Rank | None = None) -> int:
        """Return how many requests a host refused in a row: of one rank, or of all."""
        found = self._hosts[host].refusals if host in self._hosts else Counter[Rank]()
        return found.total() if rank is None else found[rank]

    def reason(self, host: str, rank: Rank, *, gave_up: bool = False) -> str | None:
        """Return why the other requests of a host are put off, after one of ``rank``; else None.

        ``gave_up`` says that the request was refused, and has no try left. A robots.txt that is
        refused puts nothing off: it counts as unreachable.
        """
        if host not in self._hosts:
            return None
        streak = self._hosts[host]
        if gave_up and rank is not Rank.ROBOTS:
            return f"it refused {count_of(streak.refusals.total(), 'request')} in a row"
        if streak.timeouts >= TIMEOUTS and rank is Rank.TARGET:
            return f"it timed out {count_of(streak.timeouts, 'time')} in a row"
        if len(streak.forbidden) >= FORBIDDEN:
            return f"it answered 403 to {count_of(len(streak.forbidden), 'URL')} in a row"
        return None
