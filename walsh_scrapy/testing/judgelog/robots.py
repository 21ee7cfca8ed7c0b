"""What a robots.txt asks of a bot, by two readers.

Protego, which is no part of the crawler, accuses. The crawler's own reader (RFC 9309) may acquit,
and names the line that denies. Where the two differ nobody is accused. The smaller of two pauses
counts, and Visit-time is closed if it is for both.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, time
from enum import Enum
from typing import TYPE_CHECKING, Final

from protego import Protego

from walsh_scrapy.policy.robots import RobotsTxt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.policy.robots import Rules

#: Verdicts that are kept; a log has more paths than that only if somebody makes them up.
_MOST_VERDICTS: Final = 100_000
#: Bytes of a target whose verdict is kept.
_LONGEST_KEPT: Final = 1000
#: Bytes of a file that Protego reads, as many as RFC 9309 2.5 asks for.
_MOST_BYTES: Final = 500 * 1024
#: Rules that Protego may keep. It has a copy of each rule for each bot that its group names.
_MOST_RULES: Final = 200_000
#: Seconds by which the clocks of a bot and of the server may differ.
_CLOCKS: Final = 60
_MINUTES: Final = 1440
_NAMES: Final = re.compile(r"\s*user[\s-]*agent", re.IGNORECASE)
_RULE: Final = re.compile(r"\s*(?:dis)?allow(?:[\s:]|$)", re.IGNORECASE)
_TIMES: Final = re.compile(rb"(?:request|visit)[- ]?(?:rate|time)", re.IGNORECASE)
#: How servers write octets that are not plain: nginx and Apache.
_ESCAPED: Final = re.compile(rb'\\(?:x([0-9A-Fa-f]{2})|(["\\]))')


class Verdict(Enum):
    """Whether a bot may ask for a target."""

    ALLOWED = 0  #: by both readers
    DENIED = 1  #: by both
    DIFFERS = 2


class Terms:
    """What is asked of all bots for which both readers find the same groups, as of ``token``."""

    def __init__(self, rules: Rules, token: str, reader: Protego, *, has_times: bool) -> None:
        self.rules, self.token = rules, token
        self._delay = reader.crawl_delay(token) or 0.0
        self._rate, self._visit = reader.request_rate(token), reader.visit_time(token)
        self._minutes: dict[int, tuple[float, bool]] = {}
        #: Seconds: the Crawl-delay, or the Request-rate that is in force at midnight.
        self.pause = self._at(0)[0]
        self._always = None if has_times else (self.pause, False)

    def at(self, moment: float, slack: float) -> tuple[float, bool]:
        """Return the least pause, and whether Visit-time was closed all the time.

        A request began at most ``slack`` seconds before an epoch second.
        """
        if self._always:
            return self._always
        first, last = int(moment - slack - _CLOCKS) // 60, int(moment + _CLOCKS) // 60
        found = [self._at(minute % _MINUTES) for minute in range(first, last + 1)]
        return min(pause for pause, _ in found), all(closed for _, closed in found)

    def why(self, target: bytes) -> str:
        """Return what the crawler's reader says of a target; no verdict comes of it."""
        verdict = self.rules.verdict(_url(target) or "/")
        if verdict.rule is None:
            return "no line of robots.txt is about it"
        return f"line {verdict.line} of robots.txt says {verdict.rule!r}"

    def _at(self, minute: int) -> tuple[float, bool]:
        known = self._minutes.get(minute)
        if known is None:
            moment = datetime.fromtimestamp(minute * 60, UTC)
            asked = max(self.rules.crawl_delay or 0.0, self.rules.interval(moment) or 0.0)
            theirs, is_closed = self._read_by_protego(moment.time())
            is_closed = is_closed and self.rules.opens(moment) > moment
            known = self._minutes[minute] = (min(asked, theirs), is_closed)
        return known

    def _read_by_protego(self, at: time) -> tuple[float, bool]:
        pause, rate, visit = self._delay, self._rate, self._visit
        if rate and (rate.start_time is None or _includes(rate.start_time, rate.end_time, at)):
            try:
                pause = max(pause, rate.seconds / rate.requests)
            except OverflowError:
                pause = math.inf
        return pause, visit is not None and not _includes(*visit, at)


def _includes(first: time, last: time | None, at: time) -> bool:
    """Return True if a time is in a window, which may cross midnight; its last minute is."""
    if last is None or first <= last:
        return first <= at and (last is None or at <= last)
    return at >= first or at <= last


class Robots:
    """One robots.txt, with the verdicts and terms that were looked up already."""

    def __init__(self, body: bytes) -> None:
        text = body[:_MOST_BYTES].decode("utf-8", "ignore")  # as Scrapy reads it
        #: Whether Protego would take too long: nobody is accused by the file then.
        self.is_too_much = sum(_rules_kept(text)) > _MOST_RULES
        self._protego = Protego.parse("" if self.is_too_much else text)
        self._rfc = RobotsTxt.parse(body)
        self._has_times = bool(_TIMES.search(body))
        self._names = {
            line[found.end() :].partition("#")[0].strip(": \t").replace("*", "").lower()
            for line in text.splitlines()
            if (found := _NAMES.match(line))
        } - {""}
        self._verdicts: dict[tuple[Terms, bytes], Verdict] = {}
        self._terms: dict[tuple[str | None, str], Terms] = {}

    def terms_of(self, token: str) -> Terms:
        """Return the terms of a bot; bots that no line is about share theirs."""
        rules, name = self._rfc.rules_for(token), token.lower()
        # Protego takes a group for that of a bot whose token has the group's name in it.
        key = (rules.group, name if any(part in name for part in self._names) else "*")
        if key not in self._terms:
            self._terms[key] = Terms(rules, token, self._protego, has_times=self._has_times)
        return self._terms[key]

    def verdict(self, terms: Terms, target: bytes) -> Verdict:
        """Return whether a bot may ask for a target, as the log has it."""
        known = self._verdicts.get((terms, target))
        if known is None:
            known = self._judge(terms, target)
            if len(self._verdicts) >= _MOST_VERDICTS:
                self._verdicts.clear()
            if len(target) <= _LONGEST_KEPT:
                self._verdicts[terms, target] = known
        return known

    def _judge(self, terms: Terms, target: bytes) -> Verdict:
        url = _url(target)
        if url is None or self.is_too_much:
            return Verdict.ALLOWED
        ours = terms.rules.verdict(url)
        try:
            is_allowed = bool(self._protego.can_fetch(url, terms.token))
        except ValueError:  # a URL that it cannot read
            is_allowed = True
        if ours.allowed or ours.undecided:
            return Verdict.ALLOWED if is_allowed else Verdict.DIFFERS
        return Verdict.DIFFERS if is_allowed else Verdict.DENIED


def _url(target: bytes) -> str | None:
    """Return the URL of a target, which is a path or a URL; None if it is neither."""
    if b"\\" in target:
        target = _ESCAPED.sub(lambda found: found[2] or bytes([int(found[1], 16)]), target)
    text = target.decode("utf-8", "replace")
    if text.startswith("/"):
        return f"http://site.example{text}"
    return text if text.startswith(("http://", "https://")) else None


def _rules_kept(text: str) -> Iterator[int]:
    """Yield for each line how many rules Protego would keep of it, at most."""
    names, is_head = 0, False
    for line in text.splitlines():
        if _NAMES.match(line):
            names, is_head = names + 1 if is_head else 1, True
        elif _RULE.match(line):
            is_head = False
        yield names
