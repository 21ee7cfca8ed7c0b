"""The screens in docs/commands.md are those of the demo's web after two crawls.

With WRITE_SCREENS=1 in the environment the tests write them into the page.
"""

import contextlib
import os
import re
import shlex
import sys

import pytest

from tests.helpers import ROOT
from tests.helpers.pages import BLOCK, page_of
from tests.helpers.records import hold
from walsh_scrapy.console import main
from walsh_scrapy.programname import program_name
from walsh_scrapy.state import State
from walsh_scrapy.state.database import Database
from walsh_scrapy.testing.demoweb import BLOCKLIST_SCHEMA_URL, BLOCKLIST_URL, demo_web
from walsh_scrapy.testing.simulation import DAY, EPOCH, simulate

#: The first example of a command, and the screen in its section.
SCREENS = [
    (blocks["sh"].splitlines()[0], blocks["text"])
    for section in re.split(r"\n##+ ", page_of("commands.md"))
    if "text" in (blocks := {match[2]: match[3] for match in BLOCK.finditer(section)})
]
#: An hour after the second crawl, in epoch seconds; and when the next one is late.
NOW = EPOCH + 1.5 * DAY + 3600.0
LATE = NOW + 4.75 * DAY


@pytest.fixture(scope="module")
def folder(tmp_path_factory, crawl_launcher, pytestconfig):
    """The state and the sources file of two crawls of the demo's web."""
    path = tmp_path_factory.mktemp("demo")
    sites, sources = demo_web()
    simulate(
        *sites,
        starts=[0.0, 1.5 * DAY],
        sources=sources,
        folder=path,
        settings={
            "WALSH_BLOCKLIST_URL": BLOCKLIST_URL,
            "WALSH_BLOCKLIST_SCHEMA_URL": BLOCKLIST_SCHEMA_URL,
        },
        project=pytestconfig.rootpath,
        launcher=crawl_launcher,
    )
    (path / "sources.txt").write_text("".join(f"{url}\n" for url in sources))
    with contextlib.closing(State(f"sqlite:///{path / 'walsh.sqlite3'}", lambda: NOW)) as state:
        state.hosts.set_delay("blog.example", 7200.0, "they asked")
        hold(state, "steady.example", 2 * DAY, "retry-after", 429)
    return path


@pytest.fixture
def screen(folder, monkeypatch, capsys, pytestconfig):
    """Return a function that runs a command at a terminal, an hour after the second crawl."""
    original = Database.__init__
    moments = [NOW]

    def with_clock(self, url, *arguments):
        original(self, url, *arguments)
        self._simulated_clock = lambda: moments[-1]

    monkeypatch.setattr(Database, "__init__", with_clock)
    monkeypatch.setattr("time.time", lambda: moments[-1])
    monkeypatch.setattr("walsh_scrapy.tools.status.MIN_DISK_MIB", 0)
    monkeypatch.setattr("walsh_scrapy.tools.show.program_name", lambda: "walsh")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "walsh_scrapy.settings")
    monkeypatch.syspath_prepend(pytestconfig.rootpath)
    monkeypatch.chdir(folder)
    settings = [
        f"--set=WALSH_STATE_URL=sqlite:///{folder / 'walsh.sqlite3'}",
        "--set=WALSH_SOURCES=sources.txt",
    ]

    def run(line):
        moments.append(LATE if "status" in line else NOW)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        with pytest.raises(SystemExit):
            main([*shlex.split(line)[1:], *settings])
        return capsys.readouterr().out.replace(program_name(), "walsh")

    return run


def plain(line):
    """Return a line without the lengths of time, seconds and padding, which chance changes."""
    line = re.sub(r"\b[\d.]+ (?:d|h|min|s)\b(?: \d+ (?:h|min|s)\b)?", "some s", line)
    return " ".join(re.sub(r"\b(\d\d:\d\d):\d\d\b", r"\1", line).split())


def part_of(printed, text):
    """Return as many lines as a screen of the page has, from its first line on."""
    wanted = text.splitlines()
    lines = printed.splitlines()
    begin = [plain(line) for line in lines].index(plain(wanted[0]))
    return [line.rstrip() for line in lines[begin : begin + len(wanted)]]


@pytest.mark.parametrize(("command", "text"), SCREENS)
def test_a_screen_is_what_the_command_prints(screen, command, text):
    lines = part_of(screen(command), text)
    if os.environ.get("WRITE_SCREENS"):
        page = ROOT / "docs" / "commands.md"
        block = "\n".join(lines)
        page.write_text(page.read_text("utf-8").replace(text.rstrip(), block), "utf-8")
        return
    assert list(map(plain, lines)) == list(map(plain, text.splitlines()))


def test_each_screen_of_the_page_is_compared():
    assert len(SCREENS) == page_of("commands.md").count("```text\n") > 0
