"""Entries come to readers, pipelines and exports, whoever fails or is killed in between."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing
from threading import Event

import psycopg
import pytest

from tests.helpers import ROOT
from tests.helpers.sites import feed, feeds, site, trouble
from walsh_scrapy.policy.advice import complete_run
from walsh_scrapy.state import State
from walsh_scrapy.testing.feeds import Post

NAMES = ("a", "b", "c", "d", "e", "f")
POSTS = ("One", "Two", "Three")
ALL = len(NAMES) * len(POSTS)
DAY = 86_400.0

#: Raises for every title that is not in the list of those that it may pass.
PIPELINE = """
import os
import signal


class Pipeline:
    def process_item(self, item):
        if item.title == os.environ.get("RAISES_AT"):
            raise RuntimeError("the other program refuses it")
        if item.title == os.environ.get("KILLED_AT"):
            os.kill(os.getpid(), signal.SIGKILL)
        return item
"""
USED = {"ITEM_PIPELINES": json.dumps({"pipeline.Pipeline": 1})}


@pytest.fixture
def web(direct_web):
    sites = (
        site(f"{name}.example", feed=feed(posts=POSTS, host=f"{name}.example")) for name in NAMES
    )
    return direct_web(*sites)


@pytest.fixture
def read(run_command, url):
    """Call `walsh new --json` on the state; return the exit status and the rows."""

    def call(*words):
        done = run_command("new", "--json", *words, settings={"WALSH_STATE_URL": url})
        assert "Traceback" not in done.stderr
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    return call


@pytest.fixture
def pipeline(tmp_path, monkeypatch):
    """A module with a pipeline that other settings may name."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "pipeline.py").write_text(PIPELINE)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)


def urls(rows):
    return Counter(row["url"] for row in rows)


def is_each_once(rows):
    return len(rows) == ALL and set(urls(rows).values()) == {1}


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_reader_beside_workers_gets_each_entry_once(web, crawl, read, url, workers):
    settings = {"WALSH_STATE_URL": url}
    running = [crawl.start(web, sources=feeds(*NAMES), settings=settings) for _ in range(workers)]
    rows = []
    while any(one.running for one in running):
        status, more = read("--reader", "a")
        assert status == 0
        rows += more
    assert [one.wait().exit_code for one in running] == [0] * workers
    rows += read("--reader", "a")[1]
    assert is_each_once(rows)
    sequence = [row["seq"] for row in rows]
    assert sequence == sorted(sequence)


def test_a_reader_that_is_killed_while_it_writes_gets_all_again(web, crawl, url, read):
    crawl(web, sources=feeds(*NAMES), settings={"WALSH_STATE_URL": url})
    command = [sys.executable, "-m", "walsh_scrapy", "new", "--reader", "a", "--json"]
    command += ["-s", f"WALSH_STATE_URL={url}"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, bufsize=0) as killed:
        fcntl.fcntl(killed.stdout, fcntl.F_SETPIPE_SZ, 4096)
        assert killed.stdout.read(1) == b"{"  # the rest is longer than the pipe
        assert read("--reader", "a") == (3, [])
        killed.kill()
    assert is_each_once(read("--reader", "a")[1])
    assert read("--reader", "a") == (0, [])


@pytest.mark.parametrize("reports", [False, True])
def test_a_changed_title_is_an_item_again_if_a_project_wants_it(simulated, reports):
    documents = [feed(posts=[Post(title, "/1", "1"), "Two"]) for title in ("News", "RETRACTED")]
    first, second, third = simulated(
        site("blog.example", feed=[*documents, documents[1]]),
        sources=["http://blog.example/feed"],
        starts=[0.0, 2 * DAY, 4 * DAY],
        settings={"WALSH_REPORT_CHANGES": reports},
    )
    assert [item["changed_at"] for item in first.items] == [None, None]
    assert second.stats["walsh/entries/changed"] == 1
    assert third.items == []
    if not reports:
        assert second.items == []
        return
    (again,) = second.items
    assert again["title"] == "RETRACTED"
    assert again["changed_at"] > again["first_seen"] == first.items[0]["first_seen"]
    assert again["key"] == first.items[0]["key"]


def test_a_pipeline_that_raises_is_a_failure_with_a_remedy(web, crawl, read, url, pipeline):
    settings = USED | {"WALSH_STATE_URL": url}
    result = crawl(web, sources=feeds(*NAMES), settings=settings, environment={"RAISES_AT": "Two"})
    assert result.exit_code == 1
    assert result.stats["walsh/items/undelivered"] == len(NAMES)
    assert len(result.items) == ALL - len(NAMES)
    with closing(State(url)) as state:
        (run,) = map(complete_run, state.rows("readable_runs"))
    assert (run["undelivered"], run["problem"]) == (len(NAMES), "undelivered")
    command = f"new --run {run['run']}"
    assert command in run["advice"]
    assert command in result.stderr
    assert is_each_once(read("--run", str(run["run"]))[1])


