"""Rows of a view as a terminal, a pipe and a program get them."""

import json
import re
import subprocess
import sys
from random import Random

import pytest
from rich.cells import cell_len

from tests.helpers.terminal import python_shows
from walsh_scrapy.tools import show as show_module
from walsh_scrapy.tools.show import MAX_WIDTH, show, show_facts

COLUMNS = ["problem", "next_visit", "delay", "entries", "title", "url"]
NOTHING = "no source is declared"
#: Texts as strangers may write them.
TITLES = [
    "short",
    "日本語のとても長いタイトルがここに書かれています",
    "👩‍👩‍👧 family \U0001f600" * 5,
    "e\u0301" * 40,
    "\x1b[2Jcleared\x07 \u202eright to left\u202c\x9b31m",
    "tab\tand\nnewline\r\x00\u2028",
    "x" * 10_000,
    "",
    None,
]
URLS = [
    "http://a.example/",
    "https://b.example/" + "long/" * 60 + "日本",
    "http://c.example/\x1b[2J",
]
#: Prints a number of such rows with `show`.
PROGRAM = """
import sys
from tests.tools.test_show import COLUMNS, NOTHING, some_rows
from walsh_scrapy.tools.call import clean_exit
from walsh_scrapy.tools.show import show
with clean_exit():
    show(some_rows(int(sys.argv[1])), COLUMNS, as_json="--json" in sys.argv, empty=NOTHING)
"""


def some_rows(count):
    """Return rows with long, wide and hostile values; the first third has problems."""
    random = Random(count)
    return [
        {
            "problem": random.choice(["gone", "refused"]) if number < count / 3 else None,
            "next_visit": random.choice(["now", "never", "2026-05-23T06:00:59Z"]),
            "delay": random.choice([None, 1.0, 7200.0]),
            "entries": random.randrange(10**6),
            "is_due": random.choice([True, False]),
            "title": random.choice(TITLES),
            "url": random.choice(URLS),
        }
        for number in range(count)
    ]


def row(**values):
    """Return one row with harmless values."""
    plain = {"problem": None, "next_visit": None, "delay": None, "entries": 0, "title": None}
    return plain | {"url": "http://a.example/"} | values


@pytest.fixture
def piped(capsys):
    """Return a function that shows rows in a pipe, and returns both outputs."""

    def run(rows, as_json=False):
        show(rows, COLUMNS, as_json=as_json, empty=NOTHING)
        return capsys.readouterr()

    return run


def lines_shown(count, columns, **environment):
    """Return the lines of a terminal that has no colours."""
    return python_shows(
        PROGRAM, str(count), columns=columns, **({"NO_COLOR": "1"} | environment)
    ).splitlines()


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 200])
@pytest.mark.parametrize("count", [1, 3, 2000])
def test_only_the_last_column_leaves_the_terminal(count, columns):
    heading, *lines = lines_shown(count, columns)
    start = cell_len(heading.removesuffix("url"))
    assert start <= min(columns, MAX_WIDTH)
    assert len(lines) == count
    urls = [shown["url"].replace("\x1b", r"\x1b") for shown in some_rows(count)]
    for line, url in zip(lines, urls, strict=True):
        assert line.endswith(url)
        assert cell_len(line) - cell_len(url) == start


def test_an_empty_list_is_a_sentence_at_a_terminal():
    assert lines_shown(0, 80) == [NOTHING]


def test_the_variable_columns_is_the_width_of_a_terminal():
    assert lines_shown(3, 200, COLUMNS="60") == lines_shown(3, 60)


def test_a_wide_terminal_gets_lines_of_100_cells():
    assert lines_shown(2000, 200) == lines_shown(2000, 100)


def test_long_lists_are_not_measured_whole(monkeypatch):
    rows = [row(title="short"), row(title="longer than the first")]
    monkeypatch.setattr(show_module, "_MEASURED_ROWS", 1)
    lines = list(show_module._format_table(rows, ["title", "url"]))
    assert lines[2] == "long…  http://a.example/"


