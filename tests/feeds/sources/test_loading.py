"""Declared sources: every file format, and one clear line for what is wrong."""

import io
import json
import logging
import os
import re
import tomllib
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import cases
from walsh_scrapy.feeds.sources import loading
from walsh_scrapy.feeds.sources.loading import MAX_TAG_CHARACTERS, MAX_TAGS, load_sources
from walsh_scrapy.feeds.sources.opml import MAX_FOLDER_DEPTH, read_opml
from walsh_scrapy.feeds.sources.source import Source, SourcesError
from walsh_scrapy.testing.crawl import write_sources


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


TABLE = '[[source]]\nurl = "https://a.example/"\n'
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


PLAIN, BARE = (f'text="Bücher" xmlUrl="https://a.example/?x=1{amp}y=2"' for amp in ("&amp;", "&"))
LATIN, UTF8 = (f'<?xml version="1.0" encoding="{name}"?>' for name in ("iso-8859-1", "utf-8"))


@cases("attributes", "name", "before")
def test_opml_as_readers_export_it(load, attributes, name, before):
    (source,) = load("subs.opml", outlines(attributes, before or ""))
    assert (source.url, source.name) == ("https://a.example/?x=1&y=2", name)


@pytest.mark.parametrize(
    ("attributes", "before", "encoding"),
    [
        (PLAIN, "", "latin-1"),
        (PLAIN, LATIN, "latin-1"),
        (PLAIN, UTF8, "cp1252"),
        (PLAIN, "", "utf-16"),
        (BARE, "", "utf-16-le"),
    ],
)
def test_opml_in_another_encoding_than_it_says(load, attributes, before, encoding):
    (source,) = load("subs.opml", outlines(attributes, before).encode(encoding))
    assert (source.url, source.name) == ("https://a.example/?x=1&y=2", "Bücher")


A, B = '<outline xmlUrl="https://a.example/"', '<outline xmlUrl="https://b.example/"'
FOLDER = '<outline text="F">'


@cases("what", "content")
def test_opml_that_is_not_xml_is_read_nevertheless(load, caplog, what, content):
    sources = load("subs.opml", content.format(A=A, B=B, FOLDER=FOLDER))
    assert [source.url for source in sources] == ["https://a.example/", "https://b.example/"]
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
        sources = load("subs.opml", f"<opml><body>{off}{B} {commented}{end}{A}/></body></opml>")
        assert [source.url for source in sources] == ["https://a.example/"]
    assert caplog.records == []


@pytest.mark.parametrize("is_xml", [True, False])
def test_every_and_delay_of_a_folder_count_for_its_outlines(load, is_xml):
    """The innermost folder counts, and what an outline has itself."""
    content = (
        '<opml xmlns:walsh="tag:wal.sh,2026:opml"><body>'
        '<outline text="F" walsh:every="P7D" walsh:delay="PT10S">'
        '<outline xmlUrl="https://a.example/"/>'
        '<outline xmlUrl="https://b.example/" walsh:every="P2D"/>'
        '<outline text="G" walsh:every="P3D"><outline xmlUrl="https://c.example/"/></outline>'
        '</outline><outline xmlUrl="https://d.example/"/></body></opml>'
    )
    sources = load("subs.opml", content if is_xml else content + "&nbsp;<")
    assert [(source.every, source.delay) for source in sources] == [
        (timedelta(days=7), timedelta(seconds=10)),
        (timedelta(days=2), timedelta(seconds=10)),
        (timedelta(days=3), timedelta(seconds=10)),
        (None, None),
    ]


def test_opml_that_was_cut_off_is_read_with_a_warning(load, caplog):
    (source,) = load("subs.opml", f"<opml><body>{A}/>{B[:-3]}")
    assert source.url == "https://a.example/"
    (record,) = caplog.records
    assert "subs.opml: " in record.getMessage()
    assert "</opml>" in record.getMessage()


def test_invalid_sources_of_an_opml_list_are_skipped(load, caplog):
    content = (
        f'<opml><body>{A}/><outline text="Dead" type="rss"/><outline xmlUrl="/feed"/>'
        f'<outline xmlUrl="ftp://c.example/"/>{B}/></body></opml>'
    )
    sources = load("subs.opml", content)
    assert [source.url for source in sources] == ["https://a.example/", "https://b.example/"]
    places = ["outline 2 ('Dead'): ", "outline 3: '/feed' ", "outline 4: 'ftp://c.example/' "]
    for record, place in zip(caplog.records, places, strict=True):
        assert f"subs.opml: skipped {place}" in record.getMessage()


