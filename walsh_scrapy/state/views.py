"""The stored views of the state: the lists that commands print, in SQL for both databases.

For each row a view decides what is wrong (`problem`), what to do about it (`advice`), and which
rows come first (`rank`). Times are RFC 3339 texts in UTC (`2026-05-23T06:00:00Z`), which sort as
times do. Durations are seconds. A missing value is NULL. Columns that end in `days_ago` are
numbers, so that a query for the last week needs no clock.

The docstring of a view describes its columns. `make references` copies it to docs/state.md.

A stored view reads the clock of the database. `read_view` runs the same SELECT itself if the state
is a simulated one with another clock, or if its stored views were made by another version.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import Double, literal_column, select, text

from walsh_scrapy.policy.durations import CLOCK_SKEW
from walsh_scrapy.policy.pacing import MAX_EXCHANGE_SECONDS
from walsh_scrapy.state.gaps import gap_view
from walsh_scrapy.state.records import MAX_RESENT, REFUSED, upsert
from walsh_scrapy.state.sql import Sql, length, times, whole
from walsh_scrapy.state.tables import (
    LAST_MOMENT,
    STATE_ID,
    Due,
    choices,
    lock_schema,
    sources,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sqlalchemy import Connection, Dialect

#: The advice for a source that a gate denies, by the name of the gate; a command is appended.
DENIAL_ADVICE: Final = {
    "scope": "No source may be that. Remove it. To see why:",
    "privatehosts": "Its address is not public. Correct it, or remove it. To see why:",
    "blocklist": "It is on a blocklist. Remove it from the sources file. To see on which:",
    "robots": "Its robots.txt does not allow it. Ask its owner, or remove it. To see the rule:",
}
#: Columns that are booleans on PostgreSQL, and 0 or 1 on SQLite.
BOOLEANS: Final = frozenset(
    {
        "is_declared", "is_due", "move_settled", "is_on_hold", "is_long_hold", "is_in_flight",
        "backfill", "conditional", "has_validator",
    }
)  # fmt: skip


#: The sources file that a crawl or `walsh sources sync` read last.
NEWEST_FILE: Final = "(SELECT id FROM files ORDER BY read_at DESC, id DESC LIMIT 1)"
#: The entries of a source, with those that another source had first: a source is alive even if all
#: of its articles are in another source too.
ENTRIES_OF_SOURCE: Final = """(
        SELECT first_seen FROM entries WHERE entries.source = source_url
        UNION ALL
        SELECT entries.first_seen FROM sightings JOIN entries ON entries.key = sightings.key
        WHERE sightings.source = source_url AND entries.source <> source_url
    ) AS given"""
#: A status with its reason phrase.
STATUS: Final = """status || CASE status
    WHEN 400 THEN ' Bad Request' WHEN 401 THEN ' Unauthorized' WHEN 402 THEN ' Payment Required'
    WHEN 403 THEN ' Forbidden' WHEN 404 THEN ' Not Found' WHEN 405 THEN ' Method Not Allowed'
    WHEN 406 THEN ' Not Acceptable' WHEN 410 THEN ' Gone' WHEN 429 THEN ' Too Many Requests'
    WHEN 451 THEN ' Unavailable For Legal Reasons' WHEN 500 THEN ' Internal Server Error'
    WHEN 502 THEN ' Bad Gateway' WHEN 503 THEN ' Service Unavailable'
    WHEN 504 THEN ' Gateway Timeout' ELSE '' END"""


def _last_setting(sql: Sql, name: str) -> str:
    """Return a setting of the last crawl; NULL if there was none."""
    last = "FROM runs WHERE command = '' ORDER BY id DESC LIMIT 1"
    return f"(SELECT {sql.field('settings', name)} {last})"


def _sources(sql: Sql) -> str:
    """One row for each declared source, and for each that only the state still has.

    Declared means: in the file that a crawl or `walsh sources sync` read last.

    problem: `gone` (410), `failing`, `refused` (429, 503), `denied` by a gate, `moved` permanently,
        or `resent` (never answered with 304); NULL for a source that is well or not declared
    advice, rank: what to do; small for urgent sources
    url, kind, name, tags, folder, page, every, delay: as declared; tags are separated by commas,
        folders by slashes
    is_declared: whether the sources file has it
    host: the host or domain that is paced
    outcome: of the last visit: `fetched`, `unchanged`, `404 Not Found`, `denied by robots`, `its
        redirect is denied by robots`, the reason of another failure, or `not visited yet`
    status, detail: of the last answer; the outcome as a sentence
    failures, failing_since, refused_since: failures in a row; the first of them, of the refusals
    visited_at, first_visited_at: the last visit, and the first one
    since: when the problem began, if that is recorded
    due_at: when it is due; NULL for at once, and for never
    is_due, due_reason: whether it is due now; why it is due then
    next_visit: `now`, `never`, or the later of `due_at` and `hold_until`
    hold_until, refused_until: the end of the hold of its host; when its site may accept it again
    entries, newest_entry_at, newest_days_ago: how many entries it had; when the last was first seen
    moved_to, moved_since, move_settled, move_failing_since: the target of permanent redirects, the
        first of them, whether requests go there, and since when these fail
    onward_to, onward_since: where it redirects from there, and the first time
    server_interval, feed_interval: seconds between visits, as the server and the feed ask
    skip_hours, skip_days: as the feed asks
    format: of its last document: `rss20`, `atom10` and so on, with `, repaired` if it was not
        well-formed, `JSON Feed` or `markdown`; `shared` if it was read for another source only
    resent: times in a row that the same document came although validators were sent
    repeated: how many entries the last document listed once more
    etag, last_modified, validator_url: the validators, in hexadecimal digits if they are not ASCII;
        the one URL that they are sent to
    """
    revisit = f"CAST({_last_setting(sql, 'min_revisit')} AS DOUBLE PRECISION)"
    now = literal_column(sql.now, Double)
    min_revisit = literal_column(f"coalesce({revisit}, 86400.0)", Double)
    # Every query needs the time, but only a query that shows the reason needs that.
    moment = Due.from_columns(
        sources.alias("s"), literal_column("d.every", Double), min_revisit, now
    ).at
    rule = Due.from_columns(
        sources.alias("judged"), literal_column("judged.every", Double), min_revisit, now
    ).rule
    literal = {"literal_binds": True}
    due_at, due_rule = (
        value.compile(dialect=sql.dialect, compile_kwargs=literal) for value in (moment, rule)
    )
    hold_end = sql.time("hold_until")
    until = f"' is on hold until ' || {hold_end}"

    def from_hold(value: str, condition: str) -> str:
        """Return a value from the row of the host, if that is on hold and the condition holds."""
        return f"""(SELECT {value} FROM hosts WHERE hosts.host = judged.host
            AND hold_until > {sql.now} AND {condition})"""

    denials = "\n".join(
        f"            WHEN outcome = 'denied by {gate}' THEN '{advice} walsh mayfetch ' || url"
        for gate, advice in DENIAL_ADVICE.items()
    )
    return f"""
