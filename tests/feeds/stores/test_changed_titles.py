"""Entries whose titles change: what the state keeps, and what readers get, on both databases."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.visits import Visits
from walsh_scrapy.feeds.metadata.sameentry import MAX_FORMER_TITLES, TitleChange, change_title
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.policy.durations import rfc3339
from walsh_scrapy.testing.feeds import Post, rss

HOUR = 3_600
DAY = 24 * HOUR
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
PAGE = "http://blog.example/1"
OTHER = Post("Other", "http://blog.example/2", "2", None)


class Told:
    """An entry, and two readers: one that gets its changes at once, and one that gets them late.

    Changes get their numbers at the end of each run.
    """

    def __init__(self, title):
        self.title = title
        self.change = TitleChange()
        self.soon, self.late = [], []  #: pairs of a moment and a title
        self._number = 0
        self._read = {"soon": 0, "late": 0}

    def visit(self, now, title):
        self.number(now)
        changed = change_title(self.title, title, self.change, now)
        if changed is not None:
            self.title, self.change = title, changed
        self.number(now)

    def number(self, now):
        """Give the next number to the change if it has none, and at the end of its day."""
        at, number, again_at = self.change[1:]
        is_again = again_at is not None and again_at <= now
        if is_again or (at is not None and number is None):
            self._number += 1
            at = now if is_again else at
            self.change = TitleChange(self.change.former, at, self._number)
        self.read("soon", now)

    def read(self, name, now):
        if (self.change.number or 0) > self._read[name]:
            self._read[name] = self.change.number
            getattr(self, name).append((now, self.title))


@pytest.mark.parametrize(
    ("titles", "told"),
    [
        pytest.param("A B", ["B"], id="a changed title"),
        pytest.param("A A", [], id="an equal title"),
        pytest.param("A -", [], id="no title"),
        pytest.param("A B A", ["B"], id="a title that returns"),
        pytest.param("A B A B A B", ["B"], id="a title that returns later"),
        pytest.param("A B C B", ["B", "C"], id="the second title returns"),
        pytest.param("A B A C", ["B", "C"], id="the first title returns, then a new one comes"),
        pytest.param("A B C D", ["B", "C", "D"], id="a title each day"),
        pytest.param("Über \ufffdber Über", [], id="a damaged copy"),
        pytest.param("\ufffdber Über", [], id="a title that is repaired"),
    ],
)
def test_a_reader_gets_each_new_title_of_an_entry_once(titles, told):
    first, *later = ["" if title == "-" else title for title in titles.split()]
    entry = Told(first)
    for day, title in enumerate(later, start=1):
        entry.visit(day * DAY, title)
    assert [title for _, title in entry.soon] == told


def test_of_several_titles_within_a_day_the_last_one_counts():
    entry = Told("A")
    for hour, title in enumerate("BCD"):
        entry.visit(DAY + hour * HOUR, title)
    entry.read("late", DAY + 3 * HOUR)
    assert entry.late == [(DAY + 3 * HOUR, "D")]
    assert [title for _, title in entry.soon] == ["B"]
    entry.number(2 * DAY - 1)
    assert len(entry.soon) == 1
    entry.number(2 * DAY)
    assert entry.soon == [(DAY, "B"), (2 * DAY, "D")]


def test_a_title_that_returns_takes_back_what_no_reader_has_got():
    entry = Told("A")
    for hour, title in enumerate("BCB"):
        entry.visit(DAY + hour * HOUR, title)
    entry.number(9 * DAY)
    assert [title for _, title in entry.soon] == ["B"]
    entry.visit(9 * DAY, "A")
    entry.read("late", 9 * DAY)
    assert entry.late == []


def test_a_time_of_a_clock_that_was_ahead_delays_no_change():
    change = TitleChange(("A",), 400.0 * DAY, 1)
    assert change_title("B", "C", change, 2.0 * DAY) == TitleChange(("B", "A"), 2.0 * DAY)


VISITS = st.lists(st.tuples(st.integers(1, 3 * DAY), st.sampled_from("ABCDEFGHIJ")), max_size=40)


@given(VISITS)
def test_changes_are_a_day_apart_and_few_titles_are_kept(visits):
    entry, now = Told("A"), 0
    for seconds, title in visits:
        now += seconds
        entry.visit(now, title)
        former = entry.change.former
        assert len(former) <= MAX_FORMER_TITLES
        assert former[-1:] in ((), ("A",))
    moments = [moment for moment, _ in entry.soon]
    assert all(later - earlier >= DAY for earlier, later in pairwise(moments))
    entry.visit(now + 1, "Z")
    entry.number(now + DAY + 1)
    assert entry.soon[-1][1] == "Z"


# ---- in the state ----


def post(title, guid="1", link=PAGE):
    return Post(title, link, guid, None)


@pytest.fixture
def visits(state):
    """Read a document of each day, from NOON on."""
    reading = Visits(state)

    def read(*documents):
        for day, posts in enumerate(documents):
            reading.read(rss("Blog", [*posts, OTHER]), NOON + timedelta(days=day))

    return read


def changed(state):
    Stores(state).handover.last_position()
    columns = "title, previous_title, changed_at, changed_seq"
    rows = state.rows("readable_entries", columns=columns, where="changed_at IS NOT NULL")
    return [tuple(row.values()) for row in rows]


def day(number):
    return rfc3339((NOON + timedelta(days=number)).timestamp())


@pytest.mark.parametrize("guid", ["1", None])
def test_the_title_is_kept_with_the_time_and_the_one_before(state, visits, guid):
    visits([post("News", guid)], [post("RETRACTED: News", guid)])
    assert changed(state) == [("RETRACTED: News", "News", day(1), 3)]


def test_numbers_of_changes_and_entries_are_one_series(state, visits):
    new = Post("New", "http://blog.example/3", "3", None)
    visits([post("News")], [post("Corrected")])
    assert [row[3] for row in changed(state)] == [3]
    visits([post("Corrected")], [post("Corrected"), new], [post("Retracted"), new])
    assert [row[3] for row in changed(state)] == [5]
    rows = state.rows("readable_entries", columns="seq", order_by="seq")
    assert [row["seq"] for row in rows] == [1, 2, 4]


@pytest.mark.parametrize(
    "documents",
    [
        pytest.param([[Post("A", None)], [Post("B", None)]], id="known by its title"),
        pytest.param([[post("A")], [post("B", "7")]], id="another entry under the link"),
        pytest.param([[post("Über")], [post("\ufffdber")]], id="a damaged title"),
        pytest.param([[post("A")], [post("")], [post("A")]], id="a title that is missing once"),
    ],
)
def test_what_is_no_change_of_a_title(state, visits, documents):
    visits(*documents)
    assert changed(state) == []


def test_a_link_of_an_llms_txt_with_another_name_is_a_change(state):
    reading = Visits(state)
    for number, name in enumerate(("Guide", "The guide")):
        text = f"# Docs\n\n## Pages\n\n- [{name}](http://docs.example/guide)\n"
        at = NOON + timedelta(days=number)
        reading.read(text, at, source="http://docs.example/", kind="llms")
    assert [row[:2] for row in changed(state)] == [("The guide", "Guide")]


def test_another_source_with_another_title_changes_nothing(state):
    reading = Visits(state)
    reading.read(rss("Blog", [post("A"), OTHER]), NOON)
    second = "http://other.example/feed"
    reading.read(rss("Other", [post("A"), OTHER]), NOON, source=second)
    reading.read(rss("Other", [post("B"), OTHER]), NOON + timedelta(days=1), source=second)
    assert changed(state) == []
