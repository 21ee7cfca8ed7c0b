"""Decision 19 over drawn histories: what is told apart is new once, and nothing else is dropped.

A source publishes entries one after another, and its documents list the latest ones in one of the
styles that docs/identity.md calls telling.
"""

import contextlib
from datetime import timedelta

from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from tests.helpers.histories import HOST, HTTPS, NOONS, PAGE, document, post
from tests.helpers.visits import Visits
from walsh_scrapy.state import State
from walsh_scrapy.state.tables import entries

BEGIN = NOONS[0] - timedelta(days=30)


def own_link(number, visit, place):
    return f"{HOST}/{number}"


def token_link(number, visit, place):
    return f"{HOST}/{number}?t={visit}"


def page(number, visit, place):
    return PAGE


def linkless(number, visit, place):
    return None


def own_id(number, visit, place):
    return f"id-{number}"


def web_id(number, visit, place):
    return f"{HOST}/?p={number}"


def random_id(number, visit, place):
    return f"{visit}-{number}"


def place_id(number, visit, place):
    return str(place)


def one_id(number, visit, place):
    return "x"


def no_id(number, visit, place):
    return None


def own_title(number):
    return f"Title {number}"


def one_title(number):
    return "Title"


def no_title(number):
    return "-"


def own_date(number):
    return BEGIN + timedelta(hours=7 * number)


def no_date(number):
    return None


TITLES, DATES = (own_title, one_title, no_title), (own_date, no_date)
#: Link, id, titles and dates of a style that tells entries apart.
STYLES = [
    *((link, id_, TITLES, DATES) for link in (own_link, page) for id_ in (own_id, web_id)),
    (linkless, own_id, TITLES, DATES),
    (token_link, own_id, (own_title, one_title), DATES),
    (token_link, own_id, TITLES, (own_date,)),
    (own_link, no_id, TITLES, DATES),
    (page, no_id, (own_title,), DATES),
    (page, no_id, TITLES, (own_date,)),
    *((own_link, id_, (own_title,), DATES) for id_ in (random_id, place_id, one_id)),
    *((page, id_, (own_title,), DATES) for id_ in (random_id, one_id)),
]


@st.composite
def histories(draw):
    """Return the documents of a source, and how many entries it published in them."""
    link, id_, titles, dates = draw(st.sampled_from(STYLES))
    title, date = draw(st.sampled_from(titles)), draw(st.sampled_from(dates))
    # Documents overlap, as far as an unknown id needs a known one beside it.
    size = draw(st.integers(3, 6))
    steps = draw(st.lists(st.integers(0, size - 2), max_size=5))
    becomes_https = draw(st.integers(0, 5))
    newest_first = draw(st.booleans())
    visits, newest = [], size
    for visit, step in enumerate([0, *steps]):
        newest += step
        numbers = list(range(newest - size, newest))
        if newest_first:
            numbers.reverse()
        posts = []
        for place, number in enumerate(numbers):
            names = (number, visit, place)
            entry = post(title(number), link(*names), id_(*names), date(number))
            posts.append(entry)
        twice = draw(st.lists(st.sampled_from(posts), max_size=2))
        text = document([*posts, *twice])
        visits.append(text.replace(HOST, HTTPS) if visit >= becomes_https else text)
    return visits, newest


@settings(max_examples=60)
@given(histories())
def test_entries_that_are_told_apart_are_new_once(history):
    visits, published = history
    with contextlib.closing(State("sqlite://")) as state:
        reader = Visits(state)
        new = [reader.read(text, noon) for text, noon in zip(visits, NOONS, strict=False)]
        count = state.database.scalar(select(func.count()).select_from(entries))
    assert sum(map(len, new)) == count == published


TEXTS = st.sampled_from(["a", "b", "-"])
POSTS = st.builds(
    post,
    TEXTS,
    st.none() | st.sampled_from([f"{HOST}/1", f"{HOST}/2", f"{HTTPS}/1", "http://other.example/"]),
    st.none() | st.sampled_from(["1", "2", f"{HOST}/1"]),
    st.none() | st.sampled_from([BEGIN, NOONS[0]]),
)


@settings(max_examples=60)
@given(st.lists(st.lists(POSTS, max_size=5), max_size=3))
@example(
    [
        [post("a", "http://blog.example/1", "2", None)],
        [post("a", "http://blog.example/1", None, None), post("a", None, "2", None)],
    ]
)
@example(
    [
        [post("a", None, f"{HOST}/1", None)],
        [post("a", f"{HOST}/1", None, None), post("a", f"{HOST}/2", f"{HOST}/1", None)],
    ]
)
@example(
    [
        [post("a", None, "1", None)],
        [post("b", None, "1", None), post("b", f"{HOST}/1", "1", None)],
    ]
)
def test_a_document_that_comes_again_has_nothing_new(documents):
    """Whatever is listed: a document that comes again has nothing new, in any order."""
    with contextlib.closing(State("sqlite://")) as state:
        reader = Visits(state)
        for posts, noon in zip(documents, NOONS, strict=False):
            new = reader.read(document(posts), noon)
            assert len(new) + reader.repeated <= reader.listed == len(posts)
            assert reader.read(document(posts), noon) == []
            assert reader.read(document(posts[::-1]), noon) == []