def test_many_folders_without_end_are_read_quickly(load):
    deep = load("subs.opml", "<opml>" + '<outline text="x">' * 20_000 + f"{A}/></opml>")
    assert deep == (Source("https://a.example/", tags=("x",), folders=("x",)),)
    nested = "".join(f'<outline text="{number}">{A}/>' for number in range(100))
    assert len(read_opml(f"<opml>{nested}".encode()).outlines[-1].folders) == MAX_FOLDER_DEPTH


FOLDERS = "".join(f'<outline text="{number}{"x" * 40_000}">' for number in range(10))
CATEGORIES = ",".join(f"c{number}" for number in range(60))
TAGS = json.dumps([f"t{number}" for number in range(60)])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("subs.opml", "<opml>" + FOLDERS + f"{A}/>{B}/>" + "</outline>" * 10 + "</opml>"),
        ("subs.opml", f"<opml>{FOLDERS}{A}/>{B}/>"),
        ("subs.opml", f'<opml>{A} category="{CATEGORIES}"/>{B} category="{"y" * 101}"/></opml>'),
        ("subs.opml", "<opml>" + "".join(
            f'<outline text="{number}">{A}/>{B}/></outline>' for number in range(60)
        ) + "</opml>"),
        ("sources.toml", f'[[source]]\nurl = "https://a.example/"\ntags = {TAGS}\n'),
    ],
    ids=["folders", "not-well-formed", "categories", "merged", "toml"],
)  # fmt: skip
def test_tags_are_cut_with_one_warning(load, caplog, name, content):
    for source in load(name, content):
        assert 1 <= len(source.tags) <= MAX_TAGS
        assert max(map(len, (*source.tags, *source.folders))) <= MAX_TAG_CHARACTERS
    warnings = [record.getMessage() for record in caplog.records]
    assert sum(f"{MAX_TAG_CHARACTERS} characters" in warning for warning in warnings) == 1


def test_tags_within_the_limits_stay_as_they_are(load, caplog):
    tags = ["x" * MAX_TAG_CHARACTERS, *map(str, range(MAX_TAGS - 1))]
    content = f'[[source]]\nurl = "https://a.example/"\ntags = {json.dumps(tags)}\n'
    (source,) = load("sources.toml", content)
    assert source.tags == tuple(tags)
    assert caplog.records == []


def test_entities_are_not_expanded(refusal):
    bomb = '<!DOCTYPE opml [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>' + OPML.partition("?>")[2]
    assert "entities" in refusal("subs.opml", bomb)
    outside = '<!DOCTYPE opml [<!ENTITY a SYSTEM "file:///etc/passwd">]>' + outlines('text="&a;"')
    assert "entities" in refusal("subs.opml", outside)
    assert "entities" in refusal("subs.opml", "&" + outside)  # also if it is no XML


def test_a_target_declared_twice_is_one_source_with_one_warning(load, caplog):
    content = "https://a.example/feed\nhttps://A.example:443/feed/#x\nhttps://a.example/feed\n"
    with caplog.at_level(logging.WARNING):
        assert load("sources.txt", content) == (Source("https://a.example/feed"),)
    (record,) = caplog.records
    assert re.findall(r"line \d", record.getMessage()) == ["line 2", "line 3"]


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
    twice = [f'{TABLE}name = "{name}"\ntags = ["{name}"]\n' for name in ("1", "2")]
    (source,) = load("s.toml", "".join(twice))
    assert (source.name, source.tags) == ("1", ("1", "2"))


def test_many_repetitions_give_one_warning(load, caplog):
    load("sources.txt", "https://a.example/\n" * 100)
    (record,) = caplog.records
    assert record.getMessage().endswith("line 4 and 96 more")


def test_a_page_is_one_source_whatever_its_kind(load, caplog):
    assert len(load("sources.toml", f'{TABLE}{TABLE}kind = "llms"\n')) == 1
    assert "declared more than once" in caplog.text


def test_private_hosts_and_an_at_sign_in_a_path_are_accepted(load):
    urls = ["http://127.0.0.1:8000/f", "http://intranet/f", "https://a.example/@someone?mail=x@y"]
    assert [source.url for source in load("s.txt", "\n".join(urls))] == urls


@cases(
    "name",
    "content",
    "reason",
    more=[
        ("s.toml", b"[[source]]\nname = '\xff'\n", "line 2: this is not UTF-8"),
        ("s.toml", b"\xef\xbb\xbfa\xff", "line 1: this is not UTF-8"),
        ("s.txt", b"# a\x1c\xc2\x85b\r\n# c\r\xff\n", "line 3: this is not UTF-8"),
        ("s.toml", "x = " + "[" * 10_000, "not TOML: "),
        ("s.txt", f"https://{'a.' * 127}example/", "line 1: 'https://a.a.a"),
        ("s.txt", f"https://a.example/{'x' * 2040}", "line 1: 'https://a.example/xxx"),
    ],
)
def test_a_wrong_file_is_refused_with_place_and_reason(refusal, caplog, name, content, reason):
    assert reason in refusal(name, content)
    assert caplog.records == []