WITH facts AS (
    SELECT coalesce(d.url, s.url) AS url, coalesce(d.kind, s.kind) AS kind, d.every, d.delay,
        d.details, d.host, d.file IS NOT NULL AS is_declared, s.url AS source_url, s.outcome,
        s.status, nullif(s.detail, '') AS detail, s.failures, s.failing_since, s.refused_since,
        s.visited_at, s.first_visited_at,
        CASE WHEN s.moved_to <> coalesce(d.url, s.url) THEN s.moved_to END AS moved_to,
        s.moved_since, s.move_settled, s.move_failing_since, s.onward_to, s.onward_since,
        s.server_interval, s.feed_interval, s.skip_hours, s.skip_days, s.format, s.resent,
        s.repeated, s.etag, s.last_modified, s.validator_url,
        CASE WHEN d.file IS NOT NULL THEN {due_at} END AS due,
        s.not_before, s.unconnected,
        CASE WHEN d.file IS NULL THEN NULL
            WHEN s.not_before >= {LAST_MOMENT} THEN 'gone'
            WHEN s.outcome LIKE 'denied%' THEN 'denied'
            WHEN s.outcome = '{REFUSED}' THEN 'refused'
            WHEN s.failures > 0 THEN 'failing'
            WHEN s.moved_to <> d.url AND s.move_settled THEN 'moved'
            WHEN s.resent >= {MAX_RESENT} THEN 'resent' END AS problem
    FROM sources s
    LEFT JOIN declared d ON d.url_key = s.url_key AND d.file = {NEWEST_FILE}
    UNION ALL
    SELECT url, kind, every, delay, details, host, true, NULL, 'new',
        NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL,
        0.0, 0.0, '', '', '', 0, 0, NULL, NULL, NULL, 0.0, 0.0, false, NULL
    FROM declared WHERE +file = {NEWEST_FILE}
        AND NOT EXISTS (SELECT 1 FROM sources WHERE sources.url_key = declared.url_key)
), judged AS (
    SELECT facts.*,
        CASE WHEN due > 0 AND due < {LAST_MOMENT} THEN {whole("due - visited_at")} END AS wait,
        {sql.greatest("server_interval", "feed_interval")} AS asked
    FROM facts
)
SELECT problem,
    CASE problem
        WHEN 'gone' THEN 'Remove it from the sources file. If it is reachable again: '
            || 'walsh sources resume ' || url
        WHEN 'denied' THEN CASE
{denials}
            ELSE substr(outcome, 11) || ', a middleware of this project, denies it. To see why: '
                || 'walsh why ' || url END
        WHEN 'refused' THEN 'The site wants a wait. To see its end and its reason: walsh hosts'
        WHEN 'failing' THEN CASE
            WHEN status IN (401, 402, 403) THEN
                'The site does not want this. Ask its owner, or remove it from the sources file.'
            WHEN status IN (404, 405, 451) THEN
                'Nothing is at this address. Look where it is now: walsh discover ' || url
            WHEN status < 300 THEN 'The document could not be read as a feed. '
                || 'Look for others of the site: walsh discover ' || url
            WHEN status >= 500 AND failures >= 5 THEN
                'Its server keeps failing. Write to its owner, or remove it.'
            WHEN failures >= 5 THEN 'It has not answered for long. '
                || 'Check its address, or remove it: walsh discover ' || url
            WHEN status >= 500 THEN
                'Its server failed. Nothing to do yet: it is tried again by itself.'
            ELSE 'It did not answer. Nothing to do yet: it is tried again by itself.' END
        WHEN 'moved' THEN 'Write the new address into the sources file: ' || moved_to
        WHEN 'resent' THEN 'The same document came ' || {times("resent")}
            || ' instead of 304 Not Modified, so each visit costs the site a whole document. '
            || CASE WHEN {sql.header("etag")} LIKE 'W/%'
                OR {sql.header("etag")} LIKE '572F%' THEN
                'Its ETag is weak: a proxy such as nginx with gzip may have weakened it. Its owner '
                || 'could compare If-None-Match with and without W/, or use no gzip for feeds.'
            ELSE 'Its owner could compare If-None-Match and If-Modified-Since with its last answer.'
            END
    END AS advice,
    CASE WHEN NOT is_declared THEN 700 ELSE CASE problem
        WHEN 'gone' THEN 0
        WHEN 'failing' THEN 100 - CASE WHEN failures > 90 THEN 90 ELSE failures END
        WHEN 'refused' THEN 200 WHEN 'denied' THEN 300 WHEN 'moved' THEN 400 WHEN 'resent' THEN 500
        ELSE CASE WHEN visited_at IS NULL THEN 550 ELSE 600 END END END AS rank,
    url, kind,
    CASE WHEN details <> '' THEN {sql.field("details", 0)} END AS name,
    CASE WHEN details <> '' THEN {sql.joined("details", 1, ",")} END AS tags,
    CASE WHEN details <> '' THEN {sql.joined("details", 3, "/")} END AS folder,
    CASE WHEN details <> '' THEN {sql.field("details", 2)} END AS page,
    nullif(every, 0) AS every, delay, is_declared, host,
    CASE WHEN outcome = 'new' THEN 'not visited yet'
        WHEN outcome LIKE 'denied by %' AND status BETWEEN 300 AND 399
            THEN 'its redirect is ' || outcome
        WHEN outcome IN ('failed', 'gone', '{REFUSED}') AND status >= 400 THEN {STATUS}
        WHEN outcome = 'failed' THEN coalesce(detail, outcome)
        ELSE outcome END AS outcome,
    status, detail, failures,
    {sql.time("failing_since")} AS failing_since,
    {sql.time("refused_since")} AS refused_since,
    {sql.time("visited_at")} AS visited_at,
    {sql.time("first_visited_at")} AS first_visited_at,
    CASE problem WHEN 'gone' THEN {sql.time("visited_at")}
        WHEN 'failing' THEN {sql.time("failing_since")}
        WHEN 'refused' THEN {sql.time("refused_since")}
        WHEN 'moved' THEN {sql.time("moved_since")} END AS since,
    {sql.time("due")} AS due_at,
    coalesce(due <= {sql.now}, false) AS is_due,
    coalesce({from_hold(f"'due, but ' || hosts.host || {until}", f"due <= {sql.now}")},
        CASE CASE WHEN is_declared THEN {due_rule} END
            WHEN 'gone' THEN 'once it is resumed by hand'
            WHEN 'new' THEN CASE WHEN outcome = '{REFUSED}' THEN
                'refused' || coalesce(' (' || status || ')', '') ELSE 'not visited yet' END
            WHEN 'clock' THEN 'its last visit lies in the future, ' || {sql.time("visited_at")}
            WHEN 'resumed' THEN 'it was resumed by hand'
            WHEN 'asked' THEN CASE
                WHEN due > visited_at + asked AND skip_hours <> '' AND skip_days <> ''
                    THEN 'the feed''s skipHours and skipDays'
                WHEN due > visited_at + asked AND skip_hours <> '' THEN 'the feed''s skipHours'
                WHEN due > visited_at + asked AND skip_days <> '' THEN 'the feed''s skipDays'
                WHEN feed_interval = asked THEN 'the feed asks for ' || {length("wait")}
                ELSE 'the server asks for ' || {length("wait")} END
            WHEN 'operator' THEN CASE
                WHEN failures > 1 THEN 'failing, doubled to ' || {length("wait")}
                WHEN failures = 1 THEN 'failing, again after ' || {length("wait")}
                WHEN every > coalesce({revisit}, 86400.0)
                    THEN 'every ' || {length("wait")} || ', as declared'
                ELSE 'every ' || {length("wait")} END
            ELSE 'no longer declared' END) AS due_reason,
    coalesce({from_hold(hold_end, "hold_until > due")},
        CASE WHEN due <= {sql.now} THEN 'now' ELSE {sql.time("due")} END, 'never') AS next_visit,
    {from_hold(hold_end, "true")} AS hold_until,
    CASE WHEN outcome = '{REFUSED}' THEN
        coalesce({from_hold(hold_end, "hold_until > due")}, {sql.time("due")}) END AS refused_until,
    (SELECT count(*) FROM {ENTRIES_OF_SOURCE}) AS entries,
    (SELECT {sql.time("max(first_seen)")} FROM {ENTRIES_OF_SOURCE}) AS newest_entry_at,
    (SELECT {sql.days_ago("max(first_seen)")} FROM {ENTRIES_OF_SOURCE}) AS newest_days_ago,
    moved_to,
    CASE WHEN moved_to IS NOT NULL THEN {sql.time("moved_since")} END AS moved_since,
    moved_to IS NOT NULL AND move_settled AS move_settled,
    CASE WHEN moved_to IS NOT NULL THEN {sql.time("move_failing_since")} END AS move_failing_since,
    CASE WHEN moved_to IS NOT NULL THEN onward_to END AS onward_to,
    CASE WHEN moved_to IS NOT NULL THEN {sql.time("onward_since")} END AS onward_since,
    nullif(server_interval, 0) AS server_interval, nullif(feed_interval, 0) AS feed_interval,
    nullif(skip_hours, '') AS skip_hours, nullif(skip_days, '') AS skip_days,
    nullif(format, '') AS format, resent, repeated, {sql.header("etag")} AS etag,
    {sql.header("last_modified")} AS last_modified, validator_url
