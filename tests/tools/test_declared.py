"""`scrapy sources add`, `remove`, `prune`, `rewrite`: the file, and the state that follows it."""

import contextlib
import math

import pytest

from tests.helpers.records import commit, entry_of
from walsh_scrapy.metadata.alternates import FeedLink
from walsh_scrapy.policy.redirects import Move
from walsh_scrapy.sources import Source, SourcesError, load_sources
from walsh_scrapy.state import State, StateError
from walsh_scrapy.state.sourcerecord import SourceRecord
from walsh_scrapy.tools.discover.candidates import Candidate, offers_for
from walsh_scrapy.tools.discover.report import choose
from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.sources.changes import DeclaredSources, UnknownSource

A, B, C = (f"https://{name}.example/feed" for name in "abc")
DAY = 86_400.0
NEW = "https://new.example/feed"
TEXT = f"# ours\n{A}\n{B} # two\n{C}\n"


@pytest.fixture
def state(tmp_path):
    with contextlib.closing(State(f"sqlite:///{tmp_path / 'state.sqlite3'}")) as state:
        yield state


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "sources.txt"
    file.write_text(TEXT)
    return file


def moved(url, to, *, is_settled=True, failing_since=None):
    move = Move(to, 1.0, is_settled, failing_since=failing_since)
    return SourceRecord(url=url, kind="feed", fetched_at=5.0, etag=b'"1"').with_move(move)


def test_a_moved_source_is_declared_where_it_is_and_keeps_its_record(state, file):
    commit(state, moved(f"{A}/", NEW), [entry_of(f"{A}/")])
    commit(state, moved(B, "https://unsettled.example/", is_settled=False))
    commit(state, moved(C, "https://ill.example/", failing_since=9.0))
    told = list(DeclaredSources(str(file), state).rewrite_moved())
    assert [line.split(" (")[0] for line in told] == [
        f"{B} stays: its move to https://unsettled.example/ is not settled yet",
        f"{C} stays: visits to https://ill.example/ fail since 1970-01-01 00:00:09 UTC",
        f"{A} is now {NEW} in {file}",
    ]
    assert file.read_text() == TEXT.replace(A, NEW)
    record = state.sources.find(NEW)
    assert (record.etag, record.move, state.sources.find(f"{A}/")) == (b'"1"', None, None)
    assert {url: count for url, (count, _) in state.sources.entry_totals().items()} == {NEW: 1}


def test_a_move_to_where_another_source_is_declared_is_left_to_the_operator(state, file):
    for url, to in ((A, f"{B}/"), (C, NEW)):
        commit(state, moved(url, to))
    told = list(DeclaredSources(str(file), state).rewrite_moved())
    assert told == [
        f"{A} stays: {B}/ is declared too, so remove one of them",
        f"{C} is now {NEW} in {file}",
    ]
    assert list(DeclaredSources(str(file), None).rewrite_moved()) == [
        "no source has a move to settle in the file"
    ]


def test_what_is_gone_is_named_and_removed_if_told_to(state, file):
    gone = SourceRecord(
        url=B, kind="feed", fetched_at=9.0, due_at=math.inf, outcome="gone", detail="answered 410"
    )
    commit(state, gone)
    named = f"{B}: answered 410, last asked 1970-01-01 00:00:09 UTC"
    assert list(DeclaredSources(str(file), state).prune(really=False)) == [
        named,
        f"1 source to remove from {file}; the same command with --yes does it",
    ]
    assert file.read_text() == TEXT
    told = list(DeclaredSources(str(file), state).prune(really=True))
    assert told == [named, f"{B} is removed from {file}; its entries stay known"]
    assert file.read_text() == f"# ours\n{A}\n{C}\n"
    assert state.sources.find(B) == gone
    assert list(DeclaredSources(str(file), state).prune(really=True)) == ["no source is gone (410)"]


def test_what_fails_for_so_long_is_pruned_instead(state, file):
    failed = {"kind": "feed", "failures": 9, "failing_since": DAY, "outcome": "failed"}
    commit(state, SourceRecord(url=A, fetched_at=61 * DAY, detail="no name", **failed))
    commit(state, SourceRecord(url=B, fetched_at=60 * DAY, **failed))
    denied = failed | {"outcome": "denied by blocklist"}
    commit(state, SourceRecord(url=C, fetched_at=90 * DAY, **denied))
    declared = DeclaredSources(str(file), state)
    named = (
        f"{A}: no name, failing since 1970-01-02 00:00:00 UTC, last asked 1970-03-03 00:00:00 UTC"
    )
    assert next(declared.prune(60 * DAY, really=False)) == named
    assert list(declared.prune(60 * DAY + 1, really=True)) == ["no source fails for so long"]
    told = list(declared.prune(60 * DAY, really=True))
    assert told == [named, f"{A} is removed from {file}; its entries stay known"]
    assert [source.url for source in load_sources(file)] == [B, C]


def test_all_are_removed_or_none(file):
    declared = DeclaredSources(str(file), None)
    with pytest.raises(UnknownSource, match=r"did you mean https://c\.example/feed"):
        list(declared.remove([A, "https://c.example/feeed"]))
    assert file.read_text() == TEXT
    list(declared.remove([A, f"{C}/"]))
    assert file.read_text() == f"# ours\n{B} # two\n"
    with pytest.raises(SourcesError, match="declare no source any more"):
        list(declared.remove([B]))


