"""The checks of rows 4 and 5 of the audit: the gaps, holds and retries of each host.

A query gives each request an outcome, and counts the outcomes for `Tally.add`. The waits that
robots.txt asks for come from `rowchecks.check_robots`. Times are epoch seconds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.feeds.attest.record import (
    AFTER_UNKNOWN,
    CLOCK_SET,
    END_UNKNOWN,
    ENDED_AT,
    IS_REDIRECT,
    LACKS_COPY,
    NO_COPY,
    NO_RUN,
    UNNAMED_COPY,
    is_true_sql,
)
from walsh_scrapy.identity import UA_TOKEN
from walsh_scrapy.policy.pacing import MAX_BLOCKLIST_WAIT_SECONDS, QUIET_SECONDS
from walsh_scrapy.state.gaps import GAP_TOLERANCE, gaps, is_early

if TYPE_CHECKING:
    from walsh_scrapy.feeds.attest.record import Record, Tally

#: The same as `policy.backoff.is_refusal`, in SQL.
_IS_REFUSED: Final = "(r.status IN (429, 503) OR (r.purpose = 'robots' AND r.status >= 500))"
#: The maximum jitter, as a factor of the hold (`policy.backoff.backoff_delay`).
_MAX_JITTER: Final = 1.5
#: So many holds in a row that are the same part longer than the minimum have no jitter.
_MIN_EQUAL_HOLDS: Final = 20
_MIN_SPREAD: Final = 0.001
_CUT_OFF: Final = "was refused by an answer that did not end"


class Waits(NamedTuple):
    """What the copies of robots.txt say about the times of requests."""

    #: The number of the copy, the product token, and the seconds of the longer one of Crawl-delay
    #: and the Request-rate of all day.
    delays: list[tuple[int, str, float]]
    closed: list[int]  #: the requests that were sent outside of the Visit-time


def ask_pace(record: Record, tally: Tally, waits: Waits) -> None:
    """Check gaps, holds and overlaps, and the Visit-time."""
    sql = record.sql
    ended_at = f"({ENDED_AT})"
    is_hold_in_force = f"(g.released_at IS NULL OR g.released_at > {ended_at})"
    earlier_hold = f"CASE WHEN {is_hold_in_force} THEN coalesce(g.hold_until, 0.0) ELSE 0.0 END"
    held_until = sql.greatest(f"{ended_at} + r.hold", earlier_hold)
    by_run = f"""max({ended_at}) OVER (PARTITION BY r.run ORDER BY r.requested_at, r.id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"""
    at_once = record.if_certain("run-at-once", CLOCK_SET, "r.run_ended_at", "r.requested_at")
    no_growth = record.if_certain("no-growth", CLOCK_SET, "r.row_since", "r.ended_at")
    is_closed = f"r.id IN (SELECT CAST(value AS BIGINT) FROM {_rows_of_sql(record, 'closed')})"
    closed = record.if_certain("visit-time", CLOCK_SET, "r.requested_at", "r.requested_at")
    counted = f"""
WITH {record.shared}, {_copy_delays_sql(record)}, {_growth_sql(record)}, judged AS (
    SELECT r.id, r.requested_at, r.duration, r.error, r.hold, g.problem, g.gap, g.own_gap,
        g.gap_unknown,
        {sql.greatest("g.delay", _copy_delay_sql(record))} AS delay, g.hold_counts_until,
        t.run, t.serial, r.robots IS NOT NULL AND copies.id IS NULL AS has_no_copy,
        {LACKS_COPY} AS lacks_copy,
        {by_run} AS run_ended_at, {_IS_REFUSED} AS is_refused, {ended_at} AS ended_at,
        {held_until} AS held_until, coalesce(r.retry_after, 0.0) AS retry_after,
        growth.least, growth.row_since
    FROM ({gaps(sql)}) g JOIN requests r ON r.id = g.id LEFT JOIN terms t ON t.run = r.run
        LEFT JOIN copies ON copies.id = r.robots
        LEFT JOIN copy_delays c ON c.copy = r.robots AND c.token = t.token
        LEFT JOIN growth ON growth.id = r.id
)
SELECT pace, refusal, count(*) AS count, min(id) AS first FROM (
    SELECT r.id,
        CASE WHEN {is_early("gap", "own_gap", "0.0", "delay")} THEN 'host-at-once'
            WHEN {is_early("gap", "own_gap", "delay", "delay")} THEN 'short-gap'
            WHEN run IS NOT NULL AND {is_true_sql("coalesce(serial, '1')")}
                AND requested_at < run_ended_at - {GAP_TOLERANCE}
                THEN {at_once}
            WHEN run IS NULL THEN '{NO_RUN}'
            WHEN {is_closed} THEN {closed}
            WHEN gap_unknown = 'a clock was set' THEN '{CLOCK_SET}'
            WHEN gap_unknown LIKE 'end of %' THEN '{AFTER_UNKNOWN}'
            WHEN has_no_copy THEN '{NO_COPY}'
            WHEN lacks_copy THEN '{UNNAMED_COPY}'
            ELSE '' END AS pace,
        CASE WHEN problem = 'on hold' THEN 'too-early'
            WHEN hold_counts_until > requested_at AND gap_unknown = 'a clock was set'
                THEN '{CLOCK_SET}'
            WHEN duration IS NULL THEN '{END_UNKNOWN}'
            WHEN NOT coalesce(is_refused, false) THEN NULL
            WHEN held_until < ended_at + {GAP_TOLERANCE}
                THEN CASE WHEN error = '' THEN 'no-hold' ELSE '{_CUT_OFF}' END
            WHEN held_until < ended_at + retry_after - {GAP_TOLERANCE} THEN 'short-hold'
            WHEN hold > 0.0 AND hold < least - {GAP_TOLERANCE}
                THEN {no_growth}
            ELSE '' END AS refusal
    FROM judged r WHERE {record.is_judged}
) outcomes GROUP BY pace, refusal"""
    params = {"delays": json.dumps(waits.delays), "closed": json.dumps(waits.closed)}
    for pace, refusal, count, first in record.rows(counted, **params):
        tally.add("4", pace, count, first)
        if refusal is not None:
            tally.add("5", refusal, count, first)
    other_bots = [run.facts for run in record.runs.values() if run.facts.is_other_bot]
    if any(not facts.serial for facts in other_bots):
        tally.waived["4"] = "serial, because this bot has WALSH_SERIAL = False"


def _rows_of_sql(record: Record, param: str) -> str:
    """Return the elements of a JSON array, which is a parameter, as rows with a `value`."""
    if record.sql.is_sqlite:
        return f"json_each(:{param})"
    return f"json_array_elements_text(CAST(:{param} AS json)) AS each(value)"


def _copy_delays_sql(record: Record) -> str:
    """Return CTEs with the Crawl-delays from the JSON parameter `delays`."""
    copy, token, seconds = (record.sql.field("value", number) for number in range(3))
    # SQLite expects few rows in JSON, and would read all of them for each request. For the join
    # with `copies`, it builds an index.
    return f"""read_delays AS MATERIALIZED (SELECT CAST({copy} AS BIGINT) AS copy,
        CAST({token} AS TEXT) AS token, CAST({seconds} AS DOUBLE PRECISION) AS seconds
        FROM {_rows_of_sql(record, "delays")}
), copy_delays AS MATERIALIZED (SELECT copies.id AS copy, read_delays.token, read_delays.seconds
    FROM copies LEFT JOIN read_delays ON read_delays.copy = copies.id)"""


def _copy_delay_sql(record: Record) -> str:
    """Return SQL for the Crawl-delay of a request; it is at most a day for the blocklist."""
    capped = record.sql.least("coalesce(c.seconds, 0.0)", str(MAX_BLOCKLIST_WAIT_SECONDS))
    return f"""CASE r.purpose WHEN 'robots' THEN 0.0 WHEN 'blocklist' THEN {capped}
            ELSE coalesce(c.seconds, 0.0) END"""


def _growth_sql(record: Record) -> str:
    """Return CTEs with the minimum hold after each refusal without a Retry-After.

    The minimum hold doubles with each refusal in a row. In a row, each refusal comes within half an
    hour after the previous one. Requests that overlap are one burst, which counts once.
    """
    by_time = "PARTITION BY host ORDER BY requested_at, id"
    in_row = "PARTITION BY host, chain ORDER BY requested_at, id"
    doublings = "CAST(CASE WHEN number > 40 THEN 40 ELSE number - 1 END AS INT)"
    doubled = f"base * (CAST(1 AS BIGINT) << {doublings})"
    min_hold = record.sql.least(doubled, record.sql.greatest("base", f"longest / {_MAX_JITTER}"))
    quiet = QUIET_SECONDS - GAP_TOLERANCE
    return f"""refused AS (
    SELECT r.id, r.host, r.run, r.requested_at, r.retry_after, {ENDED_AT} AS ended_at
    FROM requests r WHERE {_IS_REFUSED} AND r.error = ''
), neighbours AS (
    SELECT refused.*, lag(ended_at) OVER ({by_time}) AS before,
        lag(id) OVER ({by_time}) AS before_id
    FROM refused
), chained AS (
    SELECT neighbours.*, sum(CASE WHEN before IS NULL OR before_id > id
        OR ended_at - before >= {quiet} THEN 1 ELSE 0 END) OVER ({by_time}) AS chain
    FROM neighbours WHERE before IS NULL OR requested_at >= before
), numbered AS (
    SELECT chained.*, row_number() OVER ({in_row}) AS number, lag(ended_at) OVER ({in_row}) AS last
    FROM chained
), growth AS MATERIALIZED (
    SELECT numbered.id, coalesce(last, numbered.ended_at) AS row_since, {min_hold} AS least
    FROM numbered JOIN terms ON terms.run = numbered.run
    WHERE base > 0.0 AND coalesce(retry_after, 0.0) = 0.0
)"""


def ask_retries(record: Record, tally: Tally) -> None:
    """Check the number of retries, the jitter of the holds, and the Retry-After of redirects.

    Other bots may choose the retries of each request, and so may a crawl that has no sources.
    """
    refused = f"""
WITH {record.shared} SELECT count(*) AS count, min(r.id) AS first, t.max_retries + 1 AS allowed
FROM requests r JOIN terms t ON t.run = r.run
WHERE r.status IN (429, 503) AND r.purpose = 'target' AND r.source IS NOT NULL
    AND t.command = '' AND lower(t.token) = '{UA_TOKEN.lower()}' AND {record.is_judged}
GROUP BY r.run, r.source, r.url, t.max_retries HAVING count(*) > t.max_retries + 1"""
    for count, first, allowed in record.rows(refused):
        tally.add("5", "many-tries", 1, first, f"{count} refusals; {allowed:.0f} tries are allowed")
    # The part of a hold that is jitter. A hold of the maximum length has no room for it.
    part = "r.hold / growth.least"
    last = f"OVER (ORDER BY r.id ROWS BETWEEN {_MIN_EQUAL_HOLDS - 1} PRECEDING AND CURRENT ROW)"
    equal = f"""
WITH {record.shared}, {_growth_sql(record)}, holds AS (
    SELECT r.id, max({part}) {last} - min({part}) {last} AS spread, count(*) {last} AS number
    FROM requests r JOIN growth ON growth.id = r.id JOIN terms t ON t.run = r.run
    WHERE r.hold >= growth.least - {GAP_TOLERANCE} AND r.hold < t.longest * 0.999
        AND {record.is_judged}
)
SELECT count(*) AS count, min(id) AS first FROM holds
WHERE number = {_MIN_EQUAL_HOLDS} AND spread < {_MIN_SPREAD}"""
    ((count, first),) = record.rows(equal)
    if count:
        tally.add("5", "no-jitter", count, first)
    _ask_redirects(record, tally)


def _ask_redirects(record: Record, tally: Tally) -> None:
    """Check that a redirect was followed after its Retry-After; one of the blocklist in a day.

    A project's own crawl may have no gate that waits for it, and runs of a schema before 6 have no
    `kind`. Without a source, several requests may have been redirected from one URL: the first
    redirect counts.
    """
    sql = record.sql
    longest = sql.least("q.retry_after", str(MAX_BLOCKLIST_WAIT_SECONDS))
    seconds = f"CASE h.purpose WHEN 'target' THEN q.retry_after ELSE {longest} END"
    gap = "h.requested_at - q.ended_at"
    own_gap = "h.monotonic - h.duration - h.connect_duration - q.monotonic"
    early = record.if_certain("early-hop", CLOCK_SET, "q.ended_at", "h.requested_at")
    followed = f"""
WITH {record.shared}, redirects AS MATERIALIZED (
    SELECT r.id, r.run, r.url, r.retry_after, r.monotonic, {ENDED_AT} AS ended_at,
        coalesce(nullif(r.source, ''), r.url) AS source
    FROM requests r WHERE {IS_REDIRECT}
), hops AS (
    SELECT r.id, CASE WHEN r.source IS NULL THEN min(q.id) ELSE max(q.id) END AS redirect
    FROM requests r JOIN terms t ON t.run = r.run JOIN redirects q ON q.run = r.run
        AND q.url = r.redirected_from AND q.id < r.id
        AND (r.source IS NULL OR q.source = coalesce(nullif(r.source, ''), r.url))
    WHERE t.kind <> 'own' AND {record.is_judged} GROUP BY r.id, r.source
)
SELECT outcome, count(*) AS count, min(id) AS first FROM (
    SELECT h.id, CASE WHEN {is_early(gap, own_gap, seconds, seconds)} THEN {early} ELSE '' END
        AS outcome
    FROM hops JOIN redirects q ON q.id = hops.redirect JOIN requests h ON h.id = hops.id
    WHERE q.retry_after > 0.0
) outcomes GROUP BY outcome"""
    for outcome, count, first in record.rows(followed):
        tally.add("5", outcome, count, first)
