"""R6: what is read in RSS, RDF and Atom."""

from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import cases
from walsh_scrapy.feeds.items import EntryItem, check_item
from walsh_scrapy.feeds.metadata.entries import NotAFeed
from walsh_scrapy.feeds.metadata.feed import parse_feed

# ruff: noqa: RUF001 - look-alikes are what is tested


URL = "https://blog.example/dir/feed.xml"
XHTML = "http://www.w3.org/1999/xhtml"

RSS = """<?xml version="1.0"?>
<rss version="{version}" xmlns:dc="http://purl.org/dc/elements/1.1/"
     xmlns:atom="http://www.w3.org/2005/Atom" xmlns:media="http://search.yahoo.com/mrss/"
     xmlns:content="http://purl.org/rss/1.0/modules/content/"
     xmlns:sy="http://purl.org/rss/1.0/modules/syndication/">
<channel><title>Blog</title><link>https://blog.example/</link>{body}</channel></rss>"""

ATOM = """<?xml version="1.0"?>
<feed xmlns="http://www.w3.org/2005/Atom" {attributes}><title>Blog</title>
<author><name>Feed Author</name></author>{body}</feed>"""

ATOM_03 = Path(__file__).with_name("atom03.xml").read_text("utf-8")

RDF = Path(__file__).with_name("rdf10.xml").read_text("utf-8")


def read(text, **options):
    body = text if isinstance(text, bytes) else text.encode()
    options = {"url": URL, "content_type": "application/xml", "source": URL} | options
    return parse_feed(body, **options)


def rss(body, version="2.0"):
    return read(RSS.format(body=body, version=version))


def item(body):
    (entry,) = rss(f"<item>{body}</item>").entries
    return entry


def atom(body, attributes=""):
    return read(ATOM.format(body=body, attributes=attributes))


def entry(body, attributes=""):
    (only,) = atom(f"<entry>{body}</entry>", attributes).entries
    return only


# --- formats


@pytest.mark.parametrize("version", ["0.91", "0.92", "0.93", "0.94", "2.0", "2.0.1", "9"])
def test_every_rss(version):
    feed = rss("<item><title>One</title><link>https://blog.example/1</link></item>", version)
    assert (feed.title, [e.url for e in feed.entries]) == ("Blog", ["https://blog.example/1"])


def test_rss_without_version_or_declaration():
    feed = read("<rss><channel><item><title>One</title></item></channel></rss>")
    assert [e.title for e in feed.entries] == ["One"]


@pytest.mark.parametrize("prefix", ["", "r"])
@pytest.mark.parametrize("host", ["my", "channel"])
def test_rss_090(host, prefix):
    qualified, colon = (f"{prefix}:", ":") if prefix else ("", "")
    feed = read(
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" '
        f'xmlns{colon}{prefix}="http://{host}.netscape.com/rdf/simple/0.9/"><channel/>'
        "<item><title>One</title><link>https://blog.example/1</link></item></rdf:RDF>".replace(
            "</", f"</{qualified}"
        )
        .replace("<", f"<{qualified}")
        .replace(f"<{qualified}/{qualified}", f"</{qualified}")
        .replace(f"{qualified}rdf:RDF", "rdf:RDF")
    )
    assert [(e.title, e.url) for e in feed.entries] == [("One", "https://blog.example/1")]


def test_rdf():
    feed = read(RDF)
    (only,) = feed.entries
    assert (only.url, only.id) == ("https://blog.example/1",) * 2
    assert (only.published, only.authors) == ("2017-06-21T17:33:10Z", ("Hines, P. J.",))
    assert only.tags == ("Botany",)
    assert (feed.language, feed.update_period, feed.update_frequency) == ("en-us", "hourly", 6)


@cases("root")
def test_rdf_with_any_default_namespace(root):
    """feedparser knows one spelling, and takes a declared Atom namespace for the format."""
    feed = read(
        f"<{root}><channel><title>Blog</title></channel><item><title>&lt;b&gt;One&lt;/b&gt;</title>"
        f"<link>https://blog.example/1</link></item></{root.split()[0]}>"
    )
    assert (feed.format, feed.title) == ("rss10", "Blog")
    assert [(e.title, e.url) for e in feed.entries] == [("One", "https://blog.example/1")]


