"""README and docs say what the code does: names, defaults, bounds, queries, links."""

import configparser
import json
import os
import re
import sys
from dataclasses import fields

import pytest
from scrapy.settings import Settings
from scrapy.utils.misc import load_object
from sqlalchemy import create_engine

from docs.generate import PAGES as GENERATED
from docs.generate import generate
from tests.helpers import ROOT, execute
from tests.helpers.pages import BLOCK, MAKEFILE, PAGES, README, blocks, page_of
from walsh_scrapy.console.commands import COMMANDS, GROUPS
from walsh_scrapy.feeds.items import EntryItem
from walsh_scrapy.feeds.sources.loading import load_sources
from walsh_scrapy.identity import POLICY_URL
from walsh_scrapy.options import Options
from walsh_scrapy.state import State
from walsh_scrapy.state.tables import metadata as tables
from walsh_scrapy.testing import Reply, Site

REUSE = ROOT / "docs" / "reuse.md"


#: By the first line of a query.
NAMES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
#: A value for a column, by its type.
VALUES = {str: "blog.example", int: 1, float: 1.0, bytes: b"\xff%", bool: True}
#: Languages of blocks, each of which a test reads; `text` is what no command and no file is.
LANGUAGES = {"sh", "cron", "ini", "sql", "toml", "json", "python", "text"}
#: How a command line begins. In a block of `text` no test would run it.
COMMAND = re.compile(
    r"^\s*(?:[$>#] )?(?:\S*/)?(?:scrapy|walsh|curl|make|pip|python3?|psql|sqlite3) "
)
#: The public contact of Walsh-Research, from its contract (section 5.2).
CONTACT = "j@wal.sh"
#: The first section of docs/reuse.md.
CHANGES = "What the add-on changes"


def python_of(page):
    return [text for _, text in blocks(page, "python")]


def every_block(*languages):
    return [
        pytest.param(*block, id=f"{page.relative_to(ROOT)}-{number}")
        for page in PAGES
        for number, block in enumerate(blocks(page, *languages), 1)
    ]


QUERIES = [
    (text.partition("\n")[0].removeprefix("-- "), text.partition("\n")[2])
    for page in PAGES
    for _, text in blocks(page, "sql")
]


@pytest.mark.parametrize("page", GENERATED)
def test_a_reference_page_is_what_make_references_writes(page):
    assert page_of(page) == generate(page)


def test_the_page_of_commands_has_their_order():
    headings = re.findall(r"^##+ (.+)", page_of("commands.md"), re.MULTILINE)
    expected = []
    for group in GROUPS:
        expected.append(group.capitalize())
        expected += [f"walsh {name}" for name in COMMANDS if COMMANDS[name].group == group]
    assert headings[-len(expected) :] == expected


def test_reuse_begins_with_what_the_add_on_changes():
    assert re.search(r"^## (.+)", page_of("reuse.md"), re.MULTILINE)[1] == CHANGES


def test_ci_runs_the_checks_of_make_and_the_tests_of_readme():
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    steps = script.replace('"$bin/', ".venv/bin/").replace('"', "").splitlines()
    for target in ("check", "test"):
        recipe = re.search(rf"^{target}:.*\n((?:\t.+\n)+)", MAKEFILE, re.MULTILINE)[1]
        assert [line for line in recipe.splitlines() if line.strip() not in steps] == []
    assert steps[-1] in [line for _, text in blocks(README, "sh") for line in text.splitlines()]
    hooks = (ROOT / ".pre-commit-config.yaml").read_text("utf-8")
    checked = re.search(r"^check:.*\n((?:\t.+\n)+)", MAKEFILE, re.MULTILINE)[1]
    commands = [re.sub(r" \.$", "", line.strip()) for line in checked.splitlines()]
    entries = re.findall(r"^ +entry: (.+)$", hooks, re.MULTILINE)
    assert entries == [line.replace("$(VENV)", ".venv") for line in commands]