@cases("values", "reason", more=[({"delay": 10**400}, "delay: ")])
def test_a_wrong_entry_is_refused_with_place_and_reason(refusal, tmp_path, values, reason):
    sources = ["https://a.example/", {"url": "https://b.example/"} | values]
    content = write_sources(tmp_path / "s.toml", sources).read_bytes()
    assert refusal("s.toml", content).startswith(f"entry 2: {reason}")


@pytest.mark.parametrize(
    "url", ["https://me:secret@a.example/", "https:\\\\me:secret@a.example", "http:me:secret@a.b/"]
)
def test_credentials_are_refused_and_not_shown(refusal, url):
    reason = refusal("s.txt", url)
    assert reason.startswith("line 1: ")
    assert "secret" not in reason


def test_a_missing_file_a_folder_and_an_unreadable_one(tmp_path, monkeypatch):
    with pytest.raises(SourcesError, match=r"none\.toml: there is no such file"):
        load_sources(tmp_path / "none.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(SourcesError, match=r"folder\.toml: this is a folder"):
        load_sources(str(tmp_path / "folder.toml"))

    def denied(path, flags):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(SourcesError, match=r"s\.toml: .*Permission denied"):
        load_sources(tmp_path / "s.toml")


STRING = st.text("ab \\\"'#é\u2028\t\r\x7f\x00]=,").map('"{}"'.format) | st.just('"x"')
VALUE = STRING | st.lists(STRING).map(lambda strings: f"[{', '.join(strings)}]")
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

    value, expected = value_of(in_pieces), value_of(whole)
    assert value == (expected if expected is None or set(expected) == {"source"} else None)


@pytest.fixture
def unread(monkeypatch):
    """Let TOML's reader fail."""
    monkeypatch.setattr(tomllib, "loads", lambda _: 1 / 0)


@pytest.mark.usefixtures("unread")
def test_a_plain_table_does_not_need_the_reader_of_toml(load):
    text = '[[source]]\nurl = "http://a.example/"\n\nname = "Ä"\ntags = ["a", "b"]\n'
    assert load("s.toml", text) == (Source("http://a.example/", name="Ä", tags=("a", "b")),)


DIGITS = "9" * 10_000


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("s.toml", f"a{'.a' * 30_000} = 1\n", "line 1: this key has too many parts"),
        ("s.toml", f'{TABLE}\n[[source]]\n"a"{" . b" * 200} = 1', "line 5: this key"),
        ("s.toml", f"{TABLE}[a{'.a' * 200}]", "line 3: this key"),
        ("s.toml", f'{TABLE}every = "P{DIGITS}D"', "entry 1: every: 'P9999"),
        ("s.toml", f"{TABLE}delay = {DIGITS}", "not TOML: "),
        ("s.toml", f"{TABLE}{TABLE}x = ?", "not TOML: Invalid value (at line 5, column 5)"),
        ("s.toml", f"{TABLE}name = '{'x' * 70_000}'", "line 3 is longer than 65536 characters"),
        ("s.toml", TABLE + "# x\n" * 20_000, "line 1: the table"),
        ("s.toml", "#\n" * 600_000 + "source = []", "1048576 bytes"),
        ("s.txt", f"https://a.example/\n{'x' * 70_000}", "line 2 is longer than 65536 "),
        ("s.txt", b"\0" * 70_000, "line 1 is longer than 65536 characters"),
        ("s.opml", " " * 17_000_000, "16777216 bytes"),
        ("s.opml", "<opml><outline xmlUrl='a:b' every='x'/>" + "&a;" * 9, "outline 1: 'a:b' is"),
    ],
)
def test_a_file_that_would_take_gigabytes_is_refused(refusal, name, content, reason):
    assert reason in refusal(name, content)


def test_only_regular_files_are_read(tmp_path):
    pipe, device = tmp_path / "pipe.toml", tmp_path / "device.opml"
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    for file in (pipe, device):
        with pytest.raises(SourcesError, match=rf"{file}: this is a pipe"):
            load_sources(file)


def test_a_file_has_a_size(tmp_path, monkeypatch):
    file = tmp_path / "s.txt"
    with file.open("wb") as opened:
        opened.truncate(2**30 + 1)  # no block of it is on the disk
    with pytest.raises(SourcesError, match=r"s\.txt: 1073741825 bytes .* 1073741824"):
        load_sources(file)


