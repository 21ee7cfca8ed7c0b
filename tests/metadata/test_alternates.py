"""The other forms of a page: feeds in its head (decision 16), and Link headers (R9, RFC 8288)."""

import pytest

from tests.helpers import cases
from walsh_scrapy.metadata.alternates import (
    HEAD_BYTES,
    MOST_FEEDS,
    FeedLink,
    declared_feeds,
    feed_alternates,
    feeds_in_head,
    is_dump,
    markdown_alternates,
)

PAGE = "https://blog.example/2026/"
RSS = "application/rss+xml"
LINK = f'<link rel="alternate" type="{RSS}" href="/feed">'
FEED = "https://blog.example/feed"


def urls(page):
    return [link.url for link in feeds_in_head(page.encode(), "text/html", PAGE)]


@pytest.mark.parametrize(
    "link",
    [
        LINK,
        f"<LINK HREF=/feed TYPE={RSS} REL='Home ALTERNATE'/>",
        '<link rel=alternate type="application/atom+xml; charset=utf-8" href=" /feed\n">',
        "<link rel=alternate type=application/feed+json href=/feed>",
        "<link rel=alternate type=application/json href=/feed>",
        f"<link rel=alternate type={RSS} href=//blog.example:443/feed>",
    ],
)
def test_a_feed_is_declared_in_any_spelling(link):
    assert urls(f"<!doctype html><html><head>{link}</head>") == [FEED]


@pytest.mark.parametrize(
    "link",
    [
        "",
        f"<link rel=next type={RSS} href=/feed>",
        f"<link rel=alternate type={RSS}>",
        f"<link rel=alternate type={RSS} href=' '>",
        "<link rel=alternate href=/feed>",
        "<link rel=alternate type=text/html href=/feed>",
        "<link rel=alternate type=text/xml href=/feed>",
        "<link rel=alternate type=application/json href=/wp-json/wp/v2/feeds/1>",
        "<link rel=alternate type=application/json href=/pages/1>",
        "<link rel=alternate type=application/json+oembed href=/feed>",
        f"<link rel=alternate type={RSS} href=javascript:x>",
        f"<link rel=alternate type={RSS} href=http://[>",
        f"<a rel=alternate type={RSS} href=/feed>",
        f"<!-- {LINK} -->",
        f"<script>'{LINK}'</script>",
        f"<title>{LINK}</title>",
        f"</head>{LINK}",
        f"<body>{LINK}",
        f"<p>{LINK}",
        f"<svg>{LINK}",
    ],
)
def test_nothing_else_is_a_declaration_of_a_feed(link):
    assert urls(f"<html><head>{link}</head><body>{LINK}") == []


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("<base href=https://cdn.example/x/><base href=/never/>", ["https://cdn.example/feed"]),
        ("<base target=_blank>", [FEED]),
        ("<base href=http://[>", [FEED]),
        ("<base href=ftp://files.example/>", []),
        ("<noscript><img src=x></noscript>", [FEED]),
        ('<script>"<body></head>"</script><!-- </head> -->', [FEED]),
        ("<style>" + "x" * (HEAD_BYTES - 300) + "</style>", [FEED]),
        ("<style>" + "x" * HEAD_BYTES + "</style>", []),
    ],
)
def test_what_comes_before_a_link_counts_as_browsers_read_it(before, found):
    assert urls(f"<html><head>{before}{LINK}") == found


def test_titles_are_one_line_in_the_encoding_of_the_page():
    link = f'<link rel=alternate type={RSS} href="/\xfcber" title="\xc4 &amp;\n&#27; B">'
    (found,) = feeds_in_head(link.encode("latin-1"), "text/html; charset=iso-8859-1", PAGE)
    assert found == FeedLink("https://blog.example/%C3%BCber", "\xc4 & B", RSS)


def test_each_feed_is_kept_once_and_those_of_comments_come_last():
    main, other = FeedLink(FEED), FeedLink("https://blog.example/news.xml", "News")
    comments = [
        FeedLink("https://blog.example/comments/feed/"),
        FeedLink("https://blog.example/?feed=comments-rss2"),
        FeedLink("https://blog.example/2026/post/feed/", "Blog: Comment Feed"),
    ]
    assert declared_feeds([*comments, main, other, main._replace(url=f"{FEED}/#x")]) == (
        main,
        other,
        *comments,
    )
    many = [FeedLink(f"{FEED}{number}") for number in range(2 * MOST_FEEDS)]
    assert declared_feeds(many) == tuple(many[:MOST_FEEDS])


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
