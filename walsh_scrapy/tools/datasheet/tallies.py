"""The counts of a data sheet: requests, pauses and entries, a row in memory at once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from walsh_scrapy.items import SCHEMA
from walsh_scrapy.policy.audit.pauses import PauseJudge
from walsh_scrapy.policy.timestamps import rfc3339
from walsh_scrapy.tools.report.figures import KINDS, item_of, kind_of

if TYPE_CHECKING:
    from walsh_scrapy.policy.audit.pauses import Pause
    from walsh_scrapy.policy.audit.record import Basis, EntryRow, LoggedRequest


class RequestTally:
    """Counts requests and the pauses before them; they come as `PauseJudge` takes them.

    What was sent before ``since`` (epoch seconds) decides about later pauses, and is not counted.
    """

    def __init__(self, basis: Basis, since: float) -> None:
        self.runs: set[int] = set()  #: that sent a request
        self.sources: set[str] = set()  #: that a request was sent for
        self._basis = basis
        self._since = since
        self._judge = PauseJudge(basis)
        self._hosts: set[str] = set()
        self._purposes: Counter[str] = Counter()
        self._responses: Counter[str] = Counter()
        self._pauses: Counter[str] = Counter()
        self._asked = 0.0
        self._least: float | None = None
        self._crawl_delays: dict[str, float] = {}
        self._unread = 0
        self._retry_after: Counter[str] = Counter()
        self._held: dict[str, float] = {}

    def see(self, sent: LoggedRequest) -> None:
        """Count one request."""
        pause = self._judge.judge(sent)
        if sent.sent_at < self._since:
            return
        if sent.run is not None:
            self.runs.add(sent.run)
        if sent.source is not None:
            self.sources.add(sent.source)
        self._hosts.add(sent.host)
        self._purposes[sent.purpose] += 1
        self._responses[kind_of(sent)] += 1
        self._see_pause(pause)
        self._see_demands(sent)

    def _see_pause(self, pause: Pause) -> None:
        self._asked = max(self._asked, pause.asked)
        if pause.kept is not None:
            spare = pause.kept - pause.asked
            self._least = spare if self._least is None else min(spare, self._least)
            self._pauses["short" if pause.is_breach else "kept"] += 1
        else:
            is_unknown = pause.is_uncertain or pause.is_unknown
            self._pauses["unknown" if is_unknown else "first"] += 1

    def _see_demands(self, sent: LoggedRequest) -> None:
        rules = self._basis.rules(sent)
        self._unread += sent.robots is not None and rules is None
        if rules is not None and rules.crawl_delay is not None:
            before = self._crawl_delays.get(sent.host, 0.0)
            self._crawl_delays[sent.host] = max(before, rules.crawl_delay)
        if sent.retry_after is not None:
            self._retry_after[sent.host] += 1
        if sent.hold:
            self._held[sent.host] = max(sent.hold, self._held.get(sent.host, 0.0))

    def requests(self) -> dict[str, Any]:
        """Return how many requests there were, for what, and what came of them."""
        return {
            "number": self._responses.total(),
            "hosts": len(self._hosts),
            "purposes": dict(sorted(self._purposes.items())),
            "responses": {kind: self._responses[kind] for kind in KINDS if self._responses[kind]},
        }

    def pauses(self) -> dict[str, Any]:
        """Return what was asked for and what was kept, in seconds."""
        delays = self._crawl_delays.values()
        return {
            "crawl_delay": {
                "hosts": len(delays),
                "least": min(delays, default=None),
                "longest": max(delays, default=None),
                "requests_not_known": self._unread,
            },
            "retry_after": {"answers": self._retry_after.total(), "hosts": len(self._retry_after)},
            "holds": {
                "hosts": len(self._held),
                "longest": _rounded(max(self._held.values(), default=None)),
            },
            "longest_asked": _rounded(self._asked or None),
            "kept": self._pauses["kept"],
            "short": self._pauses["short"],
            "not_known": self._pauses["unknown"],
            "first": self._pauses["first"],
            "least_beyond_asked": _rounded(self._least),
        }


class EntryTally:
    """Counts entries by kind, and by the fields that have a value."""

    def __init__(self) -> None:
        self.runs: set[int] = set()  #: that found an entry
        self._kinds: Counter[str] = Counter()
        self._fields: Counter[str] = Counter()
        self._first: float | None = None
        self._last: float | None = None

    def see(self, entry: EntryRow) -> None:
        """Count one entry; they come in the order in which they were first seen."""
        if entry.run is not None:
            self.runs.add(entry.run)
        self._kinds[entry.kind] += 1
        self._fields.update(name for name, value in item_of(entry.item).items() if value)
        self._first = entry.first_seen if self._first is None else self._first
        self._last = entry.first_seen

    def entries(self) -> dict[str, Any]:
        """Return how many entries there are, and what the schema of items lets them have."""
        fields = SCHEMA["properties"]
        return {
            "number": self._kinds.total(),
            "kinds": dict(sorted(self._kinds.items())),
            "first_seen": rfc3339(self._first),
            "last_seen": rfc3339(self._last),
            "schema": SCHEMA["$id"],
            "schema_title": SCHEMA["title"],
            "is_closed": SCHEMA["additionalProperties"] is False,
            "fields": [
                {"name": name, "what": field["description"], "filled": self._fields[name]}
                for name, field in fields.items()
            ],
            "longest_text": max(map(_longest, fields.values())),
        }


def _longest(field: dict[str, Any]) -> int:
    """Return the most characters of a text in a field; 0 if its texts are named one by one."""
    most: int = field.get("maxLength") or field.get("items", {}).get("maxLength", 0)
    return most


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3) + 0.0  # no "-0.0"
