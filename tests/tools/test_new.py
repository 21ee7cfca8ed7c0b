"""`walsh new` and `walsh runs`; `walsh init`."""

import contextlib
import json
import runpy
import shlex
import subprocess
import sys
from functools import partial

import pytest
from sqlalchemy import create_engine, text

from tests.helpers import ROOT
from tests.helpers.records import commit, entry_of
from tests.helpers.sites import AGENT, judge, refusal, site
from walsh_scrapy import settings as ours
from walsh_scrapy.console import main
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.programname import program_name
from walsh_scrapy.state import State
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.state.runstore import RunRecord
from walsh_scrapy.testing.crawl import write_sources
from walsh_scrapy.tools.lists import find_last_start

A, B = "http://a.example/feed", "http://b.example/feed"
AT = 1779516000.0


def entry(key, source=A, *, at=AT, run=1, **fields):
    item = {"kind": "feed", "source": source, "first_seen": "2026-05-23T06:00:00Z"} | fields
    return entry_of(source, key, at=at, item=json.dumps(item), run=run)


@pytest.fixture
def state(url):
    """Three runs: one that found an entry, one that found two, and one that found none."""
    with contextlib.closing(State(url)) as state:
        for begun in (AT - 86_400, AT - 60, AT + 86_400):
            state.runs.begin(RunRecord(spider="feeds", started_at=begun))
        commit(state, SourceRecord(url=A, kind="feed"), [entry("1", at=AT - 86_300)])
        commit(state, SourceRecord(url=B, kind="feed"), [])
        old = {"title": "Old", "url": "http://b.example/2", "published": "2026-05-01T09:30:00Z"}
        new = {"title": "New", "url": "http://b.example/3", "source_title": "The B"}
        entries = [entry("2", B, run=2, **old), entry("3", B, run=2, **new)]
        commit(state, SourceRecord(url=B, kind="feed"), entries)
        yield state


@pytest.fixture
def new(url, called):
    """Run `walsh new` on the state."""
    return partial(called, "new", WALSH_STATE_URL=url)


@contextlib.contextmanager
def closing_engine(url):
    """Open a connection of another program to the database."""
    engine = create_engine(url)
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def titles(out):
    return [json.loads(line)["title"] for line in out.splitlines()]


def test_default_is_the_last_run_with_new_entries(state, new):
    status, out, _ = new("--json")
    assert status == 0
    assert titles(out) == ["New", "Old"]


def test_entries_of_no_run_or_of_the_future_are_not_new(state):
    unnamed = entry("8", at=AT + 90_000, run=None)
    ahead = state.runs.begin(RunRecord(spider="feeds", started_at=AT * 2))
    future = entry("9", at=AT * 2, run=ahead)
    commit(state, SourceRecord(url=A, kind="feed"), [unnamed, future])
    assert find_last_start(state) == AT - 60


def test_entries_since_a_moment_come_by_source(state, new):
    _, out, _ = new("--since", "2026-05-20")
    assert [line.split("\t")[3:] for line in out.splitlines()] == [
        ["title", "url"], ["", ""], ["New", "http://b.example/3"], ["Old", "http://b.example/2"]
    ]  # fmt: skip


def test_a_source_has_its_name_of_the_sources_file(state, new, tmp_path):
    (tmp_path / "sources.toml").write_text(f'[[source]]\nurl = "{B}"\nname = "Mine"\n')
    assert {row["source_name"] for row in map(json.loads, new("--json")[1].splitlines())} == {
        *("The B", None)
    }
    Stores(state).sync(tmp_path / "sources.toml", AT)
    rows = [json.loads(line) for line in new("--json")[1].splitlines()]
    assert [(row["source_name"], row["source_title"]) for row in rows] == [
        *(("Mine", "The B"), ("Mine", None))
    ]
    assert [line.split("\t")[2] for line in new()[1].splitlines()] == [
        "source_name",
        "Mine",
        "Mine",
    ]


def test_no_new_entries_is_no_failure(state, new):
    status, out, error = new("--since", "2026-06-01")
    assert (status, out.count("\n")) == (0, 1)
    assert "since 2026-06-01 00:00:00" in error
    assert new("--since", "2026-06-01", "--json") == (0, "", "")


def test_without_a_state_nothing_is_new_and_none_is_made(called, tmp_path):
    none = f"sqlite:///{tmp_path / 'none.sqlite3'}"
    assert called("new", "--json", WALSH_STATE_URL=none) == (0, "", "")
    assert not (tmp_path / "none.sqlite3").exists()


