"""A table is read as TOML's own reader reads it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walsh_scrapy.sources import stream
from walsh_scrapy.sources.readers import read_toml

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


@settings(max_examples=500)
@given(LINES, st.sampled_from(["\n", "\r\n"]), st.sampled_from(["", "\n", "\r"]))
def test_a_table_is_read_as_the_reader_of_toml_reads_it(lines, end, last):
    text = "[[source]]\n" + end.join(lines) + last
    found = value_of(lambda: [stream._read_table(text)])
    assert found == value_of(lambda: [raw.value for raw in read_toml(text.encode()).sources])


@pytest.fixture
def unread(monkeypatch):
    """Let TOML's reader fail."""
    monkeypatch.setattr(stream, "read_toml", lambda _: 1 / 0)


@pytest.mark.usefixtures("unread")
def test_a_plain_table_does_not_need_the_reader_of_toml():
    text = '[[source]]\nurl = "http://a.example/"\n\nname = "Ä"\ntags = ["a", "b"]\n'
    assert stream._read_table(text) == {"url": "http://a.example/", "name": "Ä", "tags": ["a", "b"]}
