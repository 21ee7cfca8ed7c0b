"""`walsh attest`: an honest record has no findings, and a breach of each kind is found."""

import contextlib
import hashlib
import json
import shutil
import sqlite3
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest
from scrapy.settings import Settings
from sqlalchemy import create_engine, delete, insert, select

from tests.helpers import cases
from tests.helpers.records import RECORD, log_requests
from tests.helpers.sites import LIST_URL, blocklist, feed, site, trouble
from walsh_scrapy.feeds.attest import attest
from walsh_scrapy.feeds.attest.record import CHECKLIST, KINDS, Bot
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.identity import UA_TOKEN, USER_AGENT
from walsh_scrapy.options import Options
from walsh_scrapy.state import State
from walsh_scrapy.state.evidence import Evidence, hash_of, keep_copy
from walsh_scrapy.state.runstore import RunRecord
from walsh_scrapy.state.tables import copies, metadata, overrides
from walsh_scrapy.testing.simulation import DAY, simulate
from walsh_scrapy.testing.web import Reply, Site, redirect

#: When the simulated runs begin: 2026-01-01.
BEGIN = 1_767_225_600.0
HOUR = 3600.0
NOW = BEGIN + 2 * DAY
LATER = BEGIN + 20 * DAY
RULES = "User-agent: Walsh-Research\nDisallow: /private\nAllow: /feed\nCrawl-delay: 2\n"
SLOWER, INVALID = b"User-agent: *\nCrawl-delay: 60\n", b'{"blocked": "nobody"}'
#: Copies of robots.txt. The runs begin at midnight.
TIMES = {
    "RATE": b"User-agent: *\nRequest-rate: 1/3\n",
    "CLOSED": b"User-agent: *\nVisit-time: 0600-2230\n",
    "LATE": b"User-agent: *\nVisit-time: 0600-2330\n",
    "OPEN": b"User-agent: *\nVisit-time: 2300-0100\n",
    "DAYTIME": b"User-agent: *\nRequest-rate: 1/60 0600-1800\nVisit-time: 0000-2300\n",
}
LIST = blocklist("out.example")
SOURCES = [
    "http://named.example/feed",
    "http://named.example/private/feed",
    "http://any.example/feed",
    "http://moved.example/old",
    "http://www.out.example/feed",
]


def judged(url, now=NOW, **how):
    with contextlib.closing(State(url)) as state, state.log() as log:
        return attest(log, now, **how)


def kinds(attestation):
    return {finding["kind"]: row for row, finding in findings(attestation)}


def findings(attestation):
    return [(row["row"], finding) for row in attestation.rows for finding in row["findings"]]


def by_number(attestation):
    return {row["row"]: row for row in attestation.rows}


def verdicts(attestation):
    return {row["row"]: row["verdict"] for row in attestation.rows}


def not_shown(attestation):
    return {row["row"] for row in attestation.rows if row["not_shown"]}


# A record of two crawls a day apart, and what is planted in it.


@pytest.fixture(scope="module")
def clean(tmp_path_factory, crawl_launcher, pytestconfig):
    """The state after two crawls that has a request for each row of the checklist."""
    folder = tmp_path_factory.mktemp("clean")
    simulate(
        Site("named.example", RULES, {"/feed": [Reply(status=503), feed(), feed()]}),
        Site("any.example", "User-agent: *\nDisallow: /private\n", {"/feed": feed(etag='"1"')}),
        Site("moved.example", "", {"/old": redirect("/feed", 302), "/feed": feed()}),
        Site(
            "operator.example", "", {"/blocklist.json": redirect("http://mirror.example/list", 302)}
        ),
        Site("mirror.example", "", {"/list": LIST}),
        sources=SOURCES,
        starts=[0.0, DAY + 60.0],
        folder=folder,
        settings={"WALSH_BLOCKLIST_URL": LIST_URL},
        launcher=crawl_launcher,
        project=pytestconfig.rootpath,
    )
    file = folder / "walsh.sqlite3"
    with contextlib.closing(sqlite3.connect(file)) as state:
        state.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        state.execute("PRAGMA journal_mode=DELETE")
    return file


