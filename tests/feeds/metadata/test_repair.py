"""Decision 19: broken markup changes no entry beside it."""

import re
import xml.parsers.expat
from contextlib import suppress
from html import escape

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.helpers import cases
from tests.helpers import documents as samples
from walsh_scrapy.feeds.metadata import feed as feed_module
from walsh_scrapy.feeds.metadata.entries import NotAFeed
from walsh_scrapy.feeds.metadata.feed import parse_feed
from walsh_scrapy.feeds.metadata.repair import well_formed
from walsh_scrapy.feeds.metadata.text import from_html, web_url
from walsh_scrapy.feeds.sources.opml import read_opml
from walsh_scrapy.files import UnreadableFile
from walsh_scrapy.policy.wording import one_line

URL = "https://blog.example/feed"
RSS = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE rss [
<!ENTITY own "Our Blog">
]><rss version="2.0" xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:x="https://x.example/ns"
 xmlns:media="http://search.yahoo.com/mrss/"><channel><title>Blog</title>{}<ttl>60</ttl></channel>
</rss>"""
ATOM = """<feed xmlns="http://www.w3.org/2005/Atom" xmlns:x="https://x.example/ns" xml:lang="en"
 xmlns:xhtml="http://www.w3.org/1999/xhtml"><title>Blog</title><author><name>All</name></author>
{}<id>urn:feed</id></feed>"""
# {} marks where an item may be broken.
RSS_ITEM = """<item>{{}}<title>{title}</title><link>https://blog.example/?p={n}&amp;q={text}</link>
<guid isPermaLink="false">https://blog.example/?p={n}&amp;q=2</guid><dc:creator>{text}</dc:creator>
<category><![CDATA[{n} & <b>]]></category><x:v><link>https://x.example/</link></x:v>
<description>&lt;p&gt;{title}</description><pubDate>Sat, 23 May 2026 00:00:{n:02} GMT</pubDate>
</item>
"""
ATOM_ENTRY = """<entry>{{}}<title type="html">{title}</title><x:v><entry><id>x</id></entry></x:v>
<link rel="alternate" href="https://blog.example/?p={n}&amp;q={text}"/><id>urn:{text}&amp;{n}</id>
<category term="{text}"/><author><name>{text}</name></author><published>2026-05-23T00:00:{n:02}Z
</published><content type="xhtml"><xhtml:div><xhtml:p>{title}</xhtml:p></xhtml:div></content>
</entry>
"""
WAYS = [
    "<title>Q & A</title>", "<link>https://blog.example/?a=1&copy=2</link>", "&nbsp;&unknown;&own;",
    "&#55357;&#x0;&#xffff;&#99999999;", "a < b > c ]]> d", "<unclosed>", "<unclosed><br><b>",
    "</stray>", "</title></link></channel2>", "<b><i>x</b></i>", "\x00\x08\x1b\ufffe",
    "<u:y>v</u:y>",
    "<p u:a='' u:a=''>x</p>", "<a b b='' b='' c=d>x</a>", "<a x:b='1' dc:b='2' y:b='&amp'/>",
    "<имя>x</имя>", "<a:b:c/><1/></><a/b>", "<title>unclosed", "<title>misspelt</titel>",
    "<x:v>", "</item></entry>", "</item", "<x:v><title>", "<source>", "<author>",
    "<?php echo '<a>'",
    "<!unknown>", "<a b='c", '<a b="c">d"</a>', "<x xmlns:dc='' xmlns:xml='a'/>",
    "<x xmlns='http://www.w3.org/XML/1998/namespace' xmlns:a='a b'><a:b/></x>", "<content><div>",
    "<link href=https://blog.example/x/>", "<Title>case</tITLE>", "&#38;#38;&amp;amp;",
]  # fmt: skip


def read(text):
    return parse_feed(text.encode(), url=URL, content_type=None, source=URL)


def titles(feed):
    return [entry.title for entry in feed.entries]


def documents():
    texts = st.text("abÄ日 &<>\"';#1", min_size=1, max_size=8).map(escape)
    titled = st.sampled_from(
        ["", "&amp;amp;", "&lt;b&gt;B&lt;/b&gt;", "<![CDATA[C & D]]>", "&#233;"]
    )
    return st.tuples(
        st.sampled_from([(RSS, RSS_ITEM), (ATOM, ATOM_ENTRY)]),
        st.lists(st.tuples(texts, titled), min_size=2, max_size=4),
        st.integers(0, 3),
    )


def built(document, way="", *, end=""):
    """Return a feed, in which one item is broken in a way, with another end if one is given."""
    (form, entry), values, broken = document
    entries = []
    for n, (text, titled) in enumerate(values):
        whole = entry.format(n=n, text=text, title=f"{n} {text} {titled}")
        is_broken = n == broken % len(values)
        entries.append(whole.replace("{}", way if is_broken else ""))
        if is_broken and end:
            entries[-1] = re.sub(r"</(item|entry)>\s*\Z", end, entries[-1])
    return form.replace("{}", "".join(entries))


def others(feed, document):
    broken = document[2] % len(document[1])
    return [entry for n, entry in enumerate(feed.entries) if n != broken]


#: An author that falls out of an entry is none of the feed, which an entry without one inherits.
SPILLED = ((ATOM, ATOM_ENTRY), [("1", ""), (" ", "")], 0)


@settings(max_examples=150)
@example(SPILLED, "</item></entry>", "")
@given(documents(), st.sampled_from(WAYS), st.sampled_from(["", "", "<p>", "</wrong>"]))
def test_an_entry_with_broken_markup_changes_no_other_entry(document, way, end):
    whole, broken = read(built(document)), read(built(document, way, end=end))
    assert others(broken, document) == others(whole, document)
    assert len(broken.entries) == len(whole.entries)


@settings(max_examples=100)
@given(documents(), st.data())
def test_a_feed_that_is_cut_off_keeps_the_entries_before_the_cut(document, data):
    text = built(document)
    whole = read(text)
    cut = data.draw(st.integers(text.index("<title>"), len(text)))
    complete = len(re.findall("</item>|<id>x</id></entry>(?s:.)*?</entry>", text[:cut]))
    assert read(text[:cut]).entries[:complete] == whole.entries[:complete]


@settings(max_examples=100)
@given(documents())
def test_well_formed_document_is_the_same_after_a_repair(document):
    text = built(document)
    repaired = well_formed(text.encode(), {"own": "Our Blog"})
    again = parse_feed(repaired.document, url=URL, content_type=None, source=URL)
    assert again == read(text)
    assert (repaired.is_complete, repaired.is_cut_in_entry) == (True, False)


PIECES = [
    *WAYS, "<rss>", "<channel>", "<item>", "<entry>", "<item/>", "</item>", "</channel>", "</rss>",
    "<x>", "</x>", "<x:item>", "</x:item>", "<![CDATA[", "]]>", "]]", ">", "<!--", "-->", '"', "'",
    "=", "/", "<!DOCTYPE", "<rdf:RDF xmlns:rdf='a'>", "</rdf:RDF>", "<feed", "<xmlns:a>", "<xml:b>",
]  # fmt: skip


@settings(max_examples=100)
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=20), st.data())
def test_repaired_document_is_well_formed(pieces, data):
    entities = data.draw(
        st.dictionaries(
            st.sampled_from(["own", "unknown", "amp", "1", "é"]),
            st.sampled_from(["x", "&#60;", "&#x0;", "&#zz;", "<b>", "%p;", "]]>", "\x00"]),
        )
    )
    body = "".join(["<rss>", *pieces]).encode("utf-8", "replace")
    document = well_formed(body, entities).document
    xml.parsers.expat.ParserCreate("utf-8", " ").Parse(document, True)


@cases("title", "text")
def test_an_ampersand_that_begins_no_reference_is_text(title, text):
    feed = read(RSS.replace("{}", f"<item><title>{title}</title><guid>g</guid></item>"))
    assert titles(feed) == [text]
    assert feed.is_complete


@cases("doctype", "title")
def test_an_entity_that_the_parser_does_not_know_is_read(doctype, title):
    """The parser would skip the entity: `Crme`, and another link."""
    item = "<item><title>Cr&egrave;me {0}</title><link>/?a=&egrave;&amp;b</link></item>"
    entry = "<entry><title>Cr&egrave;me {0}</title><link href='/?a=&egrave;&amp;b'/></entry>"
    for own in ("", "&own;"):
        for form, root in (
            (f"<rss version='0.91'><channel>{item}</channel></rss>", "rss"),
            (f"<feed xmlns='http://www.w3.org/2005/Atom'>{entry}</feed>", "feed"),
        ):
            text = f"<?xml version='1.0'?>{doctype.replace('rss', root, 1)}{form.format(own)}"
            (only,) = read(text).entries
            assert only.title == (f"Crème {title}" if own else "Crème")
            assert only.url == "https://blog.example/?a=è&b"


def test_a_doctype_without_entities_needs_no_repair():
    body = "<rss version='2.0'><channel><title>é</title></channel></rss>"
    feed = read(f"<?xml version='1.0' encoding='utf-8'?><!DOCTYPE rss SYSTEM 'x.dtd'>{body}")
    assert (feed.title, feed.format) == ("é", "rss20")


def test_the_query_of_a_link_is_kept():
    links = (
        "<item><link>https://b.example/?a=1&copy=2&lt=3&b=&amp;c</link><guid>1&x=&2</guid></item>"
    )
    (only,) = read(RSS.replace("{}", links)).entries
    assert (only.url, only.id) == ("https://b.example/?a=1&copy=2&lt=3&b=&c", "1&x=&2")
    entry = '<entry><link href="https://b.example/?a=1&copy=2&amp;c=\'"/><id>1&amp;2&3</id></entry>'
    (only,) = read(ATOM.replace("{}", entry)).entries
    assert (only.url, only.id) == ("https://b.example/?a=1&copy=2&c='", "1&2&3")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_every_encoding_is_repaired(encoding):
    items = "<item><title>é & &nbsp;</title></item><item><title>é</title></item>"
    body = f"<?xml version='1.0' encoding='{encoding}'?><rss><channel>{items}</channel></rss>"
    feed = parse_feed(body.encode(encoding), url=URL, content_type=None, source=URL)
    assert titles(feed) == ["é &", "é"]


def test_entry_without_end_tag_ends_at_the_next_entry():
    feed = read(
        "<rss><channel><item><title>1</title><link>/1</link><x:v>"
        "<item><title>2</title><link>/2</link></item><item><title>3<link>/3</link>"
        "<item><title>4</title></channel></rss>"
    )
    assert [(entry.title, entry.url) for entry in feed.entries] == [
        ("1", "https://blog.example/1"),
        ("2", "https://blog.example/2"),
        ("3", "https://blog.example/3"),
        ("4", None),
    ]
    assert feed.is_complete


# Hostile documents: none raises anything but NotAFeed, and none takes long to read.

SIZE = 300_000  # bytes; quadratic code, as in feedparser, needs many minutes for so many


def read_of_hostile(body, content_type=None):
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
@given(st.sampled_from([samples.RSS, samples.ATOM, samples.JSON_FEED]), st.text(max_size=40))
def test_any_content_type(feed, content_type):
    read_of_hostile(feed, content_type)
    read_of_hostile(feed, f"text/xml; charset={content_type}")


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
    assert len(repr(read_of_hostile(body))) < 20 * SIZE


def test_a_reference_of_thousands_of_digits_is_no_character():
    endless = b"&#" + b"9" * 5000 + b";"
    assert from_html(f"a {endless.decode()} &amp; b") == "a \ufffd & b"
    body = b"<rss version='2.0'><channel><item><title type='html'>a &amp;#%b;</title></item>"
    feed = read_of_hostile(body % (b"9" * 5000) + b"</channel></rss>")
    assert len(feed.entries) == 1
    assert read_of_hostile(b"<rss version='2.0'><channel><item><title>" + endless).entries == ()
    with suppress(UnreadableFile):
        read_opml(endless)


def test_encoding_does_not_hide_a_slow_document():
    """feedparser is quadratic in declarations before the root, which begins far too late here."""
    text = "\n<!ENTITY" * 2000 + "<rss version='2.0'>"
    with pytest.raises(NotAFeed, match="plain text"):
        parse_feed(
            b"<rss>\xff" + text.encode("cp037"),
            url=URL,
            content_type="text/xml; charset=cp037",
            source=URL,
        )


def test_no_other_parser_is_tried_when_memory_runs_out(monkeypatch):
    def strict(*_):
        raise MemoryError

    monkeypatch.setattr(feed_module._WholeTextReader, "parse", strict)
    with pytest.raises(MemoryError):
        parse_feed(samples.RSS, url=URL, content_type=None, source=URL)


def test_an_ordinary_feed_of_15_mib_is_read():
    item = b"<item><title>One</title><guid>%d</guid><description>%s</description></item>"
    items = b"".join(item % (number, b"word " * 1000) for number in range(3000))
    feed = read_of_hostile(b"<rss version='2.0'><channel>" + items + b"</channel></rss>")
    assert len({entry.keys for entry in feed.entries}) == 3000
