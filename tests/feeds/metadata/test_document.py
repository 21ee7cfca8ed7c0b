"""Decision 34: what is read of a document that is beyond a budget, and what is said of it."""

import json

import pytest

from tests.helpers import cases
from walsh_scrapy.feeds.metadata import feed as feed_module
from walsh_scrapy.feeds.metadata import formats
from walsh_scrapy.feeds.metadata.entries import NotAFeed
from walsh_scrapy.feeds.metadata.feed import parse_feed
from walsh_scrapy.feeds.metadata.formats import (
    HEAD_BYTES,
    MAX_FEEDS,
    FeedLink,
    declared_feeds,
    feed_alternates,
    feeds_in_head,
    is_dump,
    markdown_alternates,
)

URL = "https://blog.example/feed"
ITEM = "<item><title>{0}</title><link>/{0}</link><pubDate>{1}</pubDate></item>"
ENTRY = "<entry><title>{0}</title><link href='/{0}'/><updated>{1}</updated></entry>"
ATOM = "<feed xmlns='http://www.w3.org/2005/Atom'>{}</feed>"
A_ATOM = "<a:feed xmlns:a='http://www.w3.org/2005/Atom'>{}</a:feed>"
RSS = "<rss version='2.0'><channel>{}<ttl>60</ttl></channel></rss>"
RDF = (
    "<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#' "
    "xmlns='http://purl.org/rss/1.0/'><channel><items/></channel>{}</rdf:RDF>"
)
RFC_822 = [f"Sat, {day:02} May 2026 00:00:00 GMT" for day in range(1, 7)]
ISO = [f"2026-05-{day:02}T00:00:00Z" for day in range(1, 7)]


@pytest.fixture
def three(monkeypatch):
    """A budget of three entries."""
    for module in (formats, feed_module):
        monkeypatch.setattr(module, "MAX_ENTRIES", 3)


def read(text):
    body = text if isinstance(text, bytes) else text.encode()
    return parse_feed(body, url=URL, content_type=None, source=URL)


def titles(feed):
    return [entry.title for entry in feed.entries]


@pytest.mark.parametrize(
    ("form", "entry", "dates"),
    [
        pytest.param(RSS, ITEM, RFC_822, id="rss"),
        pytest.param(RSS + "<broken>", ITEM, RFC_822, id="broken"),
        pytest.param(RSS.replace("{}", "{}&nbsp;&unknown;<br>"), ITEM, ISO, id="loose"),
        pytest.param(RDF, ITEM.replace("pubDate", "date"), ISO, id="rdf"),
        pytest.param(ATOM, ENTRY, ISO, id="atom"),
        pytest.param(
            A_ATOM,
            ENTRY.replace("</", "</a:").replace("<", "<a:").replace("<a:/a:", "</a:"),
            ISO,
            id="prefix",
        ),
    ],
)
@pytest.mark.usefixtures("three")
def test_newest_entries_are_read_and_the_rest_is_counted(form, entry, dates):
    numbered = [entry.format(number, date) for number, date in enumerate(dates, 1)]
    rising, falling = (read(form.format("".join(order))) for order in (numbered, numbered[::-1]))
    assert (titles(rising), rising.left_out) == (["4", "5", "6"], 3)
    assert (titles(falling), falling.left_out) == (["6", "5", "4"], 3)
    assert all(entry.url and (entry.published or entry.updated) for entry in falling.entries)
    assert rising.ttl == falling.ttl == (60.0 if form.startswith("<rss") else None)
    undated = read(form.format("".join(entry.format(number, "") for number in range(6))))
    assert (titles(undated), undated.left_out) == (["0", "1", "2"], 3)
    three = read(form.format("".join(numbered[:3])))
    assert (len(three.entries), three.left_out) == (3, 0)


@pytest.mark.usefixtures("three")
def test_the_newest_items_of_a_json_feed_are_read_in_any_order():
    items = [{"id": at, "title": str(at), "date_published": ISO[at]} for at in (0, 3, 1, 5, 2)]
    feed = read(json.dumps({"version": "https://jsonfeed.org/version/1.1", "items": [*items, 7]}))
    assert (titles(feed), feed.left_out) == (["3", "5", "2"], 2)


def test_inherited_authors_are_shared_and_not_copied():
    authors = [{"name": f"Author {at}"} for at in range(100)]
    items = [{"id": at} for at in range(20)]
    feed = read(
        json.dumps(
            {"version": "https://jsonfeed.org/version/1", "authors": authors, "items": items}
        )
    )
    assert len({id(entry.authors) for entry in feed.entries}) == 1
    named = "".join(f"<author><name>A{at}</name></author>" for at in range(50))
    feed = read(ATOM.format(named + ENTRY.format(1, "") * 20))
    assert len({id(entry.authors) for entry in feed.entries}) == 1