class Record:
    """A copy of the clean state, which SQL changes before it is judged in another database."""

    def __init__(self, file, url):
        self.file = file
        self.url = url

    def change(self, *statements):
        with contextlib.closing(sqlite3.connect(self.file)) as state, state:
            for statement in statements:
                before = state.total_changes
                state.execute(statement.format(**NAMES))
                assert state.total_changes > before, statement

    def judged(self, now=NOW, **how):
        if self.url.startswith("postgresql"):
            copy_rows(f"sqlite:///{self.file}", self.url)
        return judged(self.url, now, **how)


def copy_rows(source, target):
    here, there = create_engine(source), create_engine(target)
    with here.connect() as reader, there.begin() as writer:
        for table in metadata.sorted_tables:
            rows = [dict(row) for row in reader.execute(select(table)).mappings()]
            if rows and table.name not in ("schema_version", "choices"):
                writer.execute(insert(table), rows)
    for engine in (here, there):
        engine.dispose()


@pytest.fixture
def record(clean, url):
    """A clean record on each database."""
    file = Path(url.removeprefix("sqlite:///"))
    if url.startswith("postgresql"):
        file = clean.with_name(f"{hash_of(url.encode())}.sqlite3")
    file.parent.mkdir(exist_ok=True)
    shutil.copy(clean, file)
    return Record(file, url)


def number_of(body):
    """The number of a copy, in SQL."""
    return f"(SELECT id FROM copies WHERE sha256 = '{hashlib.sha256(body).hexdigest()}')"


def kept(body, kind):
    """A statement that keeps a copy."""
    name = hashlib.sha256(body).hexdigest()
    return (
        f"INSERT INTO copies SELECT NULL, '{name}', '{kind}', CAST('{body.decode()}' AS BLOB),"
        " first_used_at, last_used_at FROM copies LIMIT 1"
    )


#: What stands for these names in the tables.
NAMES = {
    "RULES": hashlib.sha256(RULES.encode()).hexdigest(),
    # The last exchange with its host in the second run, while others follow.
    "LAST_OF_HOST": (
        "(SELECT id FROM requests r WHERE run = 2 AND EXISTS (SELECT 1 FROM requests n WHERE"
        " n.run = 2 AND n.requested_at > r.requested_at) AND NOT EXISTS (SELECT 1 FROM requests n"
        " WHERE n.requested_at > r.requested_at AND n.host = r.host) ORDER BY requested_at LIMIT 1)"
    ),
    "HOST": "run = 1 AND host = 'any.example'",
    "ANY": "run = 1 AND url = 'http://any.example/feed'",
    "INVALID": number_of(INVALID),
    **{name: number_of(body) for name, body in TIMES.items()},
    **{f"KEEP_{name}": kept(body, "robots") for name, body in TIMES.items()},
    "OVERRIDE": "INSERT INTO overrides SELECT",
    "SLOWER": number_of(SLOWER),
    "KEEP_INVALID": kept(INVALID, "blocklist"),
    "KEEP_SLOWER": kept(SLOWER, "robots"),
    "AN_HOUR_EARLIER": (
        "UPDATE requests SET requested_at = requested_at - 3600, robots_at = robots_at - 3600,"
        " blocklist_at = blocklist_at - 3600 WHERE run = 2"
    ),
    "ENTRY": (
        "INSERT INTO entries (key, page_key, title_key, evident_date, source, kind, first_seen,"
        " item, backfill, run, seq, id_key, twin) SELECT 'k', key, title_key,"
    ),
    "OF_ENTRY": "source, kind, first_seen, item, backfill, run, NULL,",
}


def declared(url):
    """Statements that make a URL a source which all runs declared."""
    body = "\n".join(f"feed {source}" for source in [*SOURCES, url]).encode()
    name = hashlib.sha256(body).hexdigest()
    return (
        kept(body, "sources"),
        f"UPDATE runs SET settings = json_set(settings, '$.declared', '{name}')",
        f"UPDATE requests SET source = '' WHERE url = '{url}'",
    )


