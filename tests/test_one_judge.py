"""All judges of the record are of one mind about doubtful records (decisions 33 and 35)."""

from contextlib import closing
from dataclasses import asdict, replace

import pytest
from scrapy.settings import Settings
from sqlalchemy import delete, insert

from tests.helpers.records import RECORD, log_requests
from walsh_scrapy.options import Options
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.state import State
from walsh_scrapy.state.documents import hash_of, keep_copy
from walsh_scrapy.state.log import Evidence
from walsh_scrapy.state.runs import RunRecord
from walsh_scrapy.state.tables import copies, overrides
from walsh_scrapy.tools.attest import attest
from walsh_scrapy.tools.report import build_report, choose_period
from walsh_scrapy.tools.why.account import give_account
from walsh_scrapy.tools.why.letter import letter

DAY = 86_400.0
LATE = 20_001 * DAY - 0.5  # of 2024-10-04
TOO_SHORT = "so it was too short"
OPTIONS = {
    "a.example": Options.from_settings(Settings()),
    "example.com": Options.from_settings(Settings({"WALSH_PACE_BY": "domain"})),
}
SLOW, LOST = b"User-agent: *\nCrawl-delay: 5\n", b"User-agent: *\nCrawl-delay: 9\n"
#: Breaches that are about the time of a request.
TIMES = {"short-pause", "host-at-once", "too-early"}


def sent(after, **columns):
    """A request so many seconds after the first one that took half a second; 2 s were asked for."""
    given = {"url": "http://a.example/feed", "seconds": 0.5, "run": 1, "delay": 2.0}
    return replace(RECORD, sent_at=LATE + after, **given | columns)


def override(name, after, host="a.example"):
    at = LATE + after
    return {"id": 1, "at": at, "host": host, "override": name, "seconds": 60.0, "reason": ""}


FIRST = sent(0.0)
REFUSED = sent(0.0, status=503, hold=100.0)
LONG = sent(0.0, status=503, hold=30 * DAY)
DOMAIN = {"host": "example.com", "url": "http://a.example.com/"}
SHORT, TWICE, EARLY = {"short-pause"}, {"host-at-once"}, {"too-early"}


