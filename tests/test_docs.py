"""README and docs say what the code does: names, defaults, bounds, queries, links."""

import ast
import json
import re
import shlex
import sqlite3
import subprocess
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from scrapy.settings import Settings

from walsh_scrapy.addon import CEILINGS, MUSTS, SERIAL
from walsh_scrapy.options import PREFIX, BadSetting, Options
from walsh_scrapy.sources import load_sources
from walsh_scrapy.state import State
from walsh_scrapy.state.tables import metadata as tables

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8").replace("$(VENV)", ".venv")
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def page_of(name):
    return (ROOT / "docs" / name).read_text("utf-8")


def sections(text):
    """The third-level sections of a page, by heading."""
    parts = re.split(r"^(#{1,3}) (.+)\n", text, flags=re.MULTILINE)[1:]
    triples = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return {heading: body for level, heading, body in triples if level == "###"}


def blocks(page, *languages):
    found = BLOCK.finditer(page.read_text("utf-8"))
    return [(block[2], block[3]) for block in found if block[2] in languages]


def every_block(*languages):
    return [
        pytest.param(*block, id=f"{page.relative_to(ROOT)}-{number}")
        for page in PAGES
        for number, block in enumerate(blocks(page, *languages), 1)
    ]


SETTINGS = sections(page_of("settings.md"))
BOUNDED = {
    name: re.search(r"From `([^`]+)`(?: to `([^`]+)`)?", text).groups()
    for name, text in SETTINGS.items()
    if "From `" in text
}


def options(**settings):
    return Options.from_settings(Settings({PREFIX + key: val for key, val in settings.items()}))


def number_of(bound):
    """A bound as a number; another setting's name stands for its default."""
    if bound.startswith(PREFIX):
        return getattr(options(), bound.removeprefix(PREFIX).lower())
    return float(bound)


def test_every_setting_has_a_section_and_no_other():
    assert sorted(SETTINGS) == sorted(PREFIX + field.name.upper() for field in fields(Options))


@pytest.mark.parametrize("name", SETTINGS)
def test_defaults_are_those_of_the_code(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    stated = re.match(r"\nDefault: `(.+)`\n", SETTINGS[name])
    default = getattr(options(), name.removeprefix(PREFIX).lower())
    if isinstance(default, str):
        default = default.replace(f"{ROOT}/", "")  # the state is beside scrapy.cfg
    assert ast.literal_eval(stated[1]) == default


@pytest.mark.parametrize("name", BOUNDED)
def test_bounds_are_those_of_the_code(name):
    key, (low, high) = name.removeprefix(PREFIX), BOUNDED[name]
    room = {} if key == "BACKOFF_MAX" else {"BACKOFF_MAX": 30 * 86_400}
    options(**room, **{key: number_of(low)})
    options(**room, **{key: number_of(high) if high else 1e12})
    for beyond in [number_of(low) - 1, *([number_of(high) + 1] if high else [])]:
        with pytest.raises(BadSetting, match=name):
            options(**room, **{key: beyond})


def test_every_number_has_bounds_and_every_choice_its_values():
    for field, hint in get_type_hints(Options).items():
        name = PREFIX + field.upper()
        assert (hint in (int, float)) == (name in BOUNDED), name
        choices = ", ".join(f'`"{choice}"`' for choice in get_args(hint))
        assert f"One of {choices}." in SETTINGS[name] or not choices, name


def test_the_forced_settings_are_named_with_their_values():
    rows = re.findall(r"^\| `([A-Z_]+)` \| `([^`]+)` \|", page_of("settings.md"), re.MULTILINE)
    stated = dict(rows)
    assert stated.pop("USER_AGENT") == "WALSH_USER_AGENT"
    forced = MUSTS | SERIAL | CEILINGS
    assert {name: ast.literal_eval(value) for name, value in stated.items()} == forced


def test_the_tables_of_the_state_are_named_with_their_columns():
    described = sections(page_of("state.md"))
    assert set(described) == set(tables.tables)
    for name, table in tables.tables.items():
        missing = [
            column.name for column in table.columns if f"`{column.name}`" not in described[name]
        ]
        assert missing == [], name


@pytest.mark.parametrize(
    "command", [c for _, text in blocks(README, "sh") for c in text.splitlines()]
)
def test_readme_commands_exist(command):
    program, *arguments = shlex.split(command)
    if program == "make":
        assert re.search(rf"^{arguments[0]}:", MAKEFILE, re.MULTILINE)
    elif "crawl" in arguments:
        assert (ROOT / "spiders" / f"{arguments[1]}.py").exists()
    elif arguments[:2] == ["-m", "venv"]:
        assert '-m venv ".venv"' in MAKEFILE
    elif program.endswith("/pip"):
        assert program in MAKEFILE
        assert " ".join(arguments[1:]) in MAKEFILE
    else:
        assert f"\t{command}\n" in MAKEFILE


def test_ci_runs_the_checks_of_make_and_the_tests_of_readme():
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    steps = script.replace('"$bin/', ".venv/bin/").replace('"', "").splitlines()
    for target in ("check", "test"):
        recipe = re.search(rf"^{target}:.*\n((?:\t.+\n)+)", MAKEFILE, re.MULTILINE)[1]
        assert [line for line in recipe.splitlines() if line.strip() not in steps] == []
    assert steps[-1] in blocks(README, "sh")[1][1].splitlines()


@pytest.mark.parametrize(("language", "text"), every_block("json", "python", "toml"))
def test_code_blocks_are_what_they_say(language, text, tmp_path):
    if language == "json":
        json.loads(text)
    elif language == "python":
        compile(text, "docs", "exec")
    elif "source" in tomllib.loads(text):
        (tmp_path / "sources.toml").write_text(text, "utf-8")
        assert load_sources(tmp_path / "sources.toml")


@pytest.mark.parametrize(("language", "text"), every_block("sql"))
def test_queries_run(language, text, tmp_path):
    State(f"sqlite:///{tmp_path / 'walsh.sqlite3'}").close()
    database = sqlite3.connect(tmp_path / "walsh.sqlite3")
    queries = [query for query in text.split(";\n") if query.strip()]
    for query in queries:
        database.execute(query).fetchall()
    database.close()
    assert queries


def anchors(page):
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_named_files_are_there(page):
    text = BLOCK.sub("", page.read_text("utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert link.startswith("https://") or target.exists(), link
        assert not anchor or link.startswith("https://") or anchor in anchors(target), link
    for name in re.findall(r"`((?:walsh_scrapy|spiders|tests)/[\w/.]+)`", text):
        assert (ROOT / name).exists(), name


def test_each_rule_has_a_page_that_readme_links():
    linked = re.findall(r"^\| \[(R\d)\]\((.+?)\)", README.read_text("utf-8"), re.MULTILINE)
    assert linked == [(f"R{number}", f"docs/rules/r{number}.md") for number in range(1, 10)]


def test_no_file_names_a_registry_or_a_place_on_one_machine():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True)
    if listed.returncode:
        pytest.skip("this is no git checkout, so its files are not known")
    # Brackets keep these patterns from finding themselves; a URL's path is no place here.
    foreign = re.compile(
        r"p[y]pi|p[y]thonhosted|n[p]mjs|anacond[a]\.org"
        r"|(?<![\w.)-])/(?:work|root|home|tmp/venv)(?=[/\s\"'`),;:]|$)",
        re.IGNORECASE | re.MULTILINE,
    )
    found = {
        name: match[0]
        for name in listed.stdout.split("\0")
        if (path := ROOT / name).is_file()
        and (match := foreign.search(path.read_bytes().decode("utf-8", "replace")))
    }
    assert found == {}