FROM judged"""


def _hosts(sql: Sql) -> str:
    """One row for each host that was requested, or for each registrable domain.

    problem: `hold`, `unreachable`, `server errors`, or NULL
    advice, rank: what to do; small for problems, then for hosts that wait
    host: its name
    waits_for: `hold`, `in flight` or `delay`; NULL if it may be requested now
    waits_until: when it may be requested
    reason: why it waits or is slow
    hold_since, hold_until: the last hold, which may be over
    hold_by, hold_status: its cause: `retry-after`, `visit-time`, `backoff` or `unreachable`; the
        status that caused it
    is_on_hold, is_long_hold: whether it is on hold now; for over a day, and not only unreachable
    is_in_flight, in_flight_until: whether a request is in flight, and its latest end
    delay: seconds from the last exchange to the next request
    operator_delay: the delay that you set
    refusals, server_errors, unreachable: how often in a row it answered 429 or 503 (each burst
        counts once), answered 500, 502 or 504, was unreachable
    request_ended_at: the end of the last exchange
    deferred_at: when a worker deferred it for its run
    owner: the worker that owns it
    last_override, last_override_at, last_override_reason: your last change
    """
    answer = """CASE WHEN hold_status > 0 THEN 'it answered ' || hold_status
        ELSE 'there was no answer' END"""
    in_a_row = f"CASE WHEN unreachable > 0 THEN ' ' || {times('unreachable')} ELSE '' END"
    unreachable = f"'it was unreachable' || {in_a_row}"
    is_operators = "operator_delay > delay AND waits_for = 'delay'"
    # A time in the future was written before a clock was set back: it is shown as now.
    ahead = sql.greatest("0.0", f"hold_since - {sql.now}")
    return f"""