@pytest.mark.parametrize(
    ("rows", "done", "found"),
    [
        pytest.param([FIRST, sent(2.5)], [], set(), id="as-asked"),
        pytest.param([FIRST, sent(2.499)], [], set(), id="1-ms-short"),
        pytest.param([FIRST, sent(2.47)], [], set(), id="30-ms-short"),
        pytest.param([FIRST, sent(2.44)], [], SHORT, id="60-ms-short"),
        pytest.param([FIRST, sent(0.6)], [], SHORT, id="short"),
        pytest.param([FIRST, sent(1.5, delay=0.0)], [], set(), id="a-second"),
        pytest.param([FIRST, sent(1.0, delay=0.0)], [], SHORT, id="less-than-a-second"),
        pytest.param([FIRST, sent(0.47)], [], SHORT, id="30-ms-over"),
        pytest.param([FIRST, sent(0.44)], [], TWICE, id="60-ms-over"),
        pytest.param([sent(0.0, seconds=9.0), sent(1.0), sent(8.0)], [], TWICE, id="long-one"),
        pytest.param([REFUSED, sent(100.47)], [], set(), id="hold-30-ms-short"),
        pytest.param([REFUSED, sent(100.44)], [], EARLY, id="hold-60-ms-short"),
        pytest.param([REFUSED, sent(1.0)], [], EARLY | SHORT, id="hold-and-delay"),
        pytest.param([REFUSED, sent(0.1)], [], TWICE, id="sent-before-it-was-refused"),
        pytest.param([REFUSED, sent(50.0, hold=50.0), sent(60.0)], [], EARLY, id="hold-ignored"),
        pytest.param([REFUSED, sent(50.0), sent(60.0)], [], EARLY, id="hold-forgotten"),
        pytest.param([REFUSED, sent(9.0)], [override("release", 8.0)], set(), id="released"),
        pytest.param([REFUSED, sent(9.0)], [override("release", 10.0)], EARLY, id="released-later"),
        pytest.param(
            [REFUSED, sent(9.0)], [override("release", 8.0, host="b.example")], EARLY,
            id="other-release"
        ),
        pytest.param(
            [FIRST, sent(3.0, delay=60.0)], [override("delay", 3.2)], set(), id="delayed-then"
        ),
        pytest.param(
            [FIRST, sent(3.0, delay=60.0)], [override("delay", 1.0)], SHORT, id="delayed-first"
        ),
        pytest.param([LONG, sent(DAY + 1.0, purpose="blocklist")], [], set(), id="list-next-day"),
        pytest.param([LONG, sent(DAY - 1.0, purpose="blocklist")], [], EARLY, id="list-same-day"),
        pytest.param([LONG, sent(DAY + 1.0)], [], EARLY, id="target-after-a-day"),
        pytest.param(
            [FIRST, sent(3.0, evidence=Evidence(robots=hash_of(SLOW)))], [], SHORT, id="crawl-delay"
        ),
        pytest.param(
            [FIRST, sent(3.0, evidence=Evidence(robots=hash_of(LOST)))], [], set(), id="copy-lost"
        ),
        pytest.param([FIRST, sent(2.0, run=None)], [], SHORT, id="no-run"),
        pytest.param(
            [sent(0.0, status=None, error="given up", seconds=0.0), sent(1.0)], [], SHORT,
            id="end-not-known",
        ),
        pytest.param([sent(3600.0), sent(3.0)], [], set(), id="clock-back"),
        pytest.param([sent(0.3), FIRST], [], TWICE, id="clock-back-a-little"),
        pytest.param([FIRST, sent(7200.0)], [], set(), id="clock-ahead"),
        pytest.param(
            [sent(0.0, status=503, hold=60.0, **DOMAIN), sent(
                9.0, host="example.com", url="http://b.example.com/")], [], EARLY,
            id="hold-of-the-domain",
        ),
    ],
)  # fmt: skip
def test_all_commands_find_the_same(tmp_path, rows, done, found):
    """The first request is sent just before midnight, and the letter is about the next day."""
    now = LATE + 60 * DAY
    options = OPTIONS[rows[0].host]
    with closing(State(f"sqlite:///{tmp_path / 'state.sqlite3'}")) as state:
        run = RunRecord(spider="feeds", begun=LATE, settings=asdict(options))
        state.runs.end(state.runs.begin(run), now, "finished", {})

        def write(connection):
            for body in (SLOW, LOST):
                keep_copy(connection, "robots", body, now=0.0, last=None)
            if done:
                connection.execute(insert(overrides), done)

        state._database.write(write)
        log_requests(state, *rows)
        lost = delete(copies).where(copies.c.hash == hash_of(LOST))
        state._database.write(lambda connection: connection.execute(lost))
        with state.log() as log:
            attestation = attest(log, now)
            asked = {(host_of(row.url), int(row.sent_at // DAY)) for row in rows}
            accounts = [give_account(state, log, options, *each) for each in sorted(asked)]
        days = sorted({day for _, day in asked})
        reports = {
            day: build_report(state, options, "none", choose_period(state, now, day * DAY), now)
            for day in days
        }
    kinds = {each["kind"] for row in attestation["checklist"] for each in row["findings"]}
    assert kinds & TIMES == found
    told = {day: too_soon(line.sent for line in report.lines) for day, report in reports.items()}
    assert bool(told[days[0]]) == bool(found)
    assert too_soon(account.requests for account in accounts) == told[days[0]]
    since = days[-1] * DAY
    assert told[days[-1]] == {at for at in told[days[0]] if at >= since}, "it knows what was before"
    for account in accounts:
        count = sum(each.gap.is_broken for each in account.requests)
        assert "\n".join(letter(account)).replace("\n            ", " ").count(TOO_SHORT) == count


def too_soon(lines):
    return {each.record.sent_at for line in lines for each in line if each.gap.is_broken}
