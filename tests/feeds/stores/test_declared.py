"""What is declared, and what of it is due, on both databases (decision 40)."""

import itertools
import math
import operator
import os
from dataclasses import replace

import pytest
from sqlalchemy import Double, literal, select, update

from tests.helpers.records import commit, entry_of
from walsh_scrapy.feeds.freshness import NEVER
from walsh_scrapy.feeds.outcome import move_of
from walsh_scrapy.feeds.sources.loading import load_sources
from walsh_scrapy.feeds.sources.source import RunDeclaration, Source, SourcesError, part_number
from walsh_scrapy.feeds.stores import Stores, sync
from walsh_scrapy.feeds.stores.sourcestore import (
    FIRST_POSITION,
    PAGE_SIZE,
    DeclaredSources,
    RunTerms,
    Selection,
    repeat_facts,
)
from walsh_scrapy.feeds.stores.sync import Sync
from walsh_scrapy.policy.durations import CLOCK_SKEW, MAX_REVISIT_SECONDS
from walsh_scrapy.policy.urls import url_key
from walsh_scrapy.state.records import SourceRecord, row_of, upsert
from walsh_scrapy.state.tables import Due, copies, declared, sources

NOW = 1_800_000_000.0
DAY = 86_400.0
TERMS = RunTerms(began=NOW, min_revisit=DAY)
A, B, C = (f'[[source]]\nurl = "http://{name}.example/feed"\n' for name in "abc")
AGAIN = '[[source]]\nurl = "http://a.example/feed/"\ntags = ["again"]\n'


@pytest.fixture
def file(tmp_path):
    return tmp_path / "sources.toml"


@pytest.fixture
def synced(state, file):
    """Write the file, sync it, and return what was changed."""
    times = itertools.count(NOW)

    def write(text):
        file.write_text(text)
        time = next(times)
        os.utime(file, (time, time))  # long ago, so that it is not too young to be trusted
        return Stores(state).sync(file, NOW)

    return write


def held(state, number, kind="feed"):
    return DeclaredSources(Stores(state).sources, Selection(number, kind))


TAGGED = A + 'tags = ["t"]\n'
EDITS = {
    "the-first-sync": ("", A, (1, 0, 0)),
    "between-two": (A + C, A + B + C, (1, 0, 0)),
    "before-all": (B, A + B, (1, 0, 0)),
    "removed": (A + B + C, A + C, (0, 0, 1)),
    "another-order": (A + B, B + A, (0, 0, 0)),
    "changed": (A + B, A + 'name = "A"\n' + B, (0, 1, 0)),
    "a-comment": (A + B, "# all\n" + A + B, (0, 0, 0)),
    "declared-again": (A + B, A + B + AGAIN, (0, 1, 0)),
    "the-same-again": (A + B, A + B + A, (0, 0, 0)),
    "no-longer-twice": (A + B + AGAIN, A + B, (0, 1, 0)),
    "both-removed": (A + AGAIN, B, (1, 0, 1)),
    "the-other-spelling-stays": (A + AGAIN, AGAIN + B, (1, 1, 0)),
    "a-default": (TAGGED + B, f'[defaults.t]\nevery = "P7D"\n{TAGGED}{B}', (0, 1, 0)),
    "another-default": (
        f"[defaults.t]\ndelay = 1\n{TAGGED}{B}",
        f"{TAGGED}{B}[defaults.t]\ndelay = 2\n",
        (0, 1, 0),
    ),
    "a-list": (A, 'source = ["http://a.example/feed"]', (0, 0, 0)),
    "a-string-of-several-lines": (A, f'{B}name = """\n{C}"""\n', (1, 0, 1)),
}