def test_gate_and_release_run_on_each_python_that_is_named():
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    versions = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text("utf-8"))
    release = (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")
    for text in (workflow, release):
        (pythons,) = re.findall(r"python: \[(.+)\]", text)
        assert re.findall(r'"(3\.\d+)"', pythons) == versions
    supported = re.search(r'supported="(.+)"', (ROOT / ".ci" / "run").read_text("utf-8"))[1]
    assert set(versions) <= set(supported.split())
    assert "- run: .ci/run\n" in workflow


def test_the_page_of_r6_lists_each_field_of_an_item():
    listed = ", ".join(field.name for field in fields(EntryItem))
    assert listed in " ".join(page_of("rules/r6.md").split()).replace("`", "")


@pytest.mark.parametrize(("language", "text"), every_block("json", "toml", "ini"))
def test_data_blocks_are_what_they_say(language, text, tmp_path):
    if language == "json":
        assert list(json.loads(text)) == [field.name for field in fields(EntryItem)]
    elif language == "ini":
        assert configparser.ConfigParser(interpolation=None).read_string(text) is None
    else:
        (tmp_path / "sources.toml").write_text(text, "utf-8")
        assert load_sources(tmp_path / "sources.toml")


@pytest.mark.parametrize(("language", "text"), every_block("python"))
def test_settings_in_a_block_are_accepted(language, text):
    if "def test_" in text or "print(" in text:
        return  # another test runs it
    names = {}
    exec(text, names)
    settings = Settings({name: value for name, value in names.items() if name.isupper()})
    Options.from_settings(settings)
    for name in ("ADDONS", "DOWNLOADER_MIDDLEWARES", "DOWNLOAD_HANDLERS"):
        for component, value in names.get(name, {}).items():
            path = component if "." in component else value
            assert path is None or load_object(path)


def write_project(folder, settings):
    """A project with the spider and the gate of docs/reuse.md; return its environment."""
    (spider,) = (text for text in python_of(REUSE) if "class PagesSpider" in text)
    (gate,) = (text for text in python_of(REUSE) if "class OfficeHoursMiddleware" in text)
    files = {
        "scrapy.cfg": "[settings]\ndefault = theirs.settings\n",
        "theirs/__init__.py": "",
        "theirs/settings.py": f'{settings}\nSPIDER_MODULES = ["theirs.pages"]\n',
        "theirs/pages.py": spider,
        "theirs/middlewares.py": gate,
    }
    (folder / "theirs").mkdir()
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    return os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}


@pytest.mark.long
@pytest.mark.crawl
def test_the_tests_of_another_project_pass_as_they_are_written(tmp_path):
    """The settings, the spider, the gate and every test of docs/reuse.md, in a project."""
    settings, *_ = python_of(REUSE)
    (place,) = re.findall(r"`(DOWNLOADER_MIDDLEWARES = [^`]+)`", page_of("reuse.md"))
    environment = write_project(tmp_path, settings + place)
    tests = [text for text in python_of(REUSE) if "def test_" in text]
    (plugins,) = (text for text in python_of(REUSE) if "pytest_plugins" in text)
    (tmp_path / "conftest.py").write_text(plugins, "utf-8")
    for number, text in enumerate(tests):
        (tmp_path / f"test_{number}.py").write_text(text, "utf-8")
    ran = execute(
        *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider"), cwd=tmp_path, env=environment
    )
    assert ran.returncode == 0, ran.stdout
    assert f"{len(tests)} passed" in ran.stdout
    assert len(tests) == 3


@pytest.mark.crawl
def test_the_log_of_readme_is_that_of_a_run(tmp_path, loopback_web):
    (settings,) = python_of(README)
    environment = write_project(tmp_path, settings)
    slow = "User-agent: *\nDisallow: /private/\nCrawl-delay: 2\n"
    front = '<a href="/private/x">x</a><a href="http://shop.example/">shop</a>'
    busy = Reply("", status=429, headers={"Retry-After": "3"})
    web = loopback_web(
        Site("blog.example", slow, {"/": Reply(front, content_type="text/html")}),
        Site("shop.example", "", {"/": [busy, Reply("<p>x", content_type="text/html")]}),
    )
    command = (sys.executable, "-m", "scrapy", "crawl", "pages")
    ran = execute(*command, cwd=tmp_path, env=environment | web.environment)
    (log,) = (text for _, text in blocks(README, "text"))
    logged = {without_times(line) for line in ran.stderr.splitlines()}
    missing = [line for line in log.splitlines() if without_times(line) not in logged]
    assert missing == [], ran.stderr


def without_times(line):
    """A log line without the moment it was written and the seconds it tells."""
    line = re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", "", line)
    return re.sub(r"\b[\d.]+ s\b", "some s", line)


#: What is read as text, though its column may hold anything.
TEXTS = {"entries": {"item": '{"title": "One"}'}, "copies": {"body": b"User-agent: *"}}


@pytest.fixture
def filled(url):
    """A driver's cursor on a state with a row in each table, as a reader's client has it."""
    State(url).close()
    engine = create_engine(url)
    with engine.begin() as connection:
        for table in tables.sorted_tables:
            if table.name != "schema_version":
                row = {column.name: VALUES[column.type.python_type] for column in table.columns}
                texts = TEXTS.get(table.name, {})
                connection.execute(table.insert().values(row | texts))
    raw = engine.raw_connection()
    yield raw.cursor()
    raw.close()
    engine.dispose()


