"""The view of the runs: how each of them ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy.policy.durations import CLOCK_SKEW

if TYPE_CHECKING:
    from walsh_scrapy.state.sql import Sql


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
