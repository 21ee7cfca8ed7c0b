"""R7: the text of a document in any encoding, even if some of its bytes are damaged."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walsh_scrapy.feeds.metadata.encoding import to_utf8
from walsh_scrapy.feeds.metadata.feed import parse_feed
from walsh_scrapy.feeds.metadata.llmstxt import parse_llms
from walsh_scrapy.feeds.sources.opml import read_opml

URL = "https://blog.example/feed"
#: By the name that a document declares: Python's codec, words in this encoding, and a byte that is
#: never a part of a character.
ENCODINGS = {
    "utf-8": ("utf-8", "Größe über €uro Привет 日本語", b"\xff"),
    "iso-8859-2": ("iso8859-2", "Zażółć gęślą jaźń szybko", None),
    "iso-8859-5": ("iso8859-5", "Привет новый мир каждый день", None),
    "iso-8859-7": ("iso8859-7", "Καλημέρα κόσμε αυτή είναι", b"\xff"),
    "windows-1250": ("cp1250", "Žluťoučký kůň příšerně úpěl", b"\x81"),
    "windows-1251": ("cp1251", "Привет новый мир каждый день", b"\x98"),
    "windows-1252": ("cp1252", "Größe über Maß naïve café", b"\x81"),
    "windows-1253": ("cp1253", "Καλημέρα κόσμε αυτή είναι", b"\xff"),
    "windows-1255": ("cp1255", "שלום עולם חדש כל יום", b"\xff"),
    "koi8-r": ("koi8-r", "Привет новый мир каждый день", None),
    "shift_jis": ("cp932", "日本語のテスト 毎日の新しい記事 ①㈱", b"\xff"),
    "euc-jp": ("euc_jp", "日本語のテスト 毎日新聞記事", b"\xff"),
    "iso-2022-jp": ("iso2022_jp", "日本語のテスト 毎日新聞記事", b"\xff"),
    "gbk": ("gbk", "中文测试 每天新闻 鎔基", b"\xff"),
    "big5": ("big5", "中文測試 每天新聞 繁體", b"\xff"),
    "euc-kr": ("euc_kr", "한국어 시험 매일 새로운 글", b"\xff"),
}
RSS = (
    "<?xml version='1.0' encoding='{encoding}'?><rss version='2.0'><channel><title>F</title>"
    "<item><title>{title}</title><link>https://blog.example/1</link></item></channel></rss>"
)
ATOM = (
    "<?xml version='1.0' encoding='{encoding}'?><feed xmlns='http://www.w3.org/2005/Atom'>"
    "<title>F</title><entry><title>{title}</title><link href='https://blog.example/1'/></entry>"
    "</feed>"
)
JSON_FEED = json.dumps(
    {
        "version": "https://jsonfeed.org/version/1.1",
        "items": [{"id": "1", "url": "https://blog.example/1", "title": "{title}"}],
    }
)
LLMS = "# Site\n\n- [{title}](https://blog.example/1)\n"
OPML = (
    "<?xml version='1.0' encoding='{encoding}'?><opml version='2.0'><body>"
    "<outline type='rss' text='{title}' xmlUrl='https://blog.example/1'/></body></opml>"
)


FORMS = {"RSS": RSS, "Atom": ATOM, "JSON Feed": JSON_FEED, "llms.txt": LLMS, "OPML": OPML}


def title_in(form, title, *, declared, in_header):
    """Return the title that is read of a document with this title, as bytes."""
    before, after = FORMS[form].replace("{encoding}", declared).encode().split(b"{title}")
    body = before + title + after
    if form == "OPML":
        return read_opml(body).outlines[0].name
    read = parse_llms if form == "llms.txt" else parse_feed
    content_type = f"text/plain; charset={declared}" if in_header else None
    (entry,) = read(body, url=URL, content_type=content_type, source=URL).entries
    return entry.title


@st.composite
def damaged_titles(draw, codec, words, bad_byte):
    """Draw the bytes of a title with up to three bad bytes, and the title as it must be read."""
    spaces = st.sets(st.integers(0, len(words)), max_size=3)
    places = draw(spaces) if bad_byte else set()
    title, body = "", b""
    for place, character in enumerate(words + " "):
        if place in places:
            title += "\ufffd"
            body += bad_byte
        title += character
        body += character.encode(codec)
    return title.strip(), body


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ENCODINGS)
@given(data=st.data())
def test_a_bad_byte_costs_no_other_character(form, name, data):
    title, damaged = data.draw(damaged_titles(*ENCODINGS[name]))
    assert title_in(form, damaged, declared=name, in_header=True) == title


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("declared", ["", "iso-8859-1", "shift_jis", "us-ascii", "nonsense"])
@given(data=st.data())
def test_utf8_is_recognized_by_its_sequences(form, declared, data):
    title, damaged = data.draw(damaged_titles(*ENCODINGS["utf-8"]))
    assert title_in(form, damaged, declared=declared, in_header=bool(declared)) == title


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        pytest.param(b"caf\xc3\xa9 \xc3 ok", None, "café \ufffd ok", id="one sequence, undeclared"),
        pytest.param(b"caf\xe9", "text/xml; charset=utf-8", "café", id="no sequence: windows-1252"),
        pytest.param(b"caf\xe9 \x80", None, "café €", id="nothing declared: windows-1252"),
        pytest.param(
            b"\xc3\xa1 \xe9\xe9\xe9",
            "text/xml; charset=iso-8859-2",
            "ĂĄ ééé",
            id="few sequences",
        ),
        pytest.param(b"\xef\xbb\xbf\xe9", "text/xml; charset=koi8-r", "\ufffd", id="BOM of UTF-8"),
        pytest.param("é".encode("utf-16"), "text/xml; charset=utf-8", "é", id="BOM of UTF-16"),
        pytest.param("<é>".encode("utf-16-le"), None, "<é>", id="zero bytes"),
        pytest.param(b"plain", "text/xml; charset=utf-16", "plain", id="ASCII, not UTF-16"),
        pytest.param(b"plain", "text/xml; charset=cp037", "plain", id="ASCII, not EBCDIC"),
        pytest.param(b"\xad\xa1\xad\xea", "text/xml; charset=euc-jp", "①㈱", id="NEC in EUC-JP"),
        pytest.param(b"\xa1\xc1", "text/xml; charset=euc-jp", "\uff5e", id="wave dash in EUC-JP"),
        pytest.param(
            b"\x1b$B-!-j\x1b(B \x1b(I1\x1b(Ja",
            "text/xml; charset=iso-2022-jp",
            "①㈱ ｱa",
            id="ISO-2022",
        ),
        pytest.param(b"\x80 \xd6\xd0", "text/xml; charset=gb2312", "€ 中", id="the euro in GBK"),
        pytest.param(
            b"\xff\xff\xff\xff\xc3", "text/xml; charset=gbk", "ÿÿÿÿÃ", id="too many bad bytes"
        ),
    ],
)
def test_the_encoding_is_recognized(body, content_type, text):
    assert to_utf8(body, content_type).decode() == text


@pytest.mark.parametrize(
    ("content_type", "declaration"),
    [
        ('text/xml; charset="windows-1251"', ""),
        ("text/xml; charset='windows-1251'", ""),
        ("text/xml; Charset = Windows-1251; q=1", ""),
        ("text/xml; charset=x-cp1251", ""),
        (None, "<?xml version='1.0' encoding = \"windows-1251\"?>"),
        (None, "\n<?xml version='1.0'\tencoding=' windows-1251 ' standalone='yes'?>"),
        (None, "<?XML version='1.0' ENCODING='WINDOWS-1251'?>"),
        (None, "<?xml version='1.0'encoding=windows-1251?>"),
        ("text/xml; charset=unknown", "<?xml version='1.0' encoding='x-cp1251'?>"),
    ],
)
def test_declarations_in_other_spellings(content_type, declaration):
    text = f"{declaration}Привет"
    assert to_utf8(text.encode("cp1251"), content_type).decode() == text


@pytest.mark.parametrize(
    ("label", "codec", "text"),
    [
        ("x-gbk", "gbk", "中文测试"),
        ("gb_2312", "gbk", "中文测试"),
        ("x-euc-jp", "euc_jp", "日本語"),
        ("windows-949", "cp949", "한국어 똠방"),
        ("iso-8859-8-i", "iso8859-8", "שלום"),
        ("x-mac-cyrillic", "mac_cyrillic", "Привет"),
        ("koi", "koi8-r", "Привет"),
        ("windows-31j", "cp932", "①㈱"),
        ("win-1251", "cp1251", "Привет"),
        ("zh-cn", "gb18030", "中文测试"),
        ("cp-1251", "cp1251", "Привет"),
        ("windows1251", "cp1251", "Привет"),
        ("windows_1251", "cp1251", "Привет"),
        ("win1251", "cp1251", "Привет"),
        ("win-1250", "cp1250", "Žluťoučký"),
        ("windows874", "cp874", "ก"),
        ("koi8r", "koi8-r", "Привет"),
        ("koi8u", "koi8-u", "Привіт"),
        ("latin-2", "iso8859-2", "Zażółć"),
        ("iso88592", "iso8859-2", "Zażółć"),
        ("iso_8859_2", "iso8859-2", "Zażółć"),
        ("ISO-88592", "iso8859-2", "Zażółć"),
        ("big-5", "big5", "中文測試"),
        ("x-x-big5", "big5", "中文測試"),
        ("gb-2312", "gb2312", "中文测试"),
        ("shift-jis", "shift_jis", "日本"),
        ("x-sjis", "shift_jis", "日本"),
        ("eucjp", "euc_jp", "日本"),
        ("euckr", "euc_kr", "한국어"),
        ("us-ascii", "cp1252", "€"),
        ("iso-8859-9", "cp1254", "€ğ"),
        ("tis-620", "cp874", "€ก"),
        ("big5", "big5hkscs", "㗎"),
    ],
)
def test_labels_that_the_web_reads_otherwise_than_python(label, codec, text):
    assert to_utf8(text.encode(codec), f"text/xml; charset={label}").decode() == text


def test_three_bad_bytes_in_a_short_llms_txt():
    body = b"# A\n- [caf\xc3\xa9 \xff\xff\xff](https://blog.example/1)\n"
    (entry,) = parse_llms(body, url=URL, content_type=None, source=URL).entries
    assert entry.title == "café \ufffd\ufffd\ufffd"


def test_one_bad_byte_in_a_hundred_is_few():
    text = "中" * 400
    body = text.encode("gbk") + b"\xff" * 8
    assert to_utf8(body, "text/xml; charset=gbk").decode() == text + "\ufffd" * 8


@pytest.mark.parametrize("name", ["idna", "punycode", "unicode_escape", "base64", "undefined"])
def test_codecs_that_no_page_uses_are_ignored(name):
    assert to_utf8(b"caf\xe9", f"text/xml; charset={name}").decode() == "café"


@given(st.binary(), st.none() | st.sampled_from([f"a/b; charset={name}" for name in ENCODINGS]))
def test_any_bytes_become_valid_utf8(body, content_type):
    assert to_utf8(body, content_type).decode() is not None
