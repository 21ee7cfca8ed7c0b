"""Decision 16: the feeds that the head of a page declares."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walsh_scrapy.metadata.alternates import (
    HEAD_BYTES,
    MOST_FEEDS,
    FeedLink,
    declared_feeds,
    feeds_in_head,
)

PAGE = "https://blog.example/2026/"
RSS = "application/rss+xml"
LINK = f'<link rel="alternate" type="{RSS}" href="/feed">'
FEED = "https://blog.example/feed"


def urls(page, url=PAGE):
    body = page if isinstance(page, bytes) else page.encode()
    return [link.url for link in feeds_in_head(body, "text/html", url)]


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


MARKUP = st.sampled_from([LINK, "<!--", "-->", "<svg>", "&#0;", "<![CDATA[", "<?", "\x00"])
TAGS = st.sampled_from(["<", ">", "<head", "</head>", "<body>", "<base href=", "'", '"'])
LONG = st.sampled_from(["<b>" * 300, "a=b " * 300])


@given(
    st.lists(MARKUP | TAGS | LONG | st.text(max_size=9), max_size=40).map("".join),
    st.binary(max_size=40),
)
def test_any_page_is_read(page, more):
    body = page.encode("utf-8", "surrogatepass") + more
    for link in feeds_in_head(body, "text/html", PAGE):
        assert link.url.startswith(("http://", "https://"))
        assert link.url.isascii()