def test_a_clean_record_holds(record):
    attestation = record.judged()
    assert kinds(attestation) == {}
    assert set(verdicts(attestation).values()) == {"holds"}
    assert attestation.holds


@cases("kind", "declares", "statements")
def test_a_planted_breach_is_the_only_finding(record, kind, declares, statements):
    record.change(*statements, *(declared(declares) if declares else ()))
    attestation = record.judged()
    assert kinds(attestation) == {kind: KINDS[kind].row}
    assert verdicts(attestation)[KINDS[kind].row] == "does not hold"
    assert attestation.holds == (KINDS[kind].level == "SHOULD")


@cases("reason", "statements")
def test_similar_but_honest_record_is_no_finding(record, reason, statements):
    record.change(*statements)
    assert kinds(record.judged()) == {}


def test_another_spelling_of_an_origin_is_no_finding(record):
    url = "http://ANY.example:80/feed"
    record.change(f"UPDATE requests SET url = '{url}' WHERE {{ANY}}", *declared(url))
    assert kinds(record.judged()) == {}


@cases("statement", "rows")
def test_rows_without_evidence_are_not_shown(record, statement, rows):
    record.change(statement)
    attestation = record.judged()
    assert kinds(attestation) == {}
    assert not_shown(attestation) == set(rows)
    assert {verdicts(attestation)[row] for row in rows} == {"not shown"}


def test_each_kind_has_a_planted_breach():
    (planted,) = test_a_planted_breach_is_the_only_finding.pytestmark
    (timed,) = test_gaps_and_holds.pytestmark
    assert {kind for kind, *_ in planted.args[1]} | {
        kind for *_, kinds_of_case in timed.args[1] for kind in kinds_of_case
    } == set(KINDS)


def test_each_kind_is_on_the_page_of_its_rule(pytestconfig):
    pages = pytestconfig.rootpath / "docs" / "rules"
    rules = {row.number: row.rule.lower() for row in CHECKLIST}
    for kind in KINDS.values():
        page = pages / f"{rules[kind.row]}.md"
        assert f"`{kind.name}`" in page.read_text("utf-8"), page


def test_a_request_is_counted_once_in_a_row(record):
    before = by_number(record.judged())["4"]["shown"]
    record.change("UPDATE requests SET delay = 9 WHERE {ANY}")
    if record.url.startswith("sqlite"):
        row = by_number(record.judged())["4"]
        (finding,) = row["findings"]
        assert (row["shown"], finding["count"]) == (before - 1, 1)
        assert finding["first"]["what"].startswith("http://any.example/feed (after 1.000 s")


def test_a_finding_names_no_credentials(record):
    record.change(
        "UPDATE requests SET robots = NULL, robots_at = NULL,"
        " url = 'http://any.example/feed?token=hidden' WHERE {ANY}"
    )
    (_, finding) = findings(record.judged())[0]
    assert "hidden" not in finding["first"]["what"]


def test_requests_before_since_are_only_context(record):
    attestation = record.judged(since=BEGIN + DAY)
    assert kinds(attestation) == {}
    assert attestation.requests == 11
    assert {row for row, verdict in verdicts(attestation).items() if verdict != "holds"} == {
        *("5", "9")
    }


def test_requests_in_flight_are_not_audited_yet(record):
    record.change("UPDATE runs SET ended_at = NULL WHERE id = 2")
    assert record.judged(BEGIN + DAY + 120.0).until == BEGIN + DAY - 180.0


# Gaps and holds, of requests that are written one by one.

SLOW, LOST = b"User-agent: *\nCrawl-delay: 5\n", b"User-agent: *\nCrawl-delay: 9\n"
PLAIN = b"User-agent: *\n"
COPIES = {"slow": hash_of(SLOW), "lost": hash_of(LOST), "": None}
OPTIONS = Options.from_settings(
    Settings(
        {
            "WALSH_BLOCKLIST_URL": LIST_URL,
            "WALSH_USER_AGENT": USER_AGENT,
            "WALSH_UA_TOKEN": UA_TOKEN,
        }
    )
)