@cases("children")
def test_rdf_without_channel_and_items_is_no_feed(children):
    rdf = "<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#' xmlns='urn:x'>"
    with pytest.raises(NotAFeed, match="XML of another kind"):
        read(f"{rdf}{children}</rdf:RDF>")


def test_atom_03():
    feed = read(ATOM_03)
    (only,) = feed.entries
    assert (only.title, only.url, only.id) == ("A B", "https://blog.example/1", "tag:1")
    assert feed.language == "de"
    assert (only.published, only.updated) == ("2004-01-02T02:04:05Z", "2004-01-03T00:00:00Z")


def test_atom_10():
    only = entry(
        "<title>One</title><id>urn:1</id><link href='https://blog.example/1'/>"
        "<published>2026-05-23T00:00:00+02:00</published><updated>2026-05-24T00:00:00Z</updated>"
        "<author><name>Jo</name><email>jo@blog.example</email><uri>https://jo.example</uri></author>"
        "<category term='a' label='A'/><category label='only a label'/><category term='a'/>"
    )
    assert (only.title, only.url, only.id) == ("One", "https://blog.example/1", "urn:1")
    assert (only.published, only.updated) == ("2026-05-22T22:00:00Z", "2026-05-24T00:00:00Z")
    assert (only.authors, only.tags) == (("Jo",), ("a", "only a label"))


def test_no_content_is_kept():
    secret = "SECRET WORDS"
    feeds = (
        rss(
            f"<item><description>{secret}</description><content:encoded>{secret}</content:encoded>"
            f"<media:title>{secret}</media:title><media:description>{secret}</media:description>"
            "<title>One</title></item>"
        ),
        atom(
            f"<entry><summary>{secret}</summary><content type='xhtml'>"
            f"<div xmlns='http://www.w3.org/1999/xhtml'><title>{secret}</title>"
            f"<link href='https://evil.example/'/>{secret}</div></content>"
            "<title>One</title></entry>"
        ),
    )
    for feed in feeds:
        assert secret not in repr(feed)
        assert [(e.title, e.url) for e in feed.entries] == [("One", None)]


# --- links


@cases("link", "url")
def test_a_link_is_a_web_url_or_none(link, url):
    assert item(f"<title>One</title><link>{link}</link>").url == url
    if '"' not in link:
        assert entry(f'<title>One</title><link href="{link.strip()}"/>').url == url


def test_xml_base():
    base = 'xml:base="/posts/"'
    only = entry("<link href='1'/><id>1</id>", base)
    assert (only.url, only.id) == ("https://blog.example/posts/1", "1")
    nested = atom("<entry xml:base='2026/'><link href='1'/></entry>", base)
    assert nested.entries[0].url == "https://blog.example/posts/2026/1"
    elsewhere = rss("<item xml:base='https://o.example/a/'><link>b</link></item>")
    assert elsewhere.entries[0].url == "https://o.example/a/b"


@cases("body", "id_", "url")
def test_guid_is_the_link_only_as_a_permalink(body, id_, url):
    only = item(body)
    assert (only.url, only.id) == (url, id_)


@cases("body", "url")
@pytest.mark.parametrize("form", ["rss", "rss with the link at its end", "rdf"])
def test_relative_links_of_rss(form, body, url):
    link = "<link>https://site.example/sub/</link>"
    entry = f"<item><title>One</title>{body}</item>"
    if form == "rdf":
        if "guid" in body:
            return
        text = (
            "<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#' "
            f"xmlns='http://purl.org/rss/1.0/'><channel>{link}</channel>{entry}</rdf:RDF>"
        )
    else:
        parts = (link, entry) if form == "rss" else (entry, link)
        text = f"<rss version='2.0'><channel>{''.join(parts)}</channel></rss>"
    (only,) = read(text).entries
    assert only.url == url


@pytest.mark.parametrize("link", ["", "<link/>", "<link>/sub/</link>", "<link>mailto:x</link>"])
def test_a_relative_link_without_a_site_is_of_the_feed(link):
    text = f"<rss version='2.0'><channel>{link}<item><link>/1</link></item></channel></rss>"
    (only,) = read(text).entries
    assert only.url == "https://blog.example/1"