WITH moments AS (
    SELECT host, delay, operator_delay, hold_since - {ahead} AS hold_since,
        CASE WHEN hold_until > 0 THEN hold_until - {ahead} ELSE 0.0 END AS hold_until,
        nullif(hold_by, '') AS hold_by, hold_status, refusals, server_errors, unreachable,
        {sql.least("in_flight_until", f"{sql.now} + {MAX_EXCHANGE_SECONDS}")} AS in_flight_until,
        CASE WHEN request_ended_at > {sql.now} THEN {sql.now} ELSE request_ended_at END
            AS request_ended_at, deferred_at, owner,
        {sql.greatest("delay", "operator_delay")} AS required_delay
    FROM hosts
), waits AS (
    SELECT moments.*,
        {
        sql.greatest(
            "hold_until",
            "in_flight_until",
            f"CASE WHEN request_ended_at IS NULL AND in_flight_until = 0 THEN 0.0 ELSE "
            f"{sql.greatest('in_flight_until', 'coalesce(request_ended_at, 0.0)')} "
            "+ required_delay END",
        )
    } AS ready_at,
        hold_until > {sql.now} AS is_on_hold, in_flight_until > {sql.now} AS is_in_flight
    FROM moments
), judged AS (
    SELECT waits.*,
        CASE WHEN is_on_hold THEN 'hold' WHEN unreachable > 0 THEN 'unreachable'
            WHEN server_errors > 0 THEN 'server errors' END AS problem,
        CASE WHEN ready_at <= {sql.now} THEN NULL WHEN hold_until >= ready_at THEN 'hold'
            WHEN is_in_flight THEN 'in flight' ELSE 'delay' END AS waits_for,
        {whole("hold_until - hold_since")} AS held_for
    FROM waits
)
SELECT problem,
    CASE problem
        WHEN 'hold' THEN CASE hold_by
            WHEN 'unreachable' THEN 'Check its name and address. To try again now: '
            ELSE 'Wait until then. To request it earlier, with a reason: ' END
            || 'walsh hosts release ' || judged.host || ' --because REASON'
        WHEN 'unreachable' THEN
            'It comes last in the next run. If it stays away: check its name and address.'
        WHEN 'server errors' THEN
            'Nothing to do yet: it gets fewer requests until it answers well again.'
    END AS advice,
    CASE problem WHEN 'hold' THEN 0 WHEN 'unreachable' THEN 1 WHEN 'server errors' THEN 2
        ELSE CASE WHEN waits_for IS NOT NULL THEN 3 WHEN operator_delay > 0 THEN 4 ELSE 5 END
        END AS rank,
    judged.host AS host, waits_for,
    CASE WHEN waits_for IS NOT NULL THEN {sql.time("ready_at")} END AS waits_until,
    nullif(substr(
        CASE WHEN is_on_hold THEN '; on hold: ' || CASE hold_by
            WHEN 'retry-after' THEN {answer} || ' and asked for ' || {length("held_for")}
                || ' (Retry-After)'
            WHEN 'visit-time' THEN 'its robots.txt demands that (Visit-time)'
            WHEN 'unreachable' THEN
                CASE WHEN unreachable > 0 THEN {unreachable} ELSE 'it was unreachable' END
            WHEN 'backoff' THEN {answer} || CASE WHEN refusals > 1
                THEN ', ' || {times("refusals")} ELSE '' END || ' (our backoff)'
            ELSE 'its cause is not recorded' END
            WHEN unreachable > 0 THEN '; ' || {unreachable} || ', so it comes last in a run'
            ELSE '' END
        || CASE waits_for WHEN 'in flight' THEN '; a request is in flight'
            WHEN 'delay' THEN '; one request every ' || {length(whole("required_delay"))}
                || CASE WHEN {is_operators} THEN ', a delay set by hand' ELSE '' END
            ELSE '' END
        || CASE WHEN server_errors > 0 THEN '; it answered ' || {times("server_errors")}
            || ' with 500, 502 or 504, so its delay is longer' ELSE '' END
        || CASE WHEN operator_delay > 0 AND NOT coalesce({is_operators}, false)
            THEN '; its delay was set by hand: ' || {length(whole("operator_delay"))} ELSE '' END,
        3), '') AS reason,
    {sql.time("hold_since")} AS hold_since,
    {sql.time("hold_until")} AS hold_until,
    hold_by, nullif(hold_status, 0) AS hold_status, is_on_hold,
    is_on_hold AND held_for > 86400 AND coalesce(hold_by, '') <> 'unreachable' AS is_long_hold,
    is_in_flight,
    {sql.time("in_flight_until")} AS in_flight_until,
    nullif(delay, 0) AS delay, nullif(operator_delay, 0) AS operator_delay,
    refusals, server_errors, unreachable,
    {sql.time("request_ended_at")} AS request_ended_at,
    {sql.time("deferred_at")} AS deferred_at, nullif(owner, '') AS owner,
    o.override AS last_override,
    {sql.time("o.made_at")} AS last_override_at,
    nullif(o.reason, '') AS last_override_reason