@pytest.mark.parametrize(
    ("content_type", "is_read"),
    [
        ("application/javascript; charset=utf-8", True),
        ("text/javascript", True),
        ("application/octet-stream", True),
        ("text/html", True),
        ("", True),
        ("text/css", False),
        ("image/svg+xml", False),
    ],
)
def test_media_types_of_feeds(content_type, is_read):
    assert formats.may_be_feed(content_type) is is_read


def attributes(number):
    return " ".join(f"a{at}=''" for at in range(number))


def test_media_types_of_real_feeds_are_read():
    items = [{"id": 1}, {"id": "," * 500_000}]
    body = json.dumps({"version": "https://jsonfeed.org/version/1", "items": items})
    assert len(read(body).entries) == 2
    deep = "<div>" * 300 + "</div>" * 300
    item = f"<item><title>One</title><description>{deep}</description><x {attributes(60)}/></item>"
    assert titles(read(RSS.format(item))) == ["One"]
    base = "<rss version='2.0' xml:base='https://a.example/dir/'><channel>"
    links = "".join(f"<item><link>{at}</link></item>" for at in range(500))
    assert read(base + links + "</channel></rss>").entries[499].url == "https://a.example/dir/499"


# R9: a body that is no feed gives no entry, but one sentence with what it is.

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(range(256))
FEED = b"<rss version='2.0'><channel><item><title>One</title></item></channel></rss>"


def sentence(body, content_type=None):
    with pytest.raises(NotAFeed) as caught:
        parse_feed(body, url=URL, content_type=content_type, source=URL)
    return str(caught.value)


@cases(
    "body",
    "what",
    more=[
        ("<html>é".encode("utf-16"), "an HTML page"),
        (PNG, "PNG"),
        (b"\xff\xd8\xff\xe0\x00\x10JFIF", "JPEG"),
        (b"\x1f\x8b\x08\x00", "gzip"),
        (bytes(range(1, 256)), "binary data"),
    ],
)
def test_error_says_what_the_body_is(body, what):
    error = sentence(body.encode() if isinstance(body, str) else body)
    assert what in error
    assert error.endswith(".")


def test_the_error_names_the_format_and_the_media_type():
    error = sentence(b"<html>", "text/plain")
    assert "an HTML page" in error
    assert "text/plain" in error


def test_a_forged_media_type_stays_one_short_line():
    forged = sentence(b"hello", "text/plain\r\nERROR forged " + "x" * 999)
    assert "\n" not in forged
    assert len(forged) < 150


@pytest.mark.parametrize("content_type", ["text/html", "text/plain", "image/png", "", None, "?"])
def test_the_bytes_decide_and_not_the_media_type(content_type):
    feed = parse_feed(FEED, url=URL, content_type=content_type, source=URL)
    assert [entry.title for entry in feed.entries] == ["One"]


def test_no_file_and_no_url_is_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "feed.xml").write_bytes(FEED)
    for name in (b"feed.xml", bytes(tmp_path / "feed.xml"), b"file:feed.xml"):
        assert "plain text" in sentence(name)
    body = (
        b"<!DOCTYPE rss [<!ENTITY f SYSTEM 'file:///etc/passwd'><!ENTITY % p SYSTEM 'feed.xml'>]>"
        b"<rss><channel><title>&f;</title></channel></rss>"
    )
    assert "root:" not in repr(parse_feed(body, url=URL, content_type=None, source=URL))


# The other forms of a page: feeds in its head (decision 16), and Link headers (R9, RFC 8288).

PAGE = "https://blog.example/2026/"
MEDIA_TYPE = "application/rss+xml"
LINK = f'<link rel="alternate" type="{MEDIA_TYPE}" href="/feed">'
FEED_URL = "https://blog.example/feed"


def urls(page):
    return [link.url for link in feeds_in_head(page.encode(), "text/html", PAGE)]


@pytest.mark.parametrize(
    "link",
    [
        LINK,
        f"<LINK HREF=/feed TYPE={MEDIA_TYPE} REL='Home ALTERNATE'/>",
        '<link rel=alternate type="application/atom+xml; charset=utf-8" href=" /feed\n">',
        "<link rel=alternate type=application/feed+json href=/feed>",
        "<link rel=alternate type=application/json href=/feed>",
        f"<link rel=alternate type={MEDIA_TYPE} href=//blog.example:443/feed>",
    ],
)
def test_a_feed_is_declared_in_any_spelling(link):
    assert urls(f"<!doctype html><html><head>{link}</head>") == [FEED_URL]


@cases("link")
def test_other_links_declare_no_feed(link):
    assert urls(f"<html><head>{link}</head><body>{LINK}") == []


