"""The pages of both wings: the walks are those of traced crawls, the modules those that exist.

A walk is matched in the calls of a crawl: each function is called after the one before. A crawl
passes through the files with a function that is called, or goes on, from the first of these calls
to the last: helpers and other work of the crawl count, `walsh_scrapy.testing` does not. A visit is
crawled over sockets, so that the wire counts; the other walks end before it.
"""

import json
import pkgutil
import re
import subprocess
import tomllib
from pkgutil import iter_modules

import pytest

from tests.helpers import ROOT, cases
from tests.helpers.problems import PACKAGE
from tests.helpers.sites import ADDON, feeds, site, write_project
from walsh_scrapy.testing.web import Reply

PAGE = "".join(
    (ROOT / "docs" / name).read_text("utf-8") for name in ("architecture.md", "feedcrawler.md")
)
STEP = re.compile(r"^\d+\. \[`(.+?)`\]\(\.\./walsh_scrapy/(.+?)\) ", re.MULTILINE)
#: The most files that a list may name, by its heading.
MAX_NAMED = {"A page": 18, "A visit": 45, "A 429": 15, "A dead worker": 8}
FEED = site("blog.example").pages["/feed"]
LINKS = """
from scrapy import Spider

class Links(Spider):
    name = "links"
    start_urls = ["http://blog.example/feed"]

    def parse(self, response):
        yield response.follow("/next", self.parse)
"""
#: What each walk is of, as its page names it.
NOUNS = ("page", "visit", "429", "worker")
BUSY = Reply("", status=429, headers={"Retry-After": "600"})


def section(name):
    return PAGE.partition(f"\n### {name}\n")[2].partition("\n#")[0]


WALKS = {
    name: [(file, function) for function, file in STEP.findall(section(name))] for name in MAX_NAMED
}


def extensions(*names):
    paths = {f"tests.helpers.problems.{name}": order for order, name in enumerate(names)}
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
        pages = [BUSY, FEED] if name == "A 429" else FEED
        if name in ("A page", "A 429"):
            settings = ADDON | {"USER_AGENT": "Example-Bot/1.0 (+https://bot.example/)"}
            project = write_project(folder / "own", settings, spiders=LINKS)
            web = site("blog.example", feed=pages)
            simulated(web, spider="links", project=project, settings=given)
            return
        if name == "A dead worker":
            given |= {"KILLED_AT": "blog.example", **extensions("KilledWorker", "Trace")}
        simulated(site("blog.example", feed=FEED), sources=feeds("blog"), settings=given)

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


@pytest.mark.parametrize(("name", "noun"), [*zip(WALKS, NOUNS, strict=True)])
def test_a_crawl_walks_as_the_page_says(traced, name, noun):
    passed = walked(traced(name), WALKS[name])
    assert isinstance(passed, list), passed
    says = rf"{noun}\s(?:passes\s)?through(?:\sat\smost)?\s(\d+)"
    (most,) = re.findall(says, PAGE)
    assert len(files(passed)) <= int(most), len(files(passed))


@pytest.mark.parametrize(("name", "most"), MAX_NAMED.items())
def test_each_line_of_a_walk_is_a_link_to_one_of_few_files(name, most):
    assert len(WALKS[name]) == len(re.findall(r"^\d+\. ", section(name), re.MULTILINE)) > 0
    assert len(files(WALKS[name])) <= most


@pytest.mark.parametrize("package", ["policy", "state", "wire", "crawl", "feeds"])
def test_the_modules_of_a_package_are_those_that_exist(package):
    def modules(folder):
        return {info.name: info.ispkg for info in iter_modules([str(folder)])}

    rows = re.findall(r"^- `(?:\w+/)?(\w+)`: ", section(f"{package}/"), re.MULTILINE)
    named, top = set(rows), modules(PACKAGE / package)
    below = {name for sub in top if top[sub] for name in modules(PACKAGE / package / sub)}
    assert {name for name in top if not top[name]} - named == set()
    assert [name for name in top if f"`{name}" not in section(f"{package}/")] == []
    assert named - top.keys() - below == set()


#: Scrapy names a command after its file.
GIVEN_NAMES = {"commands/crawl.py"}


def test_only_a_middleware_and_its_policy_share_a_file_name():
    named = {}
    for path in PACKAGE.rglob("*.py"):
        name = str(path.relative_to(PACKAGE))
        if path.name not in ("__init__.py", "__main__.py") and name not in GIVEN_NAMES:
            named.setdefault(path.name, []).append(name)
    same = [sorted(names) for names in named.values() if len(names) > 1]
    middlewares = [names for names in same if names[0].startswith("downloadermiddlewares/")]
    assert same == middlewares
    assert all(len(names) == 2 for names in middlewares)


# Every decision, rule, file and name that a text refers to exists; links: see test_site.py.