@pytest.mark.parametrize("at_once", [sync.MAX_ROWS_PER_TRANSACTION, 1])
def test_an_edit_is_synced_as_the_file_is_read(monkeypatch, state, tmp_path, caplog, at_once):
    """Also if the declarations of one source are far from each other."""
    monkeypatch.setattr(sync, "MAX_ROWS_PER_TRANSACTION", at_once)

    def warned(act):
        caplog.clear()
        return act(), caplog.messages[:]

    for name, (before, after, changes) in EDITS.items():
        file = tmp_path / f"{name}.toml"
        for text in filter(None, (before, after)):
            file.write_text(text)
            os.utime(file, (NOW, NOW + len(text)))  # long ago, so that it is trusted
            synced_file, warnings = warned(lambda file=file: Stores(state).sync(file, NOW))
        assert synced_file.changes == changes, name
        loaded, expected = warned(lambda file=file: load_sources(file))
        assert set(held(state, synced_file.id)) == set(loaded), name
        again, repeated = warned(lambda file=file: Stores(state).sync(file, NOW))
        assert again.changes is None, name
        assert (warnings, repeated) == (expected, []), "the warnings are logged once"
        assert [f"{file}: {warning}" for warning in again.warnings] == expected


def test_wrong_or_empty_file_loses_no_source(state, file, synced):
    synced_file = synced(A + B)
    wrong = C + B + '[[source]]\nurl = "ftp://a.example/"\n'
    for text, reason in ((wrong, "entry 3: .* http or https"), ("", "no source")):
        with pytest.raises(SourcesError, match=reason):
            synced(text)
        assert len(held(state, synced_file.id)) == 2
    file.unlink()
    with pytest.raises(SourcesError, match="there is no such file"):
        Stores(state).sync(file, NOW)


