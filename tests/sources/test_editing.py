"""Editing a sources file: the sources asked for change, and nothing else does."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walsh_scrapy.sources import Source, SourcesError, load_sources
from walsh_scrapy.sources.editing import Edit, edit_sources

A, B, C, NEW = (f"https://{name}.example/feed" for name in ("a", "b", "c", "new"))
TOML = f"""# Ours.
[[source]]   # the first
url = "{A}"  # as they say
name = 'A "x"'

# about b
[[source]]
name = "B"
url = "{B}"
every = "P7D"
# about c
[[source]]
tags = ["x",
  "y", # odd
]
url = "{C}"
# the end
"""
LIST = f"# ours\n{A}   # one\n\n  {B}\n{C}"
JSON = json.dumps({"source": [A, {"name": "B", "url": B, "every": "P7D"}, {"url": C}]}, indent=1)
OPML = f"""<?xml version="1.0" encoding="utf-8"?>
<!-- exported --><opml xmlns:x="urn:x" version="1.1" x:own="1">
  <head><title>T</title></head>
  <body>
    <outline text="Folder">
      <outline x:id="7" type="rss" XMLURL="{A}" text="A &amp; a" custom="yes"/>
      <!-- about b -->
      <outline xmlUrl="{B}" text="B" htmlUrl="https://b.example/">
        <outline text="{C}" xmlUrl="{C}"/>
      </outline>
    </outline>
    <outline text="a note"/>
  </body>
