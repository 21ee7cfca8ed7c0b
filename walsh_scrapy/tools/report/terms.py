"""What hosts and the operator ask for, as far as the state still knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy.policy.robots.access import RobotsFile
from walsh_scrapy.policy.urls import origin_of
from walsh_scrapy.tools.report.spacing import Asked, Terms, asked_spacing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from walsh_scrapy.options import Options
    from walsh_scrapy.state import State
    from walsh_scrapy.state.requests import RequestRecord
    from walsh_scrapy.state.runs import RunRecord


class KnownTerms:
    """Says which spacing was asked for before a request.

    The log has no column for it. So it is computed again: from the settings of the request's run,
    the time of the exchange before it, the pauses of the operator, and the copy of robots.txt that
    the state has. What an older copy asked for is not known, so a copy counts for requests after
    it was read. robots.txt itself is requested before its Crawl-delay is known.
    """

    def __init__(self, state: State, options: Options, runs: Iterable[RunRecord]) -> None:
        self._state = state
        self._options = options
        self._default = Terms(options.min_interval, options.latency_factor)
        self._by_run = {run.id: _terms(run, self._default) for run in runs}
        self._pauses = state.history.pauses()
        self._files: dict[str, RobotsFile | None] = {}

    def __call__(self, before: RequestRecord, record: RequestRecord) -> Asked:
        """Return the spacing asked for between two requests to one host."""
        terms = self._by_run.get(record.run or 0, self._default)
        return asked_spacing(
            terms, before.seconds, self._robots_interval(record), self._pause(record)
        )

    def _pause(self, record: RequestRecord) -> float:
        given = [act for act in self._pauses.get(record.host, ()) if act.at <= record.sent_at]
        return given[-1].seconds if given else 0.0

    def _robots_interval(self, record: RequestRecord) -> float:
        if "robots: " not in record.gates:
            return 0.0
        origin = origin_of(record.url)
        if origin not in self._files:
            self._files[origin] = self._read(origin, record.sent_at)
        file = self._files[origin]
        if file is None or record.sent_at < file.copy.fetched_at:
            return 0.0
        return file.interval(record.sent_at)

    def _read(self, origin: str, now: float) -> RobotsFile | None:
        copy, options = self._state.robots.find(origin), self._options
        if copy is None:
            return None
        return RobotsFile.read(copy, options.ua_token, options.robots_unreachable, now)


def _terms(run: RunRecord, default: Terms) -> Terms:
    values = (run.settings.get(name, known) for name, known in default._asdict().items())
    return Terms(*map(float, values))
