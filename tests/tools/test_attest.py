"""`walsh attest`: a clean record holds, and one breach of each kind is found (section 8)."""

import contextlib
import hashlib
import json
import shutil
import sqlite3
import time
from email.utils import formatdate
from functools import partial
from importlib.resources import files
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from sqlalchemy import create_engine, insert, select

from tests.helpers import cases
from tests.helpers.sites import LIST_URL, blocklist, feed, site, trouble
from walsh_scrapy.identity import USER_AGENT
from walsh_scrapy.policy.audit.checklist import CHECKLIST, Finding, Kind
from walsh_scrapy.policy.audit.record import Bot, LoggedRequest
from walsh_scrapy.policy.durations import rfc3339
from walsh_scrapy.state import State
from walsh_scrapy.state.tables import metadata, requests
from walsh_scrapy.testing.authority import Certificate
from walsh_scrapy.testing.simulation import DAY, simulate
from walsh_scrapy.testing.web import Reply, Site, redirect
from walsh_scrapy.tools.attest import _finding, attest, attestation_text


def named(body):
    return hashlib.sha256(body).hexdigest()


#: When the simulated runs begin: 2026-01-01.
BEGIN = 1_767_225_600.0
NOW = BEGIN + 2 * DAY
RULES = "User-agent: Walsh-Research\nDisallow: /private\nAllow: /feed\nCrawl-delay: 2\n"
SLOWER, INVALID = b"User-agent: *\nCrawl-delay: 60\n", b'{"blocked": "nobody"}'
OTHERS = ", ".join(each.name for each in requests.c if each.name not in ("id", "requested_at"))
MOVED_LIST = redirect("http://mirror.example/list", 302)
SOURCES = [
    "http://named.example/feed",
    "http://named.example/private/feed",
    "http://any.example/feed",
    "http://moved.example/old",
    "http://www.out.example/feed",
]


