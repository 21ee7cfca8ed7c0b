"""The view `request_gaps`: the gap before each request, and how long it had to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.pacing import MAX_BLOCKLIST_WAIT_SECONDS
from walsh_scrapy.state.tables import LAST_MOMENT

if TYPE_CHECKING:
    from walsh_scrapy.state.sql import Sql

#: Seconds that a recorded time may differ from the real one.
GAP_TOLERANCE: Final = 0.05
#: Seconds per second by which two clocks may drift apart, while NTP adjusts the time of day slowly.
CLOCK_DRIFT: Final = 0.001
#: Seconds that a row may be written late, because it waited for the database.
MAX_LATE_SECONDS: Final = 1.0


def end_of_exchange(row: str) -> str:
    """Return when an exchange ended; if that is not known, when its request began."""
    return f"{row}.requested_at + {row}.connect_duration + coalesce({row}.duration, 0.0)"


def is_early(gap: str, own_gap: str, required: str, span: str) -> str:
    """Return the condition that a gap in seconds is certainly shorter than the required one.

    ``own_gap`` is the same gap by the monotonic clock of one run, or NULL. Then the clock may have
    been adjusted slowly while these seconds (``span``) passed: CLOCK_DRIFT.
    """
    bound = f"{required} - {GAP_TOLERANCE}"
    return f"({gap} < {bound} AND coalesce({own_gap}, {gap} + {CLOCK_DRIFT} * ({span})) < {bound})"


def clock_steps(sql: Sql) -> str:
    """Return the SELECT of the spans in which a clock was set: `since` and `until`, epoch seconds.

    A row of `requests` has the time of day and the machine's monotonic clock at its end. Between
    two requests of a run both advance alike, unless a clock was set or the machine was suspended.
    A request that was written later than others, and has an earlier time, came after a clock was
    set back, also if a kill cut it off. Each run has at most one span, from its first step to its
    last one.
    """
    ended_at = end_of_exchange("requests")
    by_run = "OVER (PARTITION BY run, duration IS NULL ORDER BY id)"
    before = "OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    return f"""
SELECT min({sql.least("requested_at", "ended_before")}) AS since,
    max({sql.greatest("ended_at", "ended_before", "latest_end")}) AS until
FROM (
    SELECT run, requested_at, {ended_at} AS ended_at,
        coalesce(lag({ended_at}) {by_run}, requested_at) AS ended_before,
        CASE WHEN duration IS NOT NULL
            THEN {ended_at} - monotonic - lag({ended_at} - monotonic) {by_run} END AS step,
        coalesce(max(requested_at) {before}, requested_at) AS latest,
        coalesce(max({ended_at}) {before}, requested_at) AS latest_end
    FROM requests WHERE run IS NOT NULL
) stamped
WHERE abs(step) > {GAP_TOLERANCE} + {CLOCK_DRIFT} * abs(ended_at - ended_before)
    OR requested_at < latest - {MAX_LATE_SECONDS}
