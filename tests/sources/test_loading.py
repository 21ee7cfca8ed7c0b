"""Declared sources: every file format, and one clear line for what is wrong."""

import io
import json
import logging
import os
import tomllib
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walsh_scrapy.sources import loading
from walsh_scrapy.sources.loading import load_sources
from walsh_scrapy.sources.opml import DEEPEST, read_opml
from walsh_scrapy.sources.source import Source, SourcesError


@pytest.fixture
def load(tmp_path):
    def write_and_load(name, content):
        file = tmp_path / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return load_sources(file)

    return write_and_load


@pytest.fixture
def refusal(load, tmp_path):
    def reason(name, content):
        with pytest.raises(SourcesError) as caught:
            load(name, content)
        message = str(caught.value)
        assert "\n" not in message
        assert message.startswith(f"{tmp_path / name}: ")
        return message.removeprefix(f"{tmp_path / name}: ")

    return reason


TOML = """
[[source]]
url = "https://A.Example:443/feed.xml#top"

[[source]]
url = "http://bücher.example/ä ö"
kind = "llms"
name = "Bücher"
tags = ["news", "de", "news"]
every = "P1W"
delay = "PT1M"

[[source]]
url = "https://a.example/feed.xml/"
delay = 0.5
"""


def test_toml(load):
    assert load("sources.toml", TOML) == (
        Source("https://a.example/feed.xml", delay=timedelta(seconds=0.5)),
        Source(
            "http://xn--bcher-kva.example/%C3%A4%20%C3%B6",
            kind="llms",
            name="Bücher",
            tags=("news", "de"),
            every=timedelta(weeks=1),
            delay=timedelta(minutes=1),
        ),
    )


LIST = """\ufeff# my feeds\r
https://a.example/feed#fragment\r
\r
   http://b.example   # the second
\t# indented
https://c.example/?q=a#b"""


def test_plain_list(load):
    urls = [source.url for source in load("sources.txt", LIST)]
    assert urls == ["https://a.example/feed", "http://b.example/", "https://c.example/?q=a"]


JSON = ["https://a.example/", {"url": "https://b.example/", "kind": "llms", "every": "PT6H"}]


@pytest.mark.parametrize("value", [JSON, {"source": JSON}])
def test_json(load, value):
    assert load("sources.json", json.dumps(value)) == (
        Source("https://a.example/"),
        Source("https://b.example/", kind="llms", every=timedelta(hours=6)),
    )


OPML = """<?xml version="1.0" encoding="UTF-8"?>
<opml version="2.0"><head><title>Mine</title></head><body>
<outline text="Tech">
  <outline text="Python">
    <outline type="rss" text="Core &amp; more" title="Core" xmlUrl="https://a.example/feed"
      htmlUrl="https://a.example/" category="/Boston/Weather,news"/>
  </outline>
  <outline TYPE="RSS" TEXT="Upper" XMLURL="https://b.example/feed"/>
  <outline text="a note"/>
</outline>
<outline type="llms" text="Docs" xmlUrl="https://c.example/"/>
</body></opml>"""


@pytest.mark.parametrize("name", ["subs.opml", "subs.xml", "SUBS.OPML"])
def test_opml(load, name):
    assert load(name, OPML) == (
        Source(
            "https://a.example/feed",
            name="Core",
            tags=("Tech", "Python", "Boston/Weather", "news"),
            page="https://a.example/",
            folders=("Tech", "Python"),
        ),
        Source("https://b.example/feed", name="Upper", tags=("Tech",), folders=("Tech",)),
        Source("https://c.example/", kind="llms", name="Docs"),
    )


def outlines(attributes, before=""):
    return f"{before}<opml><body><outline {attributes}/></body></opml>"