</opml>
"""
FILES = {"toml": TOML, "txt": LIST, "json": JSON, "opml": OPML}


@pytest.fixture(params=FILES)
def change(request, tmp_path):
    """Edit a file of each format; return what it declares and its text."""
    file = tmp_path / f"sources.{request.param}"
    file.write_text(FILES[request.param])

    def run(**edit):
        new = edit_sources(file, file.read_bytes(), Edit(**edit))
        file.write_bytes(new)
        return load_sources(file), new.decode()

    run.file = file
    return run


def test_nothing_to_change_leaves_the_file(change):
    assert change()[1] == FILES[change.file.suffix[1:]]


@pytest.mark.parametrize("gone", [(A,), (B,), (C,), (A, B), (A, C), (B, C)])
def test_a_source_is_removed_and_comments_and_order_stay(change, gone):
    before = load_sources(change.file)
    after, text = change(removed=gone)
    assert after == tuple(each for each in before if each.url not in gone)
    comments = {
        ".toml": ["# Ours.", "# about b", "# about c", "# the end"],
        ".txt": ["# ours"],
        ".json": [],
        ".opml": ["<!-- exported -->", 'x:own="1"', "<!-- about b -->", '<outline text="a note"/>'],
    }[change.file.suffix]
    assert [each for each in comments if each not in text] == []
    assert [text.index(each) for each in comments] == sorted(text.index(each) for each in comments)


def test_a_source_gets_another_url_and_keeps_the_rest(change):
    before = load_sources(change.file)
    after, text = change(rewritten={B.replace("https://b", "HTTPS://B"): NEW})
    assert after == tuple(replace(each, url=NEW) if each.url == B else each for each in before)
    whole = FILES[change.file.suffix[1:]]
    assert text == whole.replace(B, NEW)


def test_sources_are_added_at_the_end(change):
    before = load_sources(change.file)
    added = [Source(NEW, name='N "é" \\ & <x>'), Source("https://d.example/", kind="llms")]
    if change.file.suffix == ".txt":
        with pytest.raises(SourcesError, match="a list of URLs declares feeds"):
            change(added=added)
        after, text = change(added=added[:1])
        assert after == (*before, Source(NEW))
        assert text == f"{LIST}\n{NEW}\n"
        return
    after, text = change(added=added)
    if change.file.suffix == ".opml":
        added[1] = replace(added[1], name=added[1].url)
        assert f'\n    <outline type="llms" text="{added[1].url}"' in text
    assert after == (*before, *added)


def test_the_last_source_is_not_removed(change):
    with pytest.raises(SourcesError, match="would declare no source any more"):
        change(removed=[A, B, C])


@pytest.mark.parametrize(
    ("name", "body", "words"),
    [
        ("s.toml", "[[source]\n", "it is not TOML"),
        (
            "s.opml",
            f'<opml><body><outline text="x & y" xmlUrl="{A}"/></body></opml>',
            "well-formed",
        ),
        ("s.opml", f'<opml><outline xmlUrl="{A}" text="x"/></opml>', "no body"),
        ("s.txt", "ftp://x.example/", "not http or https"),
        ("s.yaml", "", "sources are read from"),
    ],
)
def test_what_cannot_be_edited_is_refused(tmp_path, name, body, words):
    with pytest.raises(SourcesError, match=words):
        edit_sources(tmp_path / name, body.encode(), Edit(added=[Source(NEW)]))


def test_an_edit_that_would_change_more_is_refused(tmp_path):
    """What looks like a comment is the end of a text."""
    body = f'[[source]]\nurl = "{A}"\n[[source]]\nurl = "{B}"\n'
    added = Source(NEW, name="x\ny", tags=("tag",))
    new = edit_sources(tmp_path / "s.toml", body.encode(), Edit(added=[added]))
    assert b"tag" not in new, "only the URL, the kind and the name are written"
    opml = f'<opml><body><outline text="x" xmlUrl="{A}"/></body></opml>'
    with pytest.raises(SourcesError, match="edit it by hand"):
        edit_sources(tmp_path / "s.opml", opml.encode(), Edit(added=[added]))


@pytest.mark.parametrize(
    "body",
    [
        f'# ours\nsource = [\n  "{A}",\n  {{url = "{B}", every = "P7D"}}, # two\n  "{C}",\n]\n',
        f'source = ["{A}", {{url = "{B}", every = "P7D"}}, "{C}"]',
    ],
)
def test_a_list_in_toml_is_edited_too(tmp_path, body):
    file = tmp_path / "s.toml"
    edit = Edit(added=[Source(NEW, name="N")], removed=[A], rewritten={B: f"{B}/2", C: f"{C}/2"})
    file.write_bytes(edit_sources(file, body.encode(), edit))
    declared = load_sources(file)
    assert [source.url for source in declared] == [f"{B}/2", f"{C}/2", NEW]
    assert declared[0].every is not None
    assert file.read_text().startswith("# ours\n") == body.startswith("# ours\n")


@pytest.mark.parametrize("encoding", ["utf-16", "iso-8859-1"])
def test_opml_in_another_encoding_stays_in_it(tmp_path, encoding):
    file = tmp_path / "s.opml"
    text = OPML.replace("utf-8", encoding).replace("Folder", "Größe")
    file.write_bytes(edit_sources(file, text.encode(encoding), Edit(removed=[A])))
    assert {tag for source in load_sources(file) for tag in source.tags} == {"Größe"}
    assert "Größe" in file.read_bytes().decode(encoding)


def test_an_empty_file_gets_its_first_source(tmp_path):
    for name in ("s.toml", "s.txt"):
        file = tmp_path / name
        file.write_bytes(edit_sources(file, b"", Edit(added=[Source(NEW)])))
        assert load_sources(file) == (Source(NEW),)


def test_line_ends_and_the_mark_of_an_editor_stay(change):
    body = b"\xef\xbb\xbf" + FILES[change.file.suffix[1:]].replace("\n", "\r\n").encode()
    new = edit_sources(change.file, body, Edit(added=[Source(NEW)], removed=[B]))
    assert new.startswith(b"\xef\xbb\xbf")
    assert new.count(b"\n") == new.count(b"\r\n")


@given(st.lists(st.sampled_from([A, B, C, f"{A}/", NEW]), min_size=1), st.sampled_from([A, B, NEW]))
def test_what_is_declared_twice_is_removed_twice(tmp_path_factory, urls, gone):
    file = tmp_path_factory.getbasetemp() / "twice.txt"
    body = "".join(f"{url}\n" for url in urls).encode()
    left = [url for url in urls if url.rstrip("/") != gone]
    if not left:
        return
    assert edit_sources(file, body, Edit(removed=[gone])).decode().split() == left