def test_a_sync_that_broke_off_is_done_again(monkeypatch, state, file, synced):
    synced_file = synced(A)
    monkeypatch.setattr(Sync, "_keys", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        synced(B)
    monkeypatch.undo()
    file.write_text(A)
    os.utime(file, (NOW, NOW))
    assert Stores(state).sync(file, NOW).changes is not None, "the time is that of the first sync"
    assert [*held(state, synced_file.id)] == [Source("http://a.example/feed")]


def test_a_list_and_delays_and_kinds(state, tmp_path, clock):
    file = tmp_path / "sources.txt"
    urls = [f"http://h{number}.example/" for number in range(20)]
    file.write_text("\n".join(["# all", *urls[:10], urls[10] + "  # ten", *urls[11:], ""]))
    synced_file = Stores(state).sync(file, NOW)
    assert synced_file.delays == {}
    assert {source.url for source in held(state, synced_file.id)} == set(urls)
    file.write_text("\n".join(urls[1:]))
    assert Stores(state).sync(file, NOW).changes == (0, 0, 1)
    feeds = Selection(synced_file.id, "feed")
    assert {source.url for source in Stores(state).sources.iterate(feeds)} == set(urls[1:])
    assert (
        Stores(state).sources.hosts(feeds, TERMS)[1].due == Stores(state).sources.count(feeds) == 19
    )
    assert Stores(state).sources.count(Selection(synced_file.id, "llms")) == 0


def test_the_delay_of_a_host_is_the_longest_of_its_sources(synced):
    again = A.replace("feed", "more")
    assert synced(f"{A}delay = 5\n{again}delay = 7\n{B}").delays == {"a.example": 7.0}


def test_declared_urls_are_found_in_the_state(state, synced):
    page = '[[source]]\nurl = "http://p.example/a"\nkind = "llms"\n'
    number = synced(A + B + page).id
    feeds, pages = held(state, number), held(state, number, "llms")
    assert feeds.owner("http://a.example/feed") in feeds
    assert feeds.owner("http://a.example/feed/") is None, "another spelling is another request"
    assert feeds.owner("http://p.example/a") is None
    for url in ("http://p.example/a", "http://p.example/llms.txt"):
        assert pages.owner(url).url == "http://p.example/a"
    assert pages.owner("http://p.example/x/llms.txt") is None
    assert pages.owner("http://q.example/llms.txt") is None
    chosen = replace(feeds.chosen, only="B.EX")
    assert [source.url for source in DeclaredSources(Stores(state).sources, chosen)] == [
        "http://b.example/feed"
    ]
    assert Stores(state).sources.hosts(chosen, TERMS)[1].due == 1


def is_due_by(record, every, revisit, now):
    """When a source is due, and why, without SQL; see decision 20."""
    if record.not_before == NEVER:
        return NEVER, "gone"
    if record.visited_at is None:
        return 0.0, "new"
    if record.visited_at > now + CLOCK_SKEW:
        return 0.0, "clock"
    if record.not_before == 0.0:
        return 0.0, "resumed"
    if record.unconnected and record.failures <= 1:
        return record.visited_at + revisit, "operator"
    interval = max(revisit, every)
    doubled = interval * 2.0 ** max(record.failures - 1, 0)
    by_operator = record.visited_at + min(doubled, max(interval, MAX_REVISIT_SECONDS))
    if record.not_before > by_operator:
        return record.not_before, "asked"
    return by_operator, "operator"


def test_when_a_source_is_due_is_one_expression_in_sql(database, rows):
    """Each combination of what decides, at and next to the moments at which it matters."""
    ages = [-CLOCK_SKEW - 1, -CLOCK_SKEW, 0.0, DAY - 1, DAY, 2 * DAY, MAX_REVISIT_SECONDS, 41 * DAY]
    records = [
        (SourceRecord(
            url=f"http://h.example/{number}", kind="feed", visited_at=age and NOW - age,
            failures=failures, unconnected=unconnected, not_before=server_interval,
        ), every)
        for number, (age, (failures, unconnected), server_interval, every) in enumerate(
            itertools.product(
                [None, *ages],
                [(0, False), (1, False), (1, True), (2, False), (2, True), (60, True)],
                [0.0, 1.0, NOW, NOW + 30 * DAY, NEVER], [0.0, 2 * DAY, 40 * DAY],
            )
        )
    ]  # fmt: skip
    known = [{**row_of(record), "url_key": url_key(record.url)} for record, _ in records]
    rows_of_file = [
        sync.row_of_source(row["url_key"], Source(row["url"]))
        | {"file": 1, "host": "h.example", "every": every}
        for row, (_, every) in zip(known, records, strict=True)
    ]

    def write(connection):
        upsert(connection, sources, known)
        upsert(connection, declared, rows_of_file)
        repeat_facts(connection)

    database.write(write)
    joined = declared.join(sources, declared.c.url_key == sources.c.url_key)
    for revisit in (0.0, DAY, 33 * DAY):
        terms = declared.c.every, literal(revisit, Double), literal(NOW, Double)
        here, there = Due.from_columns(declared, *terms), Due.from_columns(sources, *terms)
        wanted = select(sources.c.url, here.at, *there).select_from(joined)
        due_by_url = {url: due for url, *due in rows(wanted)}
        for record, every in records:
            at, rule = is_due_by(record, every, revisit, NOW)
            assert due_by_url[record.url] == [at, at, rule], record


def test_visits_and_the_operator_change_due_sources_at_once(state, synced):
    number = synced(A + B).id
    url = "http://a.example/feed"
    known = SourceRecord(url=url, kind="feed", visited_at=NOW - DAY + 60, not_before=NOW + 60)

    def due(only="", **terms):
        run_terms = {"began": NOW, "min_revisit": DAY} | terms
        hosts, counts = Stores(state).sources.hosts(
            Selection(number, "feed", only), RunTerms(**run_terms)
        )
        return sorted(work.host for work in hosts), (counts.later, counts.gone, counts.next_due)

    commit(state, known)
    assert due() == (["b.example"], (1, 0, NOW + 60))
    assert due(min_revisit=DAY / 2)[0] == ["b.example"], "server or feed asked for a later visit"
    assert due(began=NOW + 60)[0] == ["a.example", "b.example"]
    assert due(only="example") == due(), "each source is compared with the filter"
    assert due(force=True)[1][0] == 0
    commit(state, replace(known, not_before=known.visited_at))
    assert due()[0] == ["b.example"], "the interval of the operator has not passed"
    assert due(min_revisit=DAY / 2)[0] == ["a.example", "b.example"]
    commit(state, replace(known, not_before=NEVER, failures=1))
    assert due(force=True) == (["b.example"], (0, 1, math.inf))
    Stores(state).sources.resume(url, "a.example")
    assert due()[0] == ["a.example", "b.example"]
    moved = replace(known, moved_to="http://z.example/", move_settled=True)
    commit(state, moved)
    assert due(force=True)[0] == ["b.example", "z.example"]
    synced(B)
    assert due()[0] == ["b.example"], "a removed source is not due"


def test_a_new_spelling_keeps_the_record(state, synced):
    url = "http://a.example/feed"
    commit(state, SourceRecord(url=url, kind="feed", visited_at=NOW, not_before=NOW))
    number = synced(A.replace("/feed", "/feed/") + B).id
    assert [*Stores(state).sources.urls()] == ["http://a.example/feed/"]
    assert Stores(state).sources.hosts(Selection(number, "feed"), TERMS)[1].due == 1


def test_source_declared_at_its_new_address_keeps_its_record(state, synced, tmp_path):
    """Else it would be asked for again within a day, and its entries would be new once more."""
    url, to = "http://a.example/feed", "http://b.example/feed"
    moved = SourceRecord(
        url=url, kind="feed", visited_at=NOW, not_before=NOW + DAY, etag=b'"1"', moved_to=to,
        moved_since=NOW - 9 * DAY, move_settled=True,
    )  # fmt: skip
    commit(state, moved, [entry_of(url)])
    synced(A)
    other = tmp_path / "other.toml"
    other.write_text(B)
    Stores(state).sync(other, NOW)
    assert [*Stores(state).sources.urls()] == [url], "one file declares it where it was"
    number = synced(B + C).id
    record = Stores(state).sources.find(to)
    assert (record.etag, move_of(record), Stores(state).sources.find(url)) == (b'"1"', None, None)
    rows = state.rows("readable_sources", where="entries > 0")
    assert {row["url"]: row["entries"] for row in rows} == {to: 1}
    assert Stores(state).sources.hosts(Selection(number, "feed"), TERMS)[1].due == 1, (
        "only c.example is due"
    )


@pytest.mark.parametrize(
    "unlike",
    [{"move_settled": False}, {"move_failing_since": NOW}, {"moved_to": "http://z.example/"}],
)
def test_record_stays_if_the_source_moved_elsewhere_or_unsettled(state, synced, unlike):
    url = "http://a.example/feed"
    move = {"moved_to": "http://b.example/feed", "moved_since": NOW, "move_settled": True} | unlike
    commit(state, SourceRecord(url=url, kind="feed", visited_at=NOW, not_before=NOW, **move))
    synced(A)
    synced(B)
    assert [*Stores(state).sources.urls()] == [url]


def pages_of(state, number, terms, page_size=PAGE_SIZE, visit=lambda _url: None):
    """Read the due sources of a host; `visit` is called with the URL of each."""
    place, pages = FIRST_POSITION, []
    while place and len(pages) < 10:  # a source that stays due would be read again and again
        now = NOW + sum(map(len, pages))
        chosen = Selection(number, "feed")
        page, place = state.read(
            Stores(state).sources.page_reader(chosen, terms, "a.example", now, place, page_size)
        )
        pages.append([due.source.url[-1] for due in page])
        for due in page:
            visit(due.source.url)
    return pages


def test_the_sources_of_a_host_are_read_page_by_page(state, synced):
    number = synced("".join(A.replace("feed", str(number)) for number in range(7))).id
    for url, age in (("http://a.example/5", 9 * DAY), ("http://a.example/1", 8 * DAY)):
        commit(state, SourceRecord(url=url, kind="feed", visited_at=NOW - age, not_before=1.0))
    pages = pages_of(state, number, TERMS, 3)
    assert [len(page) for page in pages] == [3, 3, 1]
    read = list(itertools.chain(*pages))
    assert (set(read[:5]), read[5:]) == (set("02346"), ["5", "1"])


def test_forced_run_visits_each_source_once_over_all_workers(state, synced):
    number = synced("".join(A.replace("feed", str(number)) for number in range(7))).id
    forced = RunTerms(began=NOW, min_revisit=DAY, force=True)
    times = itertools.count(NOW + 1)

    def visit(url):
        at = next(times)
        commit(state, SourceRecord(url=url, kind="feed", visited_at=at, not_before=at + DAY))

    pages = pages_of(state, number, forced, 3, visit)
    assert sorted(itertools.chain(*pages)) == [*"0123456"]

    def read(terms, now):
        page = Stores(state).sources.page_reader(
            Selection(number, "feed"), terms, "a.example", now, FIRST_POSITION
        )
        return state.read(page)

    assert read(forced, NOW + 8) == ([], None)
    later = RunTerms(began=NOW + 7, min_revisit=DAY, force=True)
    assert len(read(later, NOW + 8)[0]) == 7
    ahead = RunTerms(began=NOW - 600, min_revisit=DAY, force=True)
    assert len(read(ahead, NOW - 599)[0]) == 7


def test_source_whose_index_is_outdated_is_not_visited(state, synced, database):
    """As after a sync and a first visit that ended at once."""
    number = synced(A).id
    commit(
        state,
        SourceRecord(url="http://a.example/feed", kind="feed", visited_at=NOW, not_before=NOW),
    )
    database.write(lambda connection: connection.execute(update(declared).values(visited_at=None)))
    assert pages_of(state, number, TERMS) == [[]]


def test_declaration_of_a_large_file_is_kept_in_parts(monkeypatch, state, file, synced, rows):
    monkeypatch.setattr(sync, "_MAX_SOURCES_PER_COPY", 4)
    blocks = [A.replace("feed", str(number)) for number in range(30)]
    first = synced("".join(blocks))
    names = {name for (name,) in rows(select(copies.c.sha256))}
    assert len(names) == 1 + 8
    second = synced("".join([*blocks[:-1], B]))
    new = {name for (name,) in rows(select(copies.c.sha256))} - names
    assert len(new) in (2, 3), "the changed parts, and the copy that lists all parts"
    bodies = dict(rows(select(copies.c.sha256, copies.c.body)))
    declaration = RunDeclaration(bytes(bodies[second.copy]), lambda name: bytes(bodies[name]))
    assert (
        declaration.kind("http://a.example/3")
        == declaration.kind("http://b.example/feed")
        == "feed"
    )
    assert declaration.kind("http://a.example/29") is None
    assert (
        RunDeclaration(bytes(bodies[first.copy]), bodies.get).kind("http://a.example/29") == "feed"
    )
    assert Stores(state).declaration(second, NOW + 2 * DAY) == second.copy
    last_uses = dict(rows(select(copies.c.sha256, copies.c.last_used_at)))
    assert {last_uses[second.copy], *(last_uses[name] for name in new)} == {NOW + 2 * DAY}
    in_first = [part_number(url_key(f"http://a.example/{number}"), 8) == 0 for number in range(30)]
    third = synced("".join(itertools.compress(blocks, map(operator.not_, in_first))))
    bodies = dict(rows(select(copies.c.sha256, copies.c.body)))
    declaration = RunDeclaration(bytes(bodies[third.copy]), lambda name: bytes(bodies[name]))
    kinds = [declaration.kind(f"http://a.example/{number}") for number in range(30)]
    assert any(in_first)
    assert kinds == [None if is_first else "feed" for is_first in in_first], "a part may be empty"


def test_no_other_file_is_touched(state, tmp_path, rows):
    files = [tmp_path / name for name in ("a.toml", "b.toml")]
    for file in files:
        file.write_text(A + B)
        Stores(state).sync(file, NOW)
    files[0].write_text(B)
    Stores(state).sync(files[0], NOW)
    assert len(rows(select(declared.c.url))) == 3
    assert rows(select(sources.c.url)) == []