PLAIN_URL, BARE_URL = (
    'xmlUrl="https://a.example/?x=1&amp;y=2"',
    'xmlUrl="https://a.example/?x=1&y=2"',
)
LATIN, UTF8, NONSENSE = (
    f'<?xml version="1.0" encoding="{name}"?>' for name in ("iso-8859-1", "utf-8", "nonsense")
)
BROKEN_OPML = [
    (outlines(f'text="a & b" {BARE_URL}'), "a & b"),
    (outlines(f'text="a &amp; b &copy c" {PLAIN_URL}'), "a & b &copy c"),
    (outlines(f'text="a&nbsp;b &rsquo; &unknown;" {BARE_URL}'), "a\u00a0b \u2019 &unknown;"),
    (outlines(f'text="1 < 2" {BARE_URL}'), "1 < 2"),
    (outlines(f'text="bell\x07&#7;" {BARE_URL}'), "bell"),
    (outlines(f'text="top" {PLAIN_URL}', before='\ufeff\n\n<?xml version="1.0"?>'), "top"),
    (outlines(f'text="Bücher" {PLAIN_URL}').encode("latin-1"), "Bücher"),
    (outlines(f'text="Bücher" {PLAIN_URL}', before=LATIN).encode("latin-1"), "Bücher"),
    (outlines(f'text="Bücher" {PLAIN_URL}', before=UTF8).encode("cp1252"), "Bücher"),
    (outlines(f'text="Bücher" {BARE_URL}', before=NONSENSE).encode(), "Bücher"),
    (outlines(f'text="Bücher" {PLAIN_URL}').encode("utf-16"), "Bücher"),
    (outlines(f'text="Bücher" {BARE_URL}').encode("utf-16-le"), "Bücher"),
    (outlines(f"text='1 < 2' {BARE_URL}"), "1 < 2"),
    (outlines(f'text="a\n  b" {BARE_URL}'), "a b"),
    (outlines(f'text="a" text="b" {PLAIN_URL}'), "a"),
    (outlines(f'text="say "hi" now" {PLAIN_URL}'), "say"),
    (outlines(f'text="close"{PLAIN_URL}'), "close"),
    (outlines("text=bare xmlUrl=https://a.example/?x=1&y=2 "), "bare"),
    (outlines(f'text checked title="Empty" {PLAIN_URL}'), "Empty"),
    (outlines(f'foo:bar="1" text="prefix" {PLAIN_URL}'), "prefix"),
    (outlines(f'text="U+D800 &#xD800;" {PLAIN_URL}'), "U+D800 \ufffd"),
    (outlines(f'text="types" {BARE_URL}', before="<!DOCTYPE opml SYSTEM 'o.dtd'>"), "types"),
    (outlines('text="one" type="RSS" url="https://a.example/?x=1&amp;y=2"'), "one"),
    (outlines('text="one" type="rss" xmlUrl="" url="https://a.example/?x=1&y=2"'), "one"),
]


@pytest.mark.parametrize(("content", "name"), BROKEN_OPML)
def test_opml_as_readers_export_it(load, content, name):
    (source,) = load("subs.opml", content)
    assert (source.url, source.name) == ("https://a.example/?x=1&y=2", name)


A, B = '<outline xmlUrl="https://a.example/"', '<outline xmlUrl="https://b.example/"'
FOLDER = '<outline text="F">'
BROKEN_STRUCTURE = {
    "directly below": f"<opml>{A}/>{B}/></opml>",
    "no end of an outline": f"<opml><body>{A}>{B}></body></opml>",
    "no end of a folder": f"<opml><body>{A}/>{FOLDER}{B}/></body></opml>",
    "one end too many": f"<opml><body>{A}/></outline></outline>{B}/></body></opml>",
    "ends in other letters": f"<OPML><Body>{A}></OUTLINE>{B}/></BODY></opml>",
    "said twice": f'<?xml version="1.0"?><?xml version="1.0"?><opml>{A}/>{B}/></opml>',
    "dashes in a comment": f"<opml><!-- a -- b -->{A}/>{B}/></opml>",
    "a warning above": f"<br />\n<b>Warning</b>: x\n<?xml version='1.0'?><opml>{A}/>{B}/></opml>",
    "more behind it": f"<opml>{A}/>{B}/></opml>\n<!-- 1 s --><p>served by x</p>",
    "no end of the head": f"<opml><head><title>x</title><body>{A}/>{B}/></body></opml>",
}


@pytest.mark.parametrize("content", BROKEN_STRUCTURE.values(), ids=BROKEN_STRUCTURE)
def test_opml_that_is_not_xml_is_read_nevertheless(load, caplog, content):
    found = load("subs.opml", content)
    assert [source.url for source in found] == ["https://a.example/", "https://b.example/"]
    assert caplog.records == []


def test_a_folder_may_look_like_a_subscription(load):
    for attributes in ('xmlUrl=""', 'type="rss"', 'type="folder" xmlUrl=" "'):
        folder = f'<opml><outline text="F" {attributes}>{A}/></outline></opml>'
        assert load("subs.opml", folder) == (
            Source("https://a.example/", tags=("F",), folders=("F",)),
        )


