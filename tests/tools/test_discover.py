"""Lines for sources.toml are valid TOML and safe to print, whatever characters a title has."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from walsh_scrapy.sources.loading import load_sources
from walsh_scrapy.sources.source import Source
from walsh_scrapy.tools.offers import source_table, toml_string

TEXT = st.text(st.characters() | st.sampled_from("\"'\\\n\r\t\b\x00\x1b\x7f\x85\x9b\u202e\u2028"))


@given(TEXT)
def test_a_string_is_read_back_and_stays_a_line(text):
    written = toml_string(text)
    assert written.isascii() or len(written.splitlines()) == 1
    assert not any(ord(each) < 32 or 127 <= ord(each) < 160 for each in written)
    read = tomllib.loads(f"a = {written}")["a"]
    assert read == "".join("\ufffd" if 0xD800 <= ord(each) < 0xE000 else each for each in text)


def test_a_table_is_read_back_by_the_reader_of_sources(tmp_path):
    sources = (
        Source("http://blog.example/feed", "feed", 'A "title"\n[[source]]'),
        Source("http://docs.example/%22", "llms"),
    )
    file = tmp_path / "sources.toml"
    file.write_text("\n".join(line for each in sources for line in source_table(each)), "utf-8")
    assert load_sources(file) == sources
