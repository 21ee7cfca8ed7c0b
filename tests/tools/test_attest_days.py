"""`scrapy attest` day by day: what was judged before counts, as long as its rows are the same."""

import contextlib
import json
import sqlite3
from random import Random

import pytest
from sqlalchemy import insert

from tests.tools import test_attest
from tests.tools.test_attest import (
    BEGIN,
    DAY,
    NOW,
    begins_a_day_with,
    in_days,
    judged,
    judged_by_day,
    rows,
    validate,
)
from walsh_scrapy.identity import UA_TOKEN, USER_AGENT
from walsh_scrapy.policy.audit.record import Bot
from walsh_scrapy.sources import Source, declaration
from walsh_scrapy.state import State
from walsh_scrapy.state.database import Database
from walsh_scrapy.state.evidence import hash_of
from walsh_scrapy.state.tables import acts, copies, requests, runs

clean, record, scrapy = test_attest.clean, test_attest.record, test_attest.scrapy
COLUMNS = "sent_at, host, url, gates, seconds, error, purpose, pause, hold"
ADDED = (
    f"INSERT INTO requests ({COLUMNS}) SELECT {BEGIN + DAY + 9}, {COLUMNS[9:]} FROM requests"
    " WHERE id = 3"
)
LATER = NOW + 3 * DAY
MONTH = "2026-01"
SECOND = "2026-01-02"


def periods(attestation, which):
    return sorted(attestation["record"]["judged"][which])


@pytest.fixture
def kept(record):
    """A record whose days were judged, with requests on both sides of a midnight."""
    url, change = record
    begins_a_day_with(url, change)
    attestation = judged_by_day(url, LATER)
    assert periods(attestation, "now") == [MONTH, "2026-01-01", SECOND, "2026-01-03"]
    change("UPDATE runs SET summary = '{}'")
    return url, change


@pytest.mark.parametrize(
    ("statement", "changed"),
    [
        (f"UPDATE requests SET status = 404 WHERE sent_at > {BEGIN + DAY} AND run = 1", True),
        (f"DELETE FROM requests WHERE sent_at > {BEGIN + DAY} AND run = 1", True),
        (f"DELETE FROM requests WHERE sent_at BETWEEN {BEGIN + DAY} AND {BEGIN + 2 * DAY}", True),
        (f"UPDATE denials SET reason = '' WHERE at > {BEGIN + DAY} AND run = 1", True),
        # A row that was written late; what the terms are: another run, another act.
        (ADDED, False),
        (f"INSERT INTO acts VALUES (1, {BEGIN + DAY + 9}, 'a', 'pause', 1.0, '')", False),
        ("UPDATE runs SET settings = json_set(settings, '$.force', 1) WHERE id = 1", False),
    ],
)
def test_what_is_not_as_it_was_is_judged_again_with_all_that_follows(kept, statement, changed):
    url, change = kept
    change(statement)
    attestation = judged_by_day(url, LATER)
    validate(attestation)
    first = ["2026-01-01"] if "runs" in statement else []
    assert periods(attestation, "now") == [MONTH, *first, SECOND, "2026-01-03"]
    assert periods(attestation, "changed") == [SECOND] * changed
    assert attestation["checklist"] == judged(url, LATER)["checklist"]
    again = judged_by_day(url, LATER)
    assert periods(again, "now") == [MONTH]
    assert periods(again, "changed") == [SECOND] * changed, "it is not forgotten"
    assert again["checklist"] == attestation["checklist"]


def test_entries_are_judged_by_month(kept):
    url, change = kept
    february = BEGIN + 32 * DAY
    assert periods(judged_by_day(url, february), "now") == [MONTH]
    assert periods(judged_by_day(url, february), "now") == []
    change("UPDATE entries SET kind = 'html' WHERE key = (SELECT min(key) FROM entries)")
    attestation = judged_by_day(url, february)
    assert periods(attestation, "now") == periods(attestation, "changed") == [MONTH]
    assert rows(attestation)["9"]["broken"] == 1
    assert rows(judged_by_day(url, february))["9"]["broken"] == 1


def test_another_bot_is_another_judgement(kept):
    url, _ = kept
    assert len(periods(judged_by_day(url, LATER, Bot("Other/1", "Other")), "now")) == 4


def test_what_was_deleted_as_too_old_is_no_change_and_no_longer_counts(kept):
    url, change = kept
    before = rows(judged_by_day(url, LATER))
    later = BEGIN + 31 * DAY + 3.0
    with contextlib.closing(State(url)) as state:
        settings = state.runs.find(1).settings
        number = state.runs.begin(test_attest.RunRecord(spider="f", begun=later, settings=settings))
        state.prune(later, 30 * DAY, lambda: True)
        state.runs.end(number, later, "finished", {})
    # As a pruning leaves it that was ended a day later.
    change(f"DELETE FROM requests WHERE sent_at < {later - 30 * DAY}")
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as state:
        (left,) = state.execute("SELECT count(*) FROM requests").fetchone()
        (young,) = state.execute(
            f"SELECT count(*) FROM requests WHERE sent_at > {BEGIN + 2 * DAY}"
        ).fetchone()
    attestation = judged_by_day(url, later)
    assert 0 < young < rows(attestation)["1"]["shown"] == left < before["1"]["shown"]
    assert periods(attestation, "changed") == []
    assert periods(attestation, "before") == ["2026-01-03"]
    assert periods(attestation, "now") == [MONTH, *([SECOND] if left > young else [])]
    with contextlib.closing(State(url)) as state, state.log() as log:
        assert "2026-01-01" not in [each.period for each in log.judgements()]