def test_a_relative_link_of_atom_is_resolved_against_the_feed():
    feed = atom("<link href='https://site.example/'/><entry><link href='/1'/></entry>")
    assert feed.entries[0].url == "https://blog.example/1"


def test_an_atom_id_is_no_link():
    only = entry("<id>https://blog.example/1</id>")
    assert (only.url, only.id) == (None, "https://blog.example/1")


def test_the_link_is_the_first_alternate_and_html_comes_first():
    only = entry(
        "<link rel='self' href='/self'/><link rel='replies' type='text/html' href='/replies'/>"
        "<link rel='enclosure' href='/sound.mp3'/>"
        "<link rel='alternate' type='application/pdf' href='/paper.pdf'/>"
        "<link rel='alternate' type='text/html' href='/page'/><link href='/second'/>"
    )
    assert only.url == "https://blog.example/page"
    assert entry("<link rel='self' href='/self'/>").url is None
    assert item("<enclosure url='https://blog.example/1.mp3' type='audio/mpeg'/>").url is None


@pytest.mark.parametrize(
    "relation", ["alternate", "http://www.iana.org/assignments/relation/alternate"]
)
def test_a_relation_is_a_name_or_its_iri(relation):
    assert entry(f"<link rel='self' href='/s'/><link rel='{relation}' href='/1'/>").url == (
        "https://blog.example/1"
    )


@pytest.mark.parametrize(
    "attributes",
    ["uri='https://o.example/'", "rel='self' href='https://o.example/'", "url='/o' type='x/y'", ""],
)
def test_the_link_of_an_rss_item_is_its_text(attributes):
    assert item(f"<link {attributes}>/1?a=1&amp;b=2</link>").url == "https://blog.example/1?a=1&b=2"
    both = "<atom:link rel='self' href='/self'>no</atom:link><link>/1</link>"
    assert item(both).url == "https://blog.example/1"
    assert item("<atom:link href='/1'>no</atom:link>").url == "https://blog.example/1"
    assert item("<link href='/1'/>").url == "https://blog.example/1"
    assert entry("<link href='/1'>no</link>").url == "https://blog.example/1"


# --- what is inside an element of another namespace is not the entry's own (RFC 4287, 6.3)

OTHERS = (
    "<title>x</title><link>https://x.example/</link><link href='https://x.example/'/><guid>x</guid>"
    "<id>x</id><author><name>x</name></author><author>x</author><dc:creator>x</dc:creator>"
    "<category>x</category><category term='x'/><pubDate>Sat, 01 Jan 2000 00:00:00 GMT</pubDate>"
    "<published>2000-01-01T00:00:00Z</published><updated>2000-01-01T00:00:00Z</updated>"
    "<dc:date>2000-01-01</dc:date><dc:subject>x</dc:subject><itunes:author>x</itunes:author>"
    "<ttl>1</ttl><language>xx</language><skipHours><hour>1</hour></skipHours>"
    "<sy:updatePeriod>hourly</sy:updatePeriod><entry><id>x</id></entry><item><guid>x</guid></item>"
    "<source><title>x</title></source><channel><ttl>1</ttl></channel><image><link>x</link></image>"
).replace("<dc:creator>", "<dc:creator xmlns:dc='http://purl.org/dc/elements/1.1/'>").replace(
    "<itunes:author>", "<itunes:author xmlns:itunes='http://www.itunes.com/dtds/podcast-1.0.dtd'>"
)  # fmt: skip
RSS_OWN = (
    "<title>One</title><link>/1</link><guid isPermaLink='false'>g</guid><author>Jo</author>"
    "<category>c</category><pubDate>Sat, 23 May 2026 00:00:00 GMT</pubDate>"
)
ATOM_OWN = (
    "<title>One</title><link href='/1'/><id>i</id><author><name>Jo</name></author>"
    "<category term='c'/><published>2026-05-23T00:00:00Z</published>"
)


