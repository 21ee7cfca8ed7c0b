"""Rows 1, 4, 5, 7, 8 and 9, checked with SQL: identity, pace, holds, visits, entries.

A query gives each request or visit an outcome for a row of the checklist, and counts the outcomes
for `Tally.add`. Times are epoch seconds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.feeds.attest.checklist import (
    AFTER_UNKNOWN,
    CLOCK_SET,
    END_UNKNOWN,
    IN_FUTURE,
    NO_COPY,
    NO_RUN,
)
from walsh_scrapy.feeds.attest.record import ENDED_AT, IS_REDIRECT
from walsh_scrapy.feeds.items import EntryItem, InvalidItem, check_item
from walsh_scrapy.identity import UA_TOKEN
from walsh_scrapy.policy.pacing import MAX_BLOCKLIST_WAIT_SECONDS, QUIET_SECONDS
from walsh_scrapy.state.gaps import GAP_TOLERANCE, gaps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from walsh_scrapy.feeds.attest.checklist import Tally
    from walsh_scrapy.feeds.attest.record import Bot, Record

DAY: Final = 86_400.0
IN_SPAN: Final = "r.requested_at >= :since AND r.requested_at <= :until"
#: The same as `policy.backoff.is_refusal`, in SQL.
_IS_REFUSED: Final = "(r.status IN (429, 503) OR (r.purpose = 'robots' AND r.status >= 500))"
#: The maximum jitter, as a factor of the hold (`policy.backoff.backoff_delay`).
_MAX_JITTER: Final = 1.5
_CUT_OFF: Final = "was refused by an answer that did not end"
_FORCED: Final = "was visited before it was due, by the operator (force)"
_BY_HAND: Final = "was requested by hand and by another run within a day"
_AFTER_KILL: Final = "came within a day of a run that did not end well"
_NO_VALIDATOR: Final = "was requested without the validator of the last answer"
#: The finish reasons of runs that have stored all their visits.
_GOOD_ENDS: Final = "('finished', 'shutdown', 'deferred')"


def ask_identity(record: Record, tally: Tally, bot: Bot) -> int:
    """Check the User-Agents of all runs; return the number of requests.

    Walsh-Research must have an exact User-Agent. Other bots are recognized by their product token.
    """
    is_walsh_research = bot.ua_token == UA_TOKEN
    total = 0
    counted = f"""SELECT r.run, count(*) AS count, min(r.id) AS first FROM requests r
        WHERE {IN_SPAN} GROUP BY r.run"""
    for number, count, first in record.rows(counted):
        total += count
        run = record.runs.get(number)
        if run is None:
            tally.add("1", NO_RUN, count, first)
            continue
        sent = run.facts.user_agent if is_walsh_research else run.facts.ua_token
        expected = bot.user_agent if is_walsh_research else bot.ua_token
        outcome = "" if sent == expected else "user-agent"
        tally.add("1", outcome, count, first, f"run {number} sent {run.facts.user_agent!r}")
    (later,) = record.rows(
        "SELECT count(*) AS count, min(id) AS first FROM requests WHERE requested_at > :future",
        future=record.future,
    )
    if later.count:
        tally.add("1", IN_FUTURE, later.count, later.first)
    return total


def ask_pace(record: Record, tally: Tally, delays: Iterable[tuple[int, str, float]]) -> None:
    """Check gaps, holds and overlaps.

    ``delays`` are the Crawl-delays: the number of the copy, the product token, and seconds.
    """
    sql = record.sql
    ended_at = f"({ENDED_AT})"
    is_hold_in_force = f"(g.released_at IS NULL OR g.released_at > {ended_at})"
    earlier_hold = f"CASE WHEN {is_hold_in_force} THEN coalesce(g.hold_until, 0.0) ELSE 0.0 END"
    held_until = sql.greatest(f"{ended_at} + r.hold", earlier_hold)
    by_run = f"""max({ended_at}) OVER (PARTITION BY r.run ORDER BY r.requested_at, r.id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"""
    at_once = record.if_certain("run-at-once", CLOCK_SET, "r.run_ended_at", "r.requested_at")
    no_growth = record.if_certain("no-growth", CLOCK_SET, "r.row_since", "r.ended_at")
    counted = f"""
WITH {record.shared}, {_copy_delays_sql(record)}, {_growth_sql(record)}, judged AS (
    SELECT r.id, r.requested_at, r.duration, r.error, r.hold, g.problem, g.gap, g.gap_unknown,
        {sql.greatest("g.delay", _copy_delay_sql(record))} AS delay, g.hold_counts_until,
        t.run, t.serial, r.robots IS NOT NULL AND copies.id IS NULL AS has_no_copy,
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
        CASE WHEN gap < -{GAP_TOLERANCE} THEN 'host-at-once'
            WHEN gap < delay - {GAP_TOLERANCE} THEN 'short-gap'
            WHEN run IS NOT NULL AND {_is_true_sql("coalesce(serial, '1')")}
                AND requested_at < run_ended_at - {GAP_TOLERANCE}
                THEN {at_once}
            WHEN run IS NULL THEN '{NO_RUN}'
            WHEN gap_unknown = 'a clock was set' THEN '{CLOCK_SET}'
            WHEN gap_unknown LIKE 'end of %' THEN '{AFTER_UNKNOWN}'
            WHEN has_no_copy THEN '{NO_COPY}'
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
    FROM judged r WHERE {IN_SPAN}
) outcomes GROUP BY pace, refusal"""
    rows = json.dumps([delay for delay in delays if delay[2] > 1.0])
    for pace, refusal, count, first in record.rows(counted, delays=rows):
        tally.add("4", pace, count, first)
        if refusal is not None:
            tally.add("5", refusal, count, first)
    other_bots = [run.facts for run in record.runs.values() if run.facts.is_other_bot]
    if any(not facts.serial for facts in other_bots):
        tally.waived["4"] = "serial, because this bot has WALSH_SERIAL = False"


def _is_true_sql(value: str) -> str:
    """Return the condition that a boolean in JSON is true, as SQLite or PostgreSQL writes it."""
    return f"{value} IN ('1', 'true')"


def _copy_delays_sql(record: Record) -> str:
    """Return CTEs with the Crawl-delays from the JSON parameter `delays`."""
    delay_rows = "json_each(:delays)"
    if not record.sql.is_sqlite:
        delay_rows = "json_array_elements(CAST(:delays AS json)) AS each(value)"
    copy, token, seconds = (record.sql.field("value", number) for number in range(3))
    # SQLite expects few rows in JSON, and would read all of them for each request. For the join
    # with `copies`, it builds an index.
    return f"""read_delays AS MATERIALIZED (SELECT CAST({copy} AS BIGINT) AS copy,
        CAST({token} AS TEXT) AS token, CAST({seconds} AS DOUBLE PRECISION) AS seconds
        FROM {delay_rows}
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


def ask_visits(record: Record, tally: Tally) -> None:
    """Look for sources that two runs visited within a day.

    If the last request for a source was refused, redirected or not answered, the source is still
    due. A redirect from another source is not a visit.
    """
    is_answered = f"""r.status IS NOT NULL AND r.status NOT IN (410, 429, 503)
        AND NOT {IS_REDIRECT} AND r.error = ''"""
    before = """OVER (PARTITION BY v.source ORDER BY v.at, v.run
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"""
    is_stored = f"ended_at IS NOT NULL AND finish_reason IN {_GOOD_ENDS}"
    within_day = f"+ {DAY} - {GAP_TOLERANCE}"
    counted = f"""
WITH {record.shared}, visits AS (
    SELECT coalesce(nullif(r.source, ''), r.url) AS source, r.run, min(r.id) AS id,
        min(r.requested_at) AS at, max(r.requested_at) AS last_at,
        max(CASE WHEN {is_answered} THEN r.requested_at END) AS answered_at,
        max(CASE WHEN r.source IS NULL THEN 1 ELSE 0 END) AS has_no_source
    FROM requests r WHERE r.purpose = 'target' AND r.requested_at <= :until
        AND (r.source IS NOT NULL OR r.redirected_from IS NULL)
    GROUP BY coalesce(nullif(r.source, ''), r.url), r.run
), neighbours AS (
    SELECT v.*, t.run AS known_run, t.command, t.force,
        max(CASE WHEN answered_at = last_at THEN at END) {before} AS before,
        max(CASE WHEN answered_at = last_at AND command = '' AND {is_stored} THEN at END) {before}
            AS crawled,
        max(CASE WHEN answered_at = last_at AND command <> '' THEN at END) {before} AS by_hand
    FROM visits v LEFT JOIN terms t ON t.run = v.run
    WHERE NOT (has_no_source = 1 AND coalesce(t.scope, '') = 'any')
)
SELECT outcome, count(*) AS count, min(id) AS first FROM (
    SELECT id, CASE WHEN known_run IS NULL THEN '{NO_RUN}'
        WHEN coalesce(before, 0.0) {within_day} <= at THEN ''
        WHEN {_is_true_sql("coalesce(force, '')")} THEN '{_FORCED}'
        WHEN command <> '' THEN '{_BY_HAND}'
        WHEN at < crawled {within_day}
            THEN {record.if_certain("too-often", CLOCK_SET, "v.crawled", "v.at")}
        WHEN at < by_hand {within_day} THEN '{_BY_HAND}'
        ELSE '{_AFTER_KILL}' END AS outcome
    FROM neighbours v WHERE at >= :since
) outcomes GROUP BY outcome"""
    for outcome, count, first in record.rows(counted):
        tally.add("8", outcome, count, first)


def ask_conditional(record: Record, tally: Tally) -> None:
    """Count conditional requests, and requests without the validator of the last answer.

    Requests that an operator made by hand are ignored, because they are never conditional.
    """
    counted = f"""
WITH {record.shared}, answered AS (
    SELECT r.id, r.requested_at, r.conditional, lag(CASE WHEN r.has_validator OR r.status = 304
        THEN 1 ELSE 0 END) OVER (PARTITION BY r.url ORDER BY r.requested_at, r.id) AS had_validator
    FROM requests r JOIN terms t ON t.run = r.run
    WHERE r.purpose = 'target' AND t.command = '' AND r.status IN (200, 304) AND r.error = ''
)
SELECT outcome, count(*) AS count, min(id) AS first FROM (
    SELECT r.id, CASE WHEN r.conditional THEN '' WHEN had_validator = 1 THEN '{_NO_VALIDATOR}' END
        AS outcome
    FROM answered r WHERE {IN_SPAN}
) outcomes WHERE outcome IS NOT NULL GROUP BY outcome"""
    for outcome, count, first in record.rows(counted):
        tally.add("7", outcome, count, first)


#: Entries that are stored twice: equal ones of one page, of which one was first seen within the
#: span. An index lets no source have an id twice.
_DUPLICATES: Final = """SELECT max(key) AS first FROM entries
    WHERE first_seen <= :until AND twin IS NOT NULL
    GROUP BY coalesce(page_key, key), title_key, evident_date, twin
    HAVING count(*) > 1 AND max(first_seen) >= :since"""


def ask_entries(record: Record, tally: Tally) -> int:
    """Check the entries, and the number of new entries by run; return the number of entries."""
    total = 0
    entries = "SELECT key, kind, item, first_seen FROM entries WHERE first_seen >= :since"
    for key, kind, item, first_seen in record.rows(entries):
        total += 1
        problem = _find_item_problem(item)
        reason = IN_FUTURE if first_seen > record.future else ""
        tally.add("6", "content" if problem else reason, 1, key, problem)
        is_scraped = kind not in ("feed", "llms")
        tally.add("9", "scraped" if is_scraped else reason, 1, key, f"the kind is {kind!r}")
    for (key,) in record.rows(_DUPLICATES):
        tally.add("7", "duplicate", 1, key)
    counted = """SELECT runs.id, runs.summary, coalesce(stored.count, 0) AS stored
        FROM runs LEFT JOIN (SELECT run, count(*) AS count FROM entries GROUP BY run) stored
        ON stored.run = runs.id WHERE runs.ended_at >= :since AND runs.ended_at <= :until"""
    for number, summary, stored in record.rows(counted):
        reported = json.loads(summary or "{}").get("new_entries", 0)
        if reported > stored:
            detail = f"reported {reported} new entries, of which {stored} were new"
            tally.add("7", "reported-again", 1, number, detail)
    return total


def _find_item_problem(item: str) -> str:
    """Return why an item must not be stored; "" if it may be stored."""
    try:
        values: Any = json.loads(item)
        if not isinstance(values, dict):
            return "the item is not an object"
        check_item(EntryItem.from_stored(values))
    except InvalidItem as error:
        return str(error)
    except ValueError:
        return "the item is not JSON"
    return ""
