"""Rows 2, 3 and 6: the requests, judged by robots.txt, the blocklist and the declared sources.

SQL groups the requests by document and URL, so that each document judges each URL only once.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin

from walsh_scrapy.feeds.attest.checklist import CLOCK_SET, NO_COPY, NO_FETCH, NO_LIST, NO_RUN
from walsh_scrapy.feeds.attest.questions import DAY, IN_SPAN
from walsh_scrapy.feeds.attest.record import IS_REDIRECT
from walsh_scrapy.feeds.metadata.formats import is_dump
from walsh_scrapy.feeds.sources.declaration import MissingPart, RunDeclaration
from walsh_scrapy.policy.blocklist import Blocklist, InvalidBlocklist
from walsh_scrapy.policy.robots import RobotsTxt
from walsh_scrapy.policy.robots.copy import MAX_LATENESS_SECONDS
from walsh_scrapy.policy.urls import canonical_url, host_of, is_private_host, robots_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Row

    from walsh_scrapy.feeds.attest.checklist import Tally
    from walsh_scrapy.feeds.attest.record import Record, Run
    from walsh_scrapy.policy.robots import Rules

_BY_PHASE: Final = "was sent by WALSH_ROBOTS_UNREACHABLE, by the time of the first failure"
_UNDECLARED: Final = "names a run whose declared sources are not kept"
_ANY: Final = "names a run that may follow links (WALSH_SCOPE)"
_MOVED: Final = "was requested where a source had moved to, which is not recorded"
_OLDER: Final = "names a redirect that may be older than the request log"
_EXEMPT: Final = "exempt"
_HOPS: Final = ("hop", "private hop", "older hop", "lost hop")
_LIST_ROWS: Final = ("3", "3a", "3b", "3c")
#: The last answer to a request for robots.txt was a failure.
_IS_FAILURE: Final = "({0} IS NULL OR {0} = 429 OR {0} >= 500)"


def check_robots(record: Record, tally: Tally) -> list[tuple[int, str, float]]:
    """Check the requests by the robots.txt that they name.

    Returns the Crawl-delays: the number of the copy, the product token, and seconds.
    """
    is_old = f"r.requested_at - r.robots_at > {DAY + MAX_LATENESS_SECONDS}"
    old = record.if_certain("old-robots", CLOCK_SET, "r.robots_at", "r.requested_at")
    # A failed fetch may end without a request, when its time is up.
    is_unlogged = f"""f.host IS NULL AND r.robots_at >= {record.log_since}
        AND NOT EXISTS (SELECT 1 FROM requests t WHERE t.purpose = 'robots' AND t.host = r.host
            AND t.requested_at BETWEEN r.robots_at - {DAY} AND r.robots_at
            AND ({_IS_FAILURE.format("t.status")} OR t.status BETWEEN 300 AND 399))"""
    counted = f"""