@cases("begin", "end")
@pytest.mark.parametrize("broken", ["", "a & b"])
def test_children_of_a_foreign_element_are_ignored(begin, end, broken):
    others = f"{begin}{OTHERS}{end}{broken}"
    for own in (f"{others}{RSS_OWN}", f"{RSS_OWN}{others}", f"<guid>g</guid>{others}"):
        feed = f"{{0}}<item>{own}</item><ttl>60</ttl><language>de</language>{{0}}"
        without, with_children = rss(feed.replace(others, "").format("")), rss(feed.format(others))
        assert with_children == without
        assert with_children.format == ("rss20, repaired" if broken else "rss20")
    declared = (
        "xmlns:dc='http://purl.org/dc/elements/1.1/' xmlns:media='http://search.yahoo.com/mrss/' "
        "xmlns:sy='http://purl.org/rss/1.0/modules/syndication/'"
    )
    for own in (f"{others}{ATOM_OWN}", f"{ATOM_OWN}{others}", f"<id>i</id>{others}"):
        feed = f"{{0}}<entry>{own}<source>{others}</source></entry>{{0}}"
        without = atom(feed.replace(others, "").format(""), declared)
        assert atom(feed.format(others), declared) == without


def test_children_of_unknown_elements_of_an_item_are_not_its_own():
    own = "<guid isPermaLink='false'>g</guid>"
    for name in ("custom", "image", "enclosure", "author", "category", "contributor"):
        others = f"<{name}><link>https://x.example/</link><pubDate>2000-01-01</pubDate></{name}>"
        only = item(own + others)
        assert (only.url, only.published, only.id) == (None, None, "g")


def test_elements_of_known_modules_are_read():
    only = item(
        "<media:group><media:content><media:title>M</media:title><media:category>m</media:category>"
        "</media:content><media:keywords>k, l</media:keywords></media:group>"
        "<dc:subject>d</dc:subject><atom:author><atom:name>A</atom:name></atom:author><dc:creator>C</dc:creator>"
        "<a:updated xmlns:a='http://www.w3.org/2005/Atom'>2026-05-23T00:00:00Z</a:updated>"
    )
    assert (only.title, only.tags, only.authors) == ("M", ("m", "k", "l", "d"), ("A", "C"))
    assert only.updated == "2026-05-23T00:00:00Z"


@pytest.mark.parametrize(
    "document",
    [
        "<rss xmlns='https://wrong.example/' version='2.0'><channel>{}</channel></rss>",
        "<rss version='2.0'><channel xmlns='https://wrong.example/'>{}</channel></rss>",
        "<rss version='2.0' xmlns='http://backend.userland.com/rss2'><channel>{}</channel></rss>",
        "<feed xmlns='https://www.w3.org/2005/Atom'>{}</feed>",
    ],
)
def test_feed_in_a_misspelled_namespace_is_read(document):
    feed = read(document.format("<item><title>One</title><author><name>A</name></author></item>"))
    assert [(e.title, e.authors) for e in feed.entries] == [("One", ("A",))]


# --- strings


@cases("title", "text")
def test_rss_titles_are_plain_text(title, text):
    assert item(f"<title>{title}</title>").title == text


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("<title>A &lt;b&gt; &amp;amp;</title>", "A <b> &amp;"),
        ("<title type='html'>A &lt;b&gt;B&lt;/b&gt; &amp;amp; C</title>", "A B & C"),
        (f"<title type='xhtml'><div xmlns='{XHTML}'>A <b>B</b> C</div></title>", "A B C"),
        ("<title type='html'>&lt;!-- x --&gt;A&lt;script&gt;x()&lt;/script&gt;B</title>", "AB"),
    ],
)
def test_atom_titles_are_read_by_their_type(title, text):
    assert entry(title).title == text


def test_characters_that_no_export_can_write_are_removed():
    text = "a\x00b\x08c\x81d\ufffee\x7ff"
    feed = read(
        f"<rss><channel><item><title>{text}</title><guid>{text}</guid></item></channel></rss>"
    )
    assert feed.entries[0].title == "abcdef"
    assert feed.entries[0].id == "abcdef"