# Defaults of a tag.

DEFAULTS = """
[defaults.news]
every = "P2D"
delay = "PT10S"

[defaults."long reads"]
every = "P7D"

[[source]]
url = "https://none.example/"

[[source]]
url = "https://news.example/"
tags = ["news"]

[[source]]
url = "https://both.example/"
tags = ["long reads", "news"]

[[source]]
url = "https://own.example/"
tags = ["long reads", "news"]
every = "P1D"
delay = 1
"""


def intervals(sources):
    """Return the days and seconds of each source."""
    return [
        (source.every and source.every.days, source.delay and source.delay.seconds)
        for source in sources
    ]


def below(text):
    """Return the file with its defaults below the sources."""
    tables, header, sources = text.partition("[[source]]")
    return header + sources + tables


@pytest.mark.parametrize(
    "content",
    [DEFAULTS, below(DEFAULTS), below(DEFAULTS) + '[[source]]\nurl = """https://a.example/"""'],
    ids=["above", "below", "whole"],
)
def test_defaults_count_for_the_sources_of_a_tag(load, caplog, content):
    sources = load("s.toml", content)[:4]
    assert intervals(sources) == [(None, None), (2, 10), (7, 10), (1, 1)]
    assert caplog.records == []


def test_defaults_count_for_each_tag_of_a_repeated_source(load):
    content = f'{TABLE}tags = ["news"]\n{TABLE}tags = ["long reads"]\n{DEFAULTS}'
    assert intervals(load("s.toml", content)[:1]) == [(7, 10)]


@pytest.mark.parametrize("name", ['"x"', '"""x"""'], ids=["split", "whole"])
def test_defaults_without_a_source_are_a_warning_with_the_line(load, caplog, name):
    load("s.toml", f'{TABLE}name = {name}\n[defaults.tech]\nevery = "P1D"\n')
    (record,) = caplog.records
    assert "line 4 ('tech')" in record.getMessage()


@cases("content", "reason")
@pytest.mark.parametrize("name", ['"x"', '"""x"""'], ids=["split", "whole"])
def test_wrong_defaults_are_refused_with_the_line(refusal, content, reason, name):
    assert refusal("s.toml", f"{TABLE}name = {name}\n{content}\n").startswith(reason)


def test_defaults_have_a_maximum_size(refusal):
    content = "".join(f"[defaults.t{number}]\n" for number in range(5000))
    assert "defaults" in refusal("s.toml", TABLE + content)


def test_many_defaults_without_a_source_are_one_warning(load, caplog):
    content = "".join(f"[defaults.t{number}]\n" for number in range(40_000))
    load("s.toml", f'{TABLE}name = """x"""\n{content}')
    (message,) = caplog.messages
    assert message.endswith("line 6 ('t2') and 39997 more")


TAGS_OF_FILE = st.lists(st.sampled_from(["news", "a b", "x.y", 'q"', "é"]), unique=True)
BLOCKS = st.lists(
    st.tuples(st.just("source"), TAGS_OF_FILE, st.integers(0, 3))
    | st.tuples(
        st.sampled_from(
            ["[defaults.{}]", " [ defaults . {} ] # [", "[defaults]\n{0}.delay = 1\n{0}."]
        ),
        TAGS_OF_FILE.filter(bool),
        st.integers(1, 9),
    ),
    max_size=8,
)


@settings(max_examples=200)
@given(BLOCKS, st.booleans())
def test_defaults_and_sources_in_any_order_are_read_as_toml(blocks, is_whole):
    text = ""
    for number, (kind, tags, days) in enumerate(blocks):
        if kind == "source":
            text += f'[[source]]\nurl = "https://{number}.example/"\ntags = {json.dumps(tags)}\n'
        else:
            text += kind.format(json.dumps(tags[0])) + ("" if kind.endswith(".") else "\n")
        text += f'every = "P{days}D"\n' if days else ""
    text += '[[source]]\nurl = """https://end.example/"""' if is_whole else ""

    def load_text():
        body = io.BytesIO(text.encode())
        return [placed.source for placed in loading.parse_declarations(Path("s.toml"), body, [])]

    document = value_of(lambda: tomllib.loads(text))
    if document is None:  # a tag has two tables
        with pytest.raises(SourcesError):
            load_text()
        return
    tables = document.get("defaults", {})
    expected = []
    for value in document.get("source", []):
        own = value.get("every")
        days = [int(tables[tag]["every"][1:-1]) for tag in value.get("tags", ()) if tag in tables]
        expected.append(int(own[1:-1]) if own else max(days, default=None))
    assert [source.every and source.every.days for source in load_text()] == expected