@pytest.fixture(scope="module")
def clean(tmp_path_factory, crawl_launcher, pytestconfig):
    """The state after two crawls, a day apart, with all that a record may have."""
    folder = tmp_path_factory.mktemp("clean")
    simulate(
        Site("named.example", RULES, {"/feed": [Reply(status=503), feed(), feed()]}),
        Site("any.example", "User-agent: *\nDisallow: /private\n", {"/feed": feed(etag='"1"')}),
        Site("moved.example", "", {"/old": redirect("/feed", 302), "/feed": feed()}),
        Site(
            "operator.example", "", {"/blocklist.json": redirect("http://mirror.example/list", 302)}
        ),
        Site("mirror.example", "", {"/list": blocklist("out.example")}),
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


@pytest.fixture
def record(clean, tmp_path):
    """A copy of the clean state: its URL, and a function that runs SQL on it."""
    file = tmp_path / ".scrapy" / "walsh.sqlite3"
    file.parent.mkdir()
    shutil.copy(clean, file)

    def change(*statements):
        with contextlib.closing(sqlite3.connect(file)) as state, state:
            for statement in statements:
                before = state.total_changes
                state.execute(statement)
                assert state.total_changes > before, statement

    return f"sqlite:///{file}", change


def judged(url, now=NOW, **how):
    with contextlib.closing(State(url)) as state, state.log() as snapshot:
        return attest(snapshot, now, **how)


def findings(attestation):
    return {
        finding["kind"]: (row["row"], finding["level"])
        for row in attestation["checklist"]
        for finding in row["findings"]
    }


def validate(attestation):
    file = files("walsh_scrapy.tools") / "attestation.schema.json"
    schema = json.loads(file.read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(attestation)


def rows(attestation):
    return {row["row"]: row for row in attestation["checklist"]}


def test_a_clean_record_holds(record):
    url, _ = record
    attestation = judged(url)
    validate(attestation)
    assert findings(attestation) == {}
    assert attestation["holds"]
    by_row = rows(attestation)
    assert list(by_row) == [row.number for row in CHECKLIST]
    assert {row["verdict"] for row in by_row.values()} == {"holds"}, "every row is shown"
    assert by_row["4"]["figures"]["seconds_to_spare"] == pytest.approx(0.0, abs=1e-3)
    assert by_row["4"]["figures"]["hosts"] == 5
    assert by_row["5"]["shown"] == 1, "the 503"
    assert by_row["7"]["figures"] == {"asked_again": 4, "unchanged": 1}
    (versions,), (settings,) = attestation["versions"], attestation["settings"]
    assert (versions["runs"], versions["values"]["scrapy"][0]) == (2, "2")
    assert settings["values"]["serial"] is True
    assert "state_url" not in settings["values"]


#: An exchange that is the last one with its host in the second run, while others follow.
LAST_OF_HOST = (
    "(SELECT id FROM requests r WHERE run = 2 AND EXISTS (SELECT 1 FROM requests n WHERE"
    " n.run = 2 AND n.requested_at > r.requested_at) AND NOT EXISTS (SELECT 1 FROM requests n WHERE"
    " n.requested_at > r.requested_at AND n.host = r.host) ORDER BY requested_at LIMIT 1)"
)
HOST = "run = 1 AND host = 'any.example'"
ANY = "run = 1 AND url = 'http://any.example/feed'"


def numbered(name):
    """The number of a copy of the record, in SQL."""
    return f"(SELECT id FROM copies WHERE sha256 = '{name}')"


COPIED = (
    "INSERT INTO copies SELECT NULL, '{}', kind, CAST('{}' AS BLOB), first_used_at, last_used_at"
    " FROM copies WHERE kind = '{}' LIMIT 1"
)


def declared(url):
    """Statements that make a URL a source which all runs declared."""
    body = "\n".join(f"feed {each}" for each in [*SOURCES, url])
    return (
        COPIED.format(named(body.encode()), body, "robots").replace("kind,", "'sources',"),
        f"UPDATE runs SET settings = json_set(settings, '$.declared', '{named(body.encode())}')",
        f"UPDATE requests SET source = '{url}' WHERE url = '{url}'",
    )


#: What stands for these names in the tables.
NAMES = {
    "RULES": named(RULES.encode()),
    "LAST_OF_HOST": LAST_OF_HOST,
    "HOST": HOST,
    "ANY": ANY,
    "EMPTY": numbered(named(b"")),
    "INVALID": numbered(named(INVALID)),
    "SLOWER": numbered(named(SLOWER)),
    "KEEP_INVALID": COPIED.format(named(INVALID), INVALID.decode(), "blocklist"),
    "KEEP_SLOWER": COPIED.format(named(SLOWER), SLOWER.decode(), "robots"),
}


@cases("label", "declares", "statements")
def test_a_planted_breach_is_found_and_no_other(record, label, declares, statements):
    url, change = record
    change(
        *(each.format(**NAMES) for each in statements), *(declared(declares) if declares else ())
    )
    attestation = judged(url)
    (kind,) = [kind for kind in Kind if kind.label == label]
    validate(attestation)
    assert findings(attestation) == {label: (kind.row, kind.level)}
    assert rows(attestation)[kind.row]["verdict"] == "does not hold"
    assert attestation["holds"] == (kind.level == "SHOULD"), "a SHOULD is only reported"
    assert f"{kind.level} broken" in "\n".join(attestation_text(attestation))


def test_each_kind_and_each_row_has_a_planted_breach():
    # The others need another crawl: test_attest.py, tests/policy/audit/.
    others = {"denied-by-protego", "no-growth", "no-jitter"}
    (planted,) = test_a_planted_breach_is_found_and_no_other.pytestmark
    assert {label for label, *_ in planted.args[1]} == {kind.label for kind in Kind} - others
    assert {kind.row for kind in Kind} == {row.number for row in CHECKLIST}


def test_each_kind_is_in_the_page_of_the_command_and_in_that_of_its_rule(pytestconfig):
    docs = pytestconfig.rootpath / "docs"
    rules = {row.number: row.rule.lower() for row in CHECKLIST}
    for kind in Kind:
        for page in (docs / "attest.md", docs / "rules" / f"{rules[kind.row]}.md"):
            assert f"`{kind.label}`" in page.read_text("utf-8"), page


def test_the_worst_case_is_named_with_its_record(record):
    url, change = record
    change(
        "UPDATE requests SET delay = delay + 1 WHERE host = 'named.example' AND delay > 0",
        f"UPDATE requests SET delay = 7 WHERE {ANY}",
    )
    (finding,) = rows(judged(url))["4"]["findings"]
    assert finding["count"] > 2
    assert finding["worst"]["what"] == ("any.example had a gap of 1.000 s, with a delay of 7.000 s")
    assert finding["worst"]["table"] == "requests"


@cases("reason", "statements")
def test_what_has_a_good_reason_is_no_breach(record, reason, statements):
    url, change = record
    change(*(each.format(**NAMES) for each in statements))
    assert findings(judged(url)) == {}


def test_a_copy_that_is_not_kept_shows_nothing(record):
    url, change = record
    change("UPDATE copies SET body = CAST('User-agent: *' AS BLOB) WHERE kind = 'robots'")
    attestation = judged(url)
    assert findings(attestation) == {}
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as state:
        named_by = "SELECT count(robots) FROM requests WHERE purpose != 'robots'"
        (count,) = state.execute(named_by).fetchone()
    for number in ("2", "4"):
        assert rows(attestation)[number]["not_shown"] == {
            "names a copy of robots.txt that is not kept": count
        }


@cases("statement", "unshown")
def test_a_row_holds_only_if_everything_in_it_is_shown(record, statement, unshown):
    url, change = record
    before, unshown = rows(judged(url)), set(unshown)
    change(statement.format(**NAMES))
    attestation = judged(url)
    validate(attestation)
    assert findings(attestation) == {}
    by_row = rows(attestation)
    assert {number for number, row in by_row.items() if row["not_shown"]} == unshown
    assert {by_row[number]["verdict"] for number in unshown} == {"not shown"}
    for number in unshown & {"1", "2", "4", "8"}:
        counted = by_row[number]["shown"] + sum(by_row[number]["not_shown"].values())
        assert counted == before[number]["shown"], "each record is counted once"


def test_a_record_is_counted_as_shown_or_as_broken(record):
    url, change = record
    whole = rows(judged(url))["1"]["shown"]
    change(f"UPDATE requests SET run = 3 WHERE {ANY}")
    row = rows(judged(url))["1"]
    assert (row["shown"], row["not_shown"], row["broken"]) == (whole - 1, {}, 1)


@pytest.fixture
def postgresql(record, postgresql_url):
    """The same record on PostgreSQL."""
    State(postgresql_url).close()
    here, there = create_engine(record[0]), create_engine(postgresql_url)
    with here.connect() as reader, there.begin() as writer:
        for table in metadata.sorted_tables:
            found = [dict(row) for row in reader.execute(select(table)).mappings()]
            if found and table.name not in ("schema_version", "choices"):
                writer.execute(insert(table), found)
    for engine in (here, there):
        engine.dispose()
    return postgresql_url


def test_postgresql_gives_the_same_attestation(record, postgresql):
    url, _ = record
    assert judged(postgresql) == judged(url)
    assert judged(postgresql, since=BEGIN + DAY) == judged(url, since=BEGIN + DAY)


def test_since_a_moment_it_is_judged_as_if_the_record_began_then(record):
    url, change = record
    since = BEGIN + DAY
    attestation = judged(url, since=since)
    validate(attestation)
    assert findings(attestation) == {}
    by_row = rows(attestation)
    assert {row["verdict"] for row in by_row.values()} == {"holds", "not shown"}
    came_before = {number for number, row in by_row.items() if row["verdict"] == "not shown"}
    assert came_before == {"5", "7", "9"}, "the 503, the first visits and the entries"
    whole, part = judged(url)["record"], attestation["record"]
    assert (whole["since"], part["since"]) == (None, "2026-01-02T00:00:00Z")
    assert (whole["runs"], part["runs"]) == (2, 1)
    assert all(0 < part[table] < whole[table] for table in ("requests", "denials"))
    times = {
        "requests": "requested_at",
        "denials": "denied_at",
        "entries": "first_seen",
        "runs": "started_at",
    }
    change(*(f"DELETE FROM {table} WHERE {at} < {since}" for table, at in times.items()))
    assert attestation["checklist"] == judged(url)["checklist"]


def test_requests_that_are_out_are_not_judged_yet(record):
    url, change = record
    change("UPDATE runs SET ended_at = NULL WHERE id = 2")
    last = judged(url)["record"]["until"]
    assert last == rfc3339(NOW), "a run that sent nothing for ten minutes was killed"
    whole = rows(judged(url))["1"]["shown"]
    now = BEGIN + DAY + 120.0
    attestation = judged(url, now)
    assert attestation["record"]["until"] == rfc3339(now - 300.0)
    assert 0 < rows(attestation)["1"]["shown"] < whole, "all of the second run is younger"
    left_out = "not audited yet: rows since 2026-01-01T23:57:00Z, because a run may go on"
    assert left_out in attestation_text(attestation)
    assert not any("not audited yet" in line for line in attestation_text(judged(url)))


def test_the_command_judges(record, called):
    url, change = record
    scrapy = partial(called, "attest", WALSH_STATE_URL=url)
    status, text, _ = scrapy()
    assert status == 0
    assert text.splitlines()[-1] == (
        "13 rows: 13 hold, 0 do not hold, 0 are not shown; no MUST is broken"
    )
    assert "\x1b" not in text
    status, said, _ = scrapy("--json")
    assert status == 0
    validate(json.loads(said))
    status, text, _ = scrapy("--since", "2026-01-02")
    assert (status, "the state since 2026-01-02T00:00:00Z: 1 run" in text) == (0, True)
    change(f"UPDATE requests SET delay = 7, url = url || '\x1b' WHERE {ANY}")
    status, text, _ = scrapy()
    assert status == 1
    assert "13 rows: 11 hold, 2 do not hold, 0 are not shown; a MUST is broken" in text


def test_a_record_without_a_row_is_told(called, tmp_path):
    url = f"sqlite:///{tmp_path / 'new.sqlite3'}"
    State(url).close()
    code, _, error = called("attest", WALSH_STATE_URL=url)
    assert (code, "the state is empty" in error) == (1, True)


def test_the_text_is_short_however_many_breaches_there_are(record):
    url, change = record
    change(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
        " WHERE i < 10000) INSERT INTO entries SELECT 'k' || i, NULL, 'k' || i, NULL, '', source,"
        " 'html', first_seen, item, backfill, run FROM entries, n"
        " WHERE key = (SELECT min(key) FROM entries)"
    )
    lines = list(attestation_text(judged(url)))
    assert len(lines) <= 60
    assert [line for line in lines if len(line) > 80 and " " * 6 + "user_agent" not in line] == []
    assert "MUST broken 10000 times" in "\n".join(lines)


def test_a_case_is_told_without_addresses_and_credentials():
    what = "http://a.example/?token=hidden is denied, says jo@a.example"
    told = _finding(Finding(Kind.NO_ROBOTS, "requests", 1, None, what), 1)["worst"]["what"]
    assert told == "http://a.example/?token=… is denied, says …"


# `walsh attest` accuses nobody because of a clock that was set, a restored backup, or pruning.
#
# Crawls are real, most of them in simulated time.

HOUR = 3600.0
LATER = BEGIN + 9 * DAY
AHEAD, SET = trouble("ClockIsAhead"), trouble("ClockIsSet")
LIST = blocklist("out.example")
SITES = (
    Site("busy.example", "", {"/1": [Reply(status=503), feed()], "/2": feed("Two")}),
    Site("slow.example", "User-agent: *\nCrawl-delay: 7\n", {"/1": feed(), "/2": feed("Two")}),
    Site("moved.example", "", {"/1": redirect("/2", 302), "/2": feed("Two")}),
    Site("late.example", "", {"/1": Reply(feed().body, delay=4.0), "/2": feed("Two")}),
)


@pytest.fixture
def crawled(simulated, tmp_path):
    """Return a function that crawls every page of some sites; it returns the URL of the state."""

    def run(*sites, listed=LIST, starts=(0.0, DAY + 60.0), settings=(), **options):
        operator = Site("operator.example", "", {"/blocklist.json": listed})
        pages = [f"http://{site.host}{path}" for site in sites for path in site.pages]
        given = {"sources": pages, "starts": starts} | options
        given["settings"] = {"WALSH_BLOCKLIST_URL": LIST_URL} | dict(settings)
        simulated(operator, *sites, **given)
        return f"sqlite:///{tmp_path / 'simulation' / 'walsh.sqlite3'}"

    return run


@pytest.fixture
def forced(crawled):
    return partial(crawled, *SITES, arguments={"force": "1"})


def not_shown(attestation):
    return {number for number, row in rows(attestation).items() if row["not_shown"]}


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
def test_a_clock_that_was_set_is_no_breach(forced, sets, unknown):
    attestation = judged(forced(settings={"CLOCK_SETS": json.dumps(sets), **SET}), LATER)
    assert findings(attestation) == {}
    assert not unknown or not_shown(attestation) >= {"4", "5"}, "how long hosts were left alone"


def test_a_backup_that_was_restored_is_no_breach(forced, tmp_path):
    url = forced(starts=[0.0])
    file, backup = Path(url.removeprefix("sqlite:///")), tmp_path / "backup"
    with contextlib.closing(sqlite3.connect(file)) as state:
        state.execute("VACUUM INTO ?", [str(backup)])
    forced(starts=[DAY + 60.0])
    for name in (file, *file.parent.glob("walsh.sqlite3-*")):
        name.unlink()
    shutil.copy(backup, file)
    forced(starts=[DAY + HOUR, 3 * DAY])
    attestation = judged(url, LATER)
    assert findings(attestation) == {}
    assert attestation["holds"]


@pytest.mark.parametrize(
    ("by_hand", "breaches", "unknown"),
    [
        ((), {"too-often"}, set()),
        ((1,), {"too-often"}, {"8"}),
        ((1, 3), set(), {"8"}),
        ((2,), {"too-often"}, {"8"}),
        ((2, 3), set(), {"8"}),
    ],
    ids=["crawls", "added-and-crawled-twice", "added", "looked-at-between", "looked-at"],
)
def test_what_is_asked_by_hand_is_no_second_run(crawled, by_hand, breaches, unknown):
    """We advise `sources add` before a crawl, and `discover` where a crawl failed."""
    hours = [0.0, HOUR, 2 * HOUR]
    url = crawled(site("blog.example"), starts=hours, settings={"WALSH_MIN_REVISIT": 0})
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as state, state:
        state.executemany("UPDATE runs SET command = 'x' WHERE id = ?", [(run,) for run in by_hand])
    attestation = judged(url, LATER)
    assert findings(attestation).keys() == breaches
    assert not_shown(attestation) & {"8"} == unknown


def test_what_pruning_left_is_no_breach(forced):
    """Rows are deleted in the order of their times, in several transactions."""
    url = forced()
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as state:
        (first, last) = state.execute("SELECT min(id), max(id) FROM requests").fetchone()
        for number in range(first, last):
            with state:
                (at,) = state.execute("SELECT min(requested_at) FROM requests").fetchone()
                state.execute("DELETE FROM requests WHERE requested_at <= ?", [at])
                state.execute("DELETE FROM denials WHERE denied_at <= ?", [at])
            assert findings(judged(url, LATER)) == {}, f"without {number} requests"


def test_two_machines_whose_clocks_differ_share_a_state(direct_web, crawl, postgresql_url):
    """Each second request to a host comes from the other machine."""
    hosts = [f"{name}.example" for name in "abc"]
    web = direct_web(
        *(
            Site(host, "", {f"/{page}": feed(str(page), host=host) for page in range(6)})
            for host in hosts
        )
    )
    running = [
        crawl.start(
            web,
            sources=[f"http://{host}/{page}" for host in hosts for page in pages],
            settings={"WALSH_STATE_URL": postgresql_url, **settings},
        )
        for pages, settings in (
            ((0, 2, 4), AHEAD | {"CLOCK_AHEAD": 40.0}),
            ((1, 3, 5), AHEAD | {"CLOCK_AHEAD": -40.0}),
        )
    ]
    results = [each.wait() for each in running]
    assert [each.exit_code for each in results] == [0, 0]
    attestation = judged(postgresql_url, time.time())
    assert findings(attestation) == {}
    shown = {row["row"]: row["shown"] for row in attestation["checklist"]}
    assert shown["4"] == len(web.log)
    with contextlib.closing(State(postgresql_url)) as state, state.log() as log:
        rows = log.rows(LoggedRequest, log.bounds(time.time()))
        rows = sorted(rows, key=lambda row: row.requested_at + row.connect_duration)
    for host in hosts:  # requests to two hosts may come at the same moment
        sent = [row.url for row in rows if row.host == host]
        assert sent == [hit.url for hit in web.log if hit.host == host]


# `walsh attest` finds nothing in records of polite crawls, and breaches in those of broken ones.

#: Two and a half hours after the first run begins.
DATE = formatdate(BEGIN + 9000.0, usegmt=True)
HOSTS = [f"{name}.example" for name in "abcde"]


def refusal(**headers):
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=503, headers=given)


def test_a_polite_crawl_breaks_nothing(crawled):
    """In later runs the server of the list is down."""
    sites = [
        *map(site, ["quick.example", *HOSTS]),
        Site("slow.example", "", {"/feed": Reply(feed().body, delay=4.0)}),
        Site("star.example", "User-agent: *\nDisallow: /*feed\n", {"/1/2/feed": feed()}),
        Site("long.example", "", {"/feed": [refusal(Retry_After="600"), feed()]}),
        Site("zero.example", "", {"/feed": [refusal(Retry_After="0"), feed()]}),
        Site("odd.example", "", {"/feed": [refusal(Retry_After="soon"), refusal(), feed()]}),
        Site("down.example", "", {"/feed": refusal()}),
        Site("robots.example", refusal(), {"/feed": feed()}),
        Site("date.example", "", {"/feed": [refusal(Retry_After=DATE), feed()]}),
    ]
    starts = [0.0, DAY + 60.0, 2 * DAY + 120.0, 2.5 * DAY]
    assert findings(judged(crawled(*sites, listed=[LIST, refusal()], starts=starts), LATER)) == {}


RULES_OF_ALL = Reply("User-agent: *\nDisallow: /private\n", etag='"rules"')
SOURCES_OF_TWO = ["http://a.example/feed", "http://b.example/feed"]


@pytest.mark.parametrize(
    ("mutant", "more", "found"),
    [
        ("", ["http://a.example:8080/feed", "http://fails.example/feed"], {}),
        ("OneFileForAll", [], {"unasked-robots": "2"}),
        ("Mixed", [], {"other-copy": "2"}),
        ("NeverAsked", [], {"unasked-robots": "2"}),
        ("OfItself", [], {"undeclared": "6"}),
    ],
)
def test_a_broken_crawler_is_found_by_its_own_record(crawled, mutant, more, found):
    pages = {"/feed": feed(host="a.example")}
    images = pages | {"/1.png": Reply("PNG")}
    hosts = [
        Site("a.example", RULES_OF_ALL, images, tls=Certificate.GOOD),
        Site("a.example:8080", RULES_OF_ALL, pages),
        site("b.example", "User-agent: *\nDisallow: /x\n"),
        site("fails.example", [RULES_OF_ALL, *[Reply(status=503)] * 9]),
    ]
    settings = trouble(mutant) if mutant else {}
    url = crawled(*hosts, sources=[*SOURCES_OF_TWO, *more], settings=settings)
    attestation = judged(url, LATER)
    assert {kind: row for kind, (row, _) in findings(attestation).items()} == found
    if mutant == "NeverAsked":
        verdict = rows(attestation)["4"]["verdict"]
        assert verdict == "not shown", "what was not logged was sent at some time"


# `walsh attest` of another bot: a page about its own name, by what binds every bot.

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
        for number, each in enumerate(settings):
            url = crawled(*sites, starts=[number * 2 * DAY], settings=each)
        return partial(judged, url, LATER)

    return crawl


def test_another_bot_gets_a_page_about_its_own_name(attested):
    attestation = attested(OTHER)(bot=BOT)
    assert attestation["holds"]
    assert attestation["bot"] == BOT.user_agent
    found = {number: row["verdict"] for number, row in rows(attestation).items()}
    assert {found[row] for row in ("1", "2", "2a", "4", "6")} == {"holds"}
    assert {found[row] for row in ("3", "3a", "3b", "3c")} == {"not applicable"}
    text = "\n".join(attestation_text(attestation))
    assert "Named Example-Bot group overrides *" in text
    assert "not applicable: this bot has no blocklist" in text
    assert "Walsh-Research" not in text


def test_a_bot_that_asks_hosts_at_once_and_follows_links_breaks_nothing_of_its_own(attested):
    attestation = attested(OTHER | {"WALSH_SERIAL": False, "WALSH_SCOPE": "any"})(bot=BOT)
    assert attestation["holds"]
    assert "WALSH_SERIAL = False" in rows(attestation)["4"]["not_applicable"]
    assert "WALSH_SCOPE" in rows(attestation)["6"]["not_applicable"]


def test_a_new_version_of_a_bot_is_the_same_bot(attested):
    newer = OTHER | {"WALSH_USER_AGENT": OTHER["WALSH_USER_AGENT"].replace("1.0", "1.1")}
    assert rows(attested(OTHER, newer)(bot=BOT))["1"]["verdict"] == "holds"


def test_two_bots_in_one_state_are_one_too_many(attested):
    of = attested(OTHER, {})
    for bot, sent in ((BOT, USER_AGENT), (Bot(USER_AGENT, "Walsh-Research"), BOT.user_agent)):
        attestation = of(bot=bot)
        assert not attestation["holds"]
        assert sent in json.dumps(rows(attestation)["1"]["findings"])