def test_surrogate_pairs_become_one_character():
    feed = rss("<item><title>&#55357;&#56832; &#xD83D; &#0; ok</title><guid>g</guid></item>")
    assert [(e.title, e.id) for e in feed.entries] == [("\U0001f600 \ufffd \ufffd ok", "g")]


@cases("body", "names", more=[(f"<dc:creator>{'x' * 301}</dc:creator>", [])])
def test_authors_are_names_and_never_addresses(body, names):
    assert item(body).authors == tuple(names)


def test_atom_authors_are_inherited():
    assert entry("<title>One</title>").authors == ("Feed Author",)
    source = "<source><author><name>Source Author</name></author></source>"
    assert entry(source).authors == ("Source Author",)
    several = "<author><name>Jo</name><email>jo@blog.example</email><name>Ann; Bo</name></author>"
    assert entry(several).authors == ("Jo", "Ann", "Bo")
    own = "<author><name>jo@blog.example</name></author><author><name>Own</name></author>"
    assert entry(own + source).authors == ("Own",)


def test_tags():
    body = "<category> a </category><category>a</category><category><![CDATA[R&amp;D]]></category>"
    body += "<category>jo@blog.example</category><category>react@19.0.0</category>"
    tags = ("a", "R&D", "react@19.0.0")
    assert item(body + f"<category>{'x' * 101}</category><category/>").tags == tags
    many = "".join(f"<category>{number}</category>" for number in range(1000))
    assert len(item(many).tags) == 100


@pytest.mark.parametrize(
    ("declared", "language"),
    [
        ("en-us", "en-us"),
        ("en_US", "en-US"),
        (" de ", "de"),
        ("", None),
        ("the Queen's English", None),
        ("x" * 99, None),
    ],
)
def test_language(declared, language):
    assert rss(f"<language>{declared}</language>").language == language


def test_long_titles_are_cut_and_their_entries_kept():
    prose = f"<title>{'word ' * 400}</title>"
    feed = read(f"<rss><channel>{prose}<item>{prose}<guid>1</guid></item></channel></rss>")
    for title in (feed.title, feed.entries[0].title):
        assert title == "word " * 59 + "word…"
    stored = EntryItem.from_entry(feed.entries[0], feed=feed, source=URL)
    stored.first_seen = "2026-05-24T00:00:00Z"
    check_item(stored)


# --- dates, as feeds carry them


@pytest.mark.parametrize(
    ("body", "published", "updated"),
    [
        ("<pubDate>Sat, 23 May 2026 02:00:00 +0200</pubDate>", "2026-05-23T00:00:00Z", None),
        ("<dc:date>2026-05-23</dc:date>",) + ("2026-05-23T00:00:00Z",) * 2,
        ("<pubDate>0000-00-00</pubDate>", None, None),
        ("<pubDate></pubDate>", None, None),
        (
            "<pubDate>soon</pubDate><dc:date>2026-05-23T00:00:00Z</dc:date>",
            "2026-05-23T00:00:00Z",
            "2026-05-23T00:00:00Z",
        ),
    ],
)
def test_dates(body, published, updated):
    only = item(body)
    assert (only.published, only.updated) == (published, updated)


@cases("elements", "published", "updated")
def test_dates_of_the_format_win_over_others(elements, published, updated):
    declared = (
        'xmlns:atom="http://www.w3.org/2005/Atom" xmlns:dc="http://purl.org/dc/elements/1.1/" '
        'xmlns:dcterms="http://purl.org/dc/terms/" '
        'xmlns:prism="http://prismstandard.org/namespaces/basic/2.0/" '
        'xmlns:ingenta="http://purl.org/rss/1.0/modules/prism/" '
        'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
    )
    dated = [
        f"<{element}>2026-05-0{day}T00:00:00Z</{element.partition(' ')[0]}>"
        for element, day in elements.items()
    ]
    for body in ("".join(dated), "".join(reversed(dated))):
        in_rss = read(f"<rss {declared}><channel><item>{body}</item></channel></rss>")
        in_atom = atom(f"<entry>{body}</entry>", declared)
        for feed in (in_rss, in_atom):
            (only,) = feed.entries
            days = [date and int(date[9]) for date in (only.published, only.updated)]
            assert days == [published or None, updated or None]