FROM judged LEFT JOIN overrides o
    ON o.id = (SELECT max(id) FROM overrides WHERE overrides.host = judged.host)"""


def _entries(sql: Sql) -> str:
    """One row for each entry, as it was first seen.

    first_seen, days_ago: when it was first seen
    kind, source: of the source in which it was found
    source_name: the name of its source in the sources file, or else the title of the feed
    source_title, title, url, id, published, updated, authors, tags, section, note, language: the
        exported fields; lists are JSON
    backfill: whether it was there at the first visit of its source, so that it is not news
    run: the run that found it
    key: identifies it, in items and exports too
    seq, position: its place in the order in which readers get entries, without and with the id of
        the state; NULL until it has one, some seconds after its commit
    """
    names = [
        "title",
        "url",
        "id",
        "published",
        "updated",
        "authors",
        "tags",
        "section",
        "note",
        "language",
    ]
    fields = ", ".join(f"{sql.field('item', name)} AS {name}" for name in names)
    declared_name = f"""(SELECT {sql.field("details", 0)}
        FROM sources JOIN declared ON declared.url_key = sources.url_key
            AND declared.file = {NEWEST_FILE} AND details <> ''
        WHERE sources.url = entries.source)"""
    return f"""
SELECT {sql.time("first_seen")} AS first_seen, {sql.days_ago("first_seen")} AS days_ago, kind,
    source, coalesce({declared_name}, {sql.field("item", "source_title")}) AS source_name,
    {sql.field("item", "source_title")} AS source_title, {fields}, backfill, run, key, seq,
    (SELECT value FROM choices WHERE name = '{STATE_ID}') || ':' || seq AS position
FROM entries"""


def _judged_runs(sql: Sql) -> str:
    """Return the SELECT of runs with their problems; times are epoch seconds."""
    is_open = "SELECT id FROM runs WHERE ended_at IS NULL"
    max_wait = sql.field("settings", "max_wait")
    return f"""
SELECT seen.*,
    CASE WHEN is_killed THEN 'killed' WHEN ended_at IS NULL THEN 'running' ELSE 'ended' END
        AS state,
    CASE WHEN is_killed THEN 'killed'
        WHEN finish_reason IN ('export_failed', 'gate_failed', 'log_failed', 'machine_trouble',
            'state_failed') THEN finish_reason
        WHEN failed > 0 AND coalesce(fetched, 0) + coalesce(unchanged, 0) = 0
            THEN 'no source was read'
        WHEN undelivered > 0 THEN 'entries were not delivered' END AS problem
FROM (
    SELECT signs.*, ended_at IS NULL AND hosts_owned IS NULL
        AND {sql.now} - last_sign_at > longest_wait + 900.0 AS is_killed
    FROM (
        SELECT runs.*,
            {sql.number("summary", "failed")} AS failed,
            {sql.number("summary", "fetched")} AS fetched,
            {sql.number("summary", "unchanged")} AS unchanged,
            {sql.number("summary", "undelivered")} AS undelivered,
            coalesce(ended_at, {sql.greatest("started_at", "coalesce(q.at, 0.0)")}) AS last_sign_at,
            CASE WHEN {max_wait} IS NULL THEN 0.0 WHEN CAST({max_wait} AS TEXT) = 'inf' THEN 86400.0
                ELSE {sql.least(f"CAST({max_wait} AS DOUBLE PRECISION)", "86400.0")} END
                AS longest_wait,
            w.hosts_owned
        FROM runs LEFT JOIN (
            SELECT run, max(requested_at) AS at FROM requests
            WHERE run IN ({is_open}) AND requested_at <= {sql.now} + {CLOCK_SKEW}
                AND requested_at >= (SELECT min(started_at) FROM runs WHERE ended_at IS NULL)
            GROUP BY run
        ) q ON q.run = runs.id LEFT JOIN (
            SELECT workers.run, count(hosts.host) AS hosts_owned FROM workers
            LEFT JOIN hosts ON hosts.owner = workers.id
            WHERE workers.expires_at > {sql.now} GROUP BY workers.run
        ) w ON w.run = runs.id
    ) signs
) seen"""


def _runs(sql: Sql) -> str:
    """One row for each crawl, and for each command that requested a URL by hand.

    run: its number
    problem: `killed`, the reason for an early end (`export_failed`, `gate_failed`, `log_failed`,
        `machine_trouble`, `state_failed`), `no source was read`, `entries were not delivered` to
        a pipeline or an export, or NULL
    advice, rank: what to do; 0 for a problem of the last two days, 1 for a running one
    spider, command: its spider; the command that requested by hand, NULL for a crawl
    state: `running`, `ended` or `killed`
    started_at, days_ago, ended_at, duration: its start, its end, and the seconds between them
    finish_reason: its end, as Scrapy names it
    requests: how many the log has of it
    new_entries, undelivered: new entries; those that a pipeline or an export may not have got
    fetched, unchanged, failed, deferred, denied: sources by outcome
    hosts_owned, last_sign_at: how many hosts it owns now; its end, last request, or start
    https_signed_by: the id of the key that signed its requests
    versions, summary: JSON objects; `walsh_scrapy/summary.schema.json` describes the summary
    """
    denied = sql.field("summary", "denied")
    denied_counts = f"json_each({denied})" if sql.is_sqlite else f"json_each_text({denied}::json)"
    counts = ", ".join(
        f"{sql.number('summary', name)} AS {name}"
        for name in (
            "new_entries",
            "undelivered",
            "fetched",
            "unchanged",
            "failed",
            "deferred",
        )
    )
    return f"""