def test_a_source_is_added_also_to_a_file_that_is_not_there_yet(tmp_path):
    file = tmp_path / "new" / "sources.toml"
    declared = DeclaredSources(str(file), None)
    assert declared.undeclared([NEW, f"{NEW}/"]) == [NEW]
    sources = [Source(NEW, name="New"), Source("https://docs.example/", kind="llms")]
    assert list(declared.add(sources)) == [
        f"{NEW} is declared in {file}",
        f"https://docs.example/ (kind 'llms') is declared in {file}",
    ]
    assert load_sources(file) == tuple(sources)
    assert declared.undeclared(["HTTPS://NEW.example:443/feed/"]) == []
    told = list(declared.add([Source(f"{NEW}/"), Source(A), Source(f"{A}/")]))
    assert [line.split(" in ")[0] for line in told] == [
        f"{NEW}/ was declared before", f"{A} is declared", f"{A}/ was declared before",
    ]  # fmt: skip
    assert load_sources(file) == (*sources, Source(A))


def test_a_file_that_cannot_be_read_or_written_stays_as_it_is(tmp_path, state, file, monkeypatch):
    broken = tmp_path / "broken.toml"
    broken.write_text("[[source]\n")
    for change in ("remove", "add"):
        given = [Source(NEW)] if change == "add" else [NEW]
        with pytest.raises(SourcesError, match="it is not TOML"):
            list(getattr(DeclaredSources(str(broken), None), change)(given))
    assert broken.read_text() == "[[source]\n"
    commit(state, moved(A, NEW))

    def fail(_spellings):
        raise StateError("locked")

    monkeypatch.setattr(state.sources, "rename", fail)
    with pytest.raises(StateError):
        list(DeclaredSources(str(file), state).rewrite_moved())
    assert file.read_text() == TEXT
    (tmp_path / "folder").write_text("")
    with pytest.raises(CommandError, match="cannot be written"):
        list(DeclaredSources(str(tmp_path / "folder" / "s.txt"), None).add([Source(NEW)]))


RSS = "application/rss+xml"


def offer_of(form=None, feeds=(), title=None, outcome="answered as text/html"):
    (offer,) = offers_for(["https://site.example/"])
    offer.page.claim()
    offer.page.form, offer.page.title, offer.feeds = form, title, tuple(feeds)
    offer.page.end(outcome)
    return offer


def feed_of(url, title=None, *, entries=None, form="feed", unsure=False):
    link = FeedLink(url, title, RSS)
    return Candidate(
        url,
        "feed",
        requested=True,
        outcome=form or "answered 404",
        form=form,
        title=title,
        unsure=unsure,
        link=link,
        entry_urls=frozenset(entries or {url}),
    )


@pytest.mark.parametrize(
    ("offer", "source"),
    [
        (
            offer_of("feed", title="A\x1b  title"),
            Source("https://site.example/", name=r"A\x1b title"),
        ),
        (offer_of(feeds=[feed_of(A)]), Source(A)),
        (offer_of("markdown", feeds=[feed_of(A, "A")]), Source(A, name="A")),
        (offer_of("markdown", title="Docs"), Source("https://site.example/", "llms", "Docs")),
        (
            offer_of("markdown", feeds=[feed_of(A, form=None)]),
            Source("https://site.example/", "llms"),
        ),
    ],
)
def test_what_a_url_stands_for(offer, source):
    assert choose(offer).source == source


@pytest.mark.parametrize(
    "others",
    [
        [feed_of(f"{B}/comments/feed/")],
        [feed_of(B, entries={A}), feed_of(f"{B}?feed=comments-rss2")],
    ],
    ids=["of comments", "in another format"],
)
def test_the_main_feed_is_added_and_the_others_are_named(others):
    choice = choose(offer_of(feeds=[feed_of(A), *others]))
    assert choice.source == Source(A)
    assert "declares these feeds too, which were not added" in choice.lines[0]
    assert [line.split()[0] for line in choice.lines[1:]] == [each.url for each in others]


def test_where_the_operator_has_to_choose_the_candidates_are_listed():
    comments = f"{B}/comments/feed/"
    choice = choose(offer_of(feeds=[feed_of(A, "It\x1b"), feed_of(B), feed_of(comments)]))
    assert choice == (
        None,
        (
            "https://site.example/ declares several feeds; give the URL of one to add it:",
            f"  {A} 'It\\x1b' ({RSS})",
            f"  {B} ({RSS})",
            f"  {comments} ({RSS}, of comments)",
        ),
    )


def test_where_nothing_is_declared_it_says_what_to_try():
    source, (head, *tried) = choose(offer_of())
    assert source is None
    assert head.startswith("https://site.example/: nothing to declare was found there; open the ")
    assert tried == ["  https://site.example/: answered as text/html"]


def test_while_it_is_unknown_whether_there_is_a_feed_nothing_is_added():
    source, (head, *_) = choose(offer_of("markdown", feeds=[feed_of(A, form=None, unsure=True)]))
    assert source is None
    assert head == "https://site.example/: cannot say yet what is there"
