"""Decision 19: which entries of a feed are new, from visit to visit, on both databases."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from tests.helpers.histories import HISTORIES, NOONS, document
from tests.helpers.visits import Visits
from walsh_scrapy.feeds.stores.entrywriter import MAX_COMPARED_TITLES
from walsh_scrapy.state.tables import ambiguous_keys, entries
from walsh_scrapy.testing.feeds import Post, atom, rss

HOST = "http://blog.example"
LINK = f"{HOST}/news"
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
DAYS = [NOON + timedelta(days=day) for day in range(10)]
MIDNIGHTS = [day.replace(hour=0) for day in DAYS]
HOURLY = [NOON - timedelta(days=30, hours=hour) for hour in range(20)]


def item(title, link=LINK, guid=None, date=None):
    """Return an item of RSS; without a guid there is none, even if there is a link."""
    return Post(title, link, guid, date)


@pytest.fixture
def visit(state):
    """Return a function that reads a document, and returns the titles of its new entries."""
    return Visits(state).read


#: Further histories by name: documents of consecutive days, and the number of new entries in each.
DETAILS = {
    "three titles on one link without guids": (
        [[item("A"), item("B"), item("C")]] * 2,
        [3, 0],
    ),
    "a list without guids shrinks to one item": (
        [[item("A"), item("B")], [item("B")], [item("C")], [item("C")]],
        [2, 0, 1, 0],
    ),
    "a list without guids begins with one item": (
        [[item("A")], [item("A"), item("B")], [item("B")]],
        [1, 1, 0],
    ),
    "a corrected title without a guid": (
        [[item("A"), item("Z", f"{LINK}/z")], [item("B"), item("Z", f"{LINK}/z")]],
        [2, 0],
    ),
    "a corrected title of an item that is twice in its list": (
        [[item("A")] * 2, [item("B")] * 2],
        [1, 1],
    ),
    "another item beside one that is twice in its list": (
        [[item("A")] * 2, [item("A"), item("B")]],
        [1, 1],
    ),
    "a corrected title with a guid": ([[item("A", guid="1")], [item("B", guid="1")]], [1, 0]),
    "a corrected title and date with a guid": (
        [[item("A", guid="1", date=DAYS[0])], [item("B", guid="1", date=DAYS[1])]],
        [1, 0],
    ),
    "bulletins on one link with one title": (
        [[item("Daily", guid=str(at), date=HOURLY[at]) for at in range(count)] for count in (3, 4)],
        [3, 1],
    ),
    "bulletins with dates at midnight": (
        [[item("Daily", guid=str(day), date=MIDNIGHTS[day]) for day in range(3)]] * 2,
        [3, 0],
    ),
    "a bulletin of one item over three days": (
        [[item("Daily", guid=str(day), date=DAYS[day] - timedelta(minutes=1))] for day in range(3)],
        [1, 1, 1],
    ),
    "guids of one title without dates": (
        [[item("Daily", guid=str(day))] for day in range(3)],
        [1, 0, 0],
    ),
    "guid and date new in each document": (
        [
            [item(f"T{at}", f"{LINK}/{at}", f"{day}-{at}", DAYS[day]) for at in range(20)]
            for day in range(3)
        ],
        [20, 0, 0],
    ),
    "guid new in each document, dates of the fetch": (
        [
            [
                item(f"T{at}", f"{LINK}/{at}", f"{day}-{at}", DAYS[day] + timedelta(minutes=at))
                for at in range(20)
            ]
            for day in range(3)
        ],
        [20, 0, 0],
    ),
    "guid and title new in each document, on own pages": (
        [
            [item(f"T{at} {day}", f"{LINK}/{at}", f"{day}-{at}", DAYS[day]) for at in range(3)]
            + [item("Same", f"{LINK}/same", f"{day}-same", DAYS[day])]
            for day in range(3)
        ],
        [4, 0, 0],
    ),
    "guid new in each document, but some items have none": (
        [
            [item(f"T{at} {day}", f"{LINK}/{at}", f"{day}-{at}", DAYS[day]) for at in range(3)]
            + [item("Same", f"{LINK}/same", f"{day}-same", DAYS[day])]
            + [item("No guid", f"{LINK}/none", None, DAYS[day])]
            + [item(title, f"{LINK}/twice", None, DAYS[day]) for title in ("A", "B")]
            for day in range(3)
        ],
        [7, 0, 0],
    ),
    "guid new in each document, on one page": (
        [[item(f"T{at}", LINK, f"{day}-{at}", DAYS[day]) for at in range(3)] for day in range(3)],
        [3, 0, 0],
    ),
    "a generator's list shrinks to one item": (
        [
            [item(f"T{at}", f"{LINK}/{at}", f"0-{at}", DAYS[0]) for at in range(5)],
            [item("T3", f"{LINK}/3", "1-3", DAYS[1])],
        ],
        [5, 0],
    ),
    "a generator adds an item": (
        [
            [item(f"T{at}", f"{LINK}/{at}", f"{day}-{at}", DAYS[day]) for at in range(3 + day)]
            for day in range(3)
        ],
        [3, 1, 1],
    ),
    "a date that several items share": (
        [
            [item("A", guid="1", date=DAYS[0]), item("B", f"{LINK}/b", "2", DAYS[1])],
            [
                item("A", guid="3", date=DAYS[2]),
                item("C", f"{LINK}/c", "4", DAYS[2]),
                item("B", f"{LINK}/b", "2", DAYS[1]),
            ],
        ],
        [2, 1],
    ),
    "real dates with guids": (
        [[item(f"T{at}", f"{LINK}/{at}", str(at), HOURLY[at]) for at in range(20)]] * 2,
        [20, 0],
    ),
}


@pytest.mark.parametrize(
    "history", [pytest.param(each, id=f"{each.source}: {each.does}"[:60]) for each in HISTORIES]
)
def test_new_entries_of_each_visit(history, visit):
    feeds = history.feeds * len(history.visits)
    new = [
        " ".join(sorted(title or "-" for title in visit(document(posts), noon, feed)))
        for posts, noon, feed in zip(history.visits, NOONS, feeds, strict=False)
    ]
    assert new == [" ".join(sorted(titles.split())) for titles in history.new]


@pytest.mark.parametrize("name", DETAILS)
def test_number_of_new_entries_of_each_visit(name, visit):
    documents, counts = DETAILS[name]
    new = [len(visit(document(posts), DAYS[day])) for day, posts in enumerate(documents)]
    assert new == counts


def test_a_stored_row_without_a_date_differs_from_no_date(visit, state, database):
    first = [item("Daily", guid="1", date=DAYS[0])]
    assert visit(rss("F", first), DAYS[1]) == ["Daily"]
    database.write(lambda connection: connection.execute(entries.update().values(evident_date="")))
    assert visit(rss("F", [item("Daily", guid="2", date=DAYS[1])]), DAYS[2]) == []


def test_an_llms_txt_has_one_entry_per_url(visit, rows):
    page = f"{HOST}/llms.txt"
    text = f"# Site\n\n- [A]({LINK})\n- [B]({LINK})\n"
    assert visit(text, DAYS[0], page, "llms") == ["A"]
    assert visit(text.replace("[A]", "[C]"), DAYS[1], page, "llms") == []
    assert rows(select(ambiguous_keys)) == []


def test_one_article_in_two_feeds_is_one(visit):
    article = item("Post", f"{LINK}#utm_source=rss", "1", DAYS[0])
    again = item("Post", f"{LINK}#utm_source=atom", "tag:blog.example,2026:1", DAYS[0])
    assert visit(rss("F", [article]), DAYS[1]) == ["Post"]
    assert visit(atom("F", [again]), DAYS[1], f"{HOST}/atom") == []


def test_an_aggregators_date_makes_no_second_entry(visit):
    link = "http://other.example/post"
    for number, host in enumerate(("a", "b")):
        listed = [item("Post", link, str(number), DAYS[number])]
        source = f"http://{host}.example/feed"
        assert visit(rss("F", listed), DAYS[5], source) == ["Post"] * (host == "a")


def test_bulletins_on_another_host_are_told_apart(visit):
    link = "http://other.example/show"
    for day in range(3):
        listed = [item("Show", link, str(day), DAYS[day] - timedelta(hours=1))]
        assert visit(rss("F", listed), DAYS[day]) == ["Show"]
        assert visit(rss("F", listed), DAYS[day]) == []


@pytest.mark.parametrize("guid", ["1", None])
def test_a_damaged_title_is_replaced(guid, visit, rows):
    damaged = document([item("Caf\ufffd", guid=guid)])
    whole = document([item("Café", guid=guid)])
    assert visit(damaged, DAYS[0]) == ["Caf\ufffd"]
    assert visit(whole, DAYS[1]) == []
    assert visit(damaged, DAYS[2]) == []
    ((stored,),) = rows(select(entries.c.item))
    assert '"title": "Café"' in stored


def test_a_damaged_title_on_a_repeated_page_is_no_new_entry(visit, rows):
    whole = document([item("Café"), item("Bar")])
    assert visit(document([item("Caf\ufffd"), item("Bar")]), DAYS[0]) == ["Caf\ufffd", "Bar"]
    assert visit(whole, DAYS[1]) == []
    assert visit(document([item("C\ufffdfé"), item("B\ufffdr")]), DAYS[2]) == []
    assert visit(whole, DAYS[3]) == []
    stored = "".join(row.item for row in rows(select(entries.c.item)))
    assert "\ufffd" not in stored


def test_two_rows_do_not_get_the_same_title(visit, rows):
    for day, title in enumerate(("C\ufffdfé", "Caf\ufffd")):
        assert visit(document([item("X"), item(title)]), DAYS[day])
    for day in (3, 4):
        assert visit(document([item("X"), item("Café")]), DAYS[day]) == []
    titles = [row.item.count('"title": "Café"') for row in rows(select(entries.c.item))]
    assert sorted(titles) == [0, 0, 1]


@pytest.mark.parametrize(("limit", "new_again"), [(MAX_COMPARED_TITLES, 0), (20, 30)])
def test_titles_that_are_damaged_again_are_known(limit, new_again, visit, monkeypatch):
    """They are compared up to a limit."""
    damaged = document([item(f"Caf\ufffd {number}") for number in range(30)])
    assert len(visit(damaged, DAYS[0])) == 30
    assert visit(damaged.replace("\ufffd", "é"), DAYS[1]) == []
    monkeypatch.setattr("walsh_scrapy.feeds.stores.entrywriter.MAX_COMPARED_TITLES", limit)
    assert len(visit(damaged, DAYS[2])) == new_again


def test_a_damaged_title_of_another_entry_is_kept(visit):
    assert visit(rss("F", [item("Part \ufffd", guid="1")]), DAYS[0]) == ["Part \ufffd"]
    assert visit(rss("F", [item("Part 2", guid="2")]), DAYS[1]) == ["Part 2"]


def test_a_damaged_title_of_an_llms_txt_is_replaced(visit, rows):
    page = f"{HOST}/llms.txt"
    assert visit(f"# Site\n\n- [Caf\ufffd]({LINK})\n", DAYS[0], page, "llms") == ["Caf\ufffd"]
    assert visit(f"# Site\n\n- [Café]({LINK})\n", DAYS[1], page, "llms") == []
    ((stored,),) = rows(select(entries.c.item))
    assert '"title": "Café"' in stored


def test_a_known_entry_has_the_link_that_was_listed_last(visit, rows):
    """Also if only its scheme changes; without an id, it keeps the first one."""
    entry = item("A", f"{LINK}?t=1", "1", DAYS[0])
    assert visit(document([entry, item("B", f"{HOST}/b")]), DAYS[1]) == ["A", "B"]
    for link in (f"{LINK}?t=2", f"{LINK}?t=2".replace("http:", "https:")):
        others = [item("B", f"{HOST}/b/")]
        assert visit(document([replace(entry, link=link), *others]), DAYS[2]) == []
        stored = {row.item.partition('"url": "')[2].partition('"')[0]
                  for row in rows(select(entries.c.item))}  # fmt: skip
        assert stored == {link, f"{HOST}/b"}


def test_a_moved_entry_leaves_its_page_to_others(visit, rows):
    """Also to one that is stored under the key of the page."""
    assert visit(document([item("A", LINK, "1", DAYS[0])]), DAYS[1]) == ["A"]
    ((key,),) = rows(select(entries.c.key))
    assert visit(document([item("A", f"{HOST}/a", "1", DAYS[0])]), DAYS[2]) == []
    both = [item("B", LINK, "2", DAYS[2]), item("C", LINK, "3", DAYS[1])]
    assert visit(document(both), DAYS[3]) == ["B", "C"]
    back = [*both, item("A", LINK, "1", DAYS[0])]
    assert visit(document(back), DAYS[4]) == []
    assert (key,) in rows(select(entries.c.key))
    assert len(rows(select(entries.c.key))) == 3