def sent(after=0.0, robots="", redirected_from=None, **columns):
    """A request so many seconds after the first one, which took half a second."""
    fields = {"url": "http://a.example/feed", "duration": 0.5, "run": 1, "delay": 2.0}
    fields["evidence"] = Evidence(robots=COPIES[robots], redirected_from=redirected_from)
    fields |= columns
    ended_at = BEGIN + after + (fields["duration"] or 0.0)
    return replace(RECORD, requested_at=BEGIN + after, **{"monotonic": ended_at} | fields)


def override(name, after, host="a.example"):
    at = BEGIN + after
    return {"id": 1, "made_at": at, "host": host, "override": name, "seconds": 60.0, "reason": ""}


def refused(holds):
    """Refusals an hour apart: each one begins a row of them."""
    return [
        {"after": HOUR * number, "status": 503, "hold": hold} for number, hold in enumerate(holds)
    ]


#: 20 holds, of the minimum, half longer, and with jitter in the last one or in all.
HOLDS = [
    ["20 holds without jitter", refused([2.0] * 20), [], ["no-jitter"]],
    ["20 holds that are as much longer", refused([2.5] * 20), [], ["no-jitter"]],
    ["19 holds are too few", refused([2.0] * 19), [], []],
    ["one hold differs", refused([2.0] * 19 + [2.1]), [], []],
    ["holds of Retry-After", [row | {"retry_after": 9.0} for row in refused([9.0] * 20)], [], []],
]


@cases("case", "rows", "overridden", "found", more=HOLDS)
def test_gaps_and_holds(url, case, rows, overridden, found):
    with contextlib.closing(State(url)) as state:
        facts = asdict(OPTIONS) | {"kind": "declared"}
        run = RunRecord(spider="feeds", started_at=BEGIN, settings=facts)
        state.runs.end(state.runs.begin(run), LATER, "finished", {})

        def write(connection):
            for body in (SLOW, LOST):
                keep_copy(connection, "robots", body, now=0.0, last=None)
            for change in overridden:
                connection.execute(insert(overrides), override(**change))

        state.database.write(write)
        log_requests(state, *(sent(**columns) for columns in rows))
        lost = delete(copies).where(copies.c.sha256 == hash_of(LOST))
        state.database.write(lambda connection: connection.execute(lost))
    of_pace = {kind for kind, row in kinds(judged(url, LATER)).items() if row in "45"}
    assert of_pace == set(found)


@pytest.mark.parametrize(
    ("delay", "pages", "found"),
    [(2 * DAY, 1, []), (2 * DAY, 2, ["old-robots"]), (600.0, 1, ["old-robots"])],
)
def test_one_page_may_go_by_an_old_copy_after_a_long_delay(url, delay, pages, found):
    """A host with a delay of days would get requests for robots.txt only."""
    named = Evidence(robots=hash_of(PLAIN), robots_at=BEGIN, robots_status=200)
    with contextlib.closing(State(url)) as state:
        run = RunRecord(spider="feeds", started_at=BEGIN, settings=asdict(OPTIONS))
        state.runs.end(state.runs.begin(run), LATER, "finished", {})
        state.database.write(partial(keep_copy, kind="robots", body=PLAIN, now=0.0, last=None))
        file = sent(url="http://a.example/robots.txt", purpose="robots", evidence=named)
        late = [2.1 * DAY * (number + 1) for number in range(pages)]
        log_requests(state, file, *(sent(at, delay=delay, evidence=named) for at in late))
    assert [kind for kind, row in kinds(judged(url, LATER)).items() if row == "2"] == found


# Crawls in simulated time: nobody is accused because of an honest history.


