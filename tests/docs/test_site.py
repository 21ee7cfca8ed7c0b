"""The pages as a site: no dead link, nothing from elsewhere, one reader for each page."""

import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import walsh_scrapy
from tests.helpers import ROOT, execute
from walsh_scrapy import testing

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
    promised, reference = (
        (ROOT / "docs" / page).read_text("utf-8") for page in ("compatibility.md", "reference.rst")
    )
    public = set(re.findall(r"`(walsh_scrapy\.[\w.]+)`", promised))
    assert public >= {f"walsh_scrapy.{name}" for name in walsh_scrapy.__all__}
    listed = set(re.findall(r"^\.\. auto\w+:: (.+)", reference, re.MULTILINE))
    assert listed == public
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


def test_what_comes_from_elsewhere_is_found():
    own = '<a href="https://a.example/">x</a><img src="a.png"><script src="b.js"></script>'
    own += "b { background: url('data:image/svg+xml,<svg xmlns=\"http://a.example/svg\"/>') }"
    assert from_elsewhere(own) == []
    for text in (
        '<script async src="https://a.example/x.js"></script>',
        '<link rel="stylesheet" href="//a.example/x.css">',
        '<img alt="x" src=http://a.example/x>',
        '@import "https://a.example/x.css";',
        "b { background: url(https://a.example/x.png) }",
    ):
        assert len(from_elsewhere(text)) == 1, text


# What the project is installed from and built into: pinned, hashed, the same bytes each time.

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
GROUPS = PROJECT["dependency-groups"]
EXTRAS = PROJECT["project"]["optional-dependencies"]
RUN = [*PROJECT["project"]["dependencies"], *(line for extra in EXTRAS.values() for line in extra)]
DEVELOPED = [line for name in ("test", "check", "release", "docs") for line in GROUPS[name]]
ASKED = {
    "requirements.txt": [*RUN, *DEVELOPED],
    ".ci/lowest.txt": [*RUN, *GROUPS["test"]],
    ".ci/supply.txt": GROUPS["supply"],
}
PINNED = re.compile(
    r"[a-z0-9-]+==[^ ;]+(?: ; [^\\]+)? \\(?:\n    --hash=sha256:[0-9a-f]{64} \\)*\n.*"
)


@pytest.mark.parametrize("name", ASKED)
def test_every_requirement_is_pinned_with_hashes(name):
    text = re.sub(r"^ *#.*\n", "", (ROOT / name).read_text("utf-8"), flags=re.MULTILINE)
    for entry in re.split(r"\n(?! )", text.rstrip("\n")):
        assert PINNED.fullmatch(entry), entry
    assert "://" not in text


@pytest.mark.parametrize("name", ASKED)
def test_the_pins_are_what_pyproject_asks_for(name):
    lines = re.findall(r"^([a-z].*) \\$", (ROOT / name).read_text("utf-8"), re.MULTILINE)
    pins = {pin.name: pin.specifier for pin in map(Requirement, lines)}
    for asked in map(Requirement, ASKED[name]):
        (pin,) = pins[canonicalize_name(asked.name)]
        assert asked.specifier.contains(pin.version), asked


def test_the_lowest_versions_are_the_bounds_of_pyproject():
    lines = re.findall(
        r"^([a-z].*) \\$", (ROOT / ".ci/lowest.txt").read_text("utf-8"), re.MULTILINE
    )
    pins = {pin.name: next(iter(pin.specifier)).version for pin in map(Requirement, lines)}
    for asked in map(Requirement, PROJECT["project"]["dependencies"]):
        lowest = next(bound.version for bound in asked.specifier if bound.operator == ">=")
        assert Version(pins[canonicalize_name(asked.name)]) == Version(lowest), asked


def test_a_wheel_is_the_same_wherever_and_whenever_it_is_built(tmp_path):
    wheels = []
    for place, mode, modified in (("one", 0o644, 1_000_000_000), ("two/2", 0o600, 1_700_000_000)):
        copy = tmp_path / place
        compiled = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "walsh_scrapy", copy / "walsh_scrapy", ignore=compiled)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, copy)
        for file in copy.rglob("*.*"):
            file.chmod(mode | file.stat().st_mode & 0o100)
            os.utime(file, (modified, modified))
        command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
        subprocess.run(command, cwd=copy, check=True, capture_output=True)
        wheels += (copy / "dist").glob("*.whl")
    one, two = wheels
    assert one.name == two.name
    assert one.read_bytes() == two.read_bytes()
