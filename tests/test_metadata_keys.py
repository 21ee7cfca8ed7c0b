"""R7 and decision 19: the keys by which an entry is the same in every run."""

import re
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walsh_scrapy.metadata.entries import Entry
from walsh_scrapy.metadata.keys import with_keys

SOURCE = "https://blog.example/feed"
PAGE = "https://blog.example/page"


def entry(url=None, id_=None, title=None, published=None):
    return Entry(url, title, id_, published, None, (), ())


def keys(*entries, source=SOURCE):
    return [keyed.key for keyed in with_keys(entries, source)]


def sha(text):
    return sha256(text.encode()).hexdigest()


def new(run, seen):
    """Return the ids of new entries, by the rule of the state; `seen` has full keys by key."""
    keyed = with_keys(run, SOURCE)
    candidates = {key for each in keyed for key in (each.full_key, each.page_key)}
    known = {key for pair in seen.items() if pair[0] in candidates for key in pair}
    found = [each for each in keyed if known.isdisjoint((each.key, each.full_key))]
    seen.update((each.key, each.full_key) for each in found)
    return [each.id for each in found]


@pytest.mark.parametrize(
    "url",
    [PAGE, PAGE + "/", PAGE + "#p3", PAGE + "/#", "HTTPS://Blog.Example:443/page", PAGE + "//"],
)
def test_an_entry_is_its_page(url):
    assert keys(entry(url, "any id")) == [sha(PAGE)]


def test_the_query_counts():
    assert len(set(keys(entry(PAGE), entry(PAGE + "?a=1"), entry(PAGE + "?a=2")))) == 3


def test_entries_with_different_ids_on_one_page_keep_their_fragments():
    assert keys(entry(PAGE + "#p3", "3"), entry(PAGE + "/#p4", "4")) == [
        sha(PAGE + "#p3"),
        sha(PAGE + "#p4"),
    ]


def test_entries_without_ids_on_one_page_are_one():
    assert set(keys(entry(PAGE), entry(PAGE + "/", title="B"), entry(PAGE + "#c"))) == {sha(PAGE)}


def test_an_entry_that_a_document_has_twice_is_one():
    assert len(set(keys(entry(PAGE + "#a", "1"), entry(PAGE + "#b", "1")))) == 1
    same = (entry(PAGE, PAGE), entry(PAGE + "/", PAGE + "/"))
    assert len(set(keys(*same))) == 1


def test_entries_with_the_same_fragment_have_their_ids_in_their_keys():
    assert len(set(keys(entry(PAGE, "1"), entry(PAGE, "2"), entry(PAGE + "/", "3")))) == 3
    assert len(set(keys(entry(PAGE + "#news", "1"), entry(PAGE + "#news", "2")))) == 2


def test_without_a_link_the_key_is_of_the_id():
    assert keys(entry(None, "tag:blog.example,2026:1")) == [sha("tag:blog.example,2026:1")]
    assert keys(entry(None, "urn:uuid:1"), source="https://a.example/") == keys(
        entry(None, "urn:uuid:1"), source="https://b.example/"
    )


def test_an_id_that_is_no_uri_is_unique_only_in_its_feed():
    mine, theirs = (keys(entry(None, "17"), source=f"https://{x}.example/") for x in "ab")
    assert mine != theirs


def test_without_link_and_id_the_key_is_of_source_title_and_date():
    day = "2026-05-23T00:00:00Z"
    assert len(set(keys(entry(title="A"), entry(title="B"), entry(title="A", published=day)))) == 3
    assert keys(entry(title="A")) == keys(entry(title="A"))
    assert keys(entry(title="A")) != keys(entry(title="A"), source="https://other.example/")


@pytest.mark.parametrize(
    ("first", "second"),
    [(PAGE + "#p3", PAGE + "#p4"), (PAGE, PAGE), (PAGE, PAGE + "#p4"), (PAGE + "#p3", PAGE)],
)
def test_other_entries_of_the_page_make_no_entry_new_or_lost(first, second):
    a, b = entry(first, "a"), entry(second, "b")
    seen = {}
    assert new([a], seen) == ["a"]
    assert new([b, a], seen) == ["b"]
    assert new([a, b], seen) == []
    assert new([b], seen) == []
    assert new([a], seen) == []


@pytest.mark.parametrize("id_", [PAGE, PAGE + "/", PAGE + "#v2", "urn:2", "2"])
@pytest.mark.parametrize("link", [PAGE, PAGE + "#v2", SOURCE])
def test_an_entry_without_its_former_link_is_known_if_its_id_is_that_link(link, id_):
    """The id may be the former link, or the feed may be the page: the same rule for both."""
    (linked,) = with_keys([entry(link, id_)], SOURCE)
    (lone,) = with_keys([entry(None, id_)], SOURCE)
    is_the_same = lone.key in (linked.key, linked.full_key)
    assert new([entry(None, id_)], {linked.key: linked.full_key}) == ([] if is_the_same else [id_])


def test_each_of_many_entries_on_one_page_is_new_once():
    log = [entry(PAGE, str(number)) for number in range(20)]
    seen = {}
    met = [id_ for end in range(1, 21) for id_ in new(log[max(0, end - 5) : end], seen)]
    assert met == [str(number) for number in range(20)]


@given(
    st.lists(
        st.builds(
            entry,
            st.none() | st.sampled_from([PAGE, PAGE + "#a", PAGE + "#b", PAGE + "?q", "http://["]),
            st.none() | st.text(max_size=3),
            st.none() | st.text(max_size=3),
        ),
        max_size=8,
    )
)
def test_every_entry_has_keys_and_order_does_not_matter(entries):
    keyed = with_keys(entries, SOURCE)
    assert [(e.url, e.id, e.title) for e in keyed] == [(e.url, e.id, e.title) for e in entries]
    assert all(re.fullmatch("[0-9a-f]{64}", key) for e in keyed for key in (e.key, e.full_key))
    assert all(e.key in (e.full_key, e.page_key) for e in keyed)
    assert all(e.page_key == with_keys([e], SOURCE)[0].key for e in keyed if e.url)
    backwards = with_keys(entries[::-1], SOURCE)
    assert sorted(e.key for e in backwards) == sorted(e.key for e in keyed)