@pytest.fixture
def crawled(simulated, tmp_path):
    """Return a function that crawls pages of some sites, and returns the URL of the state."""

    def run(*sites, listed=LIST, starts=(0.0, DAY + 60.0), settings=(), **options):
        operator = Site("operator.example", "", {"/blocklist.json": listed})
        pages = [f"http://{site.host}{path}" for site in sites for path in site.pages]
        crawl_options = {"sources": pages, "starts": starts} | options
        crawl_options["settings"] = {"WALSH_BLOCKLIST_URL": LIST_URL} | dict(settings)
        simulated(operator, *sites, **crawl_options)
        return f"sqlite:///{tmp_path / 'simulation' / 'walsh.sqlite3'}"

    return run


def test_a_source_that_has_moved_is_no_finding(crawled):
    pages = {"/old": redirect("/new"), "/new": feed(host="a.example", etag='"1"')}
    starts = [0.0, 8 * DAY, 9 * DAY + 60.0, 11 * DAY]
    url = crawled(Site("a.example", "", pages), sources=["http://a.example/old"], starts=starts)
    attestation = judged(url, LATER)
    assert kinds(attestation) == {}
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as state:
        query = "SELECT count(*) FROM requests WHERE gates LIKE '%scope: moved%'"
        assert state.execute(query).fetchone()[0] >= 1
    assert verdicts(attestation)["6"] == "holds"


def test_an_announced_page_is_no_finding(crawled):
    link = {"Link": '</page.md>; rel="alternate"; type="text/markdown"'}
    page = Reply("<title>Page</title>", content_type="text/html", headers=link)
    listed = Reply("# Docs\n\n- [One](/one): first\n", content_type="text/markdown")
    url = crawled(
        Site("a.example", "", {"/": page, "/page.md": listed}),
        sources=[{"url": "http://a.example/", "kind": "llms"}],
        spider="llms",
    )
    attestation = judged(url, LATER)
    assert kinds(attestation) == {}
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as state:
        query = "SELECT count(*) FROM requests WHERE gates LIKE '%scope: announced%'"
        assert state.execute(query).fetchone()[0] >= 1
    assert verdicts(attestation)["3"] == verdicts(attestation)["6"] == "holds"


def test_a_declared_robots_txt_is_no_finding(crawled):
    sites = Site("a.example", "User-agent: *\nCrawl-delay: 3\n", {"/feed": feed()})
    sources = ["http://a.example/robots.txt", "http://a.example/feed"]
    assert kinds(judged(crawled(sites, sources=sources), LATER)) == {}


def test_a_redirect_to_a_source_of_another_run_is_no_finding(crawled):
    sites = [
        Site("a.example", "", {"/feed": redirect("http://b.example/feed", 302)}),
        Site("b.example", "", {"/feed": feed(host="b.example")}),
    ]
    crawled(*sites, sources=["http://b.example/feed"], starts=[0.0])
    url = crawled(*sites, sources=["http://a.example/feed"], starts=[HOUR])
    attestation = judged(url, LATER)
    assert kinds(attestation) == {}
    assert verdicts(attestation)["8"] == "holds"


def refusal(**headers):
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=503, headers=fields)


def test_a_crawl_of_refusals_is_no_finding(crawled):
    """In later runs the server of the list is down."""
    sites = [
        *map(site, [f"{name}.example" for name in "abcde"]),
        Site("slow.example", "", {"/feed": Reply(feed().body, delay=4.0)}),
        Site("star.example", "User-agent: *\nDisallow: /*feed\n", {"/1/2/feed": feed()}),
        Site("long.example", "", {"/feed": [refusal(Retry_After="600"), feed()]}),
        Site("zero.example", "", {"/feed": [refusal(Retry_After="0"), feed()]}),
        Site("odd.example", "", {"/feed": [refusal(Retry_After="soon"), refusal(), feed()]}),
        Site("down.example", "", {"/feed": refusal()}),
        Site("robots.example", refusal(), {"/feed": feed()}),
    ]
    starts = [0.0, DAY + 60.0, 2 * DAY + 120.0, 2.5 * DAY]
    attestation = judged(crawled(*sites, listed=[LIST, refusal()], starts=starts), LATER)
    assert kinds(attestation) == {}
    assert verdicts(attestation)["5"] == "holds"