def test_outlines_that_are_commented_out_are_not_declared(load, caplog):
    """`isComment` of OPML 2.0, of an outline or of a folder with all its outlines."""
    commented = 'isComment="True"'
    off = f'<outline text="Off" {commented}><outline text="Sub">{B}/></outline></outline>'
    for end in ("/>", ">"):  # the second is never ended, so the next one lies in it
        found = load("subs.opml", f"<opml><body>{off}{B} {commented}{end}{A}/></body></opml>")
        assert [source.url for source in found] == ["https://a.example/"]
    assert caplog.records == []


def test_opml_that_was_cut_off_is_read_with_a_warning(load, caplog):
    (source,) = load("subs.opml", f"<opml><body>{A}/>{B[:-3]}")
    assert source.url == "https://a.example/"
    (record,) = caplog.records
    assert record.getMessage().endswith(
        "subs.opml: it has no end (</opml>), so sources may be missing; export it again"
    )


def test_wrong_sources_of_an_exported_list_are_left_out_with_a_warning(load, caplog):
    content = (
        f'<opml><body>{A}/><outline text="Dead" type="rss"/><outline xmlUrl="/feed"/>'
        f'<outline xmlUrl="ftp://c.example/"/>{B}/></body></opml>'
    )
    found = load("subs.opml", content)
    assert [source.url for source in found] == ["https://a.example/", "https://b.example/"]
    assert [record.getMessage().partition("subs.opml: ")[2] for record in caplog.records] == [
        "left out: outline 2 ('Dead'): it has no URL; give it one that begins with https://",
        "left out: outline 3: '/feed' has no scheme; begin it with https:// or http://",
        "left out: outline 4: 'ftp://c.example/' is not http or https; only those are requested",
    ]


def test_an_exported_list_with_only_wrong_sources_is_refused(refusal, caplog):
    content = '<opml><outline xmlUrl="/a"/><outline xmlUrl="/b"/></opml>'
    assert refusal("subs.opml", content).startswith(
        "none of its 2 sources can be requested; outline 1: '/a' has no scheme"
    )
    assert caplog.records == []


def test_many_folders_without_end_are_read_quickly(load):
    deep = load("subs.opml", "<opml>" + '<outline text="x">' * 20_000 + f"{A}/></opml>")
    assert deep == (Source("https://a.example/", tags=("x",), folders=("x",)),)
    nested = "".join(f'<outline text="{number}">{A}/>' for number in range(100))
    assert len(read_opml(f"<opml>{nested}".encode()).outlines[-1].folders) == DEEPEST


def test_entities_are_not_expanded(refusal):
    bomb = '<!DOCTYPE opml [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>' + OPML.partition("?>")[2]
    assert refusal("subs.opml", bomb) == "it declares entities, which are never expanded"
    outside = '<!DOCTYPE opml [<!ENTITY a SYSTEM "file:///etc/passwd">]>' + outlines('text="&a;"')
    assert "entities" in refusal("subs.opml", outside)
    assert "entities" in refusal("subs.opml", "&" + outside)  # also if it is no XML


def test_a_target_declared_twice_is_one_source_with_one_warning(load, caplog):
    content = "https://a.example/feed\nhttps://A.example:443/feed/#x\nhttps://a.example/feed\n"
    with caplog.at_level(logging.WARNING):
        assert load("sources.txt", content) == (Source("https://a.example/feed"),)
    (record,) = caplog.records
    assert record.getMessage().endswith(": declared before and counted once: line 2, line 3")


def test_a_source_in_several_places_has_the_tags_of_all(load):
    content = (
        f'<opml><outline text="News">{A} category="x"/></outline>'
        f'<outline text="Daily">{A} text="A" htmlUrl="https://a.example/blog" category="x,y"/>'
        "</outline></opml>"
    )
    assert load("subs.opml", content) == (
        Source(
            "https://a.example/",
            name="A",
            tags=("News", "x", "Daily", "y"),
            page="https://a.example/blog",
            folders=("News",),
        ),
    )
    twice = [{"url": "https://a.example/", "name": name, "tags": [name]} for name in ("1", "2")]
    (source,) = load("s.json", json.dumps(twice))
    assert (source.name, source.tags) == ("1", ("1", "2"))


def test_many_repetitions_give_one_warning(load, caplog):
    load("sources.txt", "https://a.example/\n" * 100)
    (record,) = caplog.records
    assert record.getMessage().endswith("line 2, line 3, line 4 and 96 more")