def test_atom_updated_is_not_the_publication_date():
    only = entry("<updated>2026-05-23T00:00:00Z</updated>")
    assert (only.published, only.updated) == (None, "2026-05-23T00:00:00Z")


# --- update hints (decision 20)


def test_update_hints():
    feed = rss(
        "<ttl> 90 </ttl><sy:updatePeriod>daily</sy:updatePeriod>"
        "<skipHours><hour>0</hour><hour> 5 </hour><hour>24</hour><hour>25</hour><hour>x</hour>"
        "</skipHours><skipDays><day>sunday</day><day>Saturday</day><day>Someday</day></skipDays>"
    )
    assert (feed.ttl, feed.update_period, feed.update_frequency) == (90.0, "daily", None)
    assert (feed.skip_hours, feed.skip_days) == ({0, 5}, {"Sunday", "Saturday"})


@pytest.mark.parametrize("ttl", ["", "0", "-5", "1e9", "nan", "１２０", "9" * 400, "60 minutes"])
def test_a_ttl_that_is_no_number_is_none(ttl):
    assert rss(f"<ttl>{ttl}</ttl>").ttl is None


# --- encodings


@cases("body", "content_type")
def test_valid_utf8_overrides_the_declared_encoding(body, content_type):
    text = body.format("<rss><channel><title>Ünï 日本</title></channel></rss>")
    assert read(text, content_type=content_type).title == "Ünï 日本"


@cases("encoding", "declared", "content_type")
def test_other_encodings(encoding, declared, content_type):
    title = {"shift_jis": "日本", "iso-2022-jp": "日本", "gb2312": "中文", "koi8-r": "Мир"}
    text = title.get(encoding, "üéö")
    says = f" encoding='{declared}'" if declared else ""
    document = f"<?xml version='1.0'{says}?><rss><channel><title>{text}</title></channel></rss>"
    assert read(document.encode(encoding), content_type=content_type).title == text


# --- broken documents


@pytest.mark.parametrize("codec", ["base64", "hex", "zlib", "rot13", "quopri"])
def test_a_codec_of_python_that_decodes_no_text_is_no_encoding(codec):
    body = f"<?xml version='1.0' encoding='{codec}'?><rss version='2.0'><channel><title>é</title>"
    for content_type in (None, f"text/xml; charset={codec}"):
        feed = read(body.encode("latin-1"), content_type=content_type)
        assert feed.title == "é"


def test_a_feed_that_was_cut_off_gives_its_complete_entries():
    whole = "<rss><channel><title>Blog</title>" + "".join(
        f"<item><title>{n}</title><link>https://blog.example/{n}</link></item>" for n in range(3)
    )
    counts = {len(read(whole[:end]).entries) for end in range(whole.index("<item>"), len(whole))}
    assert counts == {0, 1, 2, 3}
    for end in range(whole.index("<item>"), len(whole)):
        for number, only in enumerate(read(whole[:end]).entries):
            assert (only.title, only.url) == (str(number), f"https://blog.example/{number}")


QUOTING = "<!-- </rss> </channel> --><x><![CDATA[</channel> </rss> </rdf:RDF> </feed>]]></x>"


@pytest.mark.parametrize(
    ("document", "end"),
    [
        (RSS.format(version="2.0", body=f"<item><title>1</title>{QUOTING}</item>"), "</channel>"),
        (ATOM.format(attributes="", body=f"<entry><id>1</id>{QUOTING}</entry>"), "</feed>"),
        (RDF.replace("<dc:subject>", f"{QUOTING}<dc:subject>"), "</rdf:RDF>"),
        (RDF.replace("rdf:RDF", "r:RDF").replace("xmlns:rdf", "xmlns:r"), "</r:RDF>"),
    ],
)
def test_feed_is_complete_only_with_its_own_end_tag(document, end):
    whole = document.rindex(end) + len(end)
    for cut in range(document.index("<title>"), len(document)):
        assert read(document[:cut]).is_complete is (cut >= whole), document[:cut][-40:]
    assert read(document).is_complete
    assert read(f"{document.replace('Blog', 'A & B')}<p>ad</p>").is_complete