SITES = (
    Site("busy.example", "", {"/1": [Reply(status=503), feed()], "/2": feed("Two")}),
    Site("slow.example", "User-agent: *\nCrawl-delay: 7\n", {"/1": feed(), "/2": feed("Two")}),
    Site("moved.example", "", {"/1": redirect("/2", 302), "/2": feed("Two")}),
    Site("late.example", "", {"/1": Reply(feed().body, delay=4.0), "/2": feed("Two")}),
)


@pytest.fixture
def forced(crawled):
    return partial(crawled, *SITES, arguments={"force": "1"})


@pytest.mark.parametrize(
    ("sets", "unknown"),
    [
        pytest.param([(DAY, -DAY - 30.0)], False, id="a-day-between-two-runs"),
        pytest.param([(DAY, -DAY - HOUR)], True, id="to-before-the-first-run"),
        pytest.param([(-1.0, 365 * DAY), (DAY, -365 * DAY)], True, id="a-year-ahead-once"),
        pytest.param([(12.0, -HOUR)], True, id="an-hour-during-a-run"),
        pytest.param([(12.0, -6.0)], False, id="six-seconds-during-a-run"),
        pytest.param([(15.0, -60.0), (30.0, 60.0)], False, id="back-and-forth"),
        pytest.param([(14.0, HOUR), (20.0, 5.0)], False, id="suspended-twice"),
    ],
)
def test_a_clock_that_was_set_is_no_finding(forced, sets, unknown):
    settings = {"CLOCK_SETS": json.dumps(sets), **trouble("ClockIsSet")}
    attestation = judged(forced(settings=settings), LATER)
    assert kinds(attestation) == {}
    assert not unknown or "4" in not_shown(attestation)


def test_a_restored_backup_is_no_finding(forced, tmp_path):
    url = forced(starts=[0.0])
    file, backup = Path(url.removeprefix("sqlite:///")), tmp_path / "backup"
    with contextlib.closing(sqlite3.connect(file)) as state:
        state.execute("VACUUM INTO ?", [str(backup)])
    forced(starts=[DAY + 60.0])
    for name in (file, *file.parent.glob("walsh.sqlite3-*")):
        name.unlink()
    shutil.copy(backup, file)
    forced(starts=[DAY + HOUR, 3 * DAY])
    assert kinds(judged(url, LATER)) == {}


def test_a_pruned_log_is_no_finding(forced):
    """Rows are deleted in the order of their times, in several transactions."""
    url = forced()
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as state:
        count = state.execute("SELECT count(*) FROM requests").fetchone()[0]
        for number in range(1, count):
            with state:
                (at,) = state.execute("SELECT min(requested_at) FROM requests").fetchone()
                state.execute("DELETE FROM requests WHERE requested_at <= ?", [at])
            attestation = judged(url, LATER)
            assert kinds(attestation) == {}, f"without {number} requests"
            assert "2" not in not_shown(attestation)


@pytest.mark.parametrize(
    ("by_hand", "found", "unknown"),
    [
        ((), {"too-often"}, set()),
        ((1,), {"too-often"}, {"8"}),
        ((1, 3), set(), {"8"}),
        ((2,), {"too-often"}, {"8"}),
        ((2, 3), set(), {"8"}),
    ],
    ids=["crawls", "added-and-crawled-twice", "added", "looked-at-between", "looked-at"],
)
def test_a_request_by_hand_is_no_visit(crawled, by_hand, found, unknown):
    """We advise `walsh add` before a crawl, and `discover` where a crawl failed."""
    hours = [0.0, HOUR, 2 * HOUR]
    url = crawled(site("blog.example"), starts=hours, settings={"WALSH_MIN_REVISIT": 0})
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as state, state:
        state.executemany("UPDATE runs SET command = 'x' WHERE id = ?", [(run,) for run in by_hand])
    attestation = judged(url, LATER)
    assert kinds(attestation).keys() == found
    assert not_shown(attestation) & {"8"} == unknown


