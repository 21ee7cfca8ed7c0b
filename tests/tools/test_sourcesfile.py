"""The sources file: what `walsh add` adds at its end, and what a URL stands for."""

import pytest

from walsh_scrapy.feeds.metadata.formats import FeedLink
from walsh_scrapy.feeds.sources.loading import load_sources
from walsh_scrapy.feeds.sources.source import Source, SourcesError
from walsh_scrapy.tools.call import CommandError
from walsh_scrapy.tools.offers import Candidate, choose, offers_for
from walsh_scrapy.tools.sourcesfile import SourcesFile

A, B = (f"https://{name}.example/feed" for name in "ab")
NEW = "https://new.example/feed"
LLMS = Source("https://docs.example/", kind="llms")
TOML = f"""# Ours.
[[source]]   # the first
url = "{A}"  # as they say
name = 'A "x"'

# about b
[[source]]
url = "{B}"
# the end"""
LIST = f"# ours\n{A}   # one\n\n  {B}"


@pytest.mark.parametrize(
    ("name", "body", "added"),
    [
        ("s.toml", TOML, f'\n\n[[source]]\nurl = "{NEW}"\nname = "N \\"é\\" <x>"\n'),
        ("s.toml", f"\ufeff{TOML}\n".replace("\n", "\r\n"), None),
        ("s.toml", "", f'[[source]]\nurl = "{NEW}"\nname = "N \\"é\\" <x>"\n'),
        ("s.txt", LIST, f"\n{NEW}\n"),
        ("s.txt", f"\ufeff{LIST}\n".replace("\n", "\r\n"), f"{NEW}\r\n"),
        ("s.txt", "", f"{NEW}\n"),
    ],
)
def test_source_is_added_at_the_end_of_an_unchanged_file(tmp_path, name, body, added):
    file = tmp_path / name
    file.write_bytes(body.encode())
    before = load_sources(file) if body else ()
    (line,) = SourcesFile(str(file)).add([Source(NEW, name='N "é" <x>')])
    assert line == f"added {NEW} to {file}"
    text = file.read_bytes().decode()
    assert text.startswith(body)
    assert added is None or text == body + added
    assert text.count("\n") == text.count("\r\n") or "\r" not in body
    *known, new = load_sources(file)
    assert (*known,) == before
    assert (new.url, new.name) == (NEW, 'N "é" <x>' if name == "s.toml" else None)


@pytest.mark.parametrize(
    ("name", "body", "words"),
    [
        ("s.opml", "<opml><body/></opml>", rf" by hand; add: .*{NEW} \(kind 'feed'\)"),
        ("s.xml", "", r" by hand; add: "),
        ("s.toml", f'source = ["{A}"]\n', r"by hand; add: \[\[source\]\] url ="),
        ("s.toml", "[[source]\n", "this is not TOML"),
        ("s.txt", "ftp://x.example/", "not an http or https"),
        ("s.yaml", "", "extension"),
    ],
)
def test_refused_source_leaves_the_file_unchanged(tmp_path, name, body, words):
    file = tmp_path / name
    file.write_text(body)
    with pytest.raises((CommandError, SourcesError), match=words):
        list(SourcesFile(str(file)).add([Source(NEW, name="N & co")]))
    assert file.read_text() == body


def test_a_list_of_urls_takes_feeds_alone(tmp_path):
    file = tmp_path / "s.txt"
    with pytest.raises(CommandError, match=r"use a \.toml file"):
        list(SourcesFile(str(file)).add([LLMS]))
    assert not file.exists()


def test_a_source_is_added_also_to_a_file_that_is_not_there_yet(tmp_path):
    file = tmp_path / "new" / "sources.toml"
    declared = SourcesFile(str(file))
    assert declared.undeclared([NEW, f"{NEW}/"]) == [NEW]
    sources = [Source(NEW, name="New"), LLMS]
    feed_line, llms_line = declared.add(sources)
    assert feed_line == f"added {NEW} to {file}"
    assert "kind 'llms'" in llms_line
    assert load_sources(file) == tuple(sources)
    assert declared.undeclared(["HTTPS://NEW.example:443/feed/"]) == []
    lines = list(declared.add([Source(f"{NEW}/"), Source(A), Source(f"{A}/")]))
    assert lines == [
        f"{NEW}/ is already in {file}", f"added {A} to {file}", f"{A}/ is already in {file}",
    ]  # fmt: skip
    assert load_sources(file) == (*sources, Source(A))


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "folder").write_text("")
    with pytest.raises(CommandError, match="cannot be written"):
        list(SourcesFile(str(tmp_path / "folder" / "s.txt")).add([Source(NEW)]))


RSS, SITE = "application/rss+xml", "https://site.example/"


def offer_of(form=None, feeds=(), title=None, outcome="answered as text/html"):
    (offer,) = offers_for([SITE])
    offer.page.mark_requested()
    offer.page.form, offer.page.title, offer.feeds = form, title, tuple(feeds)
    offer.page.set_outcome(outcome)
    return offer


def feed_of(url, title=None, *, entries=None, form="feed", unsure=False):
    fields = {"form": form, "title": title, "unsure": unsure, "link": FeedLink(url, title, RSS)}
    fields |= {"outcome": form or "answered 404", "entry_urls": frozenset(entries or {url})}
    return Candidate(url, "feed", requested=True, **fields)


@pytest.mark.parametrize(
    ("offer", "source"),
    [
        (offer_of("feed", title="A\x1b  title"), Source(SITE, name=r"A\x1b title")),
        (offer_of(feeds=[feed_of(A)]), Source(A)),
        (offer_of("markdown", feeds=[feed_of(A, "A")]), Source(A, name="A")),
        (offer_of("markdown", title="Docs"), Source(SITE, "llms", "Docs")),
        (offer_of("markdown", feeds=[feed_of(A, form=None)]), Source(SITE, "llms")),
    ],
)
def test_choice_of_the_source_for_a_url(offer, source):
    assert choose(offer)[0] == source


@pytest.mark.parametrize(
    "others",
    [
        [feed_of(f"{B}/comments/feed/")],
        [feed_of(B, entries={A}), feed_of(f"{B}?feed=comments-rss2")],
    ],
    ids=["of comments", "in another format"],
)
def test_the_main_feed_is_added_and_the_others_are_named(others):
    source, (head, *lines) = choose(offer_of(feeds=[feed_of(A), *others]))
    assert source == Source(A)
    assert "which were not added" in head
    assert [line.split()[0] for line in lines] == [f"{feed.url}:" for feed in others]


def test_several_candidates_are_listed_for_the_operator():
    comments = f"{B}/comments/feed/"
    choice = choose(offer_of(feeds=[feed_of(A, "It\x1b"), feed_of(B), feed_of(comments)]))
    assert choice[0] is None
    assert "several feeds" in choice[1][0]
    titled, untitled, of_comments = choice[1][1:]
    assert titled.startswith(f"  {A}: {RSS}: ")
    assert '"It\\u001b"' in titled
    assert untitled.startswith(f"  {B}: {RSS}: ")
    assert "without a title" in untitled
    assert of_comments.startswith(f"  {comments}: {RSS}, of comments: ")


def test_site_without_a_feed_gets_advice():
    source, (head, *tried) = choose(offer_of())
    assert source is None
    assert head.startswith("https://site.example/: no feed")
    assert tried == ["  https://site.example/: answered as text/html"]


def test_nothing_is_added_while_the_feed_is_undecided():
    source, (head, *_) = choose(offer_of("markdown", feeds=[feed_of(A, form=None, unsure=True)]))
    assert source is None
    assert head.startswith("https://site.example/: undecided")