SELECT id AS run, problem,
    CASE WHEN problem = 'killed' THEN 'Was it killed, or out of memory? '
            || 'The next crawl goes on with the sources that are still due. '
            || 'If pipelines or exports need its entries: walsh new --run ' || id
        WHEN undelivered > 0 THEN 'To see its log, and to get its entries again: '
            || 'walsh new --run ' || id
        WHEN problem = 'no source was read' THEN
            'See why, and whether the network works: walsh sources --failing'
        WHEN problem IS NOT NULL THEN 'Its log says why it could not go on.' END AS advice,
    CASE WHEN problem IS NOT NULL AND last_sign_at > {sql.now} - 172800.0 THEN 0
        WHEN state = 'running' THEN 1 ELSE 2 END AS rank,
    spider, nullif(command, '') AS command, state,
    {sql.time("started_at")} AS started_at, {sql.days_ago("started_at")} AS days_ago,
    {sql.time("ended_at")} AS ended_at, ended_at - started_at AS duration,
    nullif(finish_reason, '') AS finish_reason,
    logged.requests,
    {counts},
    CASE WHEN {denied} IS NOT NULL THEN
        (SELECT sum(CAST(value AS INTEGER)) FROM {denied_counts}) END AS denied,
    hosts_owned,
    {sql.time("last_sign_at")} AS last_sign_at,
    nullif({sql.field("settings", "signing_key")}, '') AS https_signed_by, versions, summary
FROM ({_judged_runs(sql)}) judged
    LEFT JOIN (SELECT run, count(*) AS requests FROM requests GROUP BY run) logged
    ON logged.run = judged.id"""


def _problems(sql: Sql) -> str:
    """One row for each problem that the database shows; `walsh status` lists more.

    severity: `warning` or `critical`
    problem: what is wrong
    subject: the run, host, URL or table
    since: when it began
    advice, command: what to do; a command that shows more
    rank: 0 for critical, 1 for a warning
    """
    now = sql.now
    list_url = _last_setting(sql, "blocklist_url")
    refresh = sql.field(sql.first_line("adopted"), 0)
    latest = "\n    UNION ALL ".join(
        f"SELECT '{table}' AS name, max({column}) AS at FROM {table}"
        for table, column in (
            ("runs", f"{sql.greatest('started_at', 'coalesce(ended_at, 0.0)')}"),
            ("requests", "requested_at"),
            ("entries", "first_seen"),
            ("sources", "visited_at"),
            ("hosts", f"{sql.greatest('coalesce(request_ended_at, 0.0)', 'hold_since')}"),
            ("robots", "requested_at"),
            ("blocklist", "requested_at"),
        )
    )
    return f"""