def test_a_page_is_one_source_whatever_its_kind(load, caplog):
    page = {"url": "https://a.example/"}
    assert len(load("sources.json", json.dumps([page, page | {"kind": "llms"}]))) == 1
    assert "counted once" in caplog.text


def test_hosts_of_a_private_network_may_be_declared(load):
    urls = [source.url for source in load("s.txt", "http://127.0.0.1:8000/f\nhttp://intranet/f\n")]
    assert urls == ["http://127.0.0.1:8000/f", "http://intranet/f"]


def entry(**values):
    return json.dumps([{"url": "https://a.example/"}, {"url": "https://b.example/"} | values])


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("s.toml", "", "it declares no source; add one, at least its URL"),
        ("s.toml", "source = []", "it declares no source"),
        ("s.txt", "# nothing\n", "it declares no source"),
        ("s.json", "[]", "it declares no source"),
        ("s.json", "{}", "it declares no source"),
        ("s.opml", "<opml/>", "it declares no source"),
        ("s.csv", "https://a.example/", "sources are read from .toml, .opml, .xml, .json and .txt"),
        ("sources", "https://a.example/", "sources are read from .toml, "),
        ("s.toml", "[[source]\n", "it is not TOML: "),
        ("s.toml", b"[[source]]\nname = '\xff'\n", "line 2: it is not UTF-8"),
        ("s.toml", b"\xef\xbb\xbfa\xff", "line 1: it is not UTF-8"),
        ("s.txt", b"# a\x1c\xc2\x85b\r\n# c\r\xff\n", "line 3: it is not UTF-8"),
        ("s.toml", "x = " + "[" * 10_000, "it is not TOML: "),
        (
            "s.toml",
            "[source]\nurl = 'https://a.b/'\n",
            "its sources are not a list; write [[source",
        ),
        ("s.toml", "[[sources]]\nurl = 'https://a.example/'\n", "unknown key 'sources' at the top"),
        ("s.toml", "[[source]]\nname = 'x'\n", "entry 1: it has no URL"),
        ("s.json", "[", "it is not JSON: "),
        ("s.json", '{"source": [], "source": []}', "it is not JSON: the key 'source' occurs twice"),
        ("s.json", "[" * 100_000, "it is not JSON: "),
        ("s.json", "[" + "9" * 5000 + "]", "it is not JSON: "),
        ("s.json", '"https://a.example/"', "its sources are not a list"),
        ("s.json", "[7]", "entry 1: it is neither a URL nor a table with one"),
        ("s.json", '["https://a.example/", ""]', "entry 2: it has no URL"),
        ("s.json", entry(url=7), "entry 2: it has no URL; give it one that begins with https://"),
        ("s.json", entry(kimd="feed"), "entry 2: unknown key 'kimd'; did you mean 'kind'?"),
        (
            "s.json",
            entry(zzz=1),
            "entry 2: unknown key 'zzz'; known are url, kind, name, tags, every, delay",
        ),
        ("s.json", entry(page="x"), "entry 2: unknown key 'page'"),
        ("s.json", entry(kind="feeds"), "entry 2: unknown kind 'feeds'; did you mean 'feed'?"),
        ("s.json", entry(kind=["feed"]), "entry 2: unknown kind ['feed']"),
        ("s.json", entry(kind=None), "entry 2: unknown kind None; known are feed, llms"),
        ("s.json", entry(name=7), "entry 2: its name is not a text; put it in quotes"),
        ("s.json", entry(tags="news"), "entry 2: its tags are not a list of texts"),
        ("s.json", entry(tags=["a", 1]), "entry 2: its tags are not a list of texts"),
        ("s.json", entry(every="daily"), "entry 2: every: 'daily' is not an ISO-8601 duration"),
        ("s.json", entry(every="P1M"), "entry 2: every: 'P1M' is not an ISO-8601 duration"),
        ("s.json", entry(every=86400), "entry 2: every is not a length of time"),
        ("s.json", entry(every="PT0S"), "entry 2: every is not a length of time"),
        ("s.json", entry(delay="10 s"), "entry 2: delay: '10 s' is not an ISO-8601 duration"),
        ("s.json", entry(delay=0), "entry 2: delay is not a length of time of at most 12 hours"),
        ("s.json", entry(delay=-1), "entry 2: delay is not a length of time"),
        ("s.json", entry(delay=[]), "entry 2: delay is not a length of time"),
        ("s.json", entry(delay=10**400), "entry 2: delay: "),
        ("s.json", entry(delay="PT12H1S"), "entry 2: delay is not a length of time"),
        ("s.txt", "https://a.example/\nftp://b.c/", "line 2: 'ftp://b.c/' is not http or https"),
        ("s.txt", "feed://b.example/", "line 1: 'feed://b.example/' is not http or https"),
        ("s.txt", "file:///etc/passwd", "line 1: 'file:///etc/passwd' is not http or https"),
        ("s.txt", "b.example/feed", "line 1: 'b.example/feed' has no scheme; begin it with http"),
        ("s.txt", "//b.example/feed", "line 1: '//b.example/feed' has no scheme"),
        ("s.txt", "https://", "line 1: 'https://' names no host that can be requested"),
        ("s.txt", "https://b.example:99999/", "line 1: 'https://b.example:99999/' names no host"),
        ("s.json", '["https://a b.example/"]', "entry 1: 'https://a b.example/' names no host"),
        ("s.txt", f"https://{'a.' * 127}example/", "line 1: 'https://a.a.a"),
        ("s.txt", f"https://a.example/{'x' * 2040}", "line 1: 'https://a.example/xxx"),
        ("s.txt", "https://a.example/ b", "line 1: one URL per line; comments begin with #"),
        ("s.opml", "", "it is not XML: "),
        ("s.opml", "<opml><body>", "it is not XML: "),
        ("s.opml", "{}", "it is not XML: "),
        ("s.opml", "https://a.example/", "it is not XML: "),
        ("s.opml", "<!doctype html><title>x</title><p>hi<br>", "it is not OPML, its outermost"),
        ("s.opml", f"<html><body>{A}></html>", "it is not OPML, its outermost element is <html>"),
        ("s.opml", "<rss/>", "it is not OPML, its outermost element is <rss>"),
        ("s.xml", "<rss>&nbsp;</rss>", "it is not OPML, its outermost element is <rss>"),
        ("s.opml", outlines('text="Dead" type="rss"'), "outline 1 ('Dead'): it has no URL"),
        ("s.opml", outlines('xmlUrl=""'), "outline 1: it has no URL"),
        ("s.opml", outlines('text="x" xmlUrl="a:b"'), "outline 1 ('x'): 'a:b' is not http or"),
    ],
)
def test_a_wrong_file_is_refused_with_place_and_reason(refusal, name, content, reason):
    assert refusal(name, content).startswith(reason)


