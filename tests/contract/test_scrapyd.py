"""The project on Scrapyd: an egg that works, and jobs that pace each other."""

import contextlib
import json
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.test_commands import FAILED_JOBS
from tests.helpers import ROOT
from tests.helpers.scrapyd import Scrapyd, build_checkout
from tests.helpers.sites import paths, site
from walsh_scrapy.state import State
from walsh_scrapy.testing.crawl import keep_empty_blocklist, write_sources
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import LoopbackWeb

#: A killed job's lease that runs out while a test waits.
SETTINGS = {"WALSH_BLOCKLIST_SCHEMA_URL": "", "DOWNLOAD_TIMEOUT": 10}

pytestmark = pytest.mark.long


PARTED = [f"p{number}.example" for number in range(60)]


@pytest.fixture(scope="module")
def web():
    """The hosts of all tests: each has its own."""
    with LoopbackWeb(*map(site, ["blog.example", *PARTED])) as served:
        yield served


@pytest.fixture(scope="module")
def scrapyd(web, pytestconfig, tmp_path_factory):
    """A Scrapyd in front of the web, with the project deployed to it."""
    folder = tmp_path_factory.mktemp("scrapyd")
    with Scrapyd(folder / "scrapyd", web) as running:
        (folder / "checkout").mkdir()
        checkout = build_checkout(pytestconfig.rootpath, folder / "checkout", running.url)
        told = running.deploy(checkout)
        assert '"status": "ok"' in told, told
        yield running


@pytest.fixture
def another(web, scrapyd, tmp_path):
    """A second Scrapyd with the same project."""
    with Scrapyd(tmp_path / "scrapyd", web, eggs=scrapyd.folder / "eggs") as running:
        yield running


def log_of(web, hosts):
    return [hit for hit in web.log if hit.host in hosts]


def told_by(line):
    """Run a line of docs/deployment.md in this checkout; return its exit status and its output."""
    done = subprocess.run(["sh", "-c", line], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


def answered(log):
    """How often each target was answered in full."""
    return Counter(
        hit.url for hit in log if hit.complete and hit.status == 200 and hit.path != "/robots.txt"
    )


def test_a_job_without_a_state_of_its_own_says_where_it_keeps_it(web, scrapyd, tmp_path):
    """There is no scrapy.cfg beside an egg, so the state is in the folder where Scrapyd started."""
    assert scrapyd.call("listspiders.json")["spiders"] == ["feeds", "llms"]
    sources = write_sources(tmp_path / "sources.toml", ["http://blog.example/feed"])
    state = scrapyd.folder / ".scrapy" / "walsh.sqlite3"
    keep_empty_blocklist(f"sqlite:///{state}")
    scrapyd.schedule("feeds", "bare", SETTINGS, sources=sources)
    scrapyd.wait()
    (warning,) = (line for line in scrapyd.job_log("bare").splitlines() if "WARNING" in line)
    assert f"the state is sqlite:///{state}" in warning
    assert "WALSH_STATE_URL" in warning
    failed, with_reason = (
        line.replace("/srv/scrapyd/", f"{scrapyd.folder}/") for line in FAILED_JOBS
    )
    assert told_by(failed) == (0, ""), "no job failed yet"
    scrapyd.schedule("feeds", "wrong", SETTINGS, sources=tmp_path / "none.toml")
    mistyped = SETTINGS | {"WALSH_STATE_URL": "postgresql psycopg://walsh@db.internal/walsh"}
    scrapyd.schedule("feeds", "mistyped", mistyped, sources=sources)
    scrapyd.wait()
    assert "none.toml" in scrapyd.job_log("wrong")
    finished = scrapyd.call("listjobs.json")["finished"]
    assert {job["id"] for job in finished} >= {"bare", "wrong", "mistyped"}, (
        "it tells no difference"
    )
    status, died = told_by(failed)
    assert status == 1
    assert set(re.findall(r"exitstatus=1 .*?job='(\w+)'", died)) == {"wrong", "mistyped"}
    assert {Path(name).stem for name in told_by(with_reason)[1].split()} == {"wrong", "mistyped"}
    with contextlib.closing(State(f"sqlite:///{state}")) as kept:
        assert [run.how for run in kept.runs.latest(9)] == ["finished"], "those that began"
    assert paths(web.log, "blog.example") == ["blog.example/robots.txt", "blog.example/feed"]


def test_two_scrapyds_share_the_hosts_and_one_takes_over(
    web, scrapyd, another, tmp_path, postgresql_url
):
    urls = [f"http://{host}/feed" for host in PARTED]
    sources = write_sources(tmp_path / "sources.toml", urls)
    settings = SETTINGS | {"WALSH_STATE_URL": postgresql_url}
    keep_empty_blocklist(postgresql_url)

    scrapyd.schedule("feeds", "takes-over", settings, sources=sources)
    another.schedule("feeds", "killed", settings, sources=sources)
    half = len(PARTED) // 2
    assert web.wait_for(lambda log: sum(h.path == "/feed" for h in log if h.host in PARTED) >= half)
    another.cancel("killed", signal="KILL")
    another.wait()
    assert len(answered(log_of(web, PARTED))) < len(PARTED)
    scrapyd.wait()

    assert_polite(log_of(web, PARTED), serial=False)
    done = answered(log_of(web, PARTED))
    assert set(done) == set(urls), "every source"
    # The answer that came as the worker died was not committed, so it was asked for once more.
    assert sum(done.values()) <= len(urls) + 1, "once"
    found = scrapyd.items("takes-over")
    assert len({json.dumps(item, sort_keys=True) for item in found}) == len(found)
