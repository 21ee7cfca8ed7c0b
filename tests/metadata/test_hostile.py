"""Hostile documents: none raises anything but NotAFeed, and none takes long to read."""

import re
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import ATOM, JSON_FEED, RSS
from walsh_scrapy.metadata import feed as feed_module
from walsh_scrapy.metadata.document import Document
from walsh_scrapy.metadata.entries import NotAFeed
from walsh_scrapy.metadata.feed import parse_feed
from walsh_scrapy.metadata.llmstxt import parse_llms
from walsh_scrapy.metadata.text import from_html, one_line, web_url
from walsh_scrapy.sources.files import UnreadableFile
from walsh_scrapy.sources.opml import read_opml

URL = "https://blog.example/feed"
SIZE = 300_000  # bytes; quadratic code, as in feedparser, needs many minutes for so many


def read(body, content_type=None):
    try:
        return parse_feed(body, url=URL, content_type=content_type, source=URL)
    except NotAFeed as error:
        assert re.fullmatch(r"[^\n]+\.", str(error))  # noqa: PT017 - either answer is right
        return None


def fill(unit, head=b"<rss><channel>", tail=b""):
    return head + unit * (SIZE // len(unit)) + tail


def in_item(head, unit, tail=b""):
    return fill(unit, b"<rss><channel><item>" + head, tail + b"</item></channel></rss>")


@settings(max_examples=100)
@given(st.sampled_from([RSS, ATOM, JSON_FEED]), st.text(max_size=40))
def test_any_content_type(feed, content_type):
    read(feed, content_type)
    read(feed, f"text/xml; charset={content_type}")


@given(st.text(max_size=60))
def test_any_text_becomes_one_writable_line(text):
    for line in (one_line(text), from_html(text)):
        assert line is None or (line and line == " ".join(line.split()))
        assert line is None or line.encode().decode() == line


@given(st.text(max_size=40) | st.from_regex(r"https?://[^\s]{0,20}", fullmatch=True))
def test_any_link_is_a_web_url_or_none(link):
    url = web_url(link, URL)
    assert url is None or re.fullmatch(r"https?://[^\s/?#]\S*", url, re.IGNORECASE)
    assert web_url(f" {link}", URL) == url  # a leading space avoids the short cut for plain links


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(in_item(b"<author>", b"a", b"</author>"), id="author"),
        pytest.param(in_item(b"<author>", b"a@a.", b"</author>"), id="addresses"),
        pytest.param(in_item(b"<category>", b"a (at a dot ", b"</category>"), id="no-addresses"),
        pytest.param(in_item(b"<author><![CDATA[x]]>", b"&#97;", b"</author>"), id="references"),
        pytest.param(in_item(b"<title>&lt;/b&gt;", b"&lt;!--", b"</title>"), id="comments"),
        pytest.param(in_item(b"<title>&lt;/b&gt;", b"&lt;script&gt;", b"</title>"), id="scripts"),
        pytest.param(in_item(b"<title>&lt;/b&gt;", b"&lt;a", b"</title>"), id="tags"),
        pytest.param(in_item(b"<pubDate>", b"1-", b"</pubDate>"), id="dates"),
        pytest.param(
            b"<rss><channel><item>"
            + b"".join(b"<category>%d</category>" % n for n in range(SIZE // 25)),
            id="categories",
        ),
        pytest.param(fill(b"<a xml:base='a/'>"), id="nested-bases"),
        pytest.param(
            b"<rss xml:base='https://a.example/" + b"a" * SIZE + b"'>" + b"<a/>" * (SIZE // 10),
            id="long-base",
        ),
        pytest.param(
            b"<rss "
            + b"".join(b"xmlns:a%d='u%d' " % (n, n) for n in range(SIZE // 40))
            + b"><channel>"
            + b"<a1:b/>" * (SIZE // 14)
            + b"</channel></rss>",
            id="namespaces",
        ),
        pytest.param(
            b"<?xml version='1.0' encoding='punycode'?><rss>" + b"a" * SIZE + b"-" + b"a9" * SIZE,
            id="punycode",
        ),
        pytest.param(b"<?xml version='1.0'?>" + b"\n" * SIZE + b"<rss/>", id="blank-prolog"),
        pytest.param(b"<?xml version='1.0'?>" + b"\n" * 16000 + b"<rss/>", id="short-prolog"),
        pytest.param(b"<?a ?>" * (SIZE // 6) + b"<?", id="instructions"),
        pytest.param(b"<!DOCTYPE x [" * (SIZE // 13), id="doctypes"),
        pytest.param(fill(b"<"), id="angles"),
        pytest.param(fill(b"<a"), id="openings"),
        pytest.param(fill(b"<!--"), id="unclosed-comments"),
        pytest.param(fill(b"&#55357;"), id="halves"),
        pytest.param(b'{"a":' * (SIZE // 5), id="nested-json"),
        pytest.param(
            b'<!DOCTYPE l [<!ENTITY a "aaaaaaaaaa">'
            + b"".join(b'<!ENTITY %c "%s">' % (98 + n, b"&%c;" % (97 + n) * 10) for n in range(9))
            + b"]><rss><channel><title>&j;</title></channel></rss>",
            id="billion-laughs",
        ),
    ],
)
@pytest.mark.usefixtures("linear")
def test_hostile_documents_are_read_or_refused_in_linear_time(body):
    assert len(repr(read(body))) < 20 * SIZE


def test_a_reference_of_thousands_of_digits_is_no_character():
    endless = b"&#" + b"9" * 5000 + b";"
    assert from_html(f"a {endless.decode()} &amp; b") == "a \ufffd & b"
    body = b"<rss version='2.0'><channel><item><title type='html'>a &amp;#%b;</title></item>"
    feed = read(body % (b"9" * 5000) + b"</channel></rss>")
    assert len(feed.entries) == 1
    assert read(b"<rss version='2.0'><channel><item><title>" + endless).entries == ()
    with suppress(UnreadableFile):
        read_opml(endless)


def in_ebcdic(text):
    """Return a document that begins like a feed, and is another one once it is decoded."""
    return Document(
        parse_feed, b"<rss>\xff" + text.encode("cp037"), URL, "text/xml; charset=cp037", URL
    )


def test_an_encoding_does_not_hide_what_takes_long():
    items = in_ebcdic("<rss version='2.0'><channel>" + "<item/>" * 3000)
    links = "# A\n" + "http://a " * 3000
    assert items.is_costly
    assert Document(parse_llms, links.encode("utf-16"), URL, None, URL).is_costly
    # feedparser is quadratic in declarations before the root, which begins far too late here.
    late = in_ebcdic("\n<!ENTITY" * 2000 + "<rss version='2.0'>")
    with pytest.raises(NotAFeed, match="plain text"):
        late.read()


def test_no_other_parser_is_tried_when_memory_runs_out(monkeypatch):
    def strict(*_):
        raise MemoryError

    monkeypatch.setattr(feed_module, "_parse", strict)
    with pytest.raises(MemoryError):
        parse_feed(RSS, url=URL, content_type=None, source=URL)


def test_a_document_of_too_many_elements_is_refused_with_a_sentence(monkeypatch):
    monkeypatch.setattr("walsh_scrapy.metadata.feed.MOST_ELEMENTS", 1000)
    with pytest.raises(NotAFeed, match="elements"):
        parse_feed(fill(b"<item/>"), url=URL, content_type=None, source=URL)


def test_an_ordinary_feed_of_15_mib_is_read():
    item = b"<item><title>One</title><guid>%d</guid><description>%s</description></item>"
    items = b"".join(item % (number, b"word " * 1000) for number in range(3000))
    feed = read(b"<rss version='2.0'><channel>" + items + b"</channel></rss>")
    assert len({entry.key for entry in feed.entries}) == 3000
