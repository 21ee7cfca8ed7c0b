"""Eight days of an operator: only what a person can use is an alarm (decision 39)."""

import sys

import pytest

from tests.acceptance.month import UNREAD, host
from tests.helpers import execute

DAYS = 8
#: What is planned in the first eight days, and is worth an alarm.
EXPECTED = {
    ("began", "crawls_stopped", "None"),
    ("ended", "crawls_stopped", "None"),
    ("began", "last_crawl", "None"),
    ("ended", "last_crawl", "None"),
    *(("began", "unread", name) for name in UNREAD - {host(91), host(92)}),
}


@pytest.mark.crawl
def test_a_week_has_no_other_alarm_than_those_that_were_planned(tmp_path):
    done = execute(sys.executable, "-m", "tests.acceptance.month", tmp_path, DAYS)
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()
    reported = [line.split("\t") for line in lines]
    changes = {(change, code, subject) for _, change, _, code, subject, _ in reported}
    assert changes == EXPECTED
    assert len(reported) == len(EXPECTED), "each begins once"
    assert int(last.split()[0]) <= 5
