"""`scrapy new`: what is new, as a list to read."""

import contextlib
import json

import pytest
from rich.cells import cell_len
from scrapy.cmdline import execute
from scrapy.utils.project import get_project_settings

from tests.helpers.records import commit, entry_of
from walsh_scrapy.state import State, StateError
from walsh_scrapy.state.entries import EntryRecord
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.state.runs import RunRecord
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
            state.runs.begin(RunRecord(spider="feeds", begun=begun))
        commit(state, SourceRecord(url=A, kind="feed"), [entry("1", at=AT - 86_300)])
        commit(state, SourceRecord(url=B, kind="feed"), [])
        found = [
            entry(
                "2",
                B,
                run=2,
                title="Old",
                url="http://b.example/2",
                published="2026-05-01T09:30:00Z",
            ),
            entry("3", B, run=2, title="New", url="http://b.example/3", source_title="The B"),
        ]
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
    ahead = state.runs.begin(RunRecord(spider="feeds", begun=AT + 90_000))
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
    broken = entry("4")
    commit(
        state,
        SourceRecord(url=A, kind="feed"),
        [
            EntryRecord(
                **{name: getattr(broken, name) for name in broken.__slots__} | {"item": "[]"}
            )
        ],
    )
    with pytest.raises(StateError, match="the entry 4 in the state cannot be read"):
        list(new_items(state, 0.0))


@pytest.mark.parametrize("width", [80, 200])
def test_titles_are_folded_urls_are_not_and_strangers_text_is_shown(width):
    url = f"http://a.example/{'long/' * 60}"
    items = [
        {"source": A, "title": "日本語 words and words " * 12, "url": url},
        {"source": A, "title": HOSTILE, "url": "http://a.example/\x1b"},
        {"source": A, "title": None, "url": None, "id": "urn:1"},
        {"source": A, "title": None, "url": "http://a.example/untitled"},
    ]
    lines = list(screen(items, COLUMNS, width))
    wide = [line.plain.strip() for line in lines if cell_len(line.plain) > width]
    assert [line for line in wide if "words" not in line] == [url]
    told = "\n".join(line.plain for line in lines)
    assert not set(told) & set("\x1b\x07\u202e")
    assert "[bold]x[/]" in told
    assert told.count("http://a.example/untitled") == 1


@pytest.fixture
def call(tmp_path, monkeypatch, capsys, request):
    """Call `scrapy new` in a project on a state, and return its status and output."""
    monkeypatch.chdir(request.config.rootpath)

    def run(*arguments, url=f"sqlite:///{tmp_path / 'none.sqlite3'}"):
        settings = get_project_settings()
        settings.set("WALSH_STATE_URL", url)
        with pytest.raises(SystemExit) as ended:
            execute(["scrapy", "new", *arguments], settings)
        return (ended.value.code or 0, *capsys.readouterr())

    return run


def test_the_command_prints_a_list_or_json(state, url, call):
    status, out, _ = call("--since", "2026-05-23", url=url)
    assert (status, out.splitlines()[-1]) == (
        0, "2 entries of 1 source, new since 2026-05-23 00:00:00 UTC"
    )  # fmt: skip
    status, out, _ = call("--json", url=url)
    assert {item["title"] for item in json.loads(out)} == {"Old", "New"}
    assert call("--since", "2026-06-01", url=url)[1] == (
        "nothing is new since 2026-06-01 00:00:00 UTC\n"
    )
    assert call("--since", "2026-06-01", "--json", url=url)[1] == "[]\n"


def test_a_wrong_call_or_no_state_is_one_line(call, tmp_path):
    nothing = "no recorded run has found anything; --since WHEN lists by time\n"
    assert call()[:2] == (0, nothing)
    assert call("--json") == (0, "[]\n", nothing)
    assert not (tmp_path / "none.sqlite3").exists()
    for arguments in (("--since", "soon"), ("today",), ("--jsn",)):
        status, out, error = call(*arguments)
        assert (status, out, len(error.splitlines())) == (2, "", 1)
