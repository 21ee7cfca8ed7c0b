"""The pages as a site: no dead link, nothing from elsewhere, one reader for each page."""

import re
import sys

import pytest

import walsh_scrapy
from tests.helpers import ROOT, execute
from walsh_scrapy import testing
from walsh_scrapy.crawl.startup import Gate

#: Elements whose file a browser loads by itself, and what styles load.
LOADED = re.compile(
    r"<(?:audio|embed|iframe|img|link|object|script|source|video)\b[^>]*?\s(?:src|href|data)="
    r"[\"']?([^\"'\s>]+)|@import[^;]+|url\((?![\"']?data:)[^)]*\)"
)
ELSEWHERE = re.compile(r"(?:[a-z]+:)?//", re.IGNORECASE)

pytestmark = pytest.mark.long


def build(source, target, *options):
    """Build a site as `make docs` does."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs"]
    return execute(*command, *options, source, target, cwd=ROOT)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    done = build(ROOT, target)
    assert (done.returncode, done.stderr) == (0, "")
    return target


def from_elsewhere(text):
    """What a file of a site makes a browser load from another host."""
    return [found[0] for found in LOADED.finditer(text) if ELSEWHERE.search(found[0])]


def test_nothing_is_loaded_from_elsewhere(site):
    files = [file for file in site.rglob("*") if file.suffix in (".html", ".css", ".js", ".svg")]
    assert len(files) > 40
    for file in files:
        assert from_elsewhere(file.read_text("utf-8")) == [], file


def test_each_page_is_for_one_reader():
    index = (ROOT / "docs" / "index.rst").read_text("utf-8")
    listed = re.findall(r"^   (?:.+ <)?([/\w]+)>?$", index, re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert len(re.findall(r":caption: For ", index)) == 4


def test_the_pages_and_the_reference_list_the_same_public_names(site):
    promised, reuse, reference = (
        (ROOT / "docs" / page).read_text("utf-8")
        for page in ("compatibility.md", "reuse.md", "reference.rst")
    )
    public = set(re.findall(r"`(walsh_scrapy\.[\w.]+)`", promised))
    assert public >= {f"walsh_scrapy.{name}" for name in walsh_scrapy.__all__}
    _, names = reuse.split("\n## Python names\n")
    assert set(re.findall(r"^\| `(.+?)` \|", names, re.MULTILINE)) == public
    listed = set(re.findall(r"^\.\. auto\w+:: (.+)", reference, re.MULTILINE))
    assert listed >= public | {gate.path for gate in Gate}
    components = [".".join(path.split(".")[-2:]) for path in listed - public]
    assert [name for name in components if name not in reuse] == []
    page = (site / "docs" / "reference.html").read_text("utf-8")
    listed |= {f"walsh_scrapy.testing.{name}" for name in testing.__all__}
    assert listed - set(re.findall(r'id="(?:module-)?([\w.]+)"', page)) == set()


# --- what the checks above find


def test_dead_links_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One\n\n[a](#one) [b](#two) [c](o.md) [d](https://wal.sh/) [e](p.py)\n")
    done = build(tmp_path, tmp_path / "site", "-Droot_doc=page", "-Dinclude_patterns=page.md")
    assert done.returncode == 1
    assert re.findall(r"target not found: '(.+)'", done.stderr) == ["two", "o.md", "p.py"]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('<a href="https://a.example/">x</a><img src="a.png"><script src="b.js"></script>', 0),
        ('<script async src="https://a.example/x.js"></script>', 1),
        ('<link rel="stylesheet" href="//a.example/x.css"><img alt="x" src=http://a.example/x>', 2),
        (
            "b { background: url('data:image/svg+xml,<svg xmlns=\"http://a.example/svg\"/>') }",
            0,
        ),
        ('@import "https://a.example/x.css"; b { background: url(https://a.example/x.png) }', 2),
    ],
)
def test_what_comes_from_elsewhere_is_found(text, count):
    assert len(from_elsewhere(text)) == count
