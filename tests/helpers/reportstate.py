"""States for the tests of the report: some hosts with many requests, and strangers' texts."""

import json
from contextlib import closing
from dataclasses import replace

from scrapy.settings import Settings
from sqlalchemy import insert

from tests.helpers.records import DENIAL, RECORD, commit, deny, log_requests
from walsh_scrapy.options import Options
from walsh_scrapy.state import State
from walsh_scrapy.state.log import Evidence
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.state.runs import RunRecord
from walsh_scrapy.state.tables import entries
from walsh_scrapy.tools.report import build_report, choose_period
from walsh_scrapy.tools.report.page import render

NOW = 1_779_516_000.0  # 2026-05-23 06:00 UTC
DAY = 86_400.0
BEGUN = NOW - 3 * DAY
GATES = "blocklist: not listed; robots: allowed"
RULE = "Allow: /<b>feed</b>\u202e"
#: Titles as strangers may write them.
HOSTILE = (
    "<script>alert(1)</script>",
    "\u202egnippals\u202c \x00\x1b[31m\u2028",
    "</style><img src=//evil.example/x onerror=alert(1)>",
    "{{ 7 * 7 }} {% raw %}",
    "x" * 1_000_000,
    "\ud800",
)
STATUSES = (200, 304, 304, 200, 301, 404, 429, 500, None)
TROUBLES = (
    {"outcome": "failed", "failures": 6, "status": 404, "detail": "404 <b>Not Found</b>"},
    {"outcome": "gone", "failures": 1, "status": 410, "asked_until": float("inf")},
    {"outcome": "denied by robots", "detail": "line 3 of robots.txt says 'Disallow: /'"},
    {"moved_to": "https://new.example/feed", "moved_since": NOW - 9 * DAY, "move_settled": True},
)


def request(number, hosts, run):
    """One of many requests: 10 s between two of them, so each host is asked in time."""
    status = STATUSES[number % len(STATUSES)]
    host = f"blog{number % hosts}.example"
    sent = replace(
        RECORD,
        sent_at=BEGUN + 10.0 * number,
        host=host,
        url=f"http://{host}/robots.txt",
        gates="blocklist: not listed",
        status=status,
        seconds=0.25,
        error="" if status else "<i>refused</i>",
        run=run,
        purpose="robots",
        hold=5.0 if status in (429, 500) else 0.0,
    )
    target = {"url": f"http://{host}/feed", "gates": GATES, "purpose": "target", "delay": 1.0}
    return replace(sent, **target, evidence=Evidence(RULE, 3)) if number >= hosts else sent


def denial(number, hosts, run):
    """One request that robots.txt did not allow."""
    host = f"blog{number % hosts}.example"
    return replace(
        DENIAL,
        at=BEGUN + 20.0,
        host=host,
        url=f"http://{host}/private",
        reason="line 2 of robots.txt says 'Disallow: /private<b>'",
        run=run,
        evidence=Evidence("Disallow: /private<b>", 2),
    )


def entry_row(number, source, run, title, at):
    url = f"javascript:alert({number})" if number % 5 == 4 else f"{source}/{number}"
    item = {"kind": "feed", "source": source, "source_title": title, "url": url, "title": title}
    return {
        "key": str(number),
        "own_key": str(number),
        "source": source,
        "kind": "feed",
        "first_seen": at,
        "item": json.dumps(item),
        "run": run,
    }


def page_of(url, sources_file, since=None):
    """The page about a state, by default about its last crawl."""
    with closing(State(url)) as state:
        chosen, options = choose_period(state, NOW, since), Options.from_settings(Settings())
        return render(build_report(state, options, str(sources_file), chosen, NOW))


def write_state(url, count, hosts=1, *, over=True):
    """Fill the state at a URL with a run of `count` requests; return the URLs of its sources."""
    urls = [f"http://blog{number}.example/feed" for number in range(hosts)]
    with closing(State(url)) as state:
        versions = {"contract": "v1", "scrapy": "2.19.0"}
        begun = RunRecord(spider="feeds", begun=BEGUN, versions=versions)
        run = state.runs.begin(begun)
        for number, source in enumerate(urls):
            fields = {"fetched_at": NOW - 3600, "asked_until": NOW + 3600, "outcome": "fetched"}
            if number and number <= len(TROUBLES):
                fields |= TROUBLES[number - 1]
            commit(state, SourceRecord(url=source, kind="feed", **fields), [])
        log_requests(state, *(request(number, hosts, run) for number in range(count)))
        for number in range(7 if count else 0):
            deny(state, denial(number, hosts, run))
        found = [
            entry_row(
                number,
                urls[number % hosts],
                run,
                HOSTILE[number % len(HOSTILE)] if number < len(HOSTILE) else f"Title {number}",
                BEGUN + number % 3 * DAY,
            )
            for number in range(count // 10)
        ]
        if found:
            state._database.write(lambda connection: connection.execute(insert(entries), found))
        if over:
            state.runs.end(run, NOW, "finished", {})
    return urls