DECISIONS = (ROOT / "docs" / "decisions.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^##+ (\d+)\. .+\n((?:(?!#).*\n?)*)", DECISIONS, re.MULTILINE))

#: A line break with what begins the next line in a comment, a docstring or a quotation.
LINE_BREAK = re.compile(r"\s*\n[ \t]*(?:#:? |> )?[ \t]*")
DECISION = re.compile(r"\bdecisions? ((?:\d+(?:,? (?:and|to) |, )?)+)", re.IGNORECASE)
RULE = re.compile(r"(?<![\w\\])R(\d+)\b")
FILE = re.compile(
    r"(?<![\w./-])(?:walsh_scrapy|spiders|tests|benchmarks|docs)/[\w/.-]*\.(?:py|md|json)\b"
)
OBJECT = re.compile(r"(?<![\w./])walsh_scrapy(?:\.\w+)+")
#: The section of CONTRIBUTING.md whose files test_contributing.py writes.
EXAMPLE = re.compile(r"\n## An example: a gate\n.+?(?=\n## )", re.DOTALL)


def decisions_in(text):
    """The numbers of all decisions that a text refers to, as in `decisions 2, 3 and 17 to 20`."""
    found = set()
    for listed in DECISION.findall(LINE_BREAK.sub(" ", text)):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", listed):
            found.update(range(int(first), int(last or first) + 1))
    return found


def rules_in(text):
    return {int(number) for number in RULE.findall(text)}


def texts_of_the_repository():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True)
    names = listed.stdout.split("\0") if listed.returncode == 0 else _without_git()
    paths = [ROOT / name for name in names if name.endswith((".py", ".md", ".toml"))]
    return {
        str(path.relative_to(ROOT)): EXAMPLE.sub("", path.read_text("utf-8"))
        for path in paths
        if path.exists()
    }


def _without_git():
    parts = ("walsh_scrapy", "spiders", "tests", "docs", "benchmarks")
    found = [*ROOT.glob("*.*"), *(path for part in parts for path in (ROOT / part).rglob("*.*"))]
    return [str(path.relative_to(ROOT)) for path in found]


TEXTS = texts_of_the_repository()
PAGES = [name for name in TEXTS if name.endswith(".md")]


def without_a_place(find, places):
    """What is named in any text of the repository and is not among the places, by text."""
    missing = {name: find(text) - places for name, text in TEXTS.items()}
    return {name: found for name, found in missing.items() if found}


def test_each_decision_that_is_named_has_its_heading():
    assert without_a_place(decisions_in, {int(number) for number in SECTIONS}) == {}


def test_each_rule_that_is_named_has_its_page():
    pages = {int(page.stem[1:]) for page in (ROOT / "docs" / "rules").glob("r*.md")}
    assert without_a_place(rules_in, pages) == {}


def test_each_file_that_is_named_is_there():
    def missing(text):
        return {name for name in FILE.findall(text) if not (ROOT / name).exists()}

    assert without_a_place(missing, set()) == {}


@pytest.mark.parametrize("page", PAGES)
def test_names_on_a_page_lead_somewhere(page):
    for name in OBJECT.findall(TEXTS[page]):
        pkgutil.resolve_name(name)


def test_decisions_are_numbered_without_a_gap():
    assert list(map(int, SECTIONS)) == list(range(1, len(SECTIONS) + 1))


@pytest.mark.parametrize("number", SECTIONS)
def test_a_decision_has_its_reason_its_code_and_its_test(number):
    *ruling, why, code = SECTIONS[number].strip().split("\n\n")
    assert ruling
    assert why.startswith("**Why.** ")
    assert re.fullmatch(r"`walsh_scrapy/\S+`(?:,\s`walsh_scrapy/\S+`)*(?:,\s`tests/\S+`)+", code)


@pytest.mark.parametrize("number", SECTIONS)
def test_a_decision_has_at_most_120_words(number):
    assert len(SECTIONS[number].split()) <= 120


# --- what the searches above find


@cases("text", "numbers")
def test_references_are_found_however_they_are_written(text, numbers):
    assert decisions_in(text.format(3, 3)) == set(numbers)


def test_rules_are_found_and_other_words_are_not():
    assert rules_in(f"R1, (R{12}; R9") == {1, 12, 9}
    assert rules_in("RFC 9309, ERR7, XR8x and \\R9") == set()


def test_each_table_of_cases_has_its_test():
    """A test that goes takes its table along."""
    tables = list((ROOT / "tests").rglob("test_*.toml"))
    assert len(tables) > 10
    for table in tables:
        code = table.with_suffix(".py").read_text("utf-8")
        names = tomllib.loads(table.read_text("utf-8"))
        assert [name for name in names if f"def {name}(" not in code] == [], table
