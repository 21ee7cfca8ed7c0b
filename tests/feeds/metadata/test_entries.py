"""R7 and decision 19: the keys by which an entry is the same in every run."""

import re
from collections import Counter
from hashlib import sha256
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.sites import feed
from walsh_scrapy.feeds.metadata.entries import (
    EntryKeys,
    FeedEntry,
    KnownEntries,
    document_keys,
    is_damaged_copy,
    with_keys,
)
from walsh_scrapy.testing.feeds import Post, atom
from walsh_scrapy.testing.simulation import DAY
from walsh_scrapy.testing.site import Reply, Site

SOURCE = "https://blog.example/feed"
PAGE = "https://blog.example/page"


def entry(url=None, id_=None, title=None, published=None):
    return FeedEntry(url, title, id_, published, None, (), ())


def keyed(*entries, source=SOURCE):
    return with_keys(entries, source)


def sha(text):
    return sha256(text.encode()).hexdigest()


def new(entries, known=None, source=SOURCE):
    """Return the entries of a document that are not known, by the rule of the state."""
    known = KnownEntries() if known is None else known
    new_entries = []
    for entry, keys in zip(entries, keys_of(*entries, source=source), strict=True):
        if not known.has(keys):
            known.add(keys)
            new_entries.append(entry)
    return new_entries


def keys_of(*entries, source=SOURCE):
    return [
        EntryKeys(keyed.page_key, keyed.key, keyed.title_key, keyed.published)
        for keyed in with_keys(entries, source)
    ]


@pytest.mark.parametrize(
    "url",
    [PAGE, PAGE + "/", PAGE + "#p3", PAGE + "/#", "HTTPS://Blog.Example:443/page", PAGE + "//"],
)
def test_an_entry_is_known_by_its_page(url):
    (with_id,) = keyed(entry(url, "any id"))
    (without,) = keyed(entry(url))
    assert with_id.page_key == without.page_key == without.key == sha(PAGE)
    assert with_id.key != sha(PAGE)


DAYS = [f"2026-05-{day:02}T00:00:00Z" for day in range(1, 29)]
POST = entry(PAGE, "https://blog.example/?p=1", "Post", DAYS[0])


@pytest.mark.parametrize(
    ("other", "is_new"),
    [
        (entry(PAGE + "/#comment-1", "https://blog.example/?p=1#comment-1", "By: Jo"), True),
        (entry(PAGE, "https://blog.example/?p=2", "Another"), True),
        (entry(PAGE, "HTTPS://blog.example/?p=1", "Ids are opaque"), True),
        (entry(PAGE, "https://blog.example/?p=1/", "Of other pages too"), True),
        (entry(PAGE + "#comment-1", "without a title"), False),
        (entry(PAGE + "#comment-1", "without a title", None, DAYS[1]), True),
        (entry(PAGE, "https://blog.example/?p=2", "Post", DAYS[1]), True),
        (entry(PAGE, "https://blog.example/?p=2", "Post", DAYS[0]), False),
        (entry(PAGE, "https://blog.example/?p=1", "Corrected", DAYS[1]), False),
        (entry(PAGE, None, "Corrected", DAYS[1]), False),
        (entry(PAGE + "#comment-1", "https://blog.example/?p=1", "Edited title"), False),
        (entry(PAGE, "another id", "Post"), False),
        (entry(PAGE + "#utm_source=atom", "tag:blog.example,2026:1", "Post"), False),
        (entry(PAGE, None, "Without an id"), False),
        (entry(PAGE, "https://blog.example/?p=1"), False),
        (entry(PAGE + "?p=1", "https://blog.example/?p=1", "Post"), True),
    ],
)
def test_entries_of_a_page_that_are_two(other, is_new):
    """In one document, and in two, whichever came first."""
    for first, second in ((POST, other), (other, POST)):
        assert len(new([first, second])) == 1 + is_new
        known = KnownEntries()
        assert new([first], known, "https://blog.example/comments/feed") == [first]
        assert new([second], known) == [second] * is_new
        assert new([second, first], known) == []