@pytest.mark.parametrize(
    "url", ["https://me:secret@a.example/", "https:\\\\me:secret@a.example", "http:me:secret@a.b/"]
)
def test_credentials_are_refused_and_not_shown(refusal, url):
    reason = refusal("s.json", json.dumps([url]))
    assert reason.startswith("entry 1: its URL holds a user name or password")
    assert "secret" not in reason


def test_a_mail_address_holds_no_password(refusal):
    """Feed readers that take newsletters export their addresses."""
    reason = refusal("s.json", json.dumps(["mailto:list@news.example"]))
    assert reason == "entry 1: it is a mail address; only http and https are requested"


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("feed://a.example/rss", "http://a.example/rss"),
        ("feed:https://a.example/rss", "https://a.example/rss"),
        ("FEED:http://a.example/rss", "http://a.example/rss"),
    ],
)
def test_the_scheme_feed_is_refused_with_the_url_to_declare(refusal, url, meant):
    reason = refusal("s.json", json.dumps([url]))
    assert reason.endswith(f"is not http or https; only those are requested; declare '{meant}'")


def test_an_at_sign_in_the_path_is_not_a_credential(load):
    (source,) = load("s.txt", "https://a.example/@someone?mail=x@y")
    assert source.url == "https://a.example/@someone?mail=x@y"