WITH {record.shared}, fetches AS MATERIALIZED (
    SELECT DISTINCT host, robots_at FROM requests
    WHERE purpose = 'robots' AND robots_at IS NOT NULL
)
SELECT terms, robots, url, flag, count(*) AS count, min(id) AS first, min(robots_at) AS robots_at
FROM (
    SELECT t.terms, r.robots, r.url, r.id, r.robots_at,
        CASE WHEN r.robots_at IS NULL THEN 'no-robots'
            WHEN {is_old} THEN {old}
            WHEN {is_unlogged} THEN '{NO_FETCH}'
            WHEN {_IS_FAILURE.format("r.robots_status")} THEN 'failure' ELSE '' END AS flag
    FROM requests r LEFT JOIN terms t ON t.run = r.run
        LEFT JOIN fetches f ON f.host = r.host AND f.robots_at = r.robots_at
    WHERE r.purpose <> 'robots' AND {IN_SPAN}
) flagged GROUP BY terms, robots, url, flag ORDER BY robots, terms"""
    delays = {}
    read_rules = lru_cache(maxsize=1)(partial(_read_rules, record))
    for terms, copy, url, flag, count, first, robots_at in record.rows(counted):
        run = record.runs.get(terms)
        if url == robots_url(url):
            continue  # robots.txt itself is always allowed (RFC 9309 2.2.2)
        if run is None:
            tally.add("2", NO_RUN, count, first)
            continue
        rules = read_rules(copy, run)
        if rules is not None and rules.crawl_delay:
            delays[copy, run.facts.ua_token] = rules.crawl_delay
        if rules is None:
            tally.add("2", _judge_without_rules(run, copy, flag), count, first)
            continue
        is_named = rules.group not in (None, "*")
        verdict = rules.verdict(url)
        outcome = _judge_by_rules(run, rules, flag, robots_at)
        if not verdict.allowed:
            kind = "denied-by-name" if is_named else "denied"
            tally.add("2", kind, count, first, f"line {verdict.line}: {verdict.rule!r}")
            continue
        tally.add("2", outcome, count, first)
        if is_named:
            tally.add("2a", "", count, first)
    return [(copy, token, seconds) for (copy, token), seconds in delays.items()]


def _read_rules(record: Record, copy: int | None, run: Run) -> Rules | None:
    body = None if copy is None else record.copy(copy)
    return None if body is None else RobotsTxt.parse(body).rules_for(run.facts.ua_token)


def _judge_without_rules(run: Run, copy: int | None, flag: str) -> str:
    if flag in ("no-robots", "old-robots"):
        return flag
    if copy is not None:
        return NO_COPY
    if run.facts.robots_unreachable == "disallow":
        return "denied"
    if flag in (NO_FETCH, CLOCK_SET):
        return flag
    return "" if run.facts.robots_unreachable == "allow" else _BY_PHASE


def _judge_by_rules(run: Run, rules: Rules, flag: str, robots_at: float) -> str:
    if flag == "old-robots":
        # A copy whose delay makes a request wait stays valid until that request is sent.
        at = datetime.fromtimestamp(robots_at, UTC)
        waits = rules.crawl_delay or rules.interval(at) or rules.opens(at) > at
        return "" if waits else flag
    if flag == "failure":
        return _BY_PHASE if run.facts.robots_unreachable == "phased" else ""
    return flag


def check_lists(record: Record, tally: Tally) -> None:
    """Check the requests by the blocklist that they name."""
    refreshes = {}
    named = f"""SELECT DISTINCT r.blocklist FROM requests r
        WHERE r.blocklist IS NOT NULL AND {IN_SPAN}"""
    for (copy,) in list(record.rows(named)):
        listed, outcome, detail = _read_list(record, copy)
        tally.add("3c", outcome, 1, copy, detail)
        if listed is not None:
            refreshes[copy] = listed.refresh.total_seconds()
    read_list = lru_cache(maxsize=1)(partial(_read_list, record))
    for row in record.rows(_blocklist_sql(record, refreshes)):
        run = record.runs.get(row.terms)
        if run is None:
            tally.add("3", NO_RUN, row.count_, row.first)
        elif run.facts.is_other_bot and not run.facts.blocklist_url:
            for number in _LIST_ROWS:
                tally.waived[number] = "no blocklist of this bot: WALSH_BLOCKLIST_URL is empty"
        elif row.flag != _EXEMPT:
            listed = None if row.blocklist is None else read_list(row.blocklist)[0]
            _check_list(tally, row, listed)


def _blocklist_sql(record: Record, refreshes: Mapping[int, float]) -> str:
    """Return the query for requests by list and URL. ``refreshes`` has seconds by list."""
    values = "".join(f", ({copy}, {seconds})" for copy, seconds in refreshes.items())
    blocklist, robots = (
        record.sql.position(f"'{gate}: '", "r.gates") for gate in ("blocklist", "robots")
    )
    # One late request is no proof, because the machine may have stood still after the check. The
    # next late request is a proof.
    known_at = record.sql.least("coalesce(before, t.started_at)", "r.requested_at")
    is_stale = f"{known_at} - r.blocklist_at > l.refresh + {MAX_LATENESS_SECONDS}"
    stale = record.if_certain("stale-list", CLOCK_SET, "r.blocklist_at", "r.requested_at")
    is_forgotten = """r.blocklist IS NULL AND (n.run_at < r.requested_at
                OR n.list_at < t.started_at AND n.list_at < r.requested_at)"""
    forgotten = record.if_certain("forgotten-list", CLOCK_SET, "n.list_at", "r.requested_at")
    return f"""