@pytest.mark.parametrize("status", [404, 410])
def test_a_source_that_was_resumed_is_visited_again(crawled, status):
    """It answered an hour before, but it was not read."""
    url = crawled(Site("a.example", "", {"/feed": Reply(status=status)}), starts=[0.0])
    with contextlib.closing(State(url, lambda: BEGIN + HOUR / 2)) as state:
        assert Stores(state).sources.resume("http://a.example/feed", "a.example")
    crawled(site("a.example"), starts=[HOUR, 2 * DAY])
    attestation = judged(url, LATER)
    assert kinds(attestation) == {}
    assert verdicts(attestation)["8"] == "holds"
    assert by_number(attestation)["8"]["shown"] == 3


def test_row_7_holds_only_for_conditional_requests(crawled):
    bare, tagged = feed(), feed(host="b.example", etag='"1"')
    sites = Site("a.example", "", {"/feed": bare}), Site("b.example", "", {"/feed": tagged})
    assert verdicts(judged(crawled(sites[0]), LATER))["7"] == "not shown", "no validator, no proof"
    url = crawled(*sites, starts=[3 * DAY, 5 * DAY])
    assert verdicts(judged(url, LATER))["7"] == "holds"
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as state, state:
        state.execute("UPDATE requests SET conditional = 0 WHERE conditional")
    attestation = judged(url, LATER)
    assert sum(by_number(attestation)["7"]["not_shown"].values()) == 1


def test_robots_txt_that_was_not_logged_is_not_shown(crawled):
    url = crawled(site("a.example"))
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as state, state:
        state.execute("DELETE FROM requests WHERE purpose = 'robots' AND host = 'a.example'")
    attestation = judged(url, LATER)
    assert kinds(attestation) == {}
    assert verdicts(attestation)["2"] == "not shown"


# Other bots: what binds them.

OTHER = {
    "WALSH_USER_AGENT": "Mozilla/5.0 (compatible; Example-Bot/1.0; +https://bot.example/)",
    "WALSH_UA_TOKEN": "Example-Bot",
    "WALSH_BLOCKLIST_URL": "",
}
BOT = Bot(OTHER["WALSH_USER_AGENT"], "Example-Bot")


@pytest.fixture
def attested(crawled):
    """Crawl with some settings, two days apart; return a function that attests for a bot."""

    def crawl(*settings):
        sites = [
            Site("a.example", "User-agent: Example-Bot\nDisallow: /no/\n", {"/feed": feed()}),
            Site("b.example", "", {"/feed": feed()}),
        ]
        for number, values in enumerate(settings):
            url = crawled(*sites, starts=[number * 2 * DAY], settings=values)
        return partial(judged, url, LATER)

    return crawl


def test_another_bot_is_judged_by_its_own_name(attested):
    attestation = attested(OTHER)(bot=BOT)
    rows = verdicts(attestation)
    assert attestation.holds
    assert {rows[row] for row in ("1", "2", "2a", "4", "6")} == {"holds"}
    assert {rows[row] for row in ("3", "3a", "3b", "3c")} == {"not applicable"}
    assert "Example-Bot" in by_number(attestation)["2a"]["requirement"]


def test_a_bot_that_follows_links_holds_in_part(crawled):
    """It has no sources, and requests one page twice within seconds (FAULTS F2)."""
    settings = OTHER | {"WALSH_SERIAL": False, "WALSH_SCOPE": "any", "WALSH_MIN_REVISIT": 0}
    url = crawled(Site("a.example", "", {"/feed": feed()}), starts=[0.0, 7.0], settings=settings)
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as state, state:
        state.execute("UPDATE requests SET source = NULL")
    attestation = judged(url, LATER, bot=BOT)
    rows = verdicts(attestation)
    assert (rows["4"], rows["6"], rows["8"]) == (
        *("holds in part", "holds in part"),
        "not applicable",
    )
    assert "WALSH_SERIAL" in by_number(attestation)["4"]["not_applicable"]
    assert "recursion" in by_number(attestation)["6"]["not_applicable"]


def test_a_new_version_of_a_bot_is_the_same_bot(attested):
    newer = OTHER | {"WALSH_USER_AGENT": OTHER["WALSH_USER_AGENT"].replace("1.0", "1.1")}
    assert verdicts(attested(OTHER, newer)(bot=BOT))["1"] == "holds"


