"""Histories of sources: what their documents list at each visit, and which entries are new then.

A test plays each, and docs/identity.md lists those that no rule can get right.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from html import escape

from walsh_scrapy.testing.feeds import Post, rss

HOST = "http://blog.example"
HTTPS = "https://blog.example"
#: The page of sources that list all their entries under one link.
PAGE = f"{HOST}/news"
#: The feed whose documents a history lists, unless it names another one.
FEED = f"{HOST}/feed"
#: The noon of each visit. Entries are older, unless they were made for the response.
NOONS = [datetime(2026, 5, 1, 12, tzinfo=UTC) + timedelta(days=day) for day in range(10)]


def at(day, hour=0):
    """Return the date of an entry: a time of April."""
    return datetime(2026, 4, day, 6 + hour, 30, tzinfo=UTC)


def post(title, link=None, id_=None, date=None):
    """Return an entry; the title "-" is none. Without an id it has none, also if it has a link."""
    return Post("" if title == "-" else title, link, id_, date)


def document(posts):
    """Return an RSS document in which entries have ids only if they are given."""
    text = rss("Feed", posts, HOST)
    for entry in posts:
        if entry.id is None and entry.link:
            text = text.replace(f'<guid isPermaLink="true">{escape(entry.link)}</guid>', "")
    return text


@dataclass(frozen=True)
class History:
    """What a source does over some visits, and the titles that are new at each."""

    source: str  #: what kind of source does it
    does: str
    happens: str
    visits: list  #: of lists of posts
    new: list  #: of texts: the titles, with spaces between them, `-` for none
    feeds: tuple = (FEED,)  #: the URLs of the feeds that are visited in turn
    is_limit: bool = False  #: an entry is lost, or reported twice: docs/identity.md lists it


def own(titles, *, ids="id-{}", query="", host=HOST):
    """Return entries with pages, ids and dates of their own; their titles are letters."""
    return [
        post(title, f"{host}/{title}{query}", ids and ids.format(title), at(ord(title) - 96))
        for title in titles.split()
    ]


def on_page(titles, *, ids=None, dates=None, page=PAGE):
    """Return entries under one link; ids and dates are in the order of the titles."""
    titles = titles.split()
    ids = ids.split() if ids else [None] * len(titles)
    dates = dates or [None] * len(titles)
    return [post(*fields) for fields in zip(titles, [page] * len(titles), ids, dates, strict=True)]


HISTORIES = [
    # --- ids
    History(
        "WordPress",
        "an entry is corrected, and gets another link and date",
        "known by its id and one more field; its URL becomes the latest one",
        [own("a b c"), [post("a", f"{HOST}/2026/a", "id-a", at(20)), *own("a b c")[1:]]],
        ["a b c", ""],
    ),
    History(
        "WordPress",
        "the title of an entry changes, and nothing else",
        "known by its id and its link",
        [own("a b"), [post("A", f"{HOST}/a", "id-a", at(1)), *own("a b")[1:]]],
        ["a b", ""],
    ),
    History(
        "comments",
        "each comment has the link of its post and the title of its author",
        "new: an id of its own makes an own entry",
        [on_page("Jo Jo Al", ids="1 2 3"), on_page("Jo Jo Jo Al", ids="4 1 2 3")],
        ["Jo Jo Al", "Jo"],
    ),
    History(
        "comments",
        "the feed of comments and the feed of posts name the same page",
        "each is new",
        [[post("Jo", f"{PAGE}#c1", "p#c1", at(2))], [post("Post", PAGE, "p", at(1))]],
        ["Jo", "Post"],
        (f"{HOST}/comments", FEED),
    ),
    History(
        "wiki",
        "each revision has the link and the title of its page",
        "new: an id of its own makes an own entry",
        [on_page("Page Page", ids="1 2"), on_page("Page Page", ids="3 2")],
        ["Page Page", "Page"],
    ),
    History(
        "wiki",
        "all revisions were replaced since the last visit, without dates",
        "known: the ids may be random; the latest ids are kept, so the next revision is new",
        [on_page("W W", ids="1 2"), on_page("W W", ids="3 4"), on_page("W W", ids="5 4")],
        ["W W", "", "W"],
        is_limit=True,
    ),
    History(
        "wiki",
        "all revisions were replaced since the last visit, with dates",
        "new: their dates differ",
        [on_page("W W", ids="1 2", dates=[at(1), at(2)]),
         on_page("W W", ids="3 4", dates=[at(3), at(4)])],
        ["W W", "W W"],
    ),
    History(
        "monitor",
        "each alarm has one link, one title and no date",
        "new: an id of its own makes an own entry",
        [on_page("Down Down", ids="1 2"), on_page("Down Down Down", ids="3 1 2")],
        ["Down Down", "Down"],
    ),
    History(
        "monitor",
        "alarms without links and dates",
        "new: without a link, an id alone identifies an entry",
        [[post("Down", None, "1")], [post("Down", None, "2"), post("Down", None, "1")]],
        ["Down", "Down"],
    ),
    History(
        "Mastodon",
        "posts without titles, with pages and ids of their own",
        "new once",
        [[post("-", f"{HOST}/1", f"{HOST}/1", at(1))],
         [post("-", f"{HOST}/2", f"{HOST}/2", at(2)), post("-", f"{HOST}/1", f"{HOST}/1", at(1))]],
        ["-", "-"],
    ),
    History(
        "microblog",
        "posts without titles and dates, under the link of the blog",
        "new: an id of its own makes an own entry",
        [on_page("- - -", ids="1 2 3"), on_page("- - - -", ids="4 1 2 3")],
        ["- - -", "-"],
    ),
    History(
        "Hacker News",
        "stories link to pages elsewhere, and their titles are edited",
        "known by their ids",
        [own("a b", host="http://other.example"),
         [post("A", "http://other.example/a", "id-a", at(1)),
          *own("b c", host="http://other.example")]],
        ["a b", "c"],
    ),
    History(
        "Reddit",
        "the same page is submitted twice",
        "each is new: an id of its own makes an own entry",
        [[post("Look", "http://other.example/a", "t3_1", at(1))],
         [post("Look", "http://other.example/a", "t3_2", at(3)),
          post("Look", "http://other.example/a", "t3_1", at(1))]],
        ["Look", "Look"],
    ),
    History(
        "YouTube",
        "titles and dates of videos change",
        "known by their ids and links",
        [own("a b", ids="yt:video:{}"),
         [post("A", f"{HOST}/a", "yt:video:a", at(9)), *own("a b", ids="yt:video:{}")[1:]]],
        ["a b", ""],
    ),
    # --- links that change
    History(
        "any source",
        "each visit gets other tokens in the links",
        "known by their ids and titles",
        [own("a b", query="?t=1"), own("a b", query="?t=2"), own("a b c", query="?t=3")],
        ["a b", "", "c"],
    ),
    History(
        "any source",
        "each visit gets other tokens in the links, without ids",
        "each is new at each visit: nothing says which it was",
        [own("a b", ids=None, query="?t=1"), own("a b", ids=None, query="?t=2")],
        ["a b", "a b"],
        is_limit=True,
    ),
    History(
        "any source",
        "the links are the ids, and have other tokens at each visit",
        "each is new at each visit: nothing says which it was",
        [own("a", ids=HOST + "/{}?t=1", query="?t=1"),
         own("a", ids=HOST + "/{}?t=2", query="?t=2")],
        ["a", "a"],
        is_limit=True,
    ),
    History(
        "untitled",
        "each visit gets other tokens in the links, without dates",
        "each is new at each visit: nothing confirms the ids",
        [[post("-", f"{HOST}/a?t=1", "1")], [post("-", f"{HOST}/a?t=2", "1")]],
        ["-", "-"],
    ),
    History(
        "any source",
        "a campaign in the query of each link changes once",
        "known by their ids and titles",
        [own("a b", query="?utm_source=x"), own("a b", query="?utm_source=y")],
        ["a b", ""],
    ),
    History(
        "any source",
        "http becomes https, in links and ids",
        "known: a scheme identifies nothing",
        [own("a b", ids=HOST + "/?p={}"),
         own("a b c", ids=HTTPS + "/?p={}", host=HTTPS)],
        ["a b", "c"],
    ),
    History(
        "any source",
        "http becomes https, without ids",
        "known: a scheme identifies nothing",
        [own("a b", ids=None), own("a b", ids=None, host=HTTPS)],
        ["a b", ""],
    ),
    History(
        "WordPress",
        "the permalinks of all posts change",
        "known by their ids and titles",
        [own("a b"), [replace(entry, link=f"{HOST}/blog/{entry.title}") for entry in own("a b")]],
        ["a b", ""],
    ),
    History(
        "podcast",
        "moves to another host, with its ids",
        "known by their ids and titles",
        [own("a b"), own("a b c", host="http://pods.example")],
        ["a b", "c"],
    ),
    History(
        "podcast",
        "moves to another host, which makes other ids",
        "each is new once: nothing says which it was",
        [own("a b"), own("a b", ids="new-{}", host="http://pods.example")],
        ["a b", "a b"],
        is_limit=True,
    ),
    History(
        "any source",
        "a link and a title change at once, but not the date",
        "known by its id and its date",
        [own("a b"), [post("A", f"{HOST}/2", "id-a", at(1)), *own("a b")[1:]]],
        ["a b", ""],
    ),
    # --- ids that prove nothing
    History(
        "generator",
        "numbers the entries of each document from 1",
        "new once: an id of another entry proves nothing from then on",
        [[replace(entry, id=str(number)) for number, entry in enumerate(own("c b a"))],
         [replace(entry, id=str(number)) for number, entry in enumerate(own("e d c b"))],
         [replace(entry, id=str(number)) for number, entry in enumerate(own("f e d c"))]],
        ["c b a", "e d", "f"],
    ),
    History(
        "generator",
        "numbers the entries of each document from 1, without links",
        "new once: titles tell them apart",
        [[post("c", None, "1"), post("b", None, "2")], [post("d", None, "1"), post("c", None, "2")],
         [post("e", None, "1"), post("d", None, "2")]],
        ["c b", "d", "e"],
    ),
    History(
        "generator",
        "makes new ids for each document",
        "known by their links and titles",
        [own("a b", ids="{}1"), own("a b", ids="{}2"), own("a b c", ids="{}3")],
        ["a b", "", "c"],
    ),
    History(
        "generator",
        "makes new ids and dates for each document, and titles change",
        "known by their links",
        [[post(f"a{day}", f"{HOST}/a", f"a{day}", noon), post("b", f"{HOST}/b", f"b{day}", noon)]
         for day, noon in enumerate(NOONS[:3])],
        ["a0 b", "", ""],
    ),
    History(
        "generator",
        "makes new ids for each document, and titles change",
        "a changed title is new: an unknown id is known only with its link and its title",
        [own("a b", ids="{}1"), [post("A", f"{HOST}/a", "x", at(1)), *own("a b", ids="{}2")[1:]]],
        ["a b", "A"],
        is_limit=True,
    ),
    History(
        "generator",
        "is replaced by one that makes other ids",
        "known by their links and titles, and by the new ids from then on",
        [own("a b"), own("a b", ids="n{}"), own("a b c", ids="n{}", query="?t=1")],
        ["a b", "", "c"],
    ),
    History(
        "generator",
        "gives one id to all entries",
        "new once: an id that different entries share proves nothing",
        [own("a b", ids="x"), own("a b c", ids="x")],
        ["a b", "c"],
    ),
    History(
        "generator",
        "gives one id to all entries, under one link",
        "new once: titles tell them apart",
        [on_page("a b", ids="x x"), on_page("c a b", ids="x x x")],
        ["a b", "c"],
    ),
    History(
        "generator",
        "gives one id, link and title to entries with different dates",
        "one entry: that is also how a document lists an entry twice",
        [on_page("Daily Daily", ids="x x", dates=[at(1), at(2)]), on_page("Daily", ids="x")],
        ["Daily", ""],
        is_limit=True,
    ),
    History(
        "generator",
        "begins to give ids",
        "known by their links",
        [own("a b", ids=None), own("a b c")],
        ["a b", "c"],
    ),
    History(
        "generator",
        "gives no ids any more",
        "known by their links",
        [own("a b"), own("a b c", ids=None)],
        ["a b", "c"],
    ),
    History(
        "any source",
        "an id is used again for another entry",
        "new: its link, title and date differ",
        [own("a b"), [post("c", f"{HOST}/c", "id-a", at(5)), *own("a b")[1:]], own("a b")],
        ["a b", "c", ""],
    ),
    History(
        "any source",
        "one entry in each document, always with the same id",
        "new: its link, title and date differ",
        [[replace(entry, id="x")] for entry in own("a b c")],
        ["a", "b", "c"],
    ),
    History(
        "any source",
        "one entry in each document, always with the same id and link",
        "known: it may be a corrected entry",
        [on_page("a", ids="x"), on_page("b", ids="x")],
        ["a", ""],
        is_limit=True,
    ),
    # --- no ids
    History(
        "quote, comic or deal of the day",
        "one entry in each document, one link, no ids and dates",
        "new with each title that its page did not have",
        [on_page("a"), on_page("b"), on_page("c"), on_page("a")],
        ["a", "b", "c", ""],
    ),
    History(
        "quote, comic or deal of the day",
        "one entry in each document, one link, no ids",
        "new with a title that its page did not have and a later date",
        [on_page("a", dates=[at(1)]), on_page("b", dates=[at(2)]), on_page("b", dates=[at(3)])],
        ["a", "b", ""],
    ),
    History(
        "any source",
        "the only entry of a document without ids is corrected, and keeps its date",
        "known by its link and date",
        [on_page("a", dates=[at(1)]), on_page("A", dates=[at(1)])],
        ["a", ""],
    ),
    History(
        "any source",
        "the only entry of a document without ids is corrected and re-dated",
        "new: that is also how a quote of the day looks",
        [on_page("a", dates=[at(1)]), on_page("A", dates=[at(2)])],
        ["a", "A"],
        is_limit=True,
    ),
    History(
        "any source",
        "one of several entries without ids is corrected and re-dated",
        "known by its link",
        [own("a b", ids=None), [post("A", f"{HOST}/a", None, at(9)), *own("a b", ids=None)[1:]]],
        ["a b", ""],
    ),
    History(
        "change log",
        "several entries under one link, without ids",
        "new once: titles tell them apart",
        [on_page("a b"), on_page("c a b"), on_page("c")],
        ["a b", "c", ""],
    ),
    History(
        "change log",
        "one of several entries under one link is corrected, without ids",
        "a corrected title is new: nothing says which it was",
        [on_page("a b"), on_page("A b")],
        ["a b", "A"],
        is_limit=True,
    ),
    History(
        "bulletins",
        "several entries with one link and one title, without ids",
        "new once: dates tell them apart",
        [on_page("D D", dates=[at(1), at(2)]), on_page("D D D", dates=[at(3), at(1), at(2)])],
        ["D D", "D"],
    ),
    History(
        "bulletins",
        "one entry in each document, with an id of its own, one link and one title",
        "new: dates tell them apart",
        [on_page("D", ids="1", dates=[at(1)]), on_page("D", ids="2", dates=[at(2)])],
        ["D", "D"],
    ),
    History(
        "bulletins",
        "one entry in each document, with an id of its own, one link and one title, no dates",
        "known: the ids may be random",
        [on_page("D", ids="1"), on_page("D", ids="2")],
        ["D", ""],
        is_limit=True,
    ),
    History(
        "any source",
        "lists an entry twice in one document",
        "one entry; the other one is counted as repeated",
        [[*own("a b"), *own("a")], own("a b")],
        ["a b", ""],
    ),
    # --- several sources
    History(
        "two feeds of a site",
        "list the same entries, told apart by a tracking fragment and by ids",
        "one entry, of the feed that was read first",
        [own("a b", query="#utm=rss"), own("a b c", ids="urn:{}", query="#utm=atom")],
        ["a b", "c"],
        (FEED, f"{HOST}/atom"),
    ),
    History(
        "two feeds of a site",
        "list the same entries, and their links change later",
        "known by the ids that each feed gave them",
        [own("a"), own("a", ids="urn:{}"), own("a", query="?t=1"),
         own("a", ids="urn:{}", query="?t=2")],
        ["a", "", "", ""],
        (FEED, f"{HOST}/atom", FEED, f"{HOST}/atom"),
    ),
    History(
        "two feeds of a site",
        "one of them lists an article under two ids",
        "one article of two sources is one entry, and two ids of one source are two",
        [on_page("a", ids="1"), on_page("a a", ids="x y"), on_page("a a", ids="x y")],
        ["a", "a", ""],
        (FEED, f"{HOST}/atom", f"{HOST}/atom"),
    ),
    History(
        "aggregators",
        "two of them link to one page, with the same title and other dates",
        "one entry: the date of an aggregator says nothing of a page elsewhere",
        [[post("a", f"{HOST}/a", "1", at(1))], [post("a", f"{HOST}/a", "2", at(2))]],
        ["a", ""],
        ("http://one.example/feed", "http://two.example/feed"),
    ),
    History(
        "aggregators",
        "two of them link to one page, with ids and other titles",
        "each is new",
        [[post("a", f"{HOST}/a", "1", at(1))], [post("A", f"{HOST}/a", "2", at(2))]],
        ["a", "A"],
        ("http://one.example/feed", "http://two.example/feed"),
    ),
    History(
        "aggregator",
        "lists an entry before the source of its host is read",
        "new for its own source too, once: nobody else can hide or retitle it",
        [own("a"), own("a"), own("a"), own("a")],
        ["a", "a", "", ""],
        ("http://one.example/feed", FEED, "http://one.example/feed", FEED),
    ),
]  # fmt: skip
