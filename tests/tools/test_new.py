"""`walsh new`: what is new, as a list to read."""

import contextlib
import json
import runpy
from functools import partial

import pytest

from tests.helpers import ROOT
from tests.helpers.records import commit, entry_of
from tests.helpers.sites import AGENT, judge, refusal, site
from walsh_scrapy import settings as ours
from walsh_scrapy.console.program import main
from walsh_scrapy.programname import program_name
from walsh_scrapy.state import State, StateError
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.state.runs import RunRecord
from walsh_scrapy.testing.crawl import write_sources
from walsh_scrapy.tools.new import COLUMNS, default_since, new_items, totals
from walsh_scrapy.tools.output import screen, table

A, B = "http://a.example/feed", "http://b.example/feed"
AT = 1779516000.0
HOSTILE = "\x1b]8;;http://evil.example/\x07[bold]x[/] \u202emoc"


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
        found = [entry("2", B, run=2, **old), entry("3", B, run=2, **new)]
        commit(state, SourceRecord(url=B, kind="feed"), found)
        yield state


def test_by_default_it_is_what_the_last_run_that_found_something_found(state):
    since = default_since(state, AT)
    assert since == AT - 60
    found = new_items(state, since)
    seen = "first seen 2026-05-23T06:00:00Z"
    assert [line.plain for line in screen(found, COLUMNS, 200)] == [
        "New",
        f"  url http://b.example/3 · {seen} · source title The B · source {B}",
        "Old",
        f"  url http://b.example/2 · published 2026-05-01T09:30:00Z · {seen} · source {B}",
    ]
    assert len(list(table(found, COLUMNS))) == 3
    assert totals(found, since, is_run=True) == (
        "2 entries of 1 source, new since 2026-05-23 05:59:00 UTC, "
        "the last run that found something"
    )
    assert len(list(new_items(state, 0.0))) == 3
    unnamed = entry("8", at=AT + 90_000, run=None)
    commit(state, SourceRecord(url=A, kind="feed"), [unnamed])
    assert default_since(state, AT + 90_000) == AT - 60, "an entry that names no run"
    ahead = state.runs.begin(RunRecord(spider="feeds", started_at=AT + 90_000))
    commit(state, SourceRecord(url=A, kind="feed"), [entry("9", at=AT + 90_000, run=ahead)])
    assert default_since(state, AT) == AT - 60, "a wrong clock wrote what lies in the future"
    assert totals([], AT, is_run=False) == "nothing is new since 2026-05-23 06:00:00 UTC"


def test_without_a_run_nothing_is_new():
    state = State("sqlite://")
    assert default_since(state, AT) is None
    commit(state, SourceRecord(url=A, kind="feed"), [entry("1", run=None)])
    assert default_since(state, AT) is None
    state.close()


def test_an_entry_that_cannot_be_read_is_named(state):
    commit(state, SourceRecord(url=A, kind="feed"), [entry_of(A, "4", item="[]")])
    with pytest.raises(StateError, match="the entry 4 in the state cannot be read"):
        list(new_items(state, 0.0))


def test_an_entry_without_a_title_is_named_by_its_url_and_strangers_text_is_shown():
    items = [
        {"source": A, "title": HOSTILE, "url": "http://a.example/\x1b"},
        {"source": A, "title": None, "url": None, "id": "urn:1"},
        {"source": A, "title": None, "url": "http://a.example/untitled"},
    ]
    told = "\n".join(line.plain for line in screen(items, COLUMNS, 80))
    assert not set(told) & set("\x1b\x07\u202e")
    assert "[bold]x[/]" in told
    assert told.count("http://a.example/untitled") == 1


def test_the_command_prints_a_list_or_json(state, url, called):
    new = partial(called, "new", WALSH_STATE_URL=url)
    last = "2 entries of 1 source, new since 2026-05-23 00:00:00 UTC"
    status, out, _ = new("--since", "2026-05-23")
    assert (status, out.splitlines()[-1]) == (0, last)
    status, out, _ = new("--json")
    assert {item["title"] for item in json.loads(out)} == {"Old", "New"}
    nothing = "nothing is new since 2026-06-01 00:00:00 UTC\n"
    assert new("--since", "2026-06-01") == (0, nothing, "")
    assert new("--since", "2026-06-01", "--json") == (0, "[]\n", "")


def test_without_a_state_nothing_is_new_and_none_is_made(called, tmp_path):
    new = partial(called, "new", WALSH_STATE_URL=f"sqlite:///{tmp_path / 'none.sqlite3'}")
    nothing = "no recorded run has found anything; --since WHEN lists by time\n"
    assert new() == (0, nothing, "")
    assert new("--json") == (0, "[]\n", nothing)
    assert not (tmp_path / "none.sqlite3").exists()


