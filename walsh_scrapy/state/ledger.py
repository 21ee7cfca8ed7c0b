"""The ledger: when each host may be asked, and by which process (R4, R5; decisions 2, 28, 31)."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from walsh_scrapy.policy.pacing import (
    Event,
    GiveBack,
    Hold,
    Lease,
    Lift,
    OperatorPause,
    Release,
    UnleasedEnd,
    Widen,
    after,
)
from walsh_scrapy.state.claims import Claims, End, Held
from walsh_scrapy.state.hosts import Act, HostSnapshot, write_act
from walsh_scrapy.state.log import forget_lease, log_end, log_lease

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from sqlalchemy import Connection

    from walsh_scrapy.policy.backoff import Backoff
    from walsh_scrapy.policy.hosttimes import HoldBy, HostTimes
    from walsh_scrapy.policy.pacing import Exchange
    from walsh_scrapy.state.hostrows import Change, Write
    from walsh_scrapy.state.log import LoggedLease, RequestRecord


class LeaseResult(NamedTuple):
    """What the ledger answers to a process that asks to lease a host."""

    wait: float  #: seconds after which to ask again; 0 if the lease is ours now
    #: Whether the host is ready, and was not leased: what was asked for came meanwhile.
    came_meanwhile: bool = False


class _NotLeased(Exception):
    """The host is ready, but not leased: the transaction of its lease is rolled back."""

    def __init__(self, result: LeaseResult) -> None:
        super().__init__()
        self.result = result


class Ledger(Claims):
    """The table by which all processes that share a state pace their requests.

    A request is logged with the lease of its host, and its end with the release.
    """

    def find(self, host: str) -> HostSnapshot:
        """Return what is known of a host, now; a host that was never asked has empty times.

        It does not wait for a claim of this process.
        """
        self.write_end(host)
        times, now = super().find(host)
        return HostSnapshot(self._free(host, times), now)

    def take(
        self,
        host: str,
        spacing: float,
        timeout: float,
        *,
        most: float = math.inf,
        claims: float = 0.0,
        record: RequestRecord | None = None,
        came_meanwhile: Callable[[Connection, float | None], bool] | None = None,
    ) -> LeaseResult:
        """Lease a host for one request of at most ``timeout`` seconds, if it is ready.

        Spacing and hold count for at most ``most`` seconds. The host stays claimed for ``claims``
        seconds from now, unless it is given up before. ``record`` is the request: it is logged with
        the lease, and has no end until `release`. ``came_meanwhile`` is asked within the
        transaction, with when the last exchange with the host ended, whoever made it; if it returns
        True, another process has done what the request is for, and the host is not leased.
        """
        logged: LoggedLease | None = None
        self.write_end(host)
        # While a request is out, its lease is no mere claim.
        claimed_until = 0.0 if self._has(host).is_out else self._claim_end(host)

        def pause_of(change: Change) -> float | None:
            free = self._free(host, change.before)
            times, least = free.with_limit(most), min(spacing, most)
            if times.ready_at(least) > change.now:
                return None
            return 0.0 if times.ended is None else times.spacing_with(least)

        def log(connection: Connection, change: Change) -> None:
            nonlocal logged
            pause = pause_of(change)
            if pause is None:
                return
            if came_meanwhile is not None and came_meanwhile(connection, change.before.ended):
                raise _NotLeased(LeaseResult(0.0, came_meanwhile=True))
            if record is not None:
                sent = replace(record, sent_at=change.now, pause=pause)
                logged = log_lease(connection, sent)

        try:
            event = Lease(spacing, timeout, self._holder, most, claimed_until)
            change = self._change(host, event, log)
        except _NotLeased as error:
            return error.result
        if pause_of(change) is None:
            times = self._free(host, change.before).with_limit(most)
            return LeaseResult(times.recheck_at(change.now, min(spacing, most)) - change.now)
        self._note(host, is_out=True, logged=logged)
        if claims:
            self._keep([host], change.now, change.now + claims)
        return LeaseResult(0.0)

    def release(
        self,
        host: str,
        exchange: Exchange,
        backoff: Backoff,
        record: RequestRecord,
        *,
        later: bool = False,
    ) -> HostSnapshot:
        """Release a host at the end of an exchange; log that end in the same transaction.

        With ``later`` nothing is written yet: `write_end` does that, or the next change of the
        host. The lease protects the host until then.
        """
        event, row = Release(exchange, backoff, self._holder), self._rows.get(host)
        if not later or row is None:
            try:
                return self._snapshot(host, self._end(host, End(event, record)))
            except BaseException:  # the next change of the host writes it
                ended = record.sent_at + (record.seconds or 0.0)
                self._note(host, end=End(event, record, ended))
                raise
        now = self._now()
        self._note(host, end=End(event, record, now))
        return HostSnapshot(after(row.times.with_clock_at(now), event, now), now)

    def write_end(self, host: str, also: Callable[[Connection], None] | None = None) -> None:
        """Write the end of the last exchange with a host, if it was left for later.

        ``also`` writes what came of it, in the same transaction; in one of its own if there is no
        such end. If that fails, the end is still left for later.
        """
        if end := self._has(host).end:
            self._end(host, end, also)
        elif also is not None:
            self._database.write(also)

    def write_ends(self) -> None:
        """Write all ends that were left for later."""
        for host in list(self._held):
            self.write_end(host)

    def unclaim(self, names: Collection[str], *, put_off: bool = False) -> None:
        """Give hosts up; with ``put_off`` some of their work was put off to a later run.

        A host that a request is out for is given up when that has ended.
        """
        for name in names:
            self.finish(name, put_off=put_off)
        for name in names:
            self.write_end(name)
        super().unclaim([name for name in names if not self._has(name).is_out], put_off=put_off)

    def give_back(self, host: str) -> None:
        """Release a host that was leased for a request which was never sent (decision 29).

        Nothing of it stays in the log.
        """
        held = self._has(host)

        def forget(connection: Connection, _change: Change) -> None:
            if held.logged is not None:
                forget_lease(connection, held.logged)

        try:
            event = GiveBack(self._holder, self._claim_end(host), held.put_off)
            self._change(host, event, forget)
        finally:
            self._over(host)

    def answered(self, host: str, exchange: Exchange, backoff: Backoff) -> HostSnapshot:
        """Write the hold that an exchange without a lease leads to."""
        return self._snapshot(host, self._change(host, UnleasedEnd(exchange, backoff)))

    def hold(self, host: str, seconds: float, by: HoldBy = "") -> HostSnapshot:
        """Put a host on hold for some seconds, and record by what; a longer hold stays."""
        return self._snapshot(host, self._change(host, Hold(seconds, by)))

    def widen(self, host: str, interval: float) -> HostSnapshot:
        """Give a host a spacing of at least ``interval`` seconds."""
        return self._snapshot(host, self._change(host, Widen(interval)))

    def lift(self, host: str, reason: str) -> float:
        """End the hold of a host, and record the act with its reason (decision 31).

        Return the seconds that were left of it; 0 if there was none, and nothing is recorded.
        """
        change = self._change(host, Lift(), partial(_write_act, host, reason))
        return max(0.0, change.before.hold_until - change.now)

    def pause(self, host: str, seconds: float, reason: str) -> HostSnapshot:
        """Give a host a spacing of at least ``seconds`` for good; 0 ends that (decision 31).

        The act is recorded with its reason, if it changes anything.
        """
        event = OperatorPause(seconds)
        return self._snapshot(host, self._change(host, event, partial(_write_act, host, reason)))

    def _change(
        self, host: str, event: Event, also: Write | None = None, *, at: float | None = None
    ) -> Change:
        self.write_end(host)
        return super()._change(host, event, also, at=at)

    def _end(self, host: str, end: End, also: Callable[[Connection], None] | None = None) -> Change:
        """Write the end of an exchange."""
        held = self._has(host)

        def log(connection: Connection, change: Change) -> None:
            hold = max(end.record.hold, change.times.hold_until - change.at, 0.0)
            log_end(connection, replace(end.record, hold=hold), held.logged)
            if also is not None:
                also(connection)

        event = replace(end.event, claimed_until=self._claim_end(host), put_off=held.put_off)
        change = super()._change(host, event, log, at=end.at)
        self._over(host)
        return change

    def _over(self, host: str) -> None:
        """Note that the exchange with a host is over: its claim goes on, or ended with it."""
        held = self._has(host)
        kept = Held(is_claimed=True, ends_at=held.ends_at) if held.goes_on else Held()
        self._note(host, **kept._asdict())

    def _free(self, host: str, times: HostTimes) -> HostTimes:
        """Return the times of a host without a claim of this process, which does not wait for it.

        It waits for a request that is out.
        """
        is_claimed = self._claim_end(host) and not self._has(host).is_out
        return times.without_lease(self._holder) if is_claimed else times

    def _snapshot(self, host: str, change: Change) -> HostSnapshot:
        return HostSnapshot(self._free(host, change.times), change.now)


def _write_act(host: str, reason: str, connection: Connection, change: Change) -> None:
    """Record what the operator did, if it changed anything."""
    before, times, now = change.before, change.times, change.now
    if times.pause != before.pause:
        write_act(connection, Act(now, host, "pause", times.pause, reason))
    elif times.hold_until != before.hold_until:
        left = max(0.0, before.hold_until - now)
        write_act(connection, Act(now, host, "release", left, reason))