def test_the_default_begins_with_the_workers_beside_the_last_run(state, new):
    # Run 2 began a minute before AT; this one began an hour before, and ended after it.
    beside = state.runs.begin(RunRecord(spider="feeds", started_at=AT - 3600))
    state.runs.end(beside, AT, "finished", {})
    commit(state, SourceRecord(url=A, kind="feed"), [entry("4", at=AT - 3000, run=beside)])
    assert find_last_start(state) == AT - 3600


def test_a_killed_run_counts_beside_the_last_by_its_entries(state):
    beside = state.runs.begin(RunRecord(spider="feeds", started_at=AT - 3600))
    assert find_last_start(state) == AT - 60
    commit(state, SourceRecord(url=A, kind="feed"), [entry("4", at=AT - 30, run=beside)])
    assert find_last_start(state) == AT - 3600


# A reader.


def keys(out):
    return [json.loads(line)["key"] for line in out.splitlines()]


def test_a_reader_gets_each_entry_once_in_the_order_of_numbers(state, new):
    assert keys(new("--reader", "a", "--json")[1]) == ["1", "2", "3"]
    assert new("--reader", "a", "--json") == (0, "", "")
    commit(state, SourceRecord(url=A, kind="feed"), [entry("0", at=1.0)])
    assert keys(new("--reader", "a", "--json")[1]) == ["0"]
    assert keys(new("--reader", "b", "--json")[1]) == ["1", "2", "3", "0"]


def test_a_new_reader_may_begin_with_the_next_entry(state, new):
    assert new("--reader", "a", "--from-now", "--json") == (0, "", "")
    commit(state, SourceRecord(url=A, kind="feed"), [entry("4")])
    assert keys(new("--reader", "a", "--from-now", "--json")[1]) == ["4"]


def test_a_reader_goes_on_after_a_deleted_entry(state, new, url):
    assert len(keys(new("--reader", "a", "--json")[1])) == 3
    with closing_engine(url) as connection:
        connection.execute(text("DELETE FROM entries WHERE key = '3'"))
    commit(state, SourceRecord(url=A, kind="feed"), [entry("4")])
    (row,) = map(json.loads, new("--reader", "a", "--json")[1].splitlines())
    assert (row["key"], row["seq"]) == ("4", 4)


# Changed titles.


@pytest.fixture
def change(state):
    """Store an entry again, with another title."""

    def again(key, title, *, source=B, at=AT + 90_000):
        commit(
            state, SourceRecord(url=source, kind="feed"), [entry(key, source, at=at, title=title)]
        )

    return again


def test_changed_titles_are_listed_with_the_title_before(change, new):
    assert new("--changed", "--json") == (0, "", "")
    change("2", "RETRACTED: Old")
    change("3", "New, corrected", at=AT + 190_000)
    _, out, _ = new("--changed")
    assert [line.split("\t")[2:4] for line in out.splitlines()] == [
        ["previous_title", "title"],
        *(["New", "New, corrected"], ["Old", "RETRACTED: Old"]),
    ]
    since = ("--changed", "--since", "2026-05-25", "--json")
    assert titles(new(*since)[1]) == ["New, corrected"]
    assert new("--changed", "--since", "2026-06-01")[2] == (
        "no title has changed since 2026-06-01 00:00:00 UTC\n"
    )


def test_a_reader_gets_changes_and_new_entries_independently(change, new):
    assert len(titles(new("--reader", "a", "--json")[1])) == 3
    change("2", "RETRACTED: Old")
    assert titles(new("--changed", "--reader", "a", "--json")[1]) == ["RETRACTED: Old"]
    assert new("--changed", "--reader", "a", "--json") == (0, "", "")
    assert new("--reader", "a", "--json") == (0, "", "")
    assert new("--changed", "--reader", "b", "--from-now", "--json") == (0, "", "")
    change("3", "Newer")
    for reader in ("a", "b"):
        assert titles(new("--changed", "--reader", reader, "--json")[1]) == ["Newer"]


def test_a_program_may_keep_the_position_of_changes(change, new):
    change("2", "RETRACTED: Old")
    (row,) = map(json.loads, new("--changed", "--after", "0", "--json")[1].splitlines())
    assert (row["changed_seq"], row["seq"]) == (4, 2)
    change("3", "Newer")
    after = ("--changed", "--after", row["changed_position"], "--json")
    assert titles(new(*after)[1]) == ["Newer"]


def test_a_reader_that_could_not_write_has_got_nothing(state, url, run_command):
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - no file to be made
        words = ("new", "--reader", "a", "--json")
        done = run_command(*words, settings={"WALSH_STATE_URL": url}, stdout=full)
    assert (done.returncode, "No space" in done.stderr) == (1, True)
    with Stores(state).handover.open_reader("a") as seq:
        assert seq is None


