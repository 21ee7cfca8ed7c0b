"""When a source is due, and why: for the letter of ``walsh why``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.freshness import NEVER
from walsh_scrapy.policy.urls import url_key
from walsh_scrapy.policy.wording import format_seconds
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.state.sources import KnownSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from walsh_scrapy.sources.source import Source


def declared_source(source: Source, known: Mapping[int, KnownSource]) -> KnownSource:
    """Return the row of a declared source, under its declared URL."""
    if (found := known.get(url_key(source.url))) is None:
        return KnownSource(SourceRecord(url=source.url, kind=source.kind), 0.0, "new")
    return found._replace(record=found.record.with_url(source.url))


def undeclared(sources: Iterable[Source], known: Mapping[int, KnownSource]) -> list[KnownSource]:
    """Return the rows of all sources except these."""
    keys = {url_key(source.url) for source in sources}
    return [found for key, found in known.items() if key not in keys]


class NextVisit(NamedTuple):
    """The next visit of a source.

    ``at`` is in epoch seconds; it is None for a source that was never visited, was resumed, is gone
    or is not declared.
    """

    at: float | None
    rule: str  #: one word, for programs
    why: str  #: the same in words, for operators
    is_due: bool = False


def next_visit(
    known: KnownSource, source: Source | None, min_revisit: float, now: float
) -> NextVisit:
    """Return the next visit of a source as of ``now`` (epoch seconds).

    ``source`` is None for one that is not declared.
    ``min_revisit`` is in seconds.
    """
    if source is None:
        return NextVisit(None, "undeclared", "no longer declared")
    record, at, rule = known
    if rule == "operator":
        is_rarer = source.revisit_interval(min_revisit) > min_revisit
        rule = "failing" if record.failures else "every" if is_rarer else "revisit"
    elif rule == "asked":
        wished = max(record.server_interval, record.feed_interval)
        is_later = at > (record.visited_at or 0.0) + wished
        if is_later and (record.skip_hours or record.skip_days):
            rule = "skip"
        else:
            rule = "feed" if record.feed_interval == wished else "server"
    moment = at if 0.0 < at < NEVER else None
    return NextVisit(moment, rule, _why(rule, record, at), is_due=at <= now)


def _why(rule: str, record: SourceRecord, at: float) -> str:
    span = format_seconds(at - (record.visited_at or 0.0)) if 0.0 < at < NEVER else ""
    skips = {"skipHours": record.skip_hours, "skipDays": record.skip_days}
    return {
        "new": f"refused ({record.status})" if record.is_refused else "not visited yet",
        "clock": f"its last visit lies in the future, {format_moment(record.visited_at or 0.0)}",
        "gone": "when you resume it",
        "resumed": "you resumed it",
        "skip": f"the feed's {' and '.join(name for name, value in skips.items() if value)}",
        "failing": f"failing, {'doubled to' if record.failures > 1 else 'again after'} {span}",
        "feed": f"the feed wants {span}",
        "server": f"the server wants {span}",
        "every": f"every {span}, as declared",
        "revisit": f"every {span}",
    }[rule]
