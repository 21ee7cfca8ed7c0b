"""R7 and decision 19: the keys of an entry, and the entries of two feeds of a site."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.sites import feed
from walsh_scrapy.feeds.metadata.entries import FeedEntry, with_keys
from walsh_scrapy.policy.entrykeys import EntryKeys
from walsh_scrapy.testing.feeds import Post, atom
from walsh_scrapy.testing.simulation import DAY
from walsh_scrapy.testing.site import Reply, Site

SOURCE = "https://blog.example/feed"
PAGE = "https://blog.example/page"


def keys_of(url=None, id_=None, title=None, source=SOURCE):
    (entry,) = with_keys([FeedEntry(url, title, id_)], source)
    return entry.keys


@pytest.mark.parametrize(
    "url",
    [
        *(
            PAGE,
            PAGE + "/",
            PAGE + "#p3",
            PAGE + "/#",
            "HTTPS://Blog.Example:443/page",
            PAGE + "//",
        ),
        "http://blog.example/page",
    ],
)
def test_a_page_has_one_key_in_every_spelling(url):
    assert keys_of(url) == keys_of(PAGE)
    assert keys_of(PAGE + "?p=1").page != keys_of(PAGE).page


@pytest.mark.parametrize(
    ("id_", "same"),
    [
        (PAGE, True),
        (PAGE + "/", True),
        ("HTTPS://blog.example:443/page", True),
        ("http://blog.example/page", True),
        (PAGE + "#c", False),
        (PAGE + "?p=1", False),
        ("page", False),
    ],
)
def test_an_id_that_is_the_page_is_one_in_every_spelling(id_, same):
    assert (keys_of(PAGE, id_).id == keys_of(PAGE, PAGE).id) is same


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://blog.example/?p=1", "http://blog.example/?p=1", True),
        ("https://blog.example/?p=1", "https://blog.example/?p=1/", False),
        ("https://blog.example/?p=1", "https://blog.example/?p=1#c", False),
        ("urn:x", "URN:x", False),
    ],
)
def test_an_id_is_opaque_but_for_its_scheme(one, other, same):
    assert (keys_of(PAGE, one).id == keys_of(PAGE, other).id) is same


def test_a_uri_stands_for_a_missing_link_in_every_feed():
    mine, theirs = ({id_: keys_of(None, id_, source=f"https://{x}.example/").page
                     for id_ in ("urn:uuid:1", PAGE, "17")} for x in "ab")  # fmt: skip
    assert mine["urn:uuid:1"] == theirs["urn:uuid:1"]
    assert mine[PAGE] == theirs[PAGE] == keys_of(PAGE).page
    assert mine["17"] != theirs["17"], "an id that is no URI is unique only in its feed"


def test_source_and_title_stand_for_a_missing_link_and_id():
    keys = keys_of(title="A")
    assert keys == keys_of(title="A", source="http://blog.example/feed")
    assert keys.page == keys.linkless_page
    assert keys.page not in (keys_of(title="B").page, keys_of(title="A", source="http://b.example"))
    assert keys_of(None, "urn:1", "A").without_id == keys


def test_an_entry_of_an_index_has_no_title():
    (entry,) = with_keys([FeedEntry(PAGE, "A")], SOURCE, is_index=True)
    assert entry.keys == EntryKeys(keys_of(PAGE).page)


TEXTS = st.none() | st.text(max_size=3)
LINKS = st.none() | st.sampled_from([PAGE, "http://["])
ENTRIES = st.tuples(LINKS, TEXTS, TEXTS).map(lambda fields: FeedEntry(*fields))


@given(st.lists(ENTRIES, max_size=8))
def test_every_entry_has_keys_which_depend_on_no_other(entries):
    all_keyed = with_keys(entries, SOURCE)
    assert [entry._replace(keys=None) for entry in all_keyed] == entries
    assert [with_keys([single], SOURCE)[0] for single in entries] == list(all_keyed)


# --- a crawl of a site with feeds of posts and of comments, in simulated time


def posts(hit):
    days = range(int(hit.started // DAY) + 1)
    return [Post(f"Day {n}", f"http://{hit.host}/{n}/", f"http://{hit.host}/?p={n}") for n in days]


def of_posts(hit):
    return feed("Posts", posts(hit))


def of_posts_again(hit):
    again = [Post(post.title, f"{post.link}#utm=atom", f"urn:{post.id}") for post in posts(hit)]
    return Reply(atom("Posts", again), content_type="application/atom+xml")


def of_comments(hit):
    comments = [
        Post(f"By: Jo {day}", f"{post.link}#comment-{day}", f"{post.id}#comment-{day}")
        for post in posts(hit)
        for day in range(int(hit.started // DAY) + 1)
    ]
    return feed("Comments", comments)


PAGES = {"/feed/": of_posts, "/comments/feed/": of_comments, "/atom/": of_posts_again}


def test_posts_and_comments_are_recorded_in_any_order_of_feeds(simulated):
    sites = [Site(f"{n}.example", "", PAGES) for n in range(3)]
    paths = list(PAGES)
    sources = [f"http://{n}.example{path}" for n in range(3) for path in paths[n:] + paths[:n]]
    first, second, third = simulated(*sites, sources=sources, starts=[0.0, 2 * DAY, 4 * DAY])
    counts = [Counter(item["title"].split()[0] for item in run.items) for run in (first, second)]
    assert counts == [{"Day": 3 * 1, "By:": 3 * 1}, {"Day": 3 * 2, "By:": 3 * (3 * 3 - 1)}]
    assert len(third.items) == 3 * (2 + 5 * 5 - 3 * 3)
    # "Known before" is said of what is known: each entry of the first run, and the posts twice.
    known = [run.stats.get("walsh/entries/known", 0) for run in (first, second)]
    assert known == [3 * 1, 3 * (1 + 1 + 3)]


def of_late(hit):
    """Entries of a host that lists them from the second day on, and those of who named them."""
    days = range(3 * (hit.started > DAY))
    if hit.host == "late.example":
        own = [Post(f"Day {n}", f"http://{hit.host}/{n}/", f"http://{hit.host}/?{n}") for n in days]
        return feed("Late", own)
    named = [
        Post("Taken", "http://late.example/0/", "http://late.example/?0"),
        Post("Taken", "http://late.example/1/#x"),
        Post("Taken", None, "http://late.example/2/"),
    ]
    return feed("Early", named)


def test_source_cannot_take_entries_of_another_host(simulated):
    """Neither under their links nor under their ids; two that name them have each of them once."""
    hosts = ["early", "early-too", "late"]
    sites = [Site(f"{host}.example", "", {"/feed/": of_late}) for host in hosts]
    sources = [f"http://{host}.example/feed/" for host in hosts]
    crawls = simulated(*sites, sources=sources, starts=[0.0, 2 * DAY, 4 * DAY])
    first, second, third = ([item["title"] for item in crawl.items] for crawl in crawls)
    assert (first, sorted(second), third) == (["Taken"] * 3, ["Day 0", "Day 1", "Day 2"], [])