WITH crawls AS (
    SELECT * FROM ({_judged_runs(sql)}) judged
    WHERE command = '' AND started_at > {now} - 2592000.0 AND started_at <= {now} + {CLOCK_SKEW}
        AND coalesce(ended_at, 0.0) <= {now} + {CLOCK_SKEW}
), good AS (
    SELECT max(CASE WHEN state = 'ended' AND problem IS NULL THEN ended_at END) AS ended_at,
        min(started_at) AS first_at
    FROM crawls
), blocklists AS (
    SELECT wanted.url, requested_at, coalesce(CAST({refresh} AS DOUBLE PRECISION), 0.0) AS refresh
    FROM (SELECT {list_url} AS url) wanted LEFT JOIN blocklist ON blocklist.url = wanted.url
    WHERE wanted.url <> ''
), counted AS (
    SELECT count(*) AS sources, sum(CASE WHEN failures > 0 THEN 1 ELSE 0 END) AS failing
    FROM declared WHERE file = {NEWEST_FILE}
), refusals AS (
    SELECT declared.host, count(*) AS sources, min(sources.refused_since) AS since
    FROM sources JOIN declared ON declared.url_key = sources.url_key
    WHERE sources.outcome = '{REFUSED}' AND sources.refused_since < {now} - 86400.0
        AND declared.file = {NEWEST_FILE}
    GROUP BY declared.host
), latest AS (
    {latest}
), found AS (
    SELECT 'warning' AS severity, 'no crawl is recorded' AS problem, CAST(NULL AS TEXT) AS subject,
        CAST(NULL AS DOUBLE PRECISION) AS since, 'Start one.' AS advice,
        'scrapy crawl feeds' AS command
    FROM good WHERE first_at IS NULL
    UNION ALL SELECT
        CASE WHEN {now} - coalesce(ended_at, first_at) > 180000.0 THEN 'critical'
            ELSE 'warning' END,
        CASE WHEN ended_at IS NULL THEN 'no crawl has ended well'
            ELSE 'no crawl has ended well since' END,
        NULL, coalesce(ended_at, first_at), 'Look at the log of the last one.', 'walsh runs'
    FROM good WHERE {now} - coalesce(ended_at, first_at) > 93600.0
    UNION ALL SELECT 'warning', 'the last crawl went wrong: ' || problem, 'run ' || id, started_at,
        'Look at its log.', 'walsh runs'
    FROM crawls WHERE problem IS NOT NULL AND id = (
        SELECT id FROM crawls WHERE state = 'ended' ORDER BY started_at DESC, id DESC LIMIT 1)
    UNION ALL SELECT 'warning', 'a crawl did not end', 'run ' || id, last_sign_at,
        'Was it killed, or out of memory?', 'walsh runs'
    FROM crawls WHERE state = 'killed' AND last_sign_at >= {now} - 172800.0
    UNION ALL SELECT 'warning', 'no blocklist was adopted yet', url, NULL, 'Look at the log.', NULL
    FROM blocklists WHERE requested_at IS NULL
    UNION ALL SELECT
        CASE WHEN {now} - requested_at - refresh > 604800.0 THEN 'critical' ELSE 'warning' END,
        'the copy of the blocklist is old', url, requested_at, 'Its server does not answer.', NULL
    FROM blocklists WHERE {now} - requested_at - refresh > 93600.0
    UNION ALL SELECT CASE WHEN 2 * failing > sources THEN 'critical' ELSE 'warning' END,
        failing || ' of ' || sources || ' sources are failing', NULL, NULL,
        'They come first in the list of sources.', 'walsh sources --failing'
    FROM counted WHERE 4 * failing > sources
    UNION ALL SELECT 'warning',
        CASE WHEN sources = 1 THEN '1 source is' ELSE sources || ' sources are' END
            || ' refused (429, 503) for over a day',
        host, since, 'The site wants a wait.', 'walsh sources --failing'
    FROM refusals
    UNION ALL SELECT 'warning',
        'a host is on hold for over a day, until ' || {sql.time("hold_until")},
        host, hold_since, 'The list of hosts says why.', 'walsh hosts'
    FROM hosts WHERE hold_until > {now} AND hold_until - hold_since > 86400.0
        AND hold_by <> 'unreachable'
    UNION ALL SELECT 'warning', 'times lie in the future, and do not count', name, at,
        'Is the clock of this machine right? Then another one wrote them: crawls replace those of '
        || 'sources, hosts and lists, and those of runs, requests and entries stay until they are '
        || 'past.', NULL
    FROM latest WHERE at > {now} + {CLOCK_SKEW}
)
SELECT severity, problem, subject,
    {sql.time("since")} AS since,
    advice, command, CASE severity WHEN 'critical' THEN 0 ELSE 1 END AS rank
FROM found"""


def _evidence(sql: Sql) -> str:
    def name_of(column: str) -> str:  # the id of a copy is shown as its SHA-256
        return f"(SELECT sha256 FROM copies WHERE copies.id = {column}) AS {column}"

    blocklist_at = sql.time("blocklist_at")
    return f"""rule, line, {name_of("robots")}, {sql.time("robots_at")} AS robots_at,
    {name_of("blocklist")}, {blocklist_at} AS blocklist_at, robots_status, redirected_from"""


def _requests(sql: Sql) -> str:
    """One row for each request that was sent, or may have been sent.

    id: its number
    requested_at, days_ago: when it was allowed to go out
    host, url, gates: of the request; the answer of each gate
    status, error: of the answer; a sentence if there was none
    duration: seconds from when it was sent; NULL while it is in flight, or if its end is unknown
    connect_duration: seconds until it was sent, in which its connection was made
    monotonic: the machine's monotonic clock at its end
    run: its run
    purpose: `target`, `robots` or `blocklist`
    delay: seconds that were required after the previous exchange
    hold: seconds of the hold that its answer began; 0 for none
    retry_after: seconds that its answer asked for
    conditional: whether it had If-None-Match or If-Modified-Since
    has_validator: whether its answer had an ETag or a Last-Modified
    rule, line: the line of robots.txt that decided; NULL if no rule is about the URL
    robots, robots_at: the robots.txt that decided, by its `sha256` in `readable_copies`, and the
        last request for it
    blocklist, blocklist_at: as for `robots`
    robots_status: of the answer to the request at `robots_at`
    redirected_from: the URL that redirected to it
    source: the declared source of a target
    """
    return f"""
SELECT id, {sql.time("requested_at")} AS requested_at, {sql.days_ago("requested_at")} AS days_ago,
    host, url, gates, status, nullif(error, '') AS error, duration, connect_duration, monotonic,
    run, purpose, delay, hold, retry_after, conditional, has_validator, {_evidence(sql)},
    CASE source WHEN '' THEN url ELSE source END AS source