def test_a_command_to_copy_is_not_cut(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    command = "walsh sources --failing"
    rows = [{"subject": "x" * 50, "command": command, "problem": "3 sources are failing"}]
    _, line = show_module._format_table(rows, ["subject", "command", "problem"])
    assert f"  {command}  " in line


def test_without_a_state_a_list_says_so(capsys):
    show_module.ViewList("readable_hosts", COLUMNS, "host", NOTHING).show(None, as_json=False)
    assert "WALSH_STATE_URL" in capsys.readouterr().err


def test_facts_that_are_missing_no_or_zero_have_no_line(capsys):
    facts = {"title": "x", "url": None, "is_due": False, "entries": 0}
    show_facts(facts, {"Source": ["title", "url"], "Host": ["is_due", "entries"]})
    assert capsys.readouterr().out.split() == ["Source", "title", "x"]


def test_rows_with_problems_are_coloured():
    _, *lines = python_shows(PROGRAM, "3", columns=80).splitlines()
    assert [line.startswith("\x1b[3") for line in lines] == [True, False, False]


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colours_for_a_terminal_without_colours(environment):
    assert "\x1b" not in python_shows(PROGRAM, "2000", **environment)


def test_control_characters_of_sites_are_escaped():
    text = "\n".join(lines_shown(2000, 100))
    unsafe = [character for character in text if not character.isprintable()]
    assert set(unsafe) <= {"\n", "\u200d"}


def test_times_are_shown_by_their_distance_at_a_terminal():
    text = "\n".join(lines_shown(2000, 100))
    assert re.search(r"  \d+ d ago  ", text)
    assert "2026-05-23" not in text


@pytest.mark.parametrize("columns", [80, 99])
def test_a_narrow_terminal_has_rows_of_one_line(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    next_visit = "2026-05-23T06:00:59Z"
    values = row(problem="refused", next_visit=next_visit, title="x" * 90, entries=12_345)
    shown = ["problem", "next_visit", "entries", "title", "url"]
    table = show_module._format_table([values | {"url": "u" * 40}], shown)
    assert max(map(cell_len, table)) <= columns


def test_a_narrow_terminal_leaves_out_what_matters_least():
    rows = "[{'problem': 'gone', 'since': '2026-05-23T06:00:59Z', 'url': 'http://a.example/'}]"
    program = (
        "from walsh_scrapy.tools.show import show\n"
        f"show({rows}, ['problem', 'since', 'url'], as_json=False, empty='')"
    )
    assert "since" not in python_shows(program, columns=99)
    assert "since" in python_shows(program, columns=100)


def test_numbers_have_three_decimals_at_most(piped):
    line = piped([row(delay=1.23456)]).out.splitlines()[1]
    assert line.split("\t")[2] == "1.235"


def test_a_pipe_gets_the_same_columns_separated_by_tabs(piped):
    values = row(next_visit="2026-05-23T06:00:59Z", delay=7200.0, title="a\tb\nc\x1b")
    heading, line = piped([values]).out.splitlines()
    assert heading.split("\t") == COLUMNS
    assert line.split("\t") == [
        *("", "2026-05-23T06:00:59Z", "7200.0", "0", r"a b c\x1b", "http://a.example/")
    ]


def test_each_row_in_a_pipe_is_one_line_of_six_fields(piped):
    lines = piped(some_rows(2000)).out.split("\n")[:-1]
    assert len(lines) == 2001
    assert {line.count("\t") for line in lines} == {5}


def test_an_empty_list_in_a_pipe_is_a_header(piped):
    out, error = piped([])
    assert out == "\t".join(COLUMNS) + "\n"
    assert error == f"{NOTHING}\n"


@pytest.mark.parametrize("count", [0, 1, 3, 2000])
def test_json_has_every_column_of_every_row(piped, count):
    out, error = piped(some_rows(count), as_json=True)
    assert list(map(json.loads, out.splitlines())) == some_rows(count)
    assert error == ""


def test_commands_are_named_as_the_program_was_called(piped, monkeypatch):
    monkeypatch.setattr(show_module, "program_name", lambda: "python -m walsh_scrapy")
    values = row(advice="see `walsh hosts`", command="walsh status", title="walsh on")
    shown = json.loads(piped([values], as_json=True).out)
    assert shown["advice"] == "see `python -m walsh_scrapy hosts`"
    assert shown["command"] == "python -m walsh_scrapy status"
    assert shown["title"] == "walsh on"


@pytest.mark.parametrize("arguments", [["2000"], ["2000", "--json"]])
def test_a_reader_may_close_the_pipe(arguments):
    command = [sys.executable, "-c", PROGRAM, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1


def test_facts_stand_below_the_headings_of_their_groups(capsys):
    values = row(next_visit="2026-05-23T06:00:59Z", delay=90.0, title="x" * 200)
    show_facts(values, {"Source": ["title", "url"], "Empty": ["problem"], "Pace": ["delay"]})
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == ["Source", "Pace"]
    assert [line.split()[-1] for line in lines[1:3]] == ["x" * 200, "http://a.example/"]
    assert lines[-1].split() == ["delay", "1", "min", "30", "s"]
