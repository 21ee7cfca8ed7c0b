"""Requests of the days of a letter that the log has no longer: deleted by hand, or too old.

A letter never says that nothing was sent when the log may have lost it (decision 36).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from walsh_scrapy.policy.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def find_missing(
    since: str | None, overrides: Iterable[Mapping[str, Any]], kept_since: str, log_days: int
) -> list[dict[str, Any]]:
    """Return a row for each reason why requests since a day may be missing.

    ``since`` is a day such as `2026-11-17`; None for an open beginning. ``overrides`` are rows of
    `readable_overrides`. ``kept_since`` is the RFC 3339 time before which the log has nothing.
    """
    begins_at = f"{since}T00:00:00Z" if since else ""
    rows: list[dict[str, Any]] = []
    if begins_at < kept_since:
        rows.append({"cause": "expired", "before": kept_since, "log_days": log_days})
    for override in overrides:
        is_deletion = override["override"] == "forget" and override["requests"]
        if is_deletion and begins_at <= override["made_at"]:
            names = ("host", "url", "requests")
            row = {"cause": "forgotten", "before": override["made_at"]}
            rows.append(row | {name: override[name] for name in names})
    return rows


def describe_missing(row: Mapping[str, Any]) -> str:
    """Return a sentence about a row of `find_missing`, with an RFC 3339 time."""
    before = row["before"].removesuffix("T00:00:00Z")
    if row["cause"] == "expired":
        return f"Requests before {before} are no longer kept (WALSH_LOG_DAYS = {row['log_days']})."
    deleted = f"{count_of(row['requests'], 'request')} of {row['url'] or row['host']}"
    return f"We deleted {deleted} at {before}: this letter cannot say all that was sent before."
