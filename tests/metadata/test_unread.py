"""R6: the content of entries is skipped, so nothing in it can change their metadata."""

from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walsh_scrapy.metadata.entries import NotAFeed
from walsh_scrapy.metadata.feed import parse_feed

URL = "https://blog.example/feed.xml"
NAMESPACES = {
    "atom": "http://www.w3.org/2005/Atom",
    "content": "http://purl.org/rss/1.0/modules/content/",
    "dc": "http://purl.org/dc/elements/1.1/",
    "feedburner": "http://rssnamespace.org/feedburner/ext/1.0",
    "itunes": "http://www.itunes.com/dtds/podcast-1.0.dtd",
    "media": "http://search.yahoo.com/mrss/",
    "xhtml": "http://www.w3.org/1999/xhtml",
    "svg": "http://www.w3.org/2000/svg",
    "other": "https://other.example/ns",
}
DECLARED = "".join(f" xmlns:{prefix}='{uri}'" for prefix, uri in NAMESPACES.items())
# {0} marks the places of content: before, between and after the elements that are read.
ENTRIES = {
    "rss": f"""<rss version="2.0"{DECLARED}><channel><title>Blog</title><item>{{0}}
<title>&lt;b&gt;One&lt;/b&gt;</title>{{0}}<link>https://blog.example/1</link><guid>g</guid>{{0}}
<author>Jo</author><category>c</category><media:title>Other</media:title>{{0}}
<pubDate>Sat, 23 May 2026 00:00:00 GMT</pubDate><title>Again</title><guid>h</guid></item>
<item><title>&lt;b&gt;Two&lt;/b&gt;</title><link>/2</link></item>
<ttl>60</ttl><language>de</language></channel></rss>""",
    "atom": f"""<feed xmlns="http://www.w3.org/2005/Atom"{DECLARED} xml:base="/dir/"><entry>{{0}}
<title type="html">&lt;b&gt;One&lt;/b&gt;</title>{{0}}<link href="1"/><id>i</id>{{0}}
<source><author><name>Jo</name></author></source>{{0}}<category term="c"/>
<published>2026-05-23T00:00:00Z</published><id>j</id></entry>
<entry><title type="html">&lt;b&gt;Two&lt;/b&gt;</title><link href="2"/></entry></feed>""",
}
CONTENT = [
    "abstract", "atom:content", "atom:summary", "body", "content", "content:encoded", "copyright",
    "dc:description", "dc:rights", "description", "Description", "feedburner:browserfriendly",
    "fullitem", "info", "itunes:subtitle", "itunes:summary", "media:description", "rights",
    "subtitle", "summary", "tagline", "xhtml:body",
]  # fmt: skip
TYPES = ["", "type='xhtml'", "type='image/png'"]
MARKUP = [
    "text",
    "&lt;title&gt;escaped&lt;/title&gt;",
    "<![CDATA[<title>escaped</title>]]>",
    "<xhtml:div><xhtml:title>x</xhtml:title><xhtml:a href='https://evil.example/'/></xhtml:div>",
    "<div>text</div>",
    "<div xml:base='https://evil.example/' xml:lang='xx' base='https://evil.example/'>text</div>",
    "<details><summary>x</summary></details><title>x</title><link>https://evil.example/</link>",
    "<content>x</content><author>x</author><category>x</category><pubDate>2001-01-01</pubDate>",
    "<description><description>x</description></description><guid>x</guid><id>x</id>",
    "<dc:creator>x</dc:creator><media:category>x</media:category><itunes:keywords>x</itunes:keywords>",
    "<video><source src='x'/></video><image><title>x</title></image>",
    "<item><title>x</title></item><entry><title>x</title></entry>",
    "<channel/><feed xml:lang='xx'/><rss xml:lang='xx'/><language>xx</language><ttl>1</ttl>",
    "<width>x</width><media:player/>",
    "<svg:svg><svg:title>x</svg:title></svg:svg><svg><title>x</title></svg><math/>",
    "<x xmlns:dc='http://search.yahoo.com/mrss/' xmlns:other='http://purl.org/dc/terms/'/>",
    "<x xmlns:xlink='http://www.w3.org/1999/xlink' xlink:href='#x'/>",
    "<title xmlns=''/><title xmlns='https://other.example/ns'/><other:title/>",
    "<!-- <title>x</title> --><?title x?>",
]


def read(text):
    return parse_feed(text.encode(), url=URL, content_type=None, source=URL)


def rss(content):
    return read(ENTRIES["rss"].replace("{0}", content))


WITHOUT = {form: read(document.replace("{0}", "")) for form, document in ENTRIES.items()}