def test_a_missing_file_a_folder_and_an_unreadable_one(tmp_path, monkeypatch):
    with pytest.raises(SourcesError, match=r"none\.toml: there is no such file; create it"):
        load_sources(tmp_path / "none.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(SourcesError, match=r"folder\.toml: this is a folder"):
        load_sources(str(tmp_path / "folder.toml"))

    def denied(path, flags):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(SourcesError, match=r"s\.toml: it cannot be read: Permission denied"):
        load_sources(tmp_path / "s.toml")


STRING = st.text("ab \\\"'#é\u2028\t\r\x7f\x00]=,").map('"{}"'.format) | st.just('"x"')
VALUE = STRING | st.lists(STRING).map(lambda each: f"[{', '.join(each)}]")
VALUE |= st.sampled_from(["5", "true", "'x'", '"x" # y', '["x",]', '["x","y"]', "[]", '"x" '])
KEY = st.sampled_from(["url", "name", "tags", '"url"', "a.b", "url ", " url", "é", "-_1"])
LINES = st.lists(
    st.tuples(KEY, VALUE).map(" = ".join) | st.sampled_from(["", "# x", "[x]", "[source.x]", "x"])
)


def value_of(read):
    """Return what is read, None for what is wrong."""
    try:
        return read()
    except ValueError:
        return None


def rows(lines, *ends):
    """Return the tables of two sources with the same lines."""
    return "".join("[[source]]\n" + ends[0].join(lines) + end for end in (ends[0], ends[-1]))


@settings(max_examples=500)
@given(LINES, st.sampled_from(["\n", "\r\n"]), st.sampled_from(["", "\n", "\r"]))
def test_a_row_of_tables_is_read_as_the_reader_of_toml_reads_it(lines, end, last):
    body = rows(lines, end, last).encode()

    def whole():
        return tomllib.loads(body.decode())

    def in_pieces():
        return {"source": [raw.value for raw in loading._read_toml(io.BytesIO(body), [])]}

    found, meant = value_of(in_pieces), value_of(whole)
    assert found == (meant if meant is None or set(meant) == {"source"} else None)


@pytest.fixture
def unread(monkeypatch):
    """Let TOML's reader fail."""
    monkeypatch.setattr(tomllib, "loads", lambda _: 1 / 0)


@pytest.mark.usefixtures("unread")
def test_a_plain_table_does_not_need_the_reader_of_toml(load):
    text = '[[source]]\nurl = "http://a.example/"\n\nname = "Ä"\ntags = ["a", "b"]\n'
    assert load("s.toml", text) == (Source("http://a.example/", name="Ä", tags=("a", "b")),)


DIGITS = "9" * 10_000
PLAIN = '[[source]]\nurl = "https://a.example/"\n'


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("s.toml", f"a{'.a' * 30_000} = 1\n", "line 1: a key has too many parts; keys are url, "),
        ("s.toml", f'{PLAIN}\n[[source]]\n"a"{" . b" * 200} = 1', "line 5: a key has too many"),
        ("s.toml", f"{PLAIN}[a{'.a' * 200}]", "line 3: a key has too many parts"),
        ("s.toml", f'{PLAIN}every = "P{DIGITS}D"', "entry 1: every: 'P9999"),
        ("s.toml", f"{PLAIN}delay = {DIGITS}", "it is not TOML: "),
        ("s.toml", f"{PLAIN}{PLAIN}x = ?", "it is not TOML: Invalid value (at line 5, column 5)"),
        ("s.toml", f"{PLAIN}name = '{'x' * 70_000}'", "line 3: it is longer than 65536 characters"),
        ("s.toml", PLAIN + "# x\n" * 20_000, "line 1: its table is longer than 65536 characters"),
        ("s.toml", "#\n" * 600_000 + "source = []", "it has more than 1048576 bytes"),
        ("s.txt", f"https://a.example/\n{'x' * 70_000}", "line 2: it is longer than 65536 "),
        ("s.txt", b"\0" * 70_000, "line 1: it is longer than 65536 characters"),
        ("s.json", " " * 17_000_000, "it has more than 16777216 bytes"),
        ("s.opml", " " * 17_000_000, "it has more than 16777216 bytes"),
        (
            "s.opml",
            "<opml><outline xmlUrl='a:b' every='x'/>" + "&a;" * 9,
            "outline 1: 'a:b' is not",
        ),
    ],
)
def test_a_file_that_would_take_gigabytes_is_refused(refusal, name, content, reason):
    assert refusal(name, content).startswith(reason)


@pytest.mark.parametrize("ending", [".toml", ".txt", ".json", ".opml"])
def test_only_regular_files_are_read(tmp_path, ending):
    pipe, device = tmp_path / f"pipe{ending}", tmp_path / f"device{ending}"
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    for file in (pipe, device):
        with pytest.raises(SourcesError, match=rf"{file}: it is a pipe or a device; write its"):
            load_sources(file)


def test_a_file_has_a_size(tmp_path, monkeypatch):
    file = tmp_path / "s.txt"
    with file.open("wb") as opened:
        opened.truncate(2**30 + 1)  # no block of it is on the disk
    with pytest.raises(SourcesError, match=r"s\.txt: it has 1073741825 bytes, and at most 1073"):
        load_sources(file)
