"""The stored views of the state: the lists that commands print, in SQL for both databases.

Views have codes, numbers and times; `policy.advice` and `policy.problems` have the words. For each
row a view decides what is wrong (`problem`), and which rows come first (`rank`). Times are RFC 3339
texts in UTC (`2026-05-23T06:00:00Z`), which sort as times do. Durations are seconds. A missing
value is NULL. Columns that end in `days_ago` are numbers, so that a query for the last week needs
no clock.

The docstring of a view describes its columns. `make references` copies it to docs/state.md.

A stored view reads the clock of the database. `read_view` runs the same SELECT itself if the state
is a simulated one with another clock, or if its stored views were made by another version.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import Double, literal_column, select, text

from walsh_scrapy.policy.pacing import MAX_EXCHANGE_SECONDS
from walsh_scrapy.state.gaps import gap_view
from walsh_scrapy.state.problemview import (
    IS_LONG_HOLD,
    SOURCE_PROBLEM,
    SOURCE_SINCE,
    problems_view,
    runs_view,
)
from walsh_scrapy.state.records import NO_ROBOTS, REFUSED, TOO_SLOW, upsert
from walsh_scrapy.state.sql import NO_TERMS, Sql, Terms, whole
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

#: Columns that are booleans on PostgreSQL, and 0 or 1 on SQLite.
BOOLEANS: Final = frozenset(
    {
        "is_declared", "is_due", "move_settled", "is_on_hold", "is_long_hold", "is_in_flight",
        "backfill", "conditional", "has_validator",
    }
)  # fmt: skip


#: The entries of a source, with those that another source had first: a source is alive even if all
#: of its articles are in another source too.
ENTRIES_OF_SOURCE: Final = """(
        SELECT first_seen FROM entries WHERE entries.source = source_url
        UNION ALL
        SELECT entries.first_seen FROM sightings JOIN entries ON entries.key = sightings.key
        WHERE sightings.source = source_url AND entries.source <> source_url
    ) AS given"""


def _sources(sql: Sql) -> str:
    """One row for each declared source, and for each that only the state still has.

    Declared means: in the file that a crawl or `walsh sources sync` read last.

    problem: `gone` (410), `failing`, `replaced` (by the feed of another site), `refused` (429,
        503), `robots` (no robots.txt came), `delay` (its host wants over 30 days between requests),
        `denied` by a gate, `moved` permanently, or `resent` (never answered with 304); NULL for a
        source that is well or not declared
    rank: small for urgent sources
    url, kind, name, tags, folder, page, every, delay: as declared; tags are separated by commas,
        folders by slashes
    is_declared: whether the sources file has it
    host: the host or domain that is paced
    outcome: of the last visit: `fetched`, `unchanged`, `failed`, `replaced`, `gone`, `refused`,
        `denied by robots` or by another gate, `robots.txt unavailable`, `delay too long`; `new`
        before it
    status, detail: of the last answer; the outcome as a sentence
    failures, failing_since, refused_since: failures in a row; the first of them, of the visits in a
        row that were refused or deferred
    visited_at, first_visited_at, read_at: the last visit, the first one, and the last one that
        found a document, new or unchanged
    added_at: when the sources file had it first
    since: when the problem began, if that is recorded
    due_at: when it is due; NULL for at once, and for never
    is_due: whether it is due now
    due_rule, due_wait: why it is due then: `gone`, `new`, `clock` (its last visit lies in the
        future), `resumed`, `asked` (by server or feed) or `operator`; the seconds since its visit
    min_revisit: WALSH_MIN_REVISIT of the last crawl, in seconds
    next_visit: `now`, `never`, or the latest of `due_at`, `hold_until` and `refused_until`
    hold_until, refused_until: the end of the hold of its host; when a visit that was refused or
        deferred is tried again
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
    feed_title, feed_host: the title of its feed, and the host of the page that it links to
    etag, last_modified, validator_url: the validators, in hexadecimal digits if they are not ASCII;
        the one URL that they are sent to
    """
    now = literal_column(sql.now, Double)
    min_revisit = literal_column(sql.min_revisit, Double)
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

    def from_hold(value: str, condition: str) -> str:
        """Return a value from the row of the host, if that is on hold and the condition holds."""
        return f"""(SELECT {value} FROM hosts WHERE hosts.host = judged.host
            AND hold_until > {sql.now} AND {condition})"""

    return f"""
