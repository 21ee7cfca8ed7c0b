"""Sources exported as OPML are the sources that were declared."""

from walsh_scrapy.sources import Source, load_sources
from walsh_scrapy.tools.export.opml import export_sources

URL = "http://a.example/feed"


def test_sources_exported_as_opml_are_read_back_unchanged(tmp_path):
    sources = [
        Source(URL, name='Tom & "Jerry" <x>\x00', tags=("a", "b c")),
        Source("http://a.example/?q=1&r=<2>", kind="llms", page="http://a.example/"),
        Source("http://a.example/odd", name="Odd", tags=("a, b", "/c/")),
    ]
    file = tmp_path / "sources.opml"
    with file.open("wb") as opened:
        assert export_sources(sources, opened, lambda _url: None) == 3
    first, second, third = load_sources(file)
    assert (first.url, first.name, first.tags) == (URL, 'Tom & "Jerry" <x>', ("a", "b c"))
    assert (second.kind, second.page) == ("llms", "http://a.example/")
    assert second.url == "http://a.example/?q=1&r=%3C2%3E"
    assert (third.tags, third.name) == (("a, b", "/c/"), "Odd")
