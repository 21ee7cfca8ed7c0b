"""The time of `walsh attest` for a long request log, and its size: SQLite and PostgreSQL.

    python -m benchmarks.audit [REQUESTS]

The log is that of 30 days: each host has a robots.txt with a Crawl-delay of 2 s, and each run
requests it and nine feeds. Every tenth host is denied one feed more. For ten requests there is one
entry. Two days of requests are made here, and the others from the second one by the database. The
state is audited, and once more since its last day, each time in a separate process. Then the
questions of `walsh status` and of `walsh why` about one host are answered, and the first day is
deleted. Goal: 1,000,000 requests in less than 60 s on one core, with less than 150 MiB; 300 bytes a
request, with its indexes.
"""

import json
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from scrapy.settings import Settings
from sqlalchemy import Connection, Table, bindparam, create_engine, insert, select, text

from benchmarks.databases import states
from benchmarks.report import Figure, Report, run
from walsh_scrapy.feeds.attest import attest
from walsh_scrapy.feeds.items import EntryItem
from walsh_scrapy.feeds.sources.source import Source, declaration
from walsh_scrapy.identity import UA_TOKEN, USER_AGENT
from walsh_scrapy.options import Options
from walsh_scrapy.policy.urls import url_key
from walsh_scrapy.state import State
from walsh_scrapy.state.evidence import hash_of
from walsh_scrapy.state.tables import (
    ITS_URL,
    copies,
    denials,
    entries,
    requests,
    runs,
    sources,
)
from walsh_scrapy.tools.why import read_account

BEGIN = 1_767_225_600.0
DAY = 86_400.0
DAYS = 30
FEEDS = 9
#: Rows of one insert.
AT_ONCE = 10_000
LIST_URL = "http://h0.example/blocklist.json"
LIST = json.dumps(
    {
        "contract": "walsh-research-blocklist/v1",
        "updated": "2026-01-01T00:00:00Z",
        "operator": "a benchmark",
        "contact": "bench@operator.example",
        "policy": "https://operator.example/",
        "refresh": "P1D",
        "blocked": [{"domain": f"out{number}.example"} for number in range(1000)],
    }
).encode()
SETTINGS = {
    "user_agent": USER_AGENT,
    "ua_token": UA_TOKEN,
    "blocklist_url": LIST_URL,
    "blocklist_schema_url": "",
    "min_interval": 1.0,
    "serial": True,
    "scope": "declared",
    "pace_by": "host",
    "robots_ttl": DAY,
    "robots_unreachable": "allow",
    "max_retries": 4,
    "backoff_base": 2.0,
    "backoff_max": 300.0,
    "min_revisit": DAY,
    "log_days": DAYS,
}
#: A request for the list, which the first host publishes; each run fetches it.
AS_LIST = {"url": LIST_URL, "purpose": "blocklist", "status": 200}
Rows = Iterator[dict[str, Any]]
_Result = TypeVar("_Result")


def main(report: Report, count: int) -> None:
    """Measure SQLite, and PostgreSQL where there is one."""
    for database, url in states():
        _measure(report, count, url, database)