def test_an_entry_that_quotes_its_end_tag_may_be_cut_off():
    cut = "<item><title>2</title><description><![CDATA[ </item> ]]></description>"
    (only,) = read(f"<rss><channel><item><title>1</title></item>{cut}").entries
    assert only.title == "1"


def test_entities_of_the_document_itself():
    feed = read('<!DOCTYPE rss [\n<!ENTITY co "Blog Inc">\n]><rss><channel><title>&co;</title>')
    assert feed.title in {"Blog Inc", "&co;"}  # feedparser resolves it in some forms only


def test_junk_before_the_feed():
    warning = "<br />\n<b>Warning</b>: foo() in <b>/var/www/x.php</b> on line 3<br />\n"
    feed = read(warning + RSS.format(version="2.0", body="<item><title>One</title></item>"))
    assert [e.title for e in feed.entries] == ["One"]


def test_an_empty_entry_is_an_entry():
    (only,) = atom("<entry><author></author></entry>").entries
    assert (only.url, only.title, only.id) == (None, None, None)
    assert len(only.keys.page) == 64


def test_a_feed_without_entries_is_a_feed():
    assert rss("").entries == atom("").entries == ()


# R6: the content of entries is skipped, so nothing in it can change their metadata.

URL_UNREAD = "https://blog.example/feed.xml"
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


def read_of_unread(text):
    return parse_feed(text.encode(), url=URL_UNREAD, content_type=None, source=URL_UNREAD)


def rss_of_unread(content):
    return read_of_unread(ENTRIES["rss"].replace("{0}", content))


WITHOUT = {form: read_of_unread(document.replace("{0}", "")) for form, document in ENTRIES.items()}


def test_the_feeds_without_content():
    for feed in WITHOUT.values():
        one, two = feed.entries
        assert (one.title, one.authors, one.tags) == ("One", ("Jo",), ("c",))
        assert one.published == "2026-05-23T00:00:00Z"
        assert two.title == "Two"
    assert (WITHOUT["rss"].ttl, WITHOUT["rss"].language) == (60.0, "de")
    assert WITHOUT["atom"].entries[0].url == "https://blog.example/dir/1"


@pytest.mark.parametrize("form", ENTRIES)
@cases("markup")
def test_content_is_ignored(form, markup):
    for name in CONTENT:
        for attributes in TYPES:
            content = f"<{name} {attributes}>{markup}</{name}>"
            assert read_of_unread(ENTRIES[form].replace("{0}", content)) == WITHOUT[form], content


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
    assert read_of_unread(ENTRIES[form].replace("{0}", content)) == WITHOUT[form]


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
def test_markup_in_content_is_ignored(name, attributes, inner, form):
    content = f"<{name} {attributes}>{inner}</{name}>"
    assert read_of_unread(ENTRIES[form].replace("{0}", content)) == WITHOUT[form]


# --- elements that are not skipped


def test_content_of_another_xml_type_is_read_as_elements():
    content = "<atom:content type='application/xml'><category>d</category></atom:content>"
    assert rss_of_unread(content).entries[0].tags == ("d", "c")


def test_an_element_that_contains_entries_is_not_their_content():
    body = "<body><item><title>One</title></item><item><title>Two</title></item></body>"
    feed = read_of_unread(f"<rss><channel><title>Blog</title>{body}</channel></rss>")
    assert [entry.title for entry in feed.entries] == [
        "Two"
    ]  # feedparser expects no entries there and loses the first


@pytest.mark.parametrize("name", ["content", "description", "body", "summary"])
def test_content_alone_is_no_feed(name):
    for inner in ("", "x", "<title>x</title>", "<item><title>x</title></item>"):
        with pytest.raises(NotAFeed):
            read_of_unread(f"<{name}>{inner}</{name}>")


def test_a_feed_with_content_that_is_not_well_formed_is_read():
    for markup in ("<p>x<br></p>", "<undeclared:p>x</undeclared:p>", "a & b", "<p a=b>&nbsp;</p>"):
        one, two = rss_of_unread(f"<description>{markup}</description>").entries
        assert (one.title, one.url, two.title) == ("One", "https://blog.example/1", "Two")