WITH facts AS (
    SELECT coalesce(d.url, s.url) AS url, coalesce(d.kind, s.kind) AS kind, d.every, d.delay,
        d.details, d.host, d.file IS NOT NULL AS is_declared, s.url AS source_url, s.outcome,
        s.status, nullif(s.detail, '') AS detail, s.failures, s.failing_since, s.refused_since,
        s.visited_at, s.first_visited_at, s.read_at, d.added_at, s.deferred_until,
        CASE WHEN s.moved_to <> coalesce(d.url, s.url) THEN s.moved_to END AS moved_to,
        s.moved_since, s.move_settled, s.move_failing_since, s.onward_to, s.onward_since,
        s.server_interval, s.feed_interval, s.skip_hours, s.skip_days, s.format, s.resent,
        s.repeated, s.feed_title, s.feed_host, s.etag, s.last_modified, s.validator_url,
        CASE WHEN d.file IS NOT NULL THEN {due_at} END AS due,
        s.not_before, s.unconnected,
        CASE WHEN d.file IS NOT NULL THEN {SOURCE_PROBLEM} END AS problem
    FROM sources s
    LEFT JOIN declared d ON d.url_key = s.url_key AND d.file = {sql.file}
    UNION ALL
    SELECT url, kind, every, delay, details, host, true, NULL, 'new',
        NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, added_at, NULL,
        NULL, NULL, false, NULL, NULL, NULL,
        0.0, 0.0, '', '', '', 0, 0, NULL, NULL, NULL, NULL, NULL, 0.0, 0.0, false, NULL
    FROM declared WHERE +file = {sql.file}
        AND NOT EXISTS (SELECT 1 FROM sources WHERE sources.url_key = declared.url_key)
), judged AS (
    SELECT facts.*,
        CASE WHEN due > 0 AND due < {LAST_MOMENT} THEN {whole("due - visited_at")} END AS wait,
        coalesce(deferred_until > {sql.now} AND deferred_until > due, false) AS is_deferred
    FROM facts
)
SELECT problem,
    CASE WHEN NOT is_declared THEN 700 ELSE CASE problem
        WHEN 'gone' THEN 0 WHEN 'replaced' THEN 5
        WHEN 'failing' THEN 100 - CASE WHEN failures > 90 THEN 90 ELSE failures END
        WHEN 'robots' THEN 150 WHEN 'delay' THEN 160
        WHEN 'refused' THEN 200 WHEN 'denied' THEN 300 WHEN 'moved' THEN 400 WHEN 'resent' THEN 500
        ELSE CASE WHEN visited_at IS NULL THEN 550 ELSE 600 END END END AS rank,
    url, kind,
    CASE WHEN details <> '' THEN {sql.field("details", 0)} END AS name,
    CASE WHEN details <> '' THEN {sql.joined("details", 1, ",")} END AS tags,
    CASE WHEN details <> '' THEN {sql.joined("details", 3, "/")} END AS folder,
    CASE WHEN details <> '' THEN {sql.field("details", 2)} END AS page,
    nullif(every, 0) AS every, delay, is_declared, host,
    outcome, status, detail, failures,
    {sql.time("failing_since")} AS failing_since,
    {sql.time("refused_since")} AS refused_since,
    {sql.time("visited_at")} AS visited_at,
    {sql.time("first_visited_at")} AS first_visited_at,
    {sql.time("read_at")} AS read_at,
    {sql.time("added_at")} AS added_at,
    {sql.time(SOURCE_SINCE)} AS since,
    {sql.time("due")} AS due_at,
    coalesce(due <= {sql.now}, false) AS is_due,
    CASE WHEN is_declared THEN {due_rule} END AS due_rule, wait AS due_wait,
    {sql.min_revisit} AS min_revisit,
    coalesce({from_hold(hold_end, "hold_until > due")},
        CASE WHEN is_deferred THEN coalesce({sql.time("deferred_until")}, 'never')
            WHEN due <= {sql.now} THEN 'now' ELSE {sql.time("due")} END, 'never') AS next_visit,
    {from_hold(hold_end, "true")} AS hold_until,
    CASE WHEN outcome IN ('{REFUSED}', '{NO_ROBOTS}', '{TOO_SLOW}') THEN
        coalesce({from_hold(hold_end, "hold_until > due")},
            CASE WHEN is_deferred THEN {sql.time("deferred_until")} ELSE {sql.time("due")} END)
        END AS refused_until,
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
    nullif(format, '') AS format, resent, repeated, feed_title, feed_host,
    {sql.header("etag")} AS etag, {sql.header("last_modified")} AS last_modified, validator_url