WITH {record.shared}, refreshes(copy, refresh) AS (
    VALUES (0, {DAY}){values}
), named AS MATERIALIZED (
    SELECT t.run, first.at AS run_at, min(first.at) OVER (PARTITION BY t.list_url) AS list_at
    FROM terms t LEFT JOIN (SELECT run, min(requested_at) AS at FROM requests
        WHERE blocklist IS NOT NULL GROUP BY run) first ON first.run = t.run
)
SELECT terms, blocklist, url, flag, is_in_force, count(*) AS count_, min(id) AS first FROM (
    SELECT t.terms, r.blocklist, r.url, r.id, n.list_at <= r.requested_at AS is_in_force,
        CASE WHEN {blocklist} = 0 THEN CASE r.purpose WHEN 'blocklist' THEN '{_EXEMPT}'
                ELSE 'no-blocklist' END
            WHEN {robots} > 0 AND {robots} < {blocklist} THEN 'robots-first'
            WHEN {is_forgotten} THEN {forgotten}
            WHEN r.purpose = 'target' AND (r.blocklist_at IS NULL OR {is_stale}) THEN {stale}
            ELSE '' END AS flag
    FROM (SELECT r.*, lag(r.requested_at) OVER (PARTITION BY r.run ORDER BY r.requested_at, r.id)
            AS before FROM requests r) r
        LEFT JOIN terms t ON t.run = r.run LEFT JOIN named n ON n.run = r.run
        LEFT JOIN refreshes l ON l.copy = coalesce(r.blocklist, 0)
    WHERE {IN_SPAN}
) flagged GROUP BY terms, blocklist, url, flag, is_in_force ORDER BY blocklist"""


def _check_list(tally: Tally, row: Row[Any], listed: Blocklist | None) -> None:
    """Add the requests to one URL by one list, which is None if it is not stored."""
    flag, count, first = row.flag, row.count_, row.first
    if row.is_in_force:
        tally.add("3b", flag if flag == "forgotten-list" else "", count, first)
    if row.blocklist is None:
        tally.add("3", "" if flag == "forgotten-list" else flag, count, first)
        return
    if listed is None:
        for number in ("3", "3a"):
            tally.add(number, NO_LIST, count, first)
        return
    entry = listed.blocks(row.url)
    if entry is None:
        tally.add("3", flag, count, first)
        if len(listed):
            tally.add("3a", "", count, first)
        return
    kind = "listed" if entry.domain == host_of(row.url) else "listed-above"
    tally.add("3", kind, count, first, f"{entry.domain} was listed")


def _read_list(record: Record, copy: int) -> tuple[Blocklist | None, str, str]:
    """Return a list or None, and the outcome and the detail for row 3c."""
    body = record.copy(copy)
    if body is None:
        return None, NO_LIST, ""
    try:
        return Blocklist.parse(body), "", ""
    except InvalidBlocklist as error:
        return Blocklist.EMPTY, "invalid-list", str(error)


def check_targets(record: Record, tally: Tally) -> None:
    """Check that each URL is declared, or the target of a redirect from a declared URL."""
    gates = {flag: record.sql.position(f"'{words}'", "r.gates") for flag, words in (
        ("private", "privatehosts: "), ("moved", "scope: moved"), ("announced", "scope: announced"),
    )}  # fmt: skip
    counted = f"""
