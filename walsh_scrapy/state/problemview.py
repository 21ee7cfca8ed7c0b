"""The view of the runs, and the facts of which `policy.problems` makes problems (decision 39)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.durations import CLOCK_SKEW
from walsh_scrapy.policy.problems import (
    MAX_FAILED_SECONDS,
    MAX_SUBJECTS,
    MAX_UNREAD_SECONDS,
)
from walsh_scrapy.state.records import MAX_RESENT, NO_ROBOTS, REFUSED, REPLACED, TOO_SLOW
from walsh_scrapy.state.tables import LAST_MOMENT

if TYPE_CHECKING:
    from walsh_scrapy.state.sql import Sql


# Runs


def judged_runs(sql: Sql) -> str:
    """Return the SELECT of runs with their problems; times are epoch seconds."""
    is_open = "SELECT id FROM runs WHERE ended_at IS NULL"
    max_wait = sql.field("settings", "max_wait")
    counts = (sql.number("summary", name) for name in ("fetched", "unchanged", "responses"))
    read = " + ".join(f"coalesce({count}, 0)" for count in counts)
    return f"""
SELECT seen.*,
    CASE WHEN is_killed THEN 'killed' WHEN ended_at IS NULL THEN 'running' ELSE 'ended' END
        AS state,
    CASE WHEN is_killed THEN 'killed' ELSE ended_with END AS problem