@pytest.mark.parametrize("suffix", ["jsonl", "json"])
def test_an_export_that_fails_counts_all_entries_of_its_run(web, crawl, read, url, suffix):
    exports = {"FEEDS": json.dumps({"/dev/full": {"format": suffix}})}
    result = crawl(web, sources=feeds("a"), settings=exports | {"WALSH_STATE_URL": url})
    assert result.exit_code == 1
    with closing(State(url)) as state:
        (run,) = map(complete_run, state.rows("readable_runs"))
    assert (run["undelivered"], run["problem"]) == (len(POSTS), "export_failed")
    assert f"new --run {run['run']}" in run["advice"]
    assert len(read("--run", str(run["run"]))[1]) == len(POSTS)


def test_entries_of_a_run_that_died_come_again(web, crawl, read, url, pipeline):
    settings = USED | {"WALSH_STATE_URL": url}
    died = crawl(web, sources=feeds("a"), settings=settings, environment={"KILLED_AT": "One"})
    assert died.exit_code == -signal.SIGKILL
    second = crawl(web, sources=feeds("a"), settings=settings)
    assert (second.exit_code, second.stats["walsh/sources/not_due"]) == (0, 1)
    assert len(read("--run", "1")[1]) == len(POSTS)
    assert len(read("--reader", "a")[1]) == len(POSTS)


def test_items_and_exports_have_the_key_of_the_entry(web, crawl, read, run_command, tmp_path, url):
    result = crawl(web, sources=feeds(*NAMES), settings={"WALSH_STATE_URL": url})
    rows = {row["key"]: row["url"] for row in read("--after", "0")[1]}
    assert {item["key"]: item["url"] for item in result.items} == rows
    file = tmp_path / "all.jsonl"
    done = run_command("export", "-o", file, settings={"WALSH_STATE_URL": url})
    assert done.returncode == 0, done.stderr
    exported = map(json.loads, file.read_text("utf-8").splitlines())
    assert {item["key"]: item["url"] for item in exported} == rows


def test_numbers_are_given_while_a_crawl_runs(direct_web, crawl, url):
    is_numbered = Event()

    def hang(hit):
        is_numbered.wait(60.0)
        return feed(host=hit.host)

    web = direct_web(site("a.example"), site("b.example", feed=hang))
    settings = trouble("ShortBeats") | {"WALSH_STATE_URL": url}
    running = crawl.start(web, sources=feeds("a", "b"), settings=settings)
    numbers: list[int] = []
    while running.running and not any(numbers):
        with closing(State(url)) as state:
            numbers = [row["seq"] for row in state.rows("readable_entries")]
    assert numbers == [1, 2]
    is_numbered.set()
    assert running.wait().exit_code == 0


# The recipe of docs/deployment.md.


@pytest.fixture
def hand_over(run_python, tmp_path, postgresql_url, crawl):
    """Call docs/deployment/handover.py; return its exit status, and the keys in the other table."""
    target = postgresql_url.replace("postgresql+psycopg", "postgresql")
    state = crawl.folder / "walsh.sqlite3"

    def call(*options):
        settings = tmp_path / "project" / "recipe_settings.py"
        settings.parent.mkdir(exist_ok=True)
        settings.write_text(
            f"from walsh_scrapy.settings import *\nWALSH_STATE_URL = 'sqlite:///{state}'\n"
        )
        done = run_python(
            ROOT / "docs" / "deployment" / "handover.py",
            target,
            *options,
            environment={
                "SCRAPY_SETTINGS_MODULE": "recipe_settings",
                "PYTHONPATH": f"{settings.parent}{os.pathsep}{ROOT}",
            },
        )
        assert "Traceback" not in done.stderr, done.stderr
        with psycopg.connect(target) as connection:
            return done.returncode, connection.execute("SELECT url FROM news").fetchall()

    return call


def test_the_recipe_copies_each_entry_once(web, crawl, hand_over, run_command):
    """Also with a backup that is restored, and an entry that is deleted in between."""
    crawl(web, sources=feeds("a", "b"))
    status, copied = hand_over()
    assert (status, len(copied)) == (0, 2 * len(POSTS))
    assert hand_over() == (0, copied)

    backup, state = crawl.folder / "backup.sqlite3", crawl.folder / "walsh.sqlite3"
    settings = {"WALSH_STATE_URL": f"sqlite:///{state}"}
    assert run_command("backup", "-o", backup, settings=settings).returncode == 0
    crawl(web, sources=feeds("a", "b", "c", "d"))
    with closing(State(settings["WALSH_STATE_URL"])) as opened:
        opened.write(lambda c: c.exec_driver_sql("DELETE FROM entries WHERE title_key IS NULL"))
        opened.write(lambda c: c.exec_driver_sql("DELETE FROM entries WHERE source LIKE '%//c.%'"))
    status, copied = hand_over()
    assert (status, len(copied)) == (0, 3 * len(POSTS))

    for name in ("-wal", "-shm"):
        (state.parent / f"{state.name}{name}").unlink(missing_ok=True)
    shutil.move(backup, state)
    crawl(web, sources=feeds("a", "b", "d", "e"))
    assert hand_over() == (3, copied), "the restored state may give numbers a second time"
    status, copied = hand_over("--again")
    assert (status, len(copied), set(Counter(copied).values())) == (0, 4 * len(POSTS), {1})
    assert hand_over() == (0, copied)