WITH {record.shared}, redirects AS MATERIALIZED (
    SELECT DISTINCT r.run, r.url FROM requests r WHERE {IS_REDIRECT}
)
SELECT terms, purpose, url, source, flag, count(*) AS count_, min(id) AS first FROM (
    SELECT t.terms, r.purpose, r.url, coalesce(nullif(r.source, ''), r.url) AS source, r.id,
        CASE WHEN r.redirected_from IS NULL THEN CASE WHEN {gates["moved"]} > 0 THEN 'moved'
                WHEN {gates["announced"]} > 0 THEN 'announced' ELSE '' END
            WHEN q.url IS NULL THEN CASE WHEN t.started_at < {record.log_since}
                THEN 'older hop' ELSE 'lost hop' END
            WHEN {gates["private"]} > 0 THEN 'private hop' ELSE 'hop' END AS flag
    FROM requests r LEFT JOIN terms t ON t.run = r.run
        LEFT JOIN redirects q ON q.run = r.run AND q.url = r.redirected_from
    WHERE {IN_SPAN}
) flagged GROUP BY terms, purpose, url, source, flag ORDER BY terms, source"""
    source_urls = _SourceUrls(record)
    read_declaration = lru_cache(maxsize=1)(partial(_read_declaration, record))
    for row in record.rows(counted):
        run = record.runs.get(row.terms)
        if run is None:
            tally.add("6", NO_RUN, row.count_, row.first)
        elif run.facts.scope == "any" and run.facts.is_other_bot and row.purpose == "target":
            tally.waived["6"] = "no recursion, no sub-resources: this bot has WALSH_SCOPE = any"
            tally.waived["8"] = "this bot has WALSH_SCOPE = any: nothing says when a page is due"
        elif not run.command:  # a URL that an operator requested by hand need not be declared
            declared = read_declaration(run)
            outcome, detail = _judge_target(row, run, declared, source_urls)
            tally.add("6", outcome, row.count_, row.first, detail)


class _SourceUrls:
    """The URLs to which sources were redirected, or to which they moved."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._targets: dict[str, set[str]] | None = None

    def find(self, source: str) -> set[str]:
        """Return the URL of a source, and all URLs to which it ever led."""
        if self._targets is None:
            self._targets = {}
            rows = self._record.rows(
                "SELECT DISTINCT coalesce(nullif(source, ''), url) AS source, url FROM requests"
                " WHERE redirected_from IS NOT NULL AND source IS NOT NULL"
                " UNION SELECT url, moved_to FROM sources WHERE moved_to IS NOT NULL"
            )
            for origin, url in rows:
                self._targets.setdefault(origin, set()).add(url)
        return {source} | self._targets.get(source, set())


def _read_declaration(record: Record, run: Run) -> RunDeclaration | None:
    body = record.copy(run.facts.declared)
    return None if body is None else RunDeclaration(body, record.copy)


def _judge_target(
    row: Row[Any], run: Run, declared: RunDeclaration | None, source_urls: _SourceUrls
) -> tuple[str, str]:
    """Return the outcome and the detail of requests for row 6."""
    if row.purpose == "target" and is_dump(row.url):
        return "undeclared", "an llms-full.txt has complete pages"
    if row.flag in _HOPS:
        return _judge_redirect(row)
    if row.purpose == "robots":
        is_file = row.url.endswith("/robots.txt")
        return ("", "") if is_file else ("undeclared", "this is not a robots.txt")
    if row.purpose == "blocklist":
        lists = {run.facts.blocklist_url, run.facts.blocklist_schema_url} - {""}
        is_list = canonical_url(row.url) in {canonical_url(url) for url in lists}
        return (
            ("", "") if is_list else ("undeclared", "this is neither the blocklist nor its schema")
        )
    return (
        (_ANY, "")
        if run.facts.scope == "any"
        else _judge_declared_target(row, declared, source_urls)
    )


def _judge_redirect(row: Row[Any]) -> tuple[str, str]:
    """Return the outcome and the detail of requests to which a redirect led."""
    if row.flag == "older hop":
        return _OLDER, ""
    if row.flag == "lost hop":
        return "undeclared", "the redirect that led here is not recorded"
    is_from_private = row.flag == "private hop" or is_private_host(host_of(row.source))
    if row.purpose == "target" and is_private_host(host_of(row.url)) and not is_from_private:
        return "undeclared", "a public host redirected to this private host"
    return "", ""


def _judge_declared_target(
    row: Row[Any], declared: RunDeclaration | None, source_urls: _SourceUrls
) -> tuple[str, str]:
    """Return the outcome and the detail of requests for a source."""
    if declared is None:
        return _UNDECLARED, ""
    try:
        kind = declared.kind(row.source)
    except MissingPart:
        return _UNDECLARED, ""
    if kind is None:
        return "undeclared", f"requested for {row.source}, which the run did not declare"
    if row.url == row.source or row.url in _urls_for_kind(source_urls.find(row.source), kind):
        return "", ""
    hosts = {host_of(address) for address in source_urls.find(row.source)}
    if row.flag == "announced" and kind == "llms" and host_of(row.url) in hosts:
        return "", ""
    if row.flag == "moved":
        return _MOVED, ""
    return "undeclared", f"{row.source} does not declare it"


def _urls_for_kind(urls: set[str], kind: str) -> set[str]:
    """Return the URLs that may be requested for a source of this kind."""
    return urls | {urljoin(url, "/llms.txt") for url in urls if kind == "llms"}