FROM requests"""


def _denials(sql: Sql) -> str:
    """One row for each request that a gate denied, so that it was not sent.

    id, denied_at, days_ago: its number and its time
    host, url: of the request
    gate: the gate that denied it, one of [these](reuse.md#what-a-spider-sees) or your own
    reason: a sentence
    run: its run
    rule, line: the line of robots.txt that decided, or the listed domain
    robots, robots_at, blocklist, blocklist_at, robots_status, redirected_from: as in
        `readable_requests`
    """
    return f"""
SELECT id, {sql.time("denied_at")} AS denied_at, {sql.days_ago("denied_at")} AS days_ago, host, url,
    gate, reason, run, {_evidence(sql)}
FROM denials"""


def _copies(sql: Sql) -> str:
    """One row for each document that decided about requests.

    sha256, kind: its name; `robots`, `blocklist` or `sources`
    first_used_at, last_used_at: when it was needed
    body: as text
    """
    return f"""
SELECT sha256, kind, {sql.time("first_used_at")} AS first_used_at,
    {sql.time("last_used_at")} AS last_used_at, {sql.text("body")} AS body
FROM copies"""


def _robots(sql: Sql) -> str:
    """One row for the last robots.txt of each scheme, host and port.

    origin: scheme, host and port
    requested_at, status: the last request for it; NULL without an answer
    failing_since: the first of the failures in a row
    body: the last good copy as text
    """
    return f"""
SELECT origin, {sql.time("requested_at")} AS requested_at, status,
    {sql.time("failing_since")} AS failing_since, {sql.text("body")} AS body
FROM robots"""


def _blocklist(sql: Sql) -> str:
    """One row for the blocklist, and one for its schema.

    url: its address
    requested_at, days_ago: the last request for it
    bytes: of the document
    """
    return f"""
SELECT url, {sql.time("requested_at")} AS requested_at, {sql.days_ago("requested_at")} AS days_ago,
    (SELECT length(body) FROM copies WHERE copies.sha256 = copy) AS bytes
FROM blocklist"""


def _overrides(sql: Sql) -> str:
    """One row for each change of an operator with `walsh hosts` or `walsh sources resume`.

    id, made_at, host: its number, its time, the host
    override: `release`, `delay` or `resume`
    seconds: the rest of the hold, the new delay, or 0
    reason: as given with `--because`
    url: the source that was resumed
    """
    return f"""
SELECT id, {sql.time("made_at")} AS made_at, host, override, seconds,
    nullif(reason, '') AS reason, url
FROM overrides"""


#: The views by name, each as a function that writes its SELECT.
VIEWS: Final[dict[str, Callable[[Sql], str]]] = {
    "readable_sources": _sources,
    "readable_hosts": _hosts,
    "readable_entries": _entries,
    "readable_runs": _runs,
    "readable_problems": _problems,
    "readable_requests": _requests,
    "readable_denials": _denials,
    "readable_copies": _copies,
    "readable_robots": _robots,
    "readable_blocklist": _blocklist,
    "readable_overrides": _overrides,
    "request_gaps": gap_view,
}


def view_select(view: str, dialect: Dialect, now: float | None = None) -> str:
    """Return the SELECT of a view; ``now`` (epoch seconds) replaces the clock of the database."""
    return VIEWS[view](Sql.for_dialect(dialect, now)).strip()


def has_views(connection: Connection) -> bool:
    """Return True if this version made all stored views."""
    return not _outdated_views(connection)


def create_views(connection: Connection) -> None:
    """Create the views that are missing, and replace those that another version defined.

    All other views stay as they are, with the operator's grants on them.
    """
    lock_schema(connection)
    outdated = _outdated_views(connection)
    for view, definition in outdated.items():
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {view}")
        connection.execute(text(f"CREATE VIEW {view} AS {definition}"))
    if outdated:
        rows = [{"name": view, "value": _digest(sql)} for view, sql in outdated.items()]
        upsert(connection, choices, rows)


class ViewQuery(NamedTuple):
    """The parts of a query on a view, in SQL; an empty part is left out."""

    view: str
    columns: str
    where: str
    group_by: str
    order_by: str
    limit: int | None

    def select_from(self, table: str) -> str:
        """Return the query on a view, or on the SELECT that defines it."""
        clauses = {"WHERE": self.where, "GROUP BY": self.group_by, "ORDER BY": self.order_by}
        parts = [f"SELECT {self.columns} FROM {table}"]
        parts += [f"{clause} {sql}" for clause, sql in clauses.items() if sql]
        if self.limit is not None:
            parts.append(f"LIMIT {self.limit}")
        return " ".join(parts)


def read_view(
    connection: Connection, query: ViewQuery, params: Mapping[str, Any], now: float | None
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a view; ``now`` (epoch seconds) replaces the clock of the database.

    The stored view is read only without ``now``, and if this version made it.
    """
    view = query.view
    definition = view_select(view, connection.dialect, now)
    stored = connection.scalar(select(choices.c.value).where(choices.c.name == view))
    table = view
    if now is not None or stored != _digest(definition):
        table = f"({definition}) AS {view}"
    result = connection.execute(text(query.select_from(table)), params)
    names = tuple(result.keys())
    booleans = [name for name in names if name in BOOLEANS]
    for values in result:
        row = dict(zip(names, values, strict=True))
        for name in booleans:
            row[name] = bool(row[name])
        yield row


def _outdated_views(connection: Connection) -> dict[str, str]:
    """Return this version's definitions of the views that are missing or differ from them.

    A database changes the text of a view, so `choices` has the SHA-256 of the original text.
    """
    stored = {row.name: row.value for row in connection.execute(select(choices))}
    definitions = {view: view_select(view, connection.dialect) for view in VIEWS}
    return {
        view: definition
        for view, definition in definitions.items()
        if stored.get(view) != _digest(definition)
    }


def _digest(definition: str) -> str:
    return sha256(definition.encode()).hexdigest()