def test_a_reader_is_read_by_one_process_at_a_time(state, new, url):
    held = (
        "import sys; from walsh_scrapy.state.database import Database\n"
        f"with Database({url!r}).lock('reader {state.id} a') as is_free:\n"
        "    print(is_free, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", held]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as other:
        assert other.stdout.readline() == "True\n"
        status, out, error = new("--reader", "a", "--json")
        assert (status, out, error.count("\n")) == (3, "", 1)
        assert "another process" in error
        assert len(keys(new("--reader", "b", "--json")[1])) == 3
        other.communicate()
    assert len(keys(new("--reader", "a", "--json")[1])) == 3


# A position that a program keeps.


def positions(out):
    return [json.loads(line)["position"] for line in out.splitlines()]


def test_a_program_goes_on_at_the_position_that_it_keeps(state, new):
    first, second, third = positions(new("--after", "0", "--json")[1])
    assert positions(new("--after", first, "--json")[1]) == [second, third]
    assert new("--after", third, "--json") == (0, "", "")
    assert third in new("--after", third)[2]


def test_a_position_of_another_state_or_of_no_entry_is_refused(state, new):
    (*_, last) = positions(new("--after", "0", "--json")[1])
    state_id, _, number = last.partition(":")
    for position in (f"{'0' * 16}:{number}", f"{state_id}:{int(number) + 1}"):
        status, out, error = new("--after", position)
        assert (status, out, error.count("\n")) == (3, "", 1)
        assert position in error


def test_a_number_is_not_used_again_after_its_entry_was_deleted(state, new, url):
    (*_, last) = positions(new("--after", "0", "--json")[1])
    with closing_engine(url) as connection:
        connection.execute(text("DELETE FROM entries WHERE key = '3'"))
    assert new("--after", last, "--json") == (0, "", "")
    commit(state, SourceRecord(url=A, kind="feed"), [entry("4")])
    assert keys(new("--after", last, "--json")[1]) == ["4"]


@pytest.mark.parametrize("text", ["", "5", "x:1", "0123456789abcdef:", "0123456789abcdef:-1"])
def test_a_position_that_is_none_is_a_wrong_call(state, new, text):
    status, _, error = new("--after", text)
    assert (status, error.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    "words",
    [
        ("--reader", "a", "--run", "1"),
        ("--since", "today", "--after", "0"),
        ("--from-now",),
        ("--reader", "a b"),
        ("--reader", "x" * 65),
        ("--run", "-1"),
        ("--changed", "--run", "1"),
    ],
)
def test_options_that_contradict_are_a_wrong_call(state, new, words):
    status, out, error = new(*words)
    assert (status, out, error.count("\n")) == (2, "", 1)


def test_the_entries_of_a_run_are_printed_again(state, new):
    assert sorted(keys(new("--run", "2", "--json")[1])) == ["2", "3"]
    assert new("--run", "3", "--json") == (0, "", "")
    status, _, error = new("--run", "9")
    assert (status, "no run 9" in error) == (1, True)


def test_a_reader_needs_a_state(called, tmp_path):
    none = f"sqlite:///{tmp_path / 'none.sqlite3'}"
    status, _, error = called("new", "--reader", "a", WALSH_STATE_URL=none)
    assert (status, error.count("\n")) == (3, 1)
    assert not (tmp_path / "none.sqlite3").exists()


# `walsh runs`: how each run ended.


def test_every_run_is_listed_with_its_state(url, called):
    with contextlib.closing(State(url)) as state:
        for begun in (state.now() - 900_000, state.now() - 9000, state.now() - 60):
            last = state.runs.begin(RunRecord(spider="feeds", started_at=begun))
        state.runs.end(last - 2, state.now() - 899_000, "finished", {"new_entries": 3})
    status, out, _ = called("runs", "--json", WALSH_STATE_URL=url)
    rows = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [(row["problem"], row["state"], row["new_entries"]) for row in rows] == [
        ("killed", "killed", None), (None, "running", None), (None, "ended", 3)
    ]  # fmt: skip


def test_an_entry_that_is_not_json_is_one_line_with_a_remedy(state, url, new):
    damaged = entry_of(A, "4", at=AT, item="not json", run=2)
    commit(state, SourceRecord(url=A, kind="feed"), [damaged])
    status, _, error = new()
    assert status == 3
    assert error.count("\n") == 1
    assert "a row is damaged" in error
    assert "export -o" in error


# `walsh init`: the project that it writes, and that it is the one of this repository.