GROUP BY run"""


def gaps(sql: Sql) -> str:
    """Return the SELECT of the gap before each request; times are epoch seconds.

    The requests of a host count in the order of their times, whichever run sent them. The exchange
    that ended last is the one that a request had to wait for. The hold that ends last is the one
    that counts; a release by the operator ends it.
    """
    ended_at = end_of_exchange("requests")
    by_time = "PARTITION BY host ORDER BY requested_at, id"
    before = f"OVER ({by_time} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    release = f"""(SELECT min(made_at) FROM overrides WHERE overrides.host = requests.host
            AND override = 'release' AND made_at >= {ended_at} - {GAP_TOLERANCE}
            AND made_at < {ended_at} + hold)"""
    # The end of a hold in milliseconds, and the id of the request that caused the hold, are one
    # text of digits, so that one maximum finds both.
    hold_ended_at = sql.least(f"{ended_at} + hold", f"coalesce({release}, {LAST_MOMENT})")
    hold_end = f"""CASE WHEN hold > 0.0 THEN
            {sql.digits(f"({hold_ended_at}) * 1000", 15)} || {sql.digits("id", 19)} END"""
    list_urls = " || ".join(
        f"coalesce({sql.field('settings', name)}, '')"
        for name in ("blocklist_url", "blocklist_schema_url")
    )
    # For the blocklist, and for the robots.txt of its host, delays and holds are a day at most.
    is_for_list = f"""(purpose = 'blocklist' OR purpose = 'robots' AND EXISTS (
            SELECT 1 FROM runs WHERE runs.id = run AND {sql.position("host", list_urls)} > 0))"""
    longest = MAX_BLOCKLIST_WAIT_SECONDS
    # A project's own crawl may have less than a second, and less than an answer took.
    usual_delay = sql.greatest("1.0", "coalesce(duration_before, 0.0)")
    is_own = f"""EXISTS (SELECT 1 FROM runs
            WHERE runs.id = ordered.run AND {sql.field("settings", "kind")} = 'own')"""
    long_delay = f"""CASE WHEN recorded_delay >= {usual_delay} OR {is_own} THEN recorded_delay
            ELSE {usual_delay} END"""

    wall_gap = "requested_at - previous_ended_at"
    hold = "(hold_counts_until - hold_since)"
    is_held = is_early("requested_at - hold_since", "own_hold_gap", hold, hold)

    def is_uncertain(since: str) -> str:
        """Return the condition that a clock was set between a moment and the request."""
        return f"""EXISTS (SELECT 1 FROM clock_steps
            WHERE clock_steps.since <= {sql.greatest(since, "requested_at")} + {GAP_TOLERANCE}
            AND clock_steps.until >= {sql.least(since, "requested_at")} - {GAP_TOLERANCE})"""

    def disagrees(clock: str, since: str) -> str:
        """Return the condition that another exchange was timed by another clock than this one.

        An SQLite file is on one machine, so the difference of its two clocks stays the same for all
        runs, until the clock is set or the machine starts again. The clock of a server is shared.
        """
        if not sql.is_sqlite:
            return "false"
        allowed = f"{GAP_TOLERANCE} + {CLOCK_DRIFT} * abs(requested_at - {since})"
        return f"coalesce(abs(clock - {clock}) > {allowed}, true)"

    return f"""