def test_an_id_that_is_the_page_is_one_in_every_spelling():
    spellings = [PAGE, PAGE + "/", "HTTPS://blog.example:443/page"]
    assert len(new([entry(PAGE, id_, f"Title {id_}") for id_ in spellings])) == 1
    assert len(new([entry(PAGE, PAGE, "Post"), entry(PAGE, PAGE + "#c", "By: Jo")])) == 2


def test_entry_without_link_is_identified_by_its_id():
    mine, theirs = (
        keyed(entry(None, "urn:uuid:1"), entry(None, "17"), source=f"https://{x}.example/")
        for x in "ab"
    )
    assert mine[0] == theirs[0]
    assert mine[1].key != theirs[1].key, "an id that is no URI is unique only in its feed"
    same_title = [entry(None, id_, "Daily") for id_ in (PAGE + "#1", PAGE + "#2", "1", "2", "a:b")]
    assert new(same_title) == same_title


def test_entry_without_link_and_id_has_source_title_and_date():
    day = "2026-05-23T00:00:00Z"
    assert len(new([entry(title="A"), entry(title="B"), entry(title="A", published=day)])) == 3
    (mine,), (again,) = keyed(entry(title="A")), keyed(entry(title="A"))
    (theirs,) = keyed(entry(title="A"), source="https://other.example/")
    assert mine.key == again.key != theirs.key


@pytest.mark.parametrize("id_", [PAGE, PAGE + "/", PAGE + "#v2"])
@pytest.mark.parametrize("link", [PAGE, PAGE + "#v2"])
def test_entry_whose_id_was_its_link_is_known_without_link(link, id_):
    known = KnownEntries()
    assert new([entry(link, id_, "A")], known)
    assert new([entry(None, id_, "A")], known) == []
    assert len(new([entry(None, "urn:2", "A"), entry(None, "2", "A")], known)) == 2


ENTRIES = st.builds(
    entry,
    st.none() | st.sampled_from([PAGE, PAGE + "#a", PAGE + "?q", "http://["]),
    st.none() | st.sampled_from(["1", "2", "3", PAGE]),
    st.none() | st.sampled_from(["A", "B", "C"]),
    st.none() | st.sampled_from(DAYS[:3]),
)


def differ(one, other):
    return None not in (one, other) and one != other


def are_same(one, other):
    """The rule, for entries with links."""
    if one.url.partition("#")[0] != other.url.partition("#")[0]:
        return False
    is_other = differ(one.title, other.title) or differ(one.published, other.published)
    return not (differ(one.id, other.id) and is_other)


@given(st.lists(st.lists(ENTRIES.filter(lambda entry: entry.url), max_size=4), max_size=4))
def test_no_entry_is_lost_or_kept_twice(documents):
    known = KnownEntries()
    new_entries = [entry for document in documents for entry in new(document, known)]
    for at, one in enumerate(new_entries):
        assert not any(are_same(one, other) for other in new_entries[:at])
    assert all(
        any(are_same(one, other) for other in new_entries) for doc in documents for one in doc
    )


@given(
    st.lists(st.tuples(st.sampled_from("123"), st.sampled_from([*"#?"]), st.sampled_from("it ")),
             min_size=1, max_size=4)
)  # fmt: skip
def test_the_order_does_not_matter_to_how_many_are_kept(published):
    """Each of three articles of a page has an id and a title, of which one changes at a time."""
    entries = [
        entry(
            f"{PAGE}#{number}{mark}",
            f"id {number}" + f" {at}" * (changed == "i"),
            f"Title {number}" + f" {at}" * (changed == "t"),
        )
        for at, (number, mark, changed) in enumerate(published)
    ]
    originals = [entry(PAGE, f"id {n}", f"Title {n}") for n in {number for number, *_ in published}]
    for order in permutations(entries):
        known = KnownEntries()
        assert new(originals, known) == originals
        assert [entry for one in order for entry in new([one], known)] == []


TEXTS = st.none() | st.text(max_size=3)