SOURCES = ["http://blog.example/feed"]
#: What a new project has otherwise than this one.
OWN = {"BOT_NAME", "WALSH_USER_AGENT", "WALSH_UA_TOKEN", "WALSH_BLOCKLIST_URL"}
IDENTITY = {"WALSH_USER_AGENT": AGENT, "WALSH_UA_TOKEN": "Example-Bot"}


@pytest.fixture
def walsh_init(capsys, monkeypatch, tmp_path):
    """Run `walsh init` in an empty folder; return its exit status, and what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(folder):
        with pytest.raises(SystemExit) as ended:
            main(["init", str(folder)])
        output = capsys.readouterr()
        return ended.value.code, output.out, output.err

    return run


@pytest.fixture
def project(walsh_init, tmp_path):
    assert walsh_init("new")[0] == 0
    return tmp_path / "new"


def files_of(folder):
    return {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}


def test_init_writes_the_project_and_prints_the_next_commands(walsh_init, tmp_path):
    status, out, err = walsh_init("my feeds")
    assert (status, err) == (0, "")
    _, first, second, _, *commands = out.splitlines()
    assert "my feeds/settings.py" in first
    assert "my feeds/sources.toml" in second
    crawl, new = (shlex.split(command) for command in commands)
    assert crawl == ["cd", "my feeds", "&&", "scrapy", "crawl", "feeds"]
    assert new == [*program_name().split(), "new"]
    assert set(files_of(tmp_path / "my feeds")) == {
        "scrapy.cfg", "settings.py", "setup.py", "sources.toml",
        "spiders/__init__.py", "spiders/feeds.py", "spiders/llms.py",
    }  # fmt: skip


def test_init_in_this_folder_names_no_folder_to_change_to(walsh_init):
    status, out, _ = walsh_init(".")
    assert status == 0
    assert out.splitlines()[-2].split() == ["scrapy", "crawl", "feeds"]


def test_new_project_has_the_files_of_this_repository(project):
    files = files_of(project)
    for path in (ROOT / "spiders").glob("*.py"):
        assert files[f"spiders/{path.name}"].read_text() == path.read_text()
    assert (ROOT / "sources.toml").read_text().startswith(files["sources.toml"].read_text())
    theirs = runpy.run_path(str(files["settings.py"]))
    different = {
        name
        for name in {*theirs, *vars(ours)}
        if name[0].isupper() and theirs.get(name) != getattr(ours, name, None)
    }
    assert different == OWN
    assert theirs["BOT_NAME"] == "new"


def test_no_file_is_written_if_one_already_exists(walsh_init, tmp_path):
    (tmp_path / "spiders").mkdir()
    (tmp_path / "spiders" / "feeds.py").symlink_to("nowhere")
    status, out, err = walsh_init(".")
    assert (status, out) == (1, "")
    assert err.startswith("walsh: spiders/feeds.py already exists")
    assert err.count("\n") == 1
    assert files_of(tmp_path) == {}


def test_a_folder_that_cannot_be_written_is_one_line(walsh_init, tmp_path):
    (tmp_path / "file").touch()
    status, _, err = walsh_init("file")
    assert status == 1
    assert "file/scrapy.cfg" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("settings", "proposed"),
    [
        ({}, ' WALSH_USER_AGENT = "new/1.0 (+'),
        ({"WALSH_UA_TOKEN": "Example-Bot"}, ' WALSH_USER_AGENT = "Example-Bot/1.0 (+'),
    ],
)
def test_without_an_identity_it_refuses_to_crawl(crawl, loopback_web, project, settings, proposed):
    web = loopback_web(site("blog.example"))
    result = crawl(web, project=project, sources=SOURCES, settings=settings)
    assert result.exit_code == 1
    assert proposed in refusal(result)


def test_new_project_crawls_under_its_own_identity(crawl, direct_web, project):
    web = direct_web(site("blog.example"))
    settings = project / "settings.py"
    filled = settings.read_text()
    for name, value in IDENTITY.items():
        assert filled.count(f'\n{name} = ""\n') == 1
        filled = filled.replace(f'\n{name} = ""\n', f'\n{name} = "{value}"\n')
    settings.write_text(filled)
    write_sources(project / "sources.toml", SOURCES)
    result = crawl(web, project=project, settings={"WALSH_SOURCES": project / "sources.toml"})
    assert result.exit_code == 0, result.stderr
    assert sorted(item["title"] for item in result.items) == ["One", "Two"]
    judge(web, user_agent=AGENT)


def test_scrapy_finds_each_spider_once(project, run_command):
    listed = run_command("list", cwd=project, environment={"PYTHONPATH": str(ROOT)})
    assert listed.stdout.split() == ["feeds", "llms"], listed.stderr
    assert run_command("list").stdout.split() == ["feeds", "llms"]
