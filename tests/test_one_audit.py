"""Each command that audits the state finds the same in doubtful rows (decisions 33 and 35)."""

import re
from collections import Counter
from contextlib import closing
from dataclasses import asdict, replace

from scrapy.settings import Settings
from sqlalchemy import delete, insert

from tests.helpers import cases
from tests.helpers.records import RECORD, log_requests
from walsh_scrapy.options import Options
from walsh_scrapy.policy.durations import rfc3339
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.state import State
from walsh_scrapy.state.documents import hash_of, keep_copy
from walsh_scrapy.state.log import Evidence
from walsh_scrapy.state.runs import RunRecord
from walsh_scrapy.state.tables import copies, overrides
from walsh_scrapy.tools.attest import attest
from walsh_scrapy.tools.report.facts import choose_period
from walsh_scrapy.tools.report.pace import read_gaps
from walsh_scrapy.tools.why.account import read_account
from walsh_scrapy.tools.why.letter import letter

DAY = 86_400.0
LATE = 20_001 * DAY - 0.5  # of 2024-10-04
OPTIONS = {
    "a.example": Options.from_settings(Settings()),
    "example.com": Options.from_settings(Settings({"WALSH_PACE_BY": "domain"})),
}
SLOW, LOST = b"User-agent: *\nCrawl-delay: 5\n", b"User-agent: *\nCrawl-delay: 9\n"
COPIES = {"slow": hash_of(SLOW), "lost": hash_of(LOST), "": None}
#: Breaches that are about the time of a request.
TIMES = {"short-pause", "host-at-once", "too-early"}
NO_RUN = ("no run", [{}, {"after": 2.0, "run": None}], [], ["short-pause"])
GIVEN_UP = {"status": None, "error": "given up", "duration": 0.0}


def sent(after=0.0, robots="", **columns):
    """A request so many seconds after the first one that took half a second; 2 s were asked for."""
    given = {"url": "http://a.example/feed", "duration": 0.5, "run": 1, "delay": 2.0}
    given["evidence"] = Evidence(robots=COPIES[robots])
    return replace(RECORD, requested_at=LATE + after, **given | columns)


def override(name, after, host="a.example"):
    at = LATE + after
    return {"id": 1, "made_at": at, "host": host, "override": name, "seconds": 60.0, "reason": ""}


@cases(
    "case",
    "requests",
    "overridden",
    "found",
    more=[NO_RUN, ("end not known", [GIVEN_UP, {"after": 1.0}], [], ["short-pause"])],
)
def test_all_commands_find_the_same(tmp_path, case, requests, overridden, found):
    """The first request is sent just before midnight, and the letter is about the next day."""
    rows = [sent(**columns) for columns in requests]
    done = [override(**columns) for columns in overridden]
    now = LATE + 60 * DAY
    options = OPTIONS[rows[0].host]
    with closing(State(f"sqlite:///{tmp_path / 'state.sqlite3'}")) as state:
        run = RunRecord(spider="feeds", started_at=LATE, settings=asdict(options))
        state.runs.end(state.runs.begin(run), now, "finished", {})

        def write(connection):
            for body in (SLOW, LOST):
                keep_copy(connection, "robots", body, now=0.0, last=None)
            if done:
                connection.execute(insert(overrides), done)

        state._database.write(write)
        log_requests(state, *rows)
        lost = delete(copies).where(copies.c.sha256 == hash_of(LOST))
        state._database.write(lambda connection: connection.execute(lost))
        with state.log() as log:
            attestation = attest(log, now)
        shown = Counter()
        for host, day in {(host_of(row.url), rfc3339(row.requested_at)[:10]) for row in rows}:
            account = read_account(state, options, host, day)
            problems = [row["problem"] for row in account.requests if row["problem"]]
            shown.update(problems)
            table = "\n".join(letter(account))
            assert len(problems) == len(re.findall(", (at once|on hold|too short) ", table))
        gaps = read_gaps(state, choose_period(state, now, LATE - DAY))
        in_report = Counter(row["problem"] for row in gaps if row["problem"])
    kinds = {each["kind"] for row in attestation["checklist"] for each in row["findings"]}
    assert kinds & TIMES == set(found)
    assert shown == in_report
    # The Crawl-delay of a copy is what `attest` reads besides.
    assert bool(shown) == (bool(found) and case != "crawl delay")
