"""JSON Feed 1.0 and 1.1, in the order of the specification."""

import json

import pytest

from tests.helpers import cases
from walsh_scrapy.feeds.metadata.entries import NotAFeed
from walsh_scrapy.feeds.metadata.feed import parse_feed

URL = "https://blog.example/dir/feed.json"
VERSION = "https://jsonfeed.org/version/1.1"


def read(document, content_type="application/feed+json"):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return parse_feed(body, url=URL, content_type=content_type, source=URL)


def feed(*items, **top):
    return read({"version": VERSION, "title": "Blog", "items": list(items)} | top)


def item(**members):
    (entry,) = feed({"id": "1"} | members).entries
    return entry


@pytest.mark.parametrize(
    "version", ["https://jsonfeed.org/version/1", VERSION, "http://jsonfeed.org/version/1"]
)
def test_versions(version):
    assert feed({"id": "1"}, version=version).title == "Blog"


def test_all_members():
    entry = item(
        id="https://blog.example/?p=1",
        url="/1#top",
        external_url="https://elsewhere.example/",
        title=" A &amp; <b>B</b>\n",
        content_html="<p>SECRET</p>",
        content_text="SECRET",
        summary="SECRET",
        image="https://blog.example/1.png",
        date_published="2026-05-23T02:00:00+02:00",
        date_modified="2026-05-24T00:00:00Z",
        authors=[{"name": "Jo", "url": "https://jo.example"}, {"name": "Ann"}, {"name": "Jo"}],
        tags=["a", " b ", "a", 5, None],
        attachments=[{"url": "https://blog.example/1.mp3"}],
    )
    assert "SECRET" not in repr(entry)
    assert entry.url == "https://blog.example/1#top"
    assert entry.id == "https://blog.example/?p=1"
    assert entry.title == "A &amp; <b>B</b>"  # the specification says plain text
    assert (entry.published, entry.updated) == ("2026-05-23T00:00:00Z", "2026-05-24T00:00:00Z")
    assert (entry.authors, entry.tags) == (("Jo", "Ann"), ("a", "b", "5"))


@pytest.mark.parametrize("id_", [None, "", "  ", [], {}, ...])
def test_items_without_an_id_are_dropped(id_):
    members = {"title": "x", "url": "https://blog.example/1"}
    without = members if id_ is ... else members | {"id": id_}
    assert [e.id for e in feed({"id": "1"}, without).entries] == ["1"]


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("5", "5"),
        ("0", "0"),
        ("-7", "-7"),
        ("1.50", "1.50"),
        ("true", "true"),
        pytest.param("9" * 5000, "9" * 5000, id="longer than Python reads"),
    ],
)
def test_ids_of_other_types_become_strings(written, text):
    document = f'{{"version": "{VERSION}", "items": [{{"id": {written}}}]}}'
    assert read(document.encode()).entries[0].id == text


def test_authors_outrank_author_and_both_are_inherited():
    old = {"name": "Old"}
    assert item(author=old).authors == ("Old",)
    assert item(author=old, authors=[{"name": "New"}]).authors == ("New",)
    assert item(author=old, authors=[]).authors == ("Old",)
    own, heir = {"id": "1", "author": old}, {"id": "2"}
    entries = feed(own, heir, authors=[{"name": "Feed"}], author={"name": "Not me"}).entries
    assert [e.authors for e in entries] == [("Old",), ("Feed",)]
    assert feed(heir, author={"name": "jo@blog.example"}).entries[0].authors == ()


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ({"expired": True}, "expired", True),
        ({"expired": "true"}, "expired", False),
        ({}, "expired", False),
        ({"language": "en_US"}, "language", "en-US"),
        ({"title": None}, "title", None),
        ({"title": {"a": 1}}, "title", None),
    ],
)
def test_members_of_a_feed(given, name, value):
    assert getattr(feed(**given), name) == value


@pytest.mark.parametrize("url", ["javascript:alert(1)", "mailto:a@b.example", {"a": 1}, "http://["])
def test_a_url_is_a_web_url_or_none(url):
    assert item(url=url, external_url="https://elsewhere.example/").url is None


@pytest.mark.parametrize(
    ("members", "url"),
    [
        ({}, "https://elsewhere.example/"),
        ({"url": None}, "https://elsewhere.example/"),
        ({"url": ""}, "https://elsewhere.example/"),
        ({"url": "https://blog.example/1"}, "https://blog.example/1"),
    ],
)
def test_an_external_url_is_the_link_without_a_url(members, url):
    assert item(**members, external_url="https://elsewhere.example/").url == url


@pytest.mark.parametrize(
    ("members", "names"),
    [
        ({"authors": {"name": "A"}}, ("A",)),
        ({"authors": "A"}, ("A",)),
        ({"authors": [{"name": "A; B"}, {"name": "C <c@blog.example>, D"}]}, ("A", "B", "C", "D")),
        ({"authors": ["A", {"name": "B"}]}, ("A", "B")),
        ({"author": [{"name": "A"}, "B"]}, ("A", "B")),
        ({"author": {"name": "A &amp; B; D&#39;C"}}, ("A &amp; B", "D&#39;C")),
        ({"author": "A"}, ("A",)),
        ({"authors": None, "author": {"name": "A"}}, ("A",)),
        ({"authors": True, "author": {"name": "A"}}, ("A",)),
        ({"authors": {"name": []}}, ()),
    ],
)
def test_authors_are_one_or_several_objects_or_names(members, names):
    assert item(**members).authors == names
    assert feed({"id": "1"}, **members).entries[0].authors == names


def test_an_item_must_be_an_object():
    assert [e.id for e in feed(1, None, "x", [], {"id": "1"}).entries] == ["1"]


def test_last_value_of_a_repeated_key_is_used():
    body = f'{{"version": "{VERSION}", "items": [], "items": [{{"id": "1", "id": "2"}}]}}'
    assert [e.id for e in read(body.encode()).entries] == ["2"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le"])
def test_encodings(encoding):
    text = json.dumps({"version": VERSION, "title": "Ünï", "items": []}, ensure_ascii=False)
    assert read(text.encode(encoding)).title == "Ünï"


@cases("document", "content_type", "ids")
def test_a_json_feed_may_lack_its_version(document, content_type, ids):
    feed = read(document, content_type)
    assert [entry.id for entry in feed.entries] == ids
    assert feed.format == "JSON Feed"


@cases("document")
def test_items_of_other_json_are_no_feed(document):
    with pytest.raises(NotAFeed, match="JSON of another kind"):
        read(document, "application/json")


@cases(
    "document",
    "what",
    more=[
        (b"{" * 99999, "begins like JSON"),
        (b"[" * 99999, "begins like JSON"),
        (b"[" * 999999, "begins like JSON"),
    ],
)
def test_other_json_is_no_feed(document, what):
    with pytest.raises(NotAFeed, match=what):
        read(document.encode() if isinstance(document, str) else document)


def test_numbers_that_json_does_not_allow_are_read_as_text():
    body = f'{{"version": "{VERSION}", "x": [NaN, Infinity, 1e999], "items": [{{"id": NaN}}]}}'
    assert [e.id for e in read(body.encode()).entries] == ["NaN"]
