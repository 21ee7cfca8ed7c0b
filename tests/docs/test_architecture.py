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
WALKS = {
    name: [(file, function) for function, file in STEP.findall(section.partition("\n#")[0])]
    for name, section in ((each, PAGE.partition(f"\n### {each}\n")[2]) for each in MOST_NAMED)
}
PACKAGES = re.findall(
    r"^\| `(policy|metadata|sources|state|wire|crawl)/` \| (.+) \|$", PAGE, re.MULTILINE
)


def extensions(*names):
    paths = {f"tests.helpers.trace.{name}": order for order, name in enumerate(names)}
    return {"EXTENSIONS": json.dumps(paths)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("traces")


@pytest.fixture
def traced(request, folder):
    """Return a function from the name of a walk to the calls of a crawl that goes it."""
    crawls = {"A visit": visit, "A 429": refusal, "A dead worker": killed_worker}

    def calls(name):
        trace = folder / f"{name}.json"
        if not trace.exists():
            crawls[name](request.getfixturevalue, {"TRACE": str(trace), **extensions("Trace")})
        return [tuple(call) for call in json.loads(trace.read_text("utf-8"))]

    return calls


def visit(fixture, settings):
    web = fixture("direct_web")(site("blog.example"))
    assert len(fixture("crawl")(web, sources=feeds("blog"), settings=settings).items) == 2


def refusal(fixture, settings):
    busy = Reply("", status=429, headers={"Retry-After": "600"})
    blog = site("blog.example")
    pages = {"/feed": [busy, blog.pages["/feed"]]}
    fixture("simulated")(type(blog)(blog.host, "", pages), sources=feeds("blog"), settings=settings)


def killed_worker(fixture, settings):
    given = settings | {"KILLED_AT": "blog.example", **extensions("KilledWorker", "Trace")}
    fixture("simulated")(site("blog.example"), sources=feeds("blog"), settings=given)


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
def test_a_walk_names_few_files(name, most):
    assert len(WALKS[name]) >= 8
    assert len(files(WALKS[name])) <= most


def test_a_crawl_passes_through_no_more_files_than_the_page_says(traced):
    passed = [files(walked(traced(name), steps)) for name, steps in WALKS.items()]
    numbers = re.search(
        r"a visit passes through at most (\d+) files of the package, a 429 through (\d+), and a "
        r"dead worker through (\d+):.+ All but (\d+) of a 429 and all of a dead worker",
        PAGE.replace("\n", " "),
    )
    *most, others = map(int, numbers.groups())
    counted = [len(each) for each in passed]
    assert [low <= high for low, high in zip(counted, most, strict=True)] == [True] * 3, counted
    visit, refused, killed = passed
    assert len(refused - visit) <= others
    assert killed <= visit


@pytest.mark.parametrize(("package", "row"), PACKAGES)
def test_the_modules_of_a_package_are_those_that_exist(package, row):
    def modules(folder):
        return {each.name: each.ispkg for each in iter_modules([str(folder)])}

    named, top = set(re.findall(r"`([a-z0-9_]+)/?`", row)), modules(PACKAGE / package)
    below = {name for sub in top if top[sub] for name in modules(PACKAGE / package / sub)}
    assert top.keys() - named == set()
    assert named - top.keys() - below == set()
