"""The checks of the audit, by the rows of the checklist.

Rows 4 and 5 are in `pacechecks`. Rows 1, 7, 8 and 9 are checked with SQL: a query gives each
request or visit an outcome, and counts the outcomes for `Tally.add`. For rows 2, 3 and 6, SQL
groups the requests by document and URL, so that robots.txt, the blocklist or the declared sources
judge each URL once. Times are epoch seconds.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin

from walsh_scrapy.feeds.attest.pacechecks import Waits
from walsh_scrapy.feeds.attest.record import (
    CLOCK_SET,
    FORGOTTEN,
    IN_FUTURE,
    IN_SPAN,
    IS_REDIRECT,
    IS_ROBOTS_FAILURE,
    LACKS_COPY,
    NO_COPY,
    NO_FETCH,
    NO_LIST,
    NO_RUN,
    UNNAMED_COPY,
    is_true_sql,
)
from walsh_scrapy.feeds.items import EntryItem, InvalidItem, check_item
from walsh_scrapy.feeds.metadata.formats import is_dump
from walsh_scrapy.feeds.sources.source import MissingPart, RunDeclaration
from walsh_scrapy.identity import UA_TOKEN
from walsh_scrapy.policy.blocklist import Blocklist, InvalidBlocklist
from walsh_scrapy.policy.robots import RobotsTxt
from walsh_scrapy.policy.robots.copy import MAX_LATENESS_SECONDS
from walsh_scrapy.policy.urls import canonical_url, host_of, is_private_host, robots_url
from walsh_scrapy.state.gaps import GAP_TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Row

    from walsh_scrapy.feeds.attest.record import Bot, Record, Run, Tally
    from walsh_scrapy.policy.robots import Rules

DAY: Final = 86_400.0
_FORCED: Final = "was visited before it was due, by the operator (force)"
_RESUMED: Final = "was visited before it was due, because the operator resumed it"
_BY_HAND: Final = "was requested by hand and by another run within a day"
_AFTER_KILL: Final = "came within a day of a run that did not end well"
_NO_VALIDATOR: Final = "was requested without the validator of the last answer"
#: The finish reasons of runs that have stored all their visits.
_GOOD_ENDS: Final = "('finished', 'shutdown', 'deferred')"


def ask_identity(record: Record, tally: Tally, bot: Bot) -> int:
    """Check the User-Agents of the runs; return the number of requests.

    Walsh-Research must have an exact User-Agent. Other bots are recognized by their product token.
    """
    is_walsh_research = bot.ua_token == UA_TOKEN
    total = 0
    counted = f"""SELECT r.run, count(*) AS count, min(r.id) AS first FROM requests r
        WHERE {record.is_judged} GROUP BY r.run"""
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
        f"""SELECT count(*) AS count, min(r.id) AS first FROM requests r
            WHERE r.requested_at > :future AND {record.is_of_bot}""",
        future=record.future,
    )
    if later.count:
        tally.add("1", IN_FUTURE, later.count, later.first)
    forgotten = """SELECT id, requests FROM overrides WHERE requests > 0
        AND made_at >= :since AND made_at <= :until"""
    for first, count in record.rows(forgotten):
        tally.add("1", FORGOTTEN, count, first)
    return total


def count_others(record: Record) -> dict[str, int]:
    """Return the number of requests that other bots sent by this state, by product token."""
    counts: Counter[str] = Counter()
    if record.runs_of_others:
        counted = f"SELECT r.run, count(*) AS count FROM requests r WHERE {IN_SPAN} GROUP BY r.run"
        for number, count in record.rows(counted):
            if run := record.runs_of_others.get(number):
                counts[run.facts.ua_token] += count
    return dict(counts)


def ask_visits(record: Record, tally: Tally) -> None:
    """Look for sources that two runs visited within a day, or that were gone.

    Only if the last request for a source got its document or a 304, it is not due any more, until
    the operator resumes it. A redirect from another source is not a visit. After a 410 for its own
    URL, a feed is gone; a source without a feed may have an llms.txt. Before schema
    6 it may have been resumed without a trace; its runs have no `kind`.
    """
    is_answered = "(r.status BETWEEN 200 AND 299 OR r.status = 304) AND r.error = ''"
    is_gone = "r.status = 410 AND r.source = '' AND r.redirected_from IS NULL AND r.error = ''"
    before = """OVER (PARTITION BY v.source ORDER BY v.at, v.run
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"""
    is_stored = f"ended_at IS NOT NULL AND finish_reason IN {_GOOD_ENDS}"
    within_day = f"+ {DAY} - {GAP_TOLERANCE}"
    counted = f"""
WITH {record.shared}, visits AS (
    SELECT coalesce(nullif(r.source, ''), r.url) AS source, r.run, min(r.id) AS id,
        min(r.requested_at) AS at, max(r.requested_at) AS last_at,
        max(CASE WHEN {is_answered} THEN r.requested_at END) AS answered_at,
        max(CASE WHEN {is_gone} THEN r.requested_at END) AS gone_at,
        max(CASE WHEN r.source IS NULL THEN 1 ELSE 0 END) AS has_no_source
    FROM requests r WHERE r.purpose = 'target' AND r.requested_at <= :until
        AND (r.source IS NOT NULL OR r.redirected_from IS NULL) AND {record.is_of_bot}
    GROUP BY coalesce(nullif(r.source, ''), r.url), r.run
), neighbours AS (
    SELECT v.*, t.run AS known_run, t.command, t.force,
        max(CASE WHEN answered_at = last_at THEN at END) {before} AS before,
        max(CASE WHEN answered_at = last_at AND command = '' AND {is_stored} THEN at END) {before}
            AS crawled,
        max(CASE WHEN answered_at = last_at AND command <> '' THEN at END) {before} AS by_hand,
        max(CASE WHEN gone_at = last_at AND command = '' AND kind IS NOT NULL AND {is_stored}
            THEN at END) {before} AS gone,
        (SELECT max(made_at) FROM overrides WHERE overrides.url = v.source
            AND override IN ('resume', 'accept') AND made_at <= v.at) AS resumed
    FROM visits v LEFT JOIN terms t ON t.run = v.run
    WHERE NOT (has_no_source = 1 AND coalesce(t.scope, '') = 'any')
)
SELECT outcome, count(*) AS count, min(id) AS first FROM (
    SELECT id, CASE WHEN known_run IS NULL THEN '{NO_RUN}'
        WHEN command = '' AND gone > coalesce(resumed, 0.0) AND EXISTS (
                SELECT 1 FROM sources WHERE sources.url = v.source AND sources.kind = 'feed')
            THEN {record.if_certain("gone-again", CLOCK_SET, "v.gone", "v.at")}
        WHEN coalesce(before, 0.0) {within_day} <= at THEN ''
        WHEN {is_true_sql("coalesce(force, '')")} THEN '{_FORCED}'
        WHEN resumed >= before THEN '{_RESUMED}'
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
    SELECT r.id, r.run, r.requested_at, r.conditional,
        lag(CASE WHEN r.has_validator OR r.status = 304 THEN 1 ELSE 0 END)
            OVER (PARTITION BY r.url ORDER BY r.requested_at, r.id) AS had_validator
    FROM requests r JOIN terms t ON t.run = r.run
    WHERE r.purpose = 'target' AND t.command = '' AND r.status IN (200, 304) AND r.error = ''
)
SELECT outcome, count(*) AS count, min(id) AS first FROM (
    SELECT r.id, CASE WHEN r.conditional THEN '' WHEN had_validator = 1 THEN '{_NO_VALIDATOR}' END
        AS outcome
    FROM answered r WHERE {record.is_judged}
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
    entries = f"""SELECT key, kind, item, first_seen FROM entries r
        WHERE first_seen >= :since AND {record.is_of_bot}"""
    for key, kind, item, first_seen in record.rows(entries):
        total += 1
        if not item:
            tally.add("6", FORGOTTEN, 1, key)
            continue
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
        if number not in record.runs:
            continue
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


_BY_PHASE: Final = "was sent by WALSH_ROBOTS_UNREACHABLE, by the time of the first failure"
_UNDECLARED: Final = "names a run whose declared sources are not kept"
_ANY: Final = "names a run that may follow links (WALSH_SCOPE)"
_MOVED: Final = "was requested where a source had moved to, which is not recorded"
_OLDER: Final = "names a redirect that may be older than the request log"
_EXEMPT: Final = "exempt"
_HOPS: Final = ("hop", "private hop", "older hop", "lost hop")
_LIST_ROWS: Final = ("3", "3a", "3b", "3c")


def check_robots(record: Record, tally: Tally) -> Waits:
    """Check the requests by the robots.txt that they name; return what it says about times."""
    is_old = f"r.requested_at - r.robots_at > {DAY + MAX_LATENESS_SECONDS}"
    is_first_page = """NOT EXISTS (SELECT 1 FROM requests t WHERE t.host = r.host
        AND t.purpose <> 'robots' AND t.requested_at > r.robots_at AND t.id < r.id)"""
    old = record.if_certain("old-robots", CLOCK_SET, "r.robots_at", "r.requested_at")
    # A failed fetch may end without a request, when its time is up.
    is_unlogged = f"""h.host IS NULL AND r.robots_at >= {record.log_since}
        AND NOT EXISTS (SELECT 1 FROM requests t WHERE t.purpose = 'robots' AND t.host = r.host
            AND t.requested_at BETWEEN r.robots_at - {DAY} AND r.robots_at
            AND (t.status IS NULL OR t.status = 429 OR t.status >= 500
                OR t.status BETWEEN 300 AND 399))"""
    counted = f"""
WITH {record.shared}, fetches AS MATERIALIZED (
    SELECT DISTINCT url, robots_at FROM requests
    WHERE purpose = 'robots' AND robots_at IS NOT NULL
), fetches_of_hosts AS MATERIALIZED (
    SELECT DISTINCT host, robots_at FROM requests
    WHERE purpose = 'robots' AND robots_at IS NOT NULL
)
SELECT terms, robots, url, flag, count(*) AS count, min(id) AS first, min(robots_at) AS robots_at,
    min(delay) AS delay
FROM (
    SELECT t.terms, r.robots, r.url, r.id, r.robots_at,
        CASE WHEN {is_old} AND {is_first_page} THEN r.delay ELSE 0.0 END AS delay,
        CASE WHEN r.robots_at IS NULL THEN 'no-robots'
            WHEN {LACKS_COPY} THEN '{UNNAMED_COPY}'
            WHEN {is_old} THEN {old}
            WHEN f.url IS NULL AND h.host IS NOT NULL THEN 'robots-elsewhere'
            WHEN {is_unlogged} THEN '{NO_FETCH}'
            WHEN {IS_ROBOTS_FAILURE} THEN 'failure' ELSE '' END AS flag
    FROM requests r LEFT JOIN terms t ON t.run = r.run
        LEFT JOIN fetches f ON f.robots_at = r.robots_at
            AND f.url = {record.sql.origin("r.url")} || '/robots.txt'
        LEFT JOIN fetches_of_hosts h ON h.host = r.host AND h.robots_at = r.robots_at
    WHERE r.purpose <> 'robots' AND {record.is_judged}
) flagged GROUP BY terms, robots, url, flag ORDER BY robots, terms"""
    delays = {}
    with_hours = {}
    read_rules = lru_cache(maxsize=1)(partial(_read_rules, record))
    for terms, copy, url, sql_flag, count, first, robots_at, delay in record.rows(counted):
        run = record.runs.get(terms)
        if url == robots_url(url):
            continue  # robots.txt itself is always allowed (RFC 9309 2.2.2)
        # SQL does not know other spellings of an origin.
        is_elsewhere = sql_flag == "robots-elsewhere"
        flag = "" if is_elsewhere and not _has_plain_origin(url) else sql_flag
        if run is None:
            tally.add("2", NO_RUN, count, first)
            continue
        if flag == "old-robots" and delay > run.facts.max_wait:
            flag = ""  # after so long a delay the page goes first, else it would never be sent
        rules = read_rules(copy, run)
        if rules is not None:
            seconds = max(rules.crawl_delay or 0.0, rules.all_day_interval or 0.0)
            delays[copy, run.facts.ua_token] = seconds
            if rules.has_visit_time:
                wait = min(max(run.facts.max_wait, MAX_LATENESS_SECONDS), DAY)
                with_hours[copy, terms] = rules, wait
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
    return Waits(
        [(copy, token, seconds) for (copy, token), seconds in delays.items() if seconds > 1.0],
        _find_closed(record, with_hours),
    )


def _find_closed(
    record: Record, with_hours: Mapping[tuple[int, int], tuple[Rules, float]]
) -> list[int]:
    """Return the requests that were sent outside of the Visit-time of their robots.txt.

    ``with_hours`` has the rules, and for how many seconds a request may wait after its robots.txt
    was looked at, for each copy and run. The operator may end a hold, also one of Visit-time.
    """
    if not with_hours:
        return []
    copies = ", ".join({str(copy) for copy, _ in with_hours})
    sent = f"""WITH {record.shared} SELECT r.id, r.robots, t.terms, r.requested_at
        FROM requests r JOIN terms t ON t.run = r.run
        WHERE r.robots IN ({copies}) AND r.purpose = 'target' AND {record.is_judged}
            AND NOT EXISTS (SELECT 1 FROM overrides WHERE overrides.host = r.host
                AND override = 'release' AND made_at <= r.requested_at
                AND made_at > r.requested_at - {MAX_LATENESS_SECONDS})"""
    closed = []
    for number, copy, terms, requested_at in record.rows(sent):
        if (copy, terms) in with_hours:
            rules, wait = with_hours[copy, terms]
            opens = rules.opens(datetime.fromtimestamp(requested_at - wait, UTC))
            if opens.timestamp() > requested_at + GAP_TOLERANCE:
                closed.append(number)
    return closed


def _has_plain_origin(url: str) -> bool:
    """Return True if the host and port of a URL are written as those of its robots.txt are."""
    scheme, _, rest = url.partition("://")
    authority = rest.partition("/")[0].rpartition("@")[2]
    return robots_url(url) == f"{scheme}://{authority}/robots.txt"


def _read_rules(record: Record, copy: int | None, run: Run) -> Rules | None:
    body = None if copy is None else record.copy(copy)
    return None if body is None else RobotsTxt.parse(body).rules_for(run.facts.ua_token)


def _judge_without_rules(run: Run, copy: int | None, flag: str) -> str:
    if flag in ("no-robots", "old-robots", "robots-elsewhere", UNNAMED_COPY):
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
        WHERE r.blocklist IS NOT NULL AND {record.is_judged}"""
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
    WHERE {record.is_judged}
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
    WHERE {record.is_judged}
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