def test_a_day_that_may_still_get_rows_is_not_kept(record):
    url, _ = record
    soon = judged_by_day(url, BEGIN + DAY + 3000.0)
    assert periods(soon, "now") == [MONTH, "2026-01-01", SECOND]
    again = judged_by_day(url, BEGIN + DAY + 4000.0)
    assert periods(again, "before") == []
    assert periods(judged_by_day(url, BEGIN + DAY + 4100.0), "before") == ["2026-01-01"]


def test_the_command_says_what_was_changed(record, scrapy):
    _, change = record
    assert scrapy()[0] == 0
    assert "judged now: 0 days and months; before, and the same since: " in scrapy()[1]
    change("UPDATE requests SET status = 200 WHERE status = 304")
    for _ in range(2):
        status, text, _ = scrapy()
        assert status == 1
        assert f"changed after it was judged: {SECOND}, as noticed " in text


RULES = [b"User-agent: *\nCrawl-delay: 2\n", b"User-agent: *\nDisallow: /no\n", b""]
HOSTS = [f"h{number}.example" for number in range(6)]
URLS = [f"http://{host}/{page}" for host in HOSTS for page in ("feed", "no", "llms-full.txt")]


def generated(url, random, token):
    """Write a record of some days with many mistakes, often at midnight."""
    declared = declaration(map(Source, URLS[::2]))
    settings = {
        "user_agent": USER_AGENT, "ua_token": token, "serial": token == UA_TOKEN, "pace_by": "host",
        "log_days": 30, "robots_unreachable": "allow", "backoff_base": 2.0, "backoff_max": 300.0,
        "latency_factor": 1.0, "declared": hash_of(declared),
    }  # fmt: skip
    sent, ran, at, asked = [], [], BEGIN + 3600.0, {}
    for number in range(1, 40):
        begun = at
        for _ in range(random.randrange(4, 16)):
            at += random.choice([0.5, 2.5, 3.0, 3.0, 9.0, 40.0])
            is_last = random.random() < 0.1
            if is_last:  # right before, and across, the next midnight
                at += DAY - (at - BEGIN) % DAY - random.choice([1.0, 0.2])
            host = random.choice(HOSTS)
            is_robots = host not in asked or random.random() < 0.2
            status = random.choice([200] * 8 + [304, 301, 404, 429, 503, None])
            row = {
                "sent_at": at, "host": host, "gates": "blocklist: not listed; robots: allowed",
                "status": status, "seconds": 2.0 if is_last else 0.1, "run": number,
                "purpose": "robots" if is_robots else "target", "pause": random.choice([1.0, 2.0]),
                "hold": 3600.0 * random.choice([1, 40]) if status in (429, 503) else 0.0,
                "url": f"http://{host}/robots.txt" if is_robots else random.choice(URLS),
                "error": "", "retry_after": random.choice([None, "3600"]), "monotonic": at - BEGIN,
            }  # fmt: skip
            if is_robots:
                asked[host] = hash_of(random.choice(RULES)), at + row["seconds"]
            else:
                row["redirected_by"] = random.choice([None] * 5 + [random.choice(URLS)])
                row["source"] = random.choice(URLS[::2])
            row["robots"], row["robots_at"] = asked[host]
            if random.random() < 0.02:  # the clock is set
                row["monotonic"] += random.choice([-500.0, 500.0])
            if host == HOSTS[0]:  # it refuses each request, and is left alone for too short
                row |= {"status": 429, "hold": 3.0, "retry_after": None}
            sent.append(dict.fromkeys(("redirected_by", "source")) | row)
        ended = random.choice([None, at + 5.0])
        ran.append({"spider": "feeds", "begun": begun, "ended": ended, "versions": "{}"})
        ran[-1]["settings"] = json.dumps(settings | {"force": random.random() < 0.2})
        at += random.choice([60.0, 7200.0])
    bodies = [(body, "robots") for body in RULES[1:]] + [(declared, "sources")]
    kept = {"first_seen": BEGIN, "kept_at": at}
    with contextlib.closing(Database(url)) as database, database.write() as connection:
        connection.run_each(insert(runs), ran)
        # The last of the rules is not kept.
        numbers = {hash_of(body): at for at, body in enumerate([*RULES[1:], declared, RULES[0]], 1)}
        logged = [each | {"robots": numbers[each["robots"]]} for each in sent]
        connection.run_each(insert(requests), logged)
        named = [{"hash": hash_of(body), "body": body, "kind": kind} for body, kind in bodies]
        named = [each | {"id": numbers[each["hash"]]} for each in named]
        connection.run_each(insert(copies), [each | kept for each in named])
        lifted = [
            {"at": each["sent_at"] + 20.0, "host": each["host"], "act": "release", "seconds": 9.0}
            for each in sent
            if each["hold"] and random.random() < 0.3
        ]
        if lifted:
            connection.run_each(insert(acts), [each | {"reason": ""} for each in lifted])
    return at


@pytest.mark.parametrize("seed", range(3))
def test_day_by_day_is_as_in_one_pass_of_a_generated_record(tmp_path, seed):
    url, random = f"sqlite:///{tmp_path / 'state.sqlite3'}", Random(seed)
    ended = generated(url, random, UA_TOKEN if seed else "Other")
    now = ended + 2 * DAY
    in_days(url, *(BEGIN + number * DAY + 4000.0 for number in range(1, int((now - BEGIN) / DAY))))
    by_day = judged_by_day(url, now)
    assert len(periods(by_day, "before")) > 2
    whole = judged(url, now)
    assert len([row for row in whole["checklist"] if row["broken"]]) > 4
    assert by_day["checklist"] == whole["checklist"]
    assert judged_by_day(url, now)["checklist"] == whole["checklist"]
