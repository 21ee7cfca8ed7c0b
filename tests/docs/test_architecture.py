"""docs/architecture.md: the walks are those of traced crawls, the modules those that exist.

A walk is matched in the calls of a crawl: each function is called after the one before. A crawl
passes through the files with a function that is called, or goes on, from the first of these calls
to the last: helpers and other work of the crawl count, `walsh_scrapy.testing` does not. A visit is
crawled over sockets, so that the wire counts; the other walks end before it.
"""

import json
import re
from pkgutil import iter_modules

import pytest

from tests.helpers import ROOT
from tests.helpers.sites import feeds, site
from tests.helpers.trace import PACKAGE
from walsh_scrapy.testing.web import Reply

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
STEP = re.compile(r"^\d+\. \[`(.+?)`\]\(\.\./walsh_scrapy/(.+?)\) ", re.MULTILINE)
#: The most files that a list may name, by its heading.
MOST_NAMED = {"A visit": 45, "A 429": 15, "A dead worker": 8}
FEED = site("blog.example").pages["/feed"]
BUSY = Reply("", status=429, headers={"Retry-After": "600"})


def section(name):
    return PAGE.partition(f"\n### {name}\n")[2].partition("\n#")[0]


WALKS = {
    name: [(file, function) for function, file in STEP.findall(section(name))]
    for name in MOST_NAMED
}


def extensions(*names):
    paths = {f"tests.helpers.trace.{name}": order for order, name in enumerate(names)}
    return {"EXTENSIONS": json.dumps(paths)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("traces")


@pytest.fixture
def traced(folder, direct_web, crawl, simulated):
    """Return a function from the name of a walk to the calls of a crawl."""

    def run(name, trace):
        given = {"TRACE": str(trace), **extensions("Trace")}
        if name == "A visit":
            crawl(direct_web(site("blog.example")), sources=feeds("blog"), settings=given)
            return
        if name == "A dead worker":
            given |= {"KILLED_AT": "blog.example", **extensions("KilledWorker", "Trace")}
        pages = [BUSY, FEED] if name == "A 429" else FEED
        simulated(site("blog.example", feed=pages), sources=feeds("blog"), settings=given)

    def calls(name):
        trace = folder / f"{name}.json"
        if not trace.exists():
            run(name, trace)
        return [tuple(call) for call in json.loads(trace.read_text("utf-8"))]

    return calls


def walked(calls, steps):
    """Return the calls from the first to the last step, or the first step that never follows."""
    end = -1
    for step in steps:
        try:
            end = calls.index(step, end + 1)
        except ValueError:
            return step
    begin = end
    for step in reversed(steps[:-1]):
        begin = max(number for number in range(begin) if calls[number] == step)
    return calls[begin : end + 1]


def files(calls):
    return {file for file, _ in calls}


@pytest.mark.parametrize("name", WALKS)
def test_a_crawl_calls_the_functions_of_a_walk_in_this_order(traced, name):
    calls = traced(name)
    assert isinstance(walked(calls, WALKS[name]), list), walked(calls, WALKS[name])


@pytest.mark.parametrize(("name", "most"), MOST_NAMED.items())
def test_each_line_of_a_walk_is_a_link_to_one_of_few_files(name, most):
    assert len(WALKS[name]) == len(re.findall(r"^\d+\. ", section(name), re.MULTILINE)) > 0
    assert len(files(WALKS[name])) <= most


@pytest.mark.parametrize(("name", "noun"), [*zip(WALKS, ["visit", "429", "worker"], strict=True)])
def test_a_crawl_passes_through_no_more_files_than_the_page_says(traced, name, noun):
    says = rf"{noun}\s(?:passes\s)?through(?:\sat\smost)?\s(\d+)"
    (most,) = re.findall(says, PAGE)
    passed = files(walked(traced(name), WALKS[name]))
    assert len(passed) <= int(most), len(passed)


@pytest.mark.parametrize("package", ["policy", "metadata", "sources", "state", "wire", "crawl"])
def test_the_modules_of_a_package_are_those_that_exist(package):
    def modules(folder):
        return {each.name: each.ispkg for each in iter_modules([str(folder)])}

    rows = re.findall(r"^\| `(?:\w+/)?(\w+)/?` \|", section(f"{package}/"), re.MULTILINE)
    named, top = set(rows), modules(PACKAGE / package)
    below = {name for sub in top if top[sub] for name in modules(PACKAGE / package / sub)}
    assert {name for name in top if not top[name]} - named == set()
    assert [name for name in top if f"`{name}" not in section(f"{package}/")] == []
    assert named - top.keys() - below == set()