# `walsh init`: the project that it writes, and that it is the one of this repository.

SOURCES = ["http://blog.example/feed"]
#: What a new project has otherwise than this one.
OWN = {"BOT_NAME", "WALSH_USER_AGENT", "WALSH_UA_TOKEN", "WALSH_BLOCKLIST_URL"}
EXPORT = f"{program_name()} export -o entries.csv"
IDENTITY = {"WALSH_USER_AGENT": AGENT, "WALSH_UA_TOKEN": "Example-Bot"}


@pytest.fixture
def walsh_init(capsys, monkeypatch, tmp_path):
    """Run `walsh init` in an empty folder; return its exit status, and what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(folder):
        with pytest.raises(SystemExit) as ended:
            main(["init", str(folder)])
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return run


@pytest.fixture
def new(walsh_init, tmp_path):
    assert walsh_init("new")[0] == 0
    return tmp_path / "new"


def files_of(folder):
    return {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}


def test_it_writes_the_project_and_says_the_next_two_commands(walsh_init, tmp_path):
    status, out, err = walsh_init("my feeds")
    assert (status, err) == (0, "")
    first, *commands = out.splitlines()
    assert first.endswith("Set WALSH_USER_AGENT and WALSH_UA_TOKEN in my feeds/settings.py. Then:")
    assert commands == ["  cd 'my feeds' && scrapy crawl feeds", f"  {EXPORT}"]
    assert set(files_of(tmp_path / "my feeds")) == {
        "scrapy.cfg", "settings.py", "sources.toml",
        "spiders/__init__.py", "spiders/feeds.py", "spiders/llms.py",
    }  # fmt: skip


def test_it_has_the_spiders_sources_and_settings_of_this_repository(new):
    files = files_of(new)
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


def test_it_overwrites_nothing_and_then_writes_nothing(walsh_init, tmp_path):
    (tmp_path / "spiders").mkdir()
    (tmp_path / "spiders" / "feeds.py").symlink_to("nowhere")
    status, out, err = walsh_init(".")
    assert (status, out) == (1, "")
    said = "spiders/feeds.py exists already, so nothing was written; name another folder"
    assert err == f"walsh: {said}\n"
    assert files_of(tmp_path) == {}


def test_a_folder_that_cannot_be_written_is_one_line(walsh_init, tmp_path):
    (tmp_path / "file").touch()
    status, _, err = walsh_init("file")
    assert status == 1
    assert err.startswith("walsh: file/scrapy.cfg cannot be written: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("settings", "lines"),
    [
        ({}, ['WALSH_USER_AGENT = "new/1.0 (+', 'WALSH_UA_TOKEN = "new"']),
        ({"WALSH_UA_TOKEN": "Example-Bot"}, ['"Example-Bot/1.0 (+', '"Example-Bot"']),
        ({"WALSH_USER_AGENT": AGENT}, [f'"{AGENT}"', 'WALSH_UA_TOKEN = "Example-Bot"']),
    ],
)
def test_without_an_identity_it_refuses_to_crawl(crawl, loopback_web, new, settings, lines):
    web = loopback_web(site("blog.example"))
    result = crawl(web, project=new, sources=SOURCES, settings=settings)
    assert result.exit_code == 1
    line = refusal(result)
    assert "the project has no identity, and no request is sent without one; set" in line
    assert [each for each in lines if each not in line] == []


def test_it_crawls_under_its_own_identity(crawl, direct_web, new):
    web = direct_web(site("blog.example"))
    settings = new / "settings.py"
    filled = settings.read_text()
    for name, value in IDENTITY.items():
        assert filled.count(f'\n{name} = ""\n') == 1
        filled = filled.replace(f'\n{name} = ""\n', f'\n{name} = "{value}"\n')
    settings.write_text(filled)
    write_sources(new / "sources.toml", SOURCES)
    result = crawl(web, project=new, settings={"WALSH_SOURCES": new / "sources.toml"})
    assert result.exit_code == 0, result.stderr
    assert sorted(item["title"] for item in result.items) == ["One", "Two"]
    judge(web, user_agent=AGENT)


def test_scrapy_finds_each_spider_once(new, run_command):
    listed = run_command("list", cwd=new, environment={"PYTHONPATH": str(ROOT)})
    assert listed.stdout.split() == ["feeds", "llms"], listed.stderr
    assert run_command("list").stdout.split() == ["feeds", "llms"]