@given(st.lists(ENTRIES | st.builds(entry, st.none() | st.just(PAGE), TEXTS, TEXTS), max_size=8))
def test_every_entry_has_keys_which_depend_on_no_other(entries):
    all_keyed = keyed(*entries)
    assert [(e.url, e.id, e.title) for e in all_keyed] == [(e.url, e.id, e.title) for e in entries]
    assert all(re.fullmatch("[0-9a-f]{64}", key) for e in all_keyed for key in (e.key, e.page_key))
    assert [keyed(single)[0] for single in entries] == list(all_keyed)


# --- what is evidence in a document

ANSWERED_AT = 1_779_494_400.0  # 2026-05-23T00:00:00Z


def dates_of(*dates):
    """Return the dates that are evidence, of a document of entries with these dates."""
    entries = [
        entry(f"{PAGE}/{number}", str(number), "T", date) for number, date in enumerate(dates)
    ]
    return [keys.date for keys in document_keys(keys_of(*entries), ANSWERED_AT).entries]


@pytest.mark.parametrize(
    "dates",
    [
        pytest.param(["2026-05-01T10:00:00Z", "2026-05-01T10:01:00Z"], id="within a minute"),
        pytest.param(["2026-05-22T23:55:00Z", "2026-05-23T00:03:00Z"], id="at the response"),
        pytest.param(["2026-05-23T00:00:00Z", "2027-01-01T00:00:00Z"], id="in the future"),
        pytest.param(["2026-05-23T00:00:00Z", None], id="one dated, at the response"),
    ],
)
def test_generated_dates_are_ignored(dates):
    assert dates_of(*dates) == [None, None]


@pytest.mark.parametrize(
    "dates",
    [
        pytest.param(["2026-05-01T10:00:00Z", "2026-05-01T10:01:01Z"], id="over a minute apart"),
        pytest.param(["2026-05-22T23:54:59Z", "2026-05-23T00:00:00Z"], id="one before"),
        pytest.param(["2026-05-23T00:00:00Z"], id="of one entry"),
        pytest.param(["2026-05-01T10:00:00Z", None], id="one dated, long ago"),
        pytest.param([None, None], id="none"),
        pytest.param(DAYS[:3], id="at midnight"),
    ],
)
def test_other_dates_are_evidence(dates):
    assert dates_of(*dates) == dates


def test_shared_date_is_ignored_for_its_entries_only():
    assert dates_of(DAYS[0], DAYS[1], DAYS[1], DAYS[2]) == [DAYS[0], None, None, DAYS[2]]


def test_an_entry_that_is_twice_shares_its_date_with_no_other():
    twice = [entry(PAGE, "1", "A", DAYS[0])] * 2
    document = document_keys(keys_of(*twice), ANSWERED_AT)
    assert [keys.date for keys in document.entries] == [DAYS[0]] * 2
    assert document.repeated_pages == set()


def test_titles_stand_for_missing_ids_on_a_repeated_page():
    entries = [entry(PAGE, None, "A"), entry(PAGE, None, "B"), entry(PAGE + "/c", None, "C")]
    keys = keys_of(*entries)
    document = document_keys(keys, ANSWERED_AT)
    assert document.repeated_pages == {sha(PAGE)}
    used = [entry_keys.title_key for entry_keys in keys[:2]] + [keys[2].key]
    assert [judged.key for judged in document.entries] == used


@pytest.mark.parametrize(
    ("damaged", "whole", "is_copy"),
    [
        ("Caf\ufffd bar", "Café bar", True),
        ("Caf\ufffd\ufffd", "Café", True),
        ("Caf\ufffd\ufffd", "Cafés", True),
        ("Caf\ufffdé", "Café", True),
        ("\ufffd\ufffdx\ufffd", "\ufffdäx", True),
        ("Caf\ufffd", "Caféss", False),
        ("Caf\ufffd bar", "Café bars", False),
        ("Café", "Caf\ufffd", False),
        ("Café", "Café", False),
        ("\ufffd", "\ufffd", False),
        ("\ufffda" * 200, "a" * 400 + "b", False),
    ],
)
def test_a_title_that_differs_only_in_damage(damaged, whole, is_copy):
    assert is_damaged_copy(damaged, of=whole) is is_copy


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
