"""docs/deployment.md: the query for the hours since the last good run."""

import re
import sqlite3
from contextlib import closing
from time import time

import pytest

from tests.helpers import ROOT
from walsh_scrapy.state import State
from walsh_scrapy.state.runstore import RunRecord

HOUR = 3600.0


@pytest.mark.parametrize(
    ("command", "summary", "hours"),
    [("", {"fetched": 1}, 2), ("mayfetch", {}, 5), ("", {"problem": "nothing_read"}, 5)],
)
def test_a_good_run_is_a_crawl_that_read_something(tmp_path, command, summary, hours):
    page = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    (query,) = re.findall(r'walsh\.sqlite3 "(SELECT .+ / 3600 .+)"\n', page)
    file = tmp_path / "walsh.sqlite3"
    with closing(State(f"sqlite:///{file}")) as state:
        for ago, name, counts in ((5.5, "", {"fetched": 1}), (2.5, command, summary)):
            ended = time() - ago * HOUR
            run = state.runs.begin(RunRecord(spider="feeds", command=name, started_at=ended - 9.0))
            state.runs.end(run, ended, "finished", counts)
    with closing(sqlite3.connect(file)) as database:
        assert database.execute(query).fetchone() == (hours,)