FROM (
    SELECT signs.*, ended_at IS NULL AND hosts_owned IS NULL
        AND {sql.now} - last_sign_at > longest_wait + 900.0 AS is_killed
    FROM (
        SELECT runs.*,
            nullif({sql.field("summary", "problem")}, '') AS ended_with,
            {sql.number("summary", "undelivered")} AS undelivered,
            {read} AS documents,
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


def runs_view(sql: Sql) -> str:
    """One row for each crawl, and for each command that requested a URL by hand.

    run: its number
    problem: `killed`, the reason for an early end (`export_failed`, `gate_failed`, `log_failed`,
        `machine_trouble`, `state_failed`), `nothing_read` (sources on two hosts or more failed or
        were refused, and none was read), `no_blocklist` (none ever came), `undelivered` (entries
        were not delivered to a pipeline or an export), or NULL
    rank: 0 for a problem of the last two days, 1 for a running one
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
FROM ({judged_runs(sql)}) judged
    LEFT JOIN (SELECT run, count(*) AS requests FROM requests GROUP BY run) logged
    ON logged.run = judged.id"""


# Problems

#: The problem of a source: of a row `s` of `sources`, declared with the URL `d.url`.
SOURCE_PROBLEM: Final = f"""CASE
            WHEN s.not_before >= {LAST_MOMENT} THEN 'gone'
            WHEN s.outcome LIKE 'denied%' THEN 'denied'
            WHEN s.outcome = '{REFUSED}' THEN 'refused'
            WHEN s.outcome = '{NO_ROBOTS}' THEN 'robots'
            WHEN s.outcome = '{TOO_SLOW}' THEN 'delay'
            WHEN s.outcome = '{REPLACED}' AND s.visited_at > s.failing_since THEN 'replaced'
            WHEN s.failures > 0 THEN 'failing'
            WHEN s.moved_to <> d.url AND s.move_settled THEN 'moved'
            WHEN s.resent >= {MAX_RESENT} THEN 'resent' END"""
#: When the problem of a source began; NULL if that is not recorded.
SOURCE_SINCE: Final = """CASE problem WHEN 'gone' THEN visited_at WHEN 'failing' THEN failing_since
        WHEN 'replaced' THEN failing_since WHEN 'refused' THEN refused_since
        WHEN 'robots' THEN refused_since WHEN 'delay' THEN refused_since
        WHEN 'moved' THEN moved_since END"""
#: The last runs, which count, and the seconds in which a file was read whose sources count.
_MAX_RUNS: Final = 2_000
FILE_SECONDS: Final = 30 * 86_400.0
#: A hold for over a day, and not only because the host cannot be reached.
IS_LONG_HOLD: Final = "hold_until - hold_since > 86400.0 AND coalesce(hold_by, '') <> 'unreachable'"
#: Crawls that begin sooner one after another are one.
_MIN_GAP_SECONDS: Final = 60.0
#: Gaps between crawls of which the median counts.
_MAX_GAPS: Final = 10
#: A delay by the operator that makes a host wait for a later run, in seconds.
_LONG_DELAY_SECONDS: Final = 3600.0
_NONE: Final = {
    "subject": "CAST(NULL AS TEXT)",
    "since": "CAST(NULL AS DOUBLE PRECISION)",
    "until": "CAST(NULL AS DOUBLE PRECISION)",
    "number": "CAST(NULL AS DOUBLE PRECISION)",
    "total": "CAST(NULL AS BIGINT)",
    "hosts": "CAST(NULL AS BIGINT)",
    "reason": "CAST(NULL AS TEXT)",
}


def problems_view(sql: Sql) -> str:
    """One row for each fact that may be a problem; `walsh status` says what they mean.

    Sources count if a file declares them that was read in the last 30 days, and hosts if they have
    such a source, or if there is none at all.

    code: `crawls`, `last_crawl` (that went wrong), `killed` (an earlier one), `blocklist`, `unread`
        (sources of a host that are due and were not read for a week), `failing` (sources of the
        last two days), `sources` (by problem), `hold` (of a host, for over a day), or `clock`
        (times of a table that lie in the future)
    subject: the run, URL, host or table; of several sources the first one
    since, until, age: when it began, when it ends, the seconds since it began
    number, total, hosts: of sources with the problem, of all that count, and of their hosts; for
        `crawls` the median gap in seconds and the number of crawls, for `blocklist` its refresh and
        its age at the last crawl in seconds, for a run the entries not delivered
    reason: the problem of the run or of the sources
    """
    now = sql.now
    refresh = f"CAST({sql.field(sql.first_line('adopted'), 0)} AS DOUBLE PRECISION)"
    interval = sql.greatest("every", "revisit", "server_interval", "feed_interval")
    facts = [
        _fact(
            "crawls",
            "FROM crawls",
            since=f"max(CASE WHEN state = 'running' THEN {now} ELSE last_sign_at END)",
            number="(SELECT gap FROM gaps WHERE place = number / 2 + 1)",
            total="count(*)",
        ),
        _fact(
            "last_crawl",
            "FROM crawls WHERE id = (SELECT id FROM last_crawl) AND problem IS NOT NULL",
            subject="CAST(id AS TEXT)",
            since="last_sign_at",
            number="CAST(undelivered AS DOUBLE PRECISION)",
            reason="problem",
        ),
        _fact(
            "killed",
            f"""FROM crawls WHERE state = 'killed' AND last_sign_at > {now} - {MAX_FAILED_SECONDS}
        AND id <> (SELECT id FROM last_crawl)""",
            subject="CAST(id AS TEXT)",
            since="last_sign_at",
        ),
        _fact(
            "blocklist",
            f"""FROM (SELECT {sql.last_setting("blocklist_url")} AS url) wanted
        LEFT JOIN blocklist ON blocklist.url = wanted.url WHERE wanted.url <> ''""",
            subject="wanted.url",
            since="requested_at",
            number=refresh,
            total="(SELECT CAST(max(last_sign_at) - requested_at AS BIGINT) FROM crawls)",
        ),
        f"""SELECT * FROM ({
            _fact(
                "unread",
                f"FROM unread WHERE due_since < {now} - {MAX_UNREAD_SECONDS} GROUP BY host",
                subject="host",
                since="min(due_since)",
                number="CAST(count(*) AS DOUBLE PRECISION)",
                hosts="count(*) OVER ()",
            )
        } ORDER BY since, subject LIMIT {MAX_SUBJECTS}) AS longest_unread""",
        _fact(
            "failing",
            "FROM recent",
            number="CAST(sum(is_failing) AS DOUBLE PRECISION)",
            total="count(*)",
            hosts="count(DISTINCT CASE WHEN is_failing = 1 THEN host END)",
        ),
        _fact(
            "sources",
            "FROM judged WHERE problem IS NOT NULL GROUP BY problem",
            subject="min(url)",
            since=f"min({SOURCE_SINCE})",
            number="CAST(count(*) AS DOUBLE PRECISION)",
            hosts="count(DISTINCT host)",
            reason="problem",
        ),
        f"""SELECT * FROM ({
            _fact(
                "hold",
                f'''FROM hosts WHERE hold_until > {now} AND {IS_LONG_HOLD}
        AND (host IN (SELECT host FROM judged) OR NOT EXISTS (SELECT 1 FROM judged))''',
                subject="host",
                since="hold_since",
                until="hold_until",
                reason="hold_by",
            )
        } ORDER BY since, subject LIMIT {MAX_SUBJECTS}) AS longest_holds""",
        _fact(
            "clock",
            f"""FROM latest WHERE at > {now} + {CLOCK_SKEW} AND NOT EXISTS (
        SELECT 1 FROM crawls WHERE id = (SELECT max(id) FROM runs WHERE command = '')
        AND state = 'ended' AND problem IS NULL)""",
            subject="name",
            since="at",
        ),
    ]
    union = "\n    UNION ALL ".join(facts)
    return f"""
WITH crawls AS (
    SELECT * FROM ({judged_runs(sql)}) judged
    WHERE command = '' AND id > (SELECT max(id) FROM runs) - {_MAX_RUNS}
        AND started_at <= {now} + {CLOCK_SKEW} AND coalesce(ended_at, 0.0) <= {now} + {CLOCK_SKEW}
), last_crawl AS (
    SELECT id FROM crawls WHERE problem IS NOT NULL OR state = 'ended' AND documents > 0
    ORDER BY started_at DESC, id DESC LIMIT 1
), gaps AS (
    SELECT gap, row_number() OVER (ORDER BY gap) AS place, count(*) OVER () AS number FROM (
        SELECT gap FROM (
            SELECT started_at, started_at - lag(started_at) OVER (
                PARTITION BY spider ORDER BY started_at, id) AS gap FROM crawls
        ) AS all_gaps WHERE gap >= {_MIN_GAP_SECONDS} ORDER BY started_at DESC LIMIT {_MAX_GAPS}
    ) AS last_gaps
), wanted AS (
    SELECT url_key, min(url) AS url, min(host) AS host, max(every) AS every,
        min(added_at) AS added_at
    FROM declared WHERE file IN ({_files(sql)}) GROUP BY url_key
), judged AS (
    SELECT d.url, d.host, d.every, d.added_at, s.outcome, s.read_at, s.visited_at, s.failing_since,
        s.refused_since, s.moved_since, coalesce(s.server_interval, 0.0) AS server_interval,
        coalesce(s.feed_interval, 0.0) AS feed_interval, {sql.min_revisit} AS revisit,
        {SOURCE_PROBLEM} AS problem
    FROM wanted d LEFT JOIN sources s ON s.url_key = d.url_key
), unread AS (
    SELECT judged.host, CASE WHEN read_at IS NULL THEN added_at ELSE read_at + {interval} END
        AS due_since
    FROM judged LEFT JOIN hosts ON hosts.host = judged.host
    WHERE coalesce(problem, '') <> 'gone' AND coalesce(outcome, '') <> 'denied by blocklist'
        AND (hosts.host IS NULL OR NOT (hold_by = 'retry-after' AND hold_until > {now})
            AND operator_delay < {_LONG_DELAY_SECONDS})
), recent AS (
    SELECT host, CASE WHEN problem IN ('refused', 'robots', 'delay')
            OR problem = 'failing' AND visited_at > {now} - {MAX_FAILED_SECONDS} THEN 1 ELSE 0 END
        AS is_failing
    FROM judged
    WHERE coalesce(problem, '') <> 'gone' AND (visited_at IS NULL
        OR visited_at > {now} - {MAX_FAILED_SECONDS} OR problem IN ('refused', 'robots', 'delay'))
), latest AS (
    {_latest(sql)}
), found AS (
    {union}
)
SELECT code, subject, {sql.time("since")} AS since, {sql.time("until")} AS until,
    {now} - since AS age, number, total, hosts, reason
FROM found"""


def _fact(code: str, source: str, **values: str) -> str:
    """Return the SELECT of facts with a code; columns without a value are NULL."""
    columns = ", ".join(f"{value} AS {name}" for name, value in (_NONE | values).items())
    return f"SELECT '{code}' AS code, {columns}\n    {source}"


def _files(sql: Sql) -> str:
    """Return the files whose sources count: one, or those that were read lately."""
    if sql.terms.file is not None:
        return sql.file
    return f"SELECT id FROM files WHERE read_at > {sql.now} - {FILE_SECONDS}"


def _latest(sql: Sql) -> str:
    """Return the SELECT of the latest time in each table."""
    moments = {
        "runs": sql.greatest("started_at", "coalesce(ended_at, 0.0)"),
        "requests": "requested_at",
        "entries": "first_seen",
        "sources": "visited_at",
        "hosts": sql.greatest("coalesce(request_ended_at, 0.0)", "hold_since"),
        "robots": "requested_at",
        "blocklist": "requested_at",
    }
    return "\n    UNION ALL ".join(
        f"SELECT '{table}' AS name, max({moment}) AS at FROM {table}"
        for table, moment in moments.items()
    )