def test_each_bot_is_judged_by_its_own_runs(attested):
    """They share sources, so the first one leaves the second one nothing to visit (E8, F2)."""
    of = attested(OTHER | {"WALSH_SERIAL": False}, {})
    ours, theirs = of(bot=Bot()), of(bot=BOT)
    for attestation in (ours, theirs):
        assert attestation.holds
        assert by_number(attestation)["1"]["shown"] == attestation.requests > 0
    assert ours.others == {"Example-Bot": theirs.requests}
    assert theirs.others == {"Walsh-Research": ours.requests}
    assert by_number(ours)["4"]["not_applicable"] is None
    assert "WALSH_SERIAL" in by_number(theirs)["4"]["not_applicable"]


def test_a_breach_of_another_bot_is_not_held_against_this_one(attested, tmp_path):
    of = attested(OTHER, {})
    before = of(bot=Bot())
    (file,) = tmp_path.rglob("*.sqlite3")
    with contextlib.closing(sqlite3.connect(file)) as state, state:
        theirs = "run = (SELECT id FROM runs WHERE settings LIKE '%Example-Bot%')"
        state.execute(f"UPDATE requests SET gates = '', robots_at = NULL WHERE {theirs}")
        state.execute(f"UPDATE entries SET kind = 'page' WHERE {theirs}")
    after = of(bot=Bot())
    assert after.rows == before.rows
    assert {"no-robots", "scraped"} <= kinds(of(bot=BOT)).keys()


def test_a_gap_counts_from_a_request_of_another_bot(url):
    bots = ({"ua_token": "Walsh-Research"}, {"ua_token": "Other-Bot"})
    with contextlib.closing(State(url)) as state:
        ours, theirs = (
            state.runs.begin(RunRecord(spider="feeds", started_at=BEGIN, settings=settings))
            for settings in bots
        )
        sent = replace(RECORD, requested_at=BEGIN + 60.0, delay=1.0)
        log_requests(
            state, replace(sent, run=theirs), replace(sent, requested_at=BEGIN + 60.3, run=ours)
        )
    assert "short-gap" in kinds(judged(url))
    assert "short-gap" not in kinds(judged(url, bot=Bot("Other-Bot/1.0", "Other-Bot")))


# The command.


def test_the_command_prints_a_line_for_each_row(clean, called):
    status, text, error = called("attest", WALSH_STATE_URL=f"sqlite:///{clean}")
    header, *lines = text.splitlines()
    assert (status, header) == (0, "row\tverdict\tcount\trequirement")
    assert [line.split("\t")[:2] for line in lines] == [[row.number, "holds"] for row in CHECKLIST]
    assert "no MUST is broken" in error


def test_json_is_an_object_for_each_row(clean, called):
    _, text, _ = called("attest", "--json", WALSH_STATE_URL=f"sqlite:///{clean}")
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["row"] for row in rows] == [row.number for row in CHECKLIST]
    assert {tuple(row) for row in rows} == {
        ("row", "rule", "level", "requirement", "verdict", "shown", "not_shown", "not_applicable",
         "findings")
    }  # fmt: skip


def test_a_broken_must_exits_with_1(clean, called, tmp_path):
    record = Record(tmp_path / "state.sqlite3", f"sqlite:///{tmp_path / 'state.sqlite3'}")
    shutil.copy(clean, record.file)
    record.change("UPDATE requests SET delay = 7, url = url || '\x1b' WHERE {ANY}")
    status, text, error = called("attest", WALSH_STATE_URL=record.url)
    assert (status, "a MUST is broken" in error, "\x1b" in text) == (1, True, False)
    assert "\n\tshort-gap\t1\t" in text


def test_an_empty_state_is_nothing_to_attest(called, tmp_path):
    url = f"sqlite:///{tmp_path / 'new.sqlite3'}"
    State(url).close()
    status, _, error = called("attest", WALSH_STATE_URL=url)
    assert (status, "nothing to attest" in error) == (1, True)
