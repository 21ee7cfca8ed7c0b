"""The Visit-time of a stored robots.txt, for which a next visit waits."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from walsh_scrapy.policy.durations import rfc3339
from walsh_scrapy.policy.robots.copy import RobotsFile
from walsh_scrapy.policy.urls import origin_of

if TYPE_CHECKING:
    from walsh_scrapy.options import Options
    from walsh_scrapy.state import State


def add_visit_time(row: dict[str, Any], state: State, options: Options, now: float) -> None:
    """Let the next visit in a row of `readable_sources` wait for its Visit-time.

    The view cannot read a robots.txt, and a host is on hold for its Visit-time only once a crawl
    wanted to request it. ``now`` is in epoch seconds.
    """
    if row["next_visit"] == "never":
        return
    copy = state.robots.find(origin_of(row["moved_to"] or row["url"]))
    if copy is None:
        return
    file = RobotsFile.from_copy(copy, options.ua_token, options.robots_unreachable, now)
    at = now
    if row["next_visit"] != "now":
        at = max(now, datetime.fromisoformat(row["next_visit"]).timestamp())
    if (seconds := file.closed_for(at)) > 0.0:
        row["next_visit"] = rfc3339(at + seconds)
        row["due_reason"] = "the Visit-time of its robots.txt"