WITH clock_steps AS MATERIALIZED ({clock_steps(sql)}
), ordered AS (
    SELECT id, host, run, url, purpose, requested_at, delay AS recorded_delay,
        CASE WHEN duration IS NOT NULL THEN {ended_at} - monotonic END AS clock,
        monotonic - duration - connect_duration AS began, lag(run) OVER ({by_time}) AS run_before,
        lag(CASE WHEN duration IS NOT NULL THEN monotonic END) OVER ({by_time}) AS stopped_before,
        lag({ended_at}) OVER ({by_time}) AS ended_before,
        lag(id) OVER ({by_time}) AS previous, lag(duration) OVER ({by_time}) AS duration_before,
        lag(CASE WHEN duration IS NOT NULL THEN {ended_at} - monotonic END) OVER ({by_time})
            AS clock_before,
        row_number() OVER ({by_time}) - row_number() OVER (PARTITION BY host ORDER BY id)
            AS displacement,
        max({ended_at}) {before} AS previous_ended_at, max({hold_end}) {before} AS hold_end
    FROM requests
), waits AS (
    SELECT ordered.*, cause.id AS hold_request, {end_of_exchange("cause")} AS hold_since,
        {end_of_exchange("cause")} + cause.hold AS hold_until,
        {end_of_exchange("cause")} - cause.monotonic AS hold_clock,
        CASE WHEN ordered.run = cause.run AND cause.duration IS NOT NULL
            THEN began - cause.monotonic END AS own_hold_gap,
        CASE WHEN ordered.run = run_before AND ended_before = previous_ended_at
            THEN began - stopped_before END AS own_gap,
        CAST(substr(hold_end, 1, 15) AS DOUBLE PRECISION) / 1000.0 AS hold_ended_at,
        {long_delay} AS long_delay
    FROM ordered LEFT JOIN requests cause ON cause.id = CAST(substr(hold_end, 16) AS BIGINT)
), required AS (
    SELECT waits.*,
        CASE WHEN long_delay > {longest} AND {is_for_list} THEN {longest} ELSE long_delay END
            AS delay,
        CASE WHEN hold_ended_at > hold_since + {longest} AND {is_for_list}
            THEN hold_since + {longest} ELSE hold_ended_at END AS hold_counts_until
    FROM waits
), judged AS (
    SELECT required.*,
        CASE WHEN requested_at >= hold_since AND {is_held} THEN 'on hold'
            WHEN duration_before IS NULL THEN NULL
            WHEN {is_early(wall_gap, "own_gap", "0.0", "delay")} THEN 'at once'
            WHEN {is_early(wall_gap, "own_gap", "delay", "delay")} THEN 'too short' END
            AS breach
    FROM required
), certain AS (
    SELECT judged.*,
        CASE WHEN previous IS NULL AND displacement = 0 THEN 'no earlier request'
            WHEN displacement <> 0 OR previous > id OR {is_uncertain("previous_ended_at")}
                OR breach = 'on hold'
                    AND ({is_uncertain("hold_since")} OR {disagrees("hold_clock", "hold_since")})
                OR breach <> 'on hold' AND {disagrees("clock_before", "previous_ended_at")}
                THEN 'a clock was set'
            WHEN duration_before IS NULL THEN 'end of the previous request unknown' END
            AS gap_unknown
    FROM judged
)
SELECT id, host, run, url, requested_at, previous_ended_at,
    CASE WHEN gap_unknown IS NULL THEN requested_at - previous_ended_at END AS gap, own_gap,
    gap_unknown, delay,
    CASE WHEN hold_ended_at > previous_ended_at THEN hold_request END AS hold_request,
    CASE WHEN hold_ended_at > previous_ended_at THEN hold_until END AS hold_until,
    CASE WHEN hold_ended_at > previous_ended_at AND hold_ended_at < hold_until - 0.001
        THEN hold_ended_at END AS released_at,
    hold_counts_until,
    {sql.greatest("delay", "coalesce(hold_counts_until - previous_ended_at, 0.0)")} AS required_gap,
    CASE WHEN coalesce(gap_unknown, '') NOT IN ('no earlier request', 'a clock was set')
        THEN breach END AS problem
FROM certain"""


def gap_view(sql: Sql) -> str:
    """One row for each request, with the gap after the previous exchange with its host.

    id, host, run, url, requested_at, days_ago: as in `readable_requests`
    gap: seconds; negative if the previous exchange went on, NULL if unknown
    required_gap: seconds: the delay, or the rest of the hold if that is longer
    problem: `at once`, `too short` or `on hold`: it came over 0.05 s too early, by the monotonic
        clock too if one run sent both (else over 0.001 of the wait more, because a clock may be
        adjusted); NULL if it did not, or that is not certain
    gap_unknown: `no earlier request`, `end of the previous request unknown` or `a clock was set`
    delay: seconds: the recorded delay; except in a project's own crawl at least 1, and at least the
        duration of the exchange before
    previous_ended_at: the end of the previous exchange
    hold_request: the `id` of the request that put the host on hold; NULL if that hold had ended
        before the previous exchange did
    hold_until, released_at: the end of the hold as it began; when the operator ended it
    """
    times = ", ".join(
        f"{sql.time(name)} AS {name}" for name in ("previous_ended_at", "hold_until", "released_at")
    )
    return f"""
SELECT id, host, run, url, {sql.time("requested_at")} AS requested_at,
    {sql.days_ago("requested_at")} AS days_ago, gap, required_gap, problem, gap_unknown, delay,
    hold_request, {times}
FROM ({gaps(sql)}) gaps"""
