"""Rows 4 and 5: pauses, holds, and two requests at once (R4, R5; decisions 2, 3, 5 and 31)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.audit.checklist import Kind
from walsh_scrapy.policy.audit.facts import CLOCK
from walsh_scrapy.policy.audit.findings import Case
from walsh_scrapy.policy.backoff import is_refusal
from walsh_scrapy.policy.pacedhosts import host_name
from walsh_scrapy.policy.pacing import LONGEST_FOR_BLOCKLIST
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

    from walsh_scrapy.policy.audit.facts import Act, Sent
    from walsh_scrapy.policy.audit.findings import Findings

#: R4: one request a second.
_LEAST: Final = 1.0


class HostAudit:
    """Measures the pauses and holds of each host, over all runs.

    Requests come host by host, and for each host in the order of their times. ``list_hosts`` are
    those of the blocklist: for it, and for the robots.txt that it needs, pauses and holds count for
    a day at most (decision 14).
    """

    def __init__(self, findings: Findings, acts: Iterable[Act], list_hosts: Set[str]) -> None:
        self._findings = findings
        self._list_hosts = list_hosts
        self._acts: dict[tuple[str, str], list[float]] = {}
        for act in acts:
            self._acts.setdefault((act.act, host_name(act.host)), []).append(act.at)
        self._host: str | None = None
        self._ended = -math.inf
        self._held: dict[str, tuple[float, float]] = {}  # by host name: begin and end of its hold
        self._hosts = self._pauses = 0
        self._least = math.inf

    def see(self, sent: Sent, crawl_delay: float) -> None:
        """Judge one request; ``crawl_delay`` is that of its copy of robots.txt, in seconds."""
        if sent.host != self._host:
            self._host, self._ended = sent.host, -math.inf
            self._held.clear()
            self._hosts += 1
        name = host_of(sent.url)
        if sent.has_evidence:
            self._findings.judged["4"] += 1
            self._judge_host(sent, name)
            if self._ended > -math.inf:
                self._judge_pause(sent, crawl_delay)
            self._judge_hold(sent, name)
        else:
            for row in "45":
                self._findings.unshown[row, "was written by an earlier version"] += 1
        self._ended = max(self._ended, sent.ended)
        if sent.hold:
            self._hold(sent, name, sent.hold)

    def end(self) -> None:
        """Note the figures."""
        least = None if math.isinf(self._least) else round(self._least, 3)
        self._findings.note("4", hosts=self._hosts, pauses=self._pauses, least_beyond_asked=least)

    def _judge_host(self, sent: Sent, name: str) -> None:
        if name != sent.host and not name.endswith(f".{sent.host}"):
            case = _case(sent, f"{sent.url} is recorded under {sent.host}")
            self._findings.add(Kind.OTHER_HOST, case)

    def _judge_pause(self, sent: Sent, crawl_delay: float) -> None:
        pause = sent.sent_at - self._ended
        if pause < -CLOCK:
            what = f"{sent.host} was asked {-pause:.3f} s before its last exchange was over"
            self._findings.add(Kind.HOST_TWICE, _case(sent, what), -pause)
            return
        asked = self._asked(sent, crawl_delay)
        self._pauses += 1
        self._least = min(self._least, pause - asked)
        if pause < asked - CLOCK:
            what = f"{sent.host} had a pause of {pause:.3f} s, and {asked:.3f} s were asked for"
            self._findings.add(Kind.SHORT_PAUSE, _case(sent, what), asked - pause)

    def _asked(self, sent: Sent, crawl_delay: float) -> float:
        recorded = sent.pause or 0.0
        # The record has the pause as it was at the end of the exchange. One that the operator asked
        # for meanwhile did not count yet.
        if self._acted("pause", sent.host, sent.sent_at, sent.ended):
            recorded = 0.0
        asked = max(_LEAST, recorded, crawl_delay)
        return min(asked, LONGEST_FOR_BLOCKLIST) if self._is_for_list(sent) else asked

    def _judge_hold(self, sent: Sent, name: str) -> None:
        until = self._held_until(name)
        if until > -math.inf:
            since = self._held[name][0]
            if self._is_for_list(sent):
                until = min(until, since + LONGEST_FOR_BLOCKLIST)
            early = until - sent.sent_at
            if early > CLOCK and not self._acted("release", name, since, sent.sent_at):
                what = f"{name} was on hold for {format_seconds(early)} more"
                self._findings.add(Kind.TOO_EARLY, _case(sent, what), early)
        if sent.status is None or not is_refusal(sent.status, for_robots=sent.purpose == "robots"):
            return
        self._findings.judged["5"] += 1
        if not sent.hold:
            self._findings.add(Kind.NO_HOLD, _case(sent, f"{name} answered {sent.status}"))

    def _hold(self, sent: Sent, name: str, seconds: float) -> None:
        """Keep a hold of which so many seconds were left when an exchange had ended."""
        since, until = self._held.get(name, (0.0, -math.inf))
        is_the_same = sent.ended + seconds <= until + 1.0
        if not is_the_same or self._acted("release", name, since, sent.sent_at):
            since = sent.ended
        self._held[name] = since, sent.ended + seconds

    def _held_until(self, name: str) -> float:
        return self._held.get(name, (0.0, -math.inf))[1]

    def _is_for_list(self, sent: Sent) -> bool:
        is_robots = sent.purpose == "robots" and host_of(sent.url) in self._list_hosts
        return is_robots or sent.purpose == "blocklist"

    def _acted(self, act: str, host: str, since: float, until: float) -> bool:
        times = self._acts.get((act, host), ())
        return any(since - CLOCK <= at <= until + CLOCK for at in times)


class SerialAudit:
    """Finds requests of one run that were out at once; they come in the order of their times."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._ended: dict[int, float] = {}  # by run

    def see(self, sent: Sent) -> None:
        """Judge one request."""
        if sent.run is None or not sent.has_evidence:
            return
        early = self._ended.get(sent.run, -math.inf) - sent.sent_at
        if early > CLOCK:
            what = f"run {sent.run} asked {sent.host} {early:.3f} s before its last one had ended"
            self._findings.add(Kind.RUN_TWICE, _case(sent, what), early)
        self._ended[sent.run] = max(self._ended.get(sent.run, -math.inf), sent.ended)


def _case(sent: Sent, what: str) -> Case:
    return Case("requests", sent.id, sent.sent_at, what)