FROM judged"""


def _hosts(sql: Sql) -> str:
    """One row for each host that was requested, or for each registrable domain.

    problem: `hold`, `unreachable`, `server errors`, or NULL
    rank: small for problems, then for hosts that wait
    host: its name
    waits_for: `hold`, `in flight` or `delay`; NULL if it may be requested now
    waits_until: when it may be requested
    hold_since, hold_until: the last hold, which may be over
    hold_by, hold_status, held_for: its cause: `retry-after`, `visit-time`, `backoff` or
        `unreachable`; the status that caused it; its length in seconds
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
    CASE problem WHEN 'hold' THEN 0 WHEN 'unreachable' THEN 1 WHEN 'server errors' THEN 2
        ELSE CASE WHEN waits_for IS NOT NULL THEN 3 WHEN operator_delay > 0 THEN 4 ELSE 5 END
        END AS rank,
    judged.host AS host, waits_for,
    CASE WHEN waits_for IS NOT NULL THEN {sql.time("ready_at")} END AS waits_until,
    {sql.time("hold_since")} AS hold_since,
    {sql.time("hold_until")} AS hold_until,
    hold_by, nullif(hold_status, 0) AS hold_status, held_for, is_on_hold,
    is_on_hold AND {IS_LONG_HOLD} AS is_long_hold,
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
    """One row for each entry that was not forgotten.

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
    changed_at, previous_title: when its title changed last, and the title before that
    changed_seq, changed_position: the place of that change in the same order
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
            AND declared.file = {sql.file} AND details <> ''
        WHERE sources.url = entries.source)"""
    state_id = f"(SELECT value FROM choices WHERE name = '{STATE_ID}')"
    is_changed = "coalesce(changed_seq, 1) > 0"
    return f"""
SELECT {sql.time("first_seen")} AS first_seen, {sql.days_ago("first_seen")} AS days_ago, kind,
    source, coalesce({declared_name}, {sql.field("item", "source_title")}) AS source_name,
    {sql.field("item", "source_title")} AS source_title, {fields}, backfill, run, key, seq,
    {state_id} || ':' || seq AS position,
    CASE WHEN {is_changed} THEN {sql.time("changed_at")} END AS changed_at,
    CASE WHEN {is_changed} THEN {sql.field("former_titles", 0)} END AS previous_title,
    changed_seq, {state_id} || ':' || nullif(changed_seq, 0) AS changed_position
FROM entries WHERE item <> ''"""


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
    """One row for each change of an operator with `walsh hosts`, `sources` or `forget`.

    id, made_at, host: its number, its time, the host
    override: `release`, `delay`, `resume`, `accept` or `forget`
    seconds: the rest of the hold, the new delay, or 0
    reason: as given with `--because`
    url: the source that was resumed, accepted or forgotten
    requests: how many requests were forgotten
    """
    return f"""
SELECT id, {sql.time("made_at")} AS made_at, host, override, seconds,
    nullif(reason, '') AS reason, url, requests
FROM overrides"""


#: The views by name, each as a function that writes its SELECT.
VIEWS: Final[dict[str, Callable[[Sql], str]]] = {
    "readable_sources": _sources,
    "readable_hosts": _hosts,
    "readable_entries": _entries,
    "readable_runs": runs_view,
    "problem_facts": problems_view,
    "readable_requests": _requests,
    "readable_denials": _denials,
    "readable_copies": _copies,
    "readable_robots": _robots,
    "readable_blocklist": _blocklist,
    "readable_overrides": _overrides,
    "request_gaps": gap_view,
}


def view_select(
    view: str, dialect: Dialect, now: float | None = None, terms: Terms = NO_TERMS
) -> str:
    """Return the SELECT of a view; ``now`` (epoch seconds) replaces the clock of the database."""
    return VIEWS[view](Sql.for_dialect(dialect, now, terms)).strip()


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
    columns: str = "*"
    where: str = ""
    group_by: str = ""
    order_by: str = ""
    limit: int | None = None
    terms: Terms = NO_TERMS

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

    The stored view is read only without ``now`` and without terms, and if this version made it.
    """
    view = query.view
    definition = view_select(view, connection.dialect, now, query.terms)
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
