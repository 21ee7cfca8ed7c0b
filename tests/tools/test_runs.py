"""`walsh runs`: which runs there were, and how each ended."""

import contextlib
import json

import pytest

from walsh_scrapy.state import State
from walsh_scrapy.state.runs import RunRecord


@pytest.fixture
def runs(called, tmp_path):
    """Run the command on a state with a crawl of today and a killed one of 1970."""
    url = f"sqlite:///{tmp_path / 'walsh.sqlite3'}"
    with contextlib.closing(State(url)) as state:
        state.runs.begin(RunRecord(spider="llms", begun=60.0))
        now = state.now()
        number = state.runs.begin(RunRecord(spider="feeds", begun=now - 60))
        state.runs.end(number, now - 30, "finished", {"fetched": 1})
    return lambda *words: called("runs", *words, WALSH_STATE_URL=url)


def test_the_newest_run_is_listed_first(runs):
    status, out, _ = runs("--json")
    newest, oldest = json.loads(out)
    assert status == 0
    assert (newest["spider"], newest["how"], newest["problem"]) == ("feeds", "finished", None)
    assert (oldest["spider"], oldest["ended"]) == ("llms", None)
    assert "did not end" in oldest["problem"]


def test_since_leaves_out_earlier_runs(runs):
    _, out, _ = runs("--json", "--since", "1d")
    assert [run["spider"] for run in json.loads(out)] == ["feeds"]


def test_a_project_without_a_state_has_no_runs(called, tmp_path):
    status, out, error = called("runs", "--json", WALSH_STATE_URL=f"sqlite:///{tmp_path}/none")
    assert (status, json.loads(out), error) == (0, [], "")