def _measure(report: Report, count: int, url: str, database: str) -> None:
    """Write a log, audit it in other processes, and report the cost."""
    record = _Record(url, max(1, count // DAYS // (FEEDS + 1)))
    record.write(range(DAYS))
    size = record.size()
    measured, last_day = _apart(_audit, url, 0.0), _apart(_audit, url, BEGIN + (DAYS - 1) * DAY)
    status, why, pruned = (_apart(measure, url) for measure in (_status, _why, _prune))
    report.add(
        f"{database}, {measured.requests:,} requests",
        Figure("audit", measured.audit, "s", max_value=60),
        Figure("CPU of it", measured.cpu, "s"),
        Figure("audit of the last day", last_day.audit, "s"),
        Figure("CPU of that", last_day.cpu, "s"),
        Figure("memory", measured.memory, "MiB", max_value=150),
        Figure("bytes per request", size / measured.requests, "", max_value=300),
        Figure("broken rows", len(measured.broken + last_day.broken), max_value=0),
        Figure("status", status.seconds, "s"),
        Figure("CPU of it", status.cpu, "s"),
        Figure("why", why.seconds, "s"),
        Figure("CPU of it", why.cpu, "s"),
        Figure("one day deleted", pruned.seconds, "s"),
        Figure("CPU of it", pruned.cpu, "s"),
        note=" ".join(measured.broken + last_day.broken),
    )


def _apart(measure: Callable[..., _Result], *words: object) -> _Result:
    with ProcessPoolExecutor(1, max_tasks_per_child=1) as pool:
        return pool.submit(measure, *words).result()


class _Measured(NamedTuple):
    requests: int
    broken: list[str]
    audit: float  #: seconds
    cpu: float  #: seconds of this process
    memory: float  #: MiB at most


class _Answered(NamedTuple):
    seconds: float
    cpu: float  #: seconds of this process


def _audit(url: str, since: float) -> _Measured:
    with closing(State(url)) as state, state.log() as snapshot:
        started, cpu = time.perf_counter(), time.process_time()
        attestation = attest(snapshot, BEGIN + (DAYS + 1) * DAY, since=since)
        audited, cpu = time.perf_counter(), time.process_time() - cpu
    rows = attestation.rows
    return _Measured(
        requests=attestation.requests,
        broken=[row["row"] for row in rows if row["findings"]],
        audit=audited - started,
        cpu=cpu,
        memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def _status(url: str) -> _Answered:
    with closing(State(url)) as state:
        return _timed(lambda: list(state.rows("problem_facts")))


def _why(url: str) -> _Answered:
    with closing(State(url)) as state:
        return _timed(lambda: read_account(state, _options(url), "h1.example", None))


def _prune(url: str) -> _Answered:
    """Delete the first day of the log."""
    with closing(State(url)) as state:
        now = BEGIN + (DAYS + 1) * DAY
        return _timed(lambda: state.prune(now, DAYS * DAY, lambda: True))


def _timed(do: Callable[[], object]) -> _Answered:
    started, cpu = time.perf_counter(), time.process_time()
    do()
    return _Answered(time.perf_counter() - started, time.process_time() - cpu)


def _options(url: str) -> Options:
    return Options.from_settings(Settings({"WALSH_STATE_URL": url, "WALSH_USER_AGENT": USER_AGENT}))


#: Requests of a later day: those of the second one once more.
_LATER = {
    **{
        name: requests.c[name] + bindparam("seconds")
        for name in ("requested_at", "robots_at", "blocklist_at")
    },
    "monotonic": requests.c.monotonic + bindparam("seconds"),
    "run": requests.c.run + bindparam("runs"),
}
_NAMES = [column.name for column in requests.c if column.name != "id"]
_SECOND_DAY = (
    select(*(_LATER.get(name, requests.c[name]) for name in _NAMES))
    .where(requests.c.requested_at >= BEGIN + DAY, requests.c.requested_at < BEGIN + 2 * DAY)
    .order_by(requests.c.id)
)
_AGAIN = insert(requests).from_select(_NAMES, _SECOND_DAY)


class _Record:
    """The log of these hosts, each requested once per run, one run per day."""

    def __init__(self, url: str, hosts: int) -> None:
        State(url).close()
        self._url, self._hosts = url, hosts

    def write(self, days: range) -> None:
        """Write some days; the first call begins the log."""
        hosts = self._hosts
        engine = create_engine(self._url)
        with engine.begin() as connection:
            if days[0] == 0:
                self._begin(connection)
            for day in days:
                _insert(connection, runs, iter([_run(day, hosts)]))
                if day > 1:
                    connection.execute(_AGAIN, {"seconds": (day - 1) * DAY, "runs": day - 1})
                _insert(connection, denials, _denials(hosts, day))
                _insert(connection, entries, map(_entry, range(hosts * day, hosts * (day + 1))))
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("ANALYZE"))
        engine.dispose()

    def _begin(self, connection: Connection) -> None:
        _insert(connection, sources, iter([_source("http://h0.example/0")]))
        _insert(connection, copies, _copies(self._hosts))
        for day in (0, 1):
            _insert(connection, requests, _requests(self._hosts, day))

    def size(self) -> float:
        """Return the bytes of the requests, with their indexes."""
        sql = (
            "SELECT sum(pgsize) FROM dbstat WHERE name LIKE 'requests%'"
            if self._url.startswith("sqlite")
            else "SELECT pg_total_relation_size('requests')"
        )
        engine = create_engine(self._url)
        with engine.connect() as connection:
            size = float(connection.execute(text(sql)).scalar_one())
        engine.dispose()
        return size


def _insert(connection: Connection, table: Table, rows: Rows) -> None:
    while some := list(islice(rows, AT_ONCE)):
        connection.execute(insert(table), some)


def _declared(hosts: int) -> bytes:
    urls = (f"http://h{host}.example/{page}" for host in range(hosts) for page in range(FEEDS))
    return declaration(map(Source, urls))


def _run(day: int, hosts: int) -> dict[str, Any]:
    begun = BEGIN + day * DAY
    return {
        "spider": "feeds",
        "started_at": begun,
        "ended_at": begun + DAY - 60.0,
        "versions": "{}",
        "settings": json.dumps(SETTINGS | {"declared": hash_of(_declared(hosts))}),
    }


def _source(url: str) -> dict[str, Any]:
    return {"url": url, "kind": "feed", "outcome": "fetched", "url_key": url_key(url)}


def _robots(host: int) -> bytes:
    return f"User-agent: *\nDisallow: /no/\nDisallow: /{host}/*.pdf$\nCrawl-delay: 2\n".encode()


def _copies(hosts: int) -> Rows:
    used = {"first_used_at": BEGIN, "last_used_at": BEGIN + DAYS * DAY}
    bodies = [("robots", _robots(host)) for host in range(hosts)]
    bodies += [("blocklist", LIST), ("sources", _declared(hosts))]
    for number, (kind, body) in enumerate(bodies, 1):
        yield {"id": number, "sha256": hash_of(body), "kind": kind, "body": body, **used}


def _requests(hosts: int, day: int) -> Rows:
    """Yield robots.txt and feeds of each host, evenly spread over most of a day."""
    step = (DAY - 3600.0) / (hosts * (FEEDS + 1))
    seconds = min(step / 2, 0.2)
    at = BEGIN + day * DAY
    read_at = [at + host * step + seconds for host in range(hosts)]
    looked = at + (hosts + hosts // 2 + 1) * step + seconds - DAY  # the list, on the day before
    for page in range(-1, FEEDS):
        for host in range(hosts):
            listed = {"blocklist": hosts + 1, "blocklist_at": looked}
            evidence = {"robots": host + 1, "robots_at": read_at[host], **listed}
            yield _request(day + 1, host, page, at, seconds) | evidence
            at += step
            if (page, host) == (0, hosts // 2):  # half a round before and after that of the host
                evidence_of_list = evidence | {"robots": 1, "robots_at": read_at[0]}
                yield _request(day + 1, 0, 0, at, seconds) | evidence_of_list | AS_LIST
                at, looked = at + step, looked + DAY


def _request(run: int, host: int, page: int, at: float, seconds: float) -> dict[str, Any]:
    is_robots = page < 0
    url = f"http://h{host}.example/{'robots.txt' if is_robots else page}"
    return {
        "requested_at": at,
        "host": f"h{host}.example",
        "url": url,
        "source": None if is_robots else ITS_URL,
        "gates": "blocklist: not listed" + ("" if is_robots else "; robots: allowed"),
        "status": 200 if run == 1 or is_robots else 304,
        "conditional": run > 1 and not is_robots,
        "has_validator": not is_robots,
        "duration": seconds,
        "monotonic": at + seconds - BEGIN,
        "error": "",
        "run": run,
        "purpose": "robots" if is_robots else "target",
        "delay": 2.0 if run > 1 or not is_robots else 0.0,
        "hold": 0.0,
    }


def _denials(hosts: int, day: int) -> Rows:
    for host in range(0, hosts, 10):
        yield {
            "denied_at": BEGIN + day * DAY + 60.0,
            "host": f"h{host}.example",
            "url": f"http://h{host}.example/no/feed",
            "gate": "robots",
            "reason": "line 2 of robots.txt says 'Disallow: /no/'",
            "run": day + 1,
            "rule": "Disallow: /no/",
            "line": 2,
            "robots": host + 1,
            "robots_at": BEGIN + day * DAY,
            "blocklist": hosts + 1,
        }


def _entry(number: int) -> dict[str, Any]:
    item = EntryItem(
        kind="feed",
        source="http://h0.example/0",
        url=f"http://h0.example/posts/{number}",
        title=f"Post number {number}",
        first_seen="2026-01-01T00:00:00Z",
    )
    return {
        "key": f"{number:064x}",
        "source": "http://h0.example/0",
        "kind": "feed",
        "first_seen": BEGIN + number,
        "item": json.dumps(item.to_dict()),
        "run": 1,
    }


if __name__ == "__main__":
    run(main, 1_000_000)