@cases("before", more=["<style>" + "x" * (HEAD_BYTES - 300) + "</style>"])
def test_the_head_ends_at_its_end_tag_or_at_the_body(before):
    for end in ("</head>", "<body>", "</head><body class=x>"):
        for html in (f"<html><head>{before}{LINK}", f"{before}<!doctype html><html><head>{LINK}"):
            assert urls(f"{html}{end}<p>x</p>{LINK.replace('/feed', '/body')}") == [FEED_URL]


def test_a_long_head_is_not_read_to_its_end():
    assert urls("<style>" + "x" * HEAD_BYTES + f"</style>{LINK}") == []


@cases("head", "found")
def test_first_base_of_the_head_counts_for_all_links(head, found):
    page = head.replace("LINK", LINK)
    assert urls(f"<html><head>{page}</head><body><base href=https://body.example/>") == found


def test_titles_are_one_line_in_the_encoding_of_the_page():
    link = f'<link rel=alternate type={MEDIA_TYPE} href="/\xfcber" title="\xc4 &amp;\n&#27; B">'
    (feed_link,) = feeds_in_head(link.encode("latin-1"), "text/html; charset=iso-8859-1", PAGE)
    assert feed_link == FeedLink("https://blog.example/%C3%BCber", "\xc4 & B", MEDIA_TYPE)


def test_each_feed_is_kept_once_and_comments_come_last():
    main, other = FeedLink(FEED_URL), FeedLink("https://blog.example/news.xml", "News")
    comments = [
        FeedLink("https://blog.example/comments/feed/"),
        FeedLink("https://blog.example/?feed=comments-rss2"),
        FeedLink("https://blog.example/2026/post/feed/", "Blog: Comment Feed"),
    ]
    assert declared_feeds([*comments, main, other, main._replace(url=f"{FEED_URL}/#x")]) == (
        main,
        other,
        *comments,
    )
    many = [FeedLink(f"{FEED_URL}{number}") for number in range(2 * MAX_FEEDS)]
    assert declared_feeds(many) == tuple(many[:MAX_FEEDS])


# --- Link headers

DOCS = "https://docs.example/guide/"
TYPE = "rel=alternate; type=text/markdown"


def found(*values, url=DOCS):
    return list(markdown_alternates(values, url))


@cases("target", "address")
def test_only_urls_on_the_pages_own_server_are_returned(target, address):
    assert found(f"<{target}>; {TYPE}") == ([address] if address else [])


def test_a_page_on_another_port_has_alternates_on_that_port():
    value = f"</a.md>; {TYPE}, <http://docs.example/b.md>; {TYPE}"
    assert found(value, url="http://docs.example:8080/") == ["http://docs.example:8080/a.md"]


@pytest.mark.parametrize(
    "parameters",
    [
        'type="text/markdown"; rel="next alternate"',
        'REL=Alternate; Type="text/markdown; charset=utf-8"',
        'rel="alter\\nate"; type="text\\/markdown; x=\\"y\\""',
        'title="a, <b>; \\"c\\""; rel=alternate; type=text/x-markdown',
    ],
)
def test_parameters_are_read_in_all_their_forms(parameters):
    assert found(f"<a>; {parameters}") == [f"{DOCS}a"]


@pytest.mark.parametrize(
    "value",
    [
        "<a>; rel=alternate",
        "<a>; rel=alternate; type=text/html",
        "<a>; rel=next; type=text/markdown",
        "<a>; rel=alternate; type=text/html; type=text/markdown",
        f"<a>; {TYPE}; anchor=/other",
        f"a; {TYPE}",
        "",
    ],
)
def test_headers_without_a_markdown_alternate(value):
    assert found(value) == []


def test_a_url_is_returned_once_in_the_order_of_the_headers():
    values = (f"<b>; {TYPE}, <a>; {TYPE}", f"<b>; {TYPE}, <c>; {TYPE}")
    assert found(*values) == [f"{DOCS}b", f"{DOCS}a", f"{DOCS}c"]


def test_feed_alternates():
    value = (
        '</feed>; rel=alternate; type=application/rss+xml; title="Blog", '
        "<a>; rel=alternate; type=text/markdown, "
        "<//feeds.example/atom>; rel=alternate; type=application/atom+xml"
    )
    assert feed_alternates([value], DOCS) == (
        FeedLink("https://docs.example/feed", "Blog", "application/rss+xml"),
        FeedLink("https://feeds.example/atom", None, "application/atom+xml"),
    )


@cases("path", "expected")
def test_llms_full_txt_is_recognised_in_every_spelling(path, expected):
    assert is_dump(f"https://docs.example/{path}") is expected


@pytest.mark.parametrize("before", ["\n" * 65_536, f"<!--{'a' * 65_536}-->", "<!-- a -->" * 7000])
def test_a_root_behind_64_kib_is_found(before):
    assert titles(read(before + RSS.format("<item><title>One</title></item>"))) == ["One"]


def test_rdf_is_the_type_of_a_feed():
    assert formats.is_feed("application/rdf+xml; charset=utf-8")