def test_queries_run_as_they_are_written(url, filled):
    """A reader pastes them. None is rewritten here."""
    dialect = url.partition(":")[0].partition("+")[0]
    of_dialect = [text for label, text in QUERIES if label in ("both", NAMES[dialect])]
    assert len(of_dialect) >= 5
    for text in of_dialect:
        for query in text.split(";\n"):
            if not query.strip():
                continue
            filled.execute(query)
            assert filled.description, query
            filled.fetchall()


def test_each_question_has_a_query_for_both_databases():
    for page in PAGES:
        text = page.read_text("utf-8")
        for queries in re.findall(r"(?:^```sql\n(?:.*\n)+?```\n\n?)+", text, re.MULTILINE):
            labels = re.findall(r"^-- (.+)$", queries, re.MULTILINE)
            assert labels in (["both"], list(NAMES.values())), queries


def test_no_block_is_left_out():
    """A fence that the pattern does not find, a language that no test reads, a hidden command."""
    for page in PAGES:
        text = page.read_text("utf-8")
        all_blocks = [(block[2], block[3]) for block in BLOCK.finditer(text)]
        assert len(re.findall(r"^ *(?:```|~~~)", text, re.MULTILINE)) == 2 * len(all_blocks), page
        assert {language for language, _ in all_blocks} <= LANGUAGES, page
        texts = [line for name, text in all_blocks if name == "text" for line in text.splitlines()]
        assert [line for line in texts if COMMAND.match(line)] == [], page


def test_who_crawls_and_whom_to_ask_is_told():
    rules = [f"docs/rules/r{number}.md" for number in (2, 3, 6)]
    for name in ("README.md", "docs/owners.md", *rules):
        text = (ROOT / name).read_text("utf-8")
        assert POLICY_URL in text, name
        assert f"<{CONTACT}>" in text, name


def test_the_rows_of_readme_are_those_of_the_scorecard():
    def cells(text):
        rows = re.findall(r"^\| (.+?) ((?:\| (?:\d+/\d+|-) )+)\|$", text, re.MULTILINE)
        return {name: row.strip("| ").split(" | ") for name, row in rows}

    shown, measured = cells(README.read_text("utf-8")), cells(page_of("conformance.md"))
    assert len(shown) == 4
    for crawler, row in shown.items():
        assert row == [measured[crawler][rule - 1] for rule in (2, 4, 5)], crawler


def test_the_links_of_readme_lead_to_pages():
    text = README.read_text("utf-8")
    links = re.findall(r"\[[^]]*\]\((?!https?://)([^)#]+)", text)
    assert len(links) > 10
    assert [name for name in links if not (ROOT / name).exists()] == []


def test_readme_begins_with_what_anyone_tries():
    lines = README.read_text("utf-8").splitlines()
    assert {"make demo", "make test"} <= set(lines[:60])


def test_readme_has_at_most_700_words():
    assert len(README.read_text("utf-8").split()) <= 700


def test_a_version_is_described_as_the_changelog_says():
    """0.1.0 in ten lines; each later version by what was added, changed and fixed."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    later, _, first = text.partition("## [0.1.0] - ")
    assert len(re.findall(r"^- .+$", first, re.MULTILINE)) == 10
    assert first.count("\n") == 14
    assert set(re.findall(r"^### (.+)", later, re.MULTILINE)) <= {"Added", "Changed", "Fixed"}
    for entries in re.split(r"^## .+", later, flags=re.MULTILINE)[1:]:
        assert entries.lstrip().startswith("### "), entries


# README and docs do without the ten patterns that were hardest to read.

#: Each with the words to write instead.
INSTEAD = {
    "a line each": "one per line",
    "an object a line": "one object per line",
    "but for": "except",
    "for good": "permanently",
    "by which": "that, with which",
    "so long": "at least",
    "of ours": "the name of the part",
    "also if": "even if",
    "the begin of": "the start of",
    "as what": "the noun",
}
WORST = re.compile(rf"\b(?:{'|'.join(INSTEAD)})\b", re.IGNORECASE)
PAGES_WORDS = [*ROOT.glob("[RS]E*.md"), ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]


def patterns_in(text):
    """Return the patterns in a text with the words to write instead; lines may break within."""
    matches = WORST.findall(" ".join(text.split()))
    return {pattern: INSTEAD[pattern.lower()] for pattern in matches}


@pytest.mark.parametrize("file", PAGES_WORDS, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_page_has_no_hard_pattern(file):
    assert patterns_in(file.read_text("utf-8")) == {}


def test_hard_patterns_are_found_over_line_breaks():
    patterns = patterns_in("All of it, but\nfor one, kept For good.")
    assert patterns.keys() == {"but for", "For good"}