def test_the_feeds_without_content():
    for feed in WITHOUT.values():
        one, two = feed.entries
        assert (one.title, one.authors, one.tags) == ("One", ("Jo",), ("c",))
        assert one.published == "2026-05-23T00:00:00Z"
        assert two.title == "Two"
    assert (WITHOUT["rss"].ttl, WITHOUT["rss"].language) == (60.0, "de")
    assert WITHOUT["atom"].entries[0].url == "https://blog.example/dir/1"


@pytest.mark.parametrize("form", ENTRIES)
@pytest.mark.parametrize("markup", MARKUP)
def test_content_changes_nothing(form, markup):
    for name in CONTENT:
        for attributes in TYPES:
            content = f"<{name} {attributes}>{markup}</{name}>"
            assert read(ENTRIES[form].replace("{0}", content)) == WITHOUT[form], content


@pytest.mark.parametrize("form", ENTRIES)
@pytest.mark.parametrize(
    "content",
    [
        "<media:group><media:description><title>x</title></media:description></media:group>",
        "<description/><description></description>",
        "<summary>x<content>x</content>x</summary><content src='https://evil.example/'/>",
        "<c:Encoded xmlns:c='HTTP://PURL.ORG/RSS/1.0/MODULES/CONTENT/'/>",
        "<description xml:base='https://evil.example/' xml:lang='xx'><p>x</p></description>",
    ],
)
def test_content_in_other_places_and_by_other_names(form, content):
    assert read(ENTRIES[form].replace("{0}", content)) == WITHOUT[form]


NAMES = [
    *("div", "p", "title", "link", "id", "guid", "author", "name", "item", "entry", "source"),
    *(f"{prefix}:{name}" for prefix in NAMESPACES for name in ("title", "creator", "div")),
    *CONTENT,
]
ATTRIBUTES = [
    *("", " a='b'", " xml:base='/x/'", " xml:lang='xx'", " href='/x'", " term='x'", " type='xml'"),
    *(f" xmlns:{prefix}='https://x.example/'" for prefix in NAMESPACES),
    *(f" xmlns='{uri}'" for uri in NAMESPACES.values()),
]
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=8).map(escape)
ELEMENTS = st.recursive(
    TEXTS,
    lambda inner: st.builds(
        "<{0}{1}>{2}</{0}>".format,
        st.sampled_from(NAMES),
        st.sampled_from(ATTRIBUTES),
        st.lists(inner | TEXTS, max_size=4).map("".join),
    ),
    max_leaves=12,
)


@settings(max_examples=300)
@given(st.sampled_from(CONTENT), st.sampled_from(TYPES), ELEMENTS, st.sampled_from([*ENTRIES]))
def test_any_markup_in_content_changes_nothing(name, attributes, inner, form):
    content = f"<{name} {attributes}>{inner}</{name}>"
    assert read(ENTRIES[form].replace("{0}", content)) == WITHOUT[form]


# --- elements that are not skipped


def test_content_of_another_xml_type_is_read_as_elements():
    content = "<atom:content type='application/xml'><category>d</category></atom:content>"
    assert rss(content).entries[0].tags == ("d", "c")


def test_an_element_that_contains_entries_is_not_their_content():
    body = "<body><item><title>One</title></item><item><title>Two</title></item></body>"
    feed = read(f"<rss><channel><title>Blog</title>{body}</channel></rss>")
    assert [entry.title for entry in feed.entries] == [
        "Two"
    ]  # feedparser expects no entries there and loses the first


@pytest.mark.parametrize("name", ["content", "description", "body", "summary"])
def test_content_alone_is_no_feed(name):
    for inner in ("", "x", "<title>x</title>", "<item><title>x</title></item>"):
        with pytest.raises(NotAFeed):
            read(f"<{name}>{inner}</{name}>")


def test_a_feed_with_content_that_is_not_well_formed_is_read():
    for markup in ("<p>x<br></p>", "<undeclared:p>x</undeclared:p>", "a & b", "<p a=b>&nbsp;</p>"):
        one, two = rss(f"<description>{markup}</description>").entries
        assert (one.title, one.url, two.title) == ("One", "https://blog.example/1", "Two")


def test_elements_in_content_are_counted(monkeypatch):
    monkeypatch.setattr("walsh_scrapy.metadata.feed.MOST_ELEMENTS", 1000)
    for inner in ("<p/>" * 1000, "<p>" * 1000 + "</p>" * 1000):
        with pytest.raises(NotAFeed, match="elements"):
            rss(f"<description>{inner}</description>")
