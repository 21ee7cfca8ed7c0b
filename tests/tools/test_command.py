"""What all commands have in common is in one class and in ``Call``, and in no command again."""

import os
import subprocess
import sys
from argparse import ArgumentParser
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest
from scrapy.settings import Settings

from tests.helpers import execute
from walsh_scrapy import commands
from walsh_scrapy.tools.command import ToolCommand

NAMES = sorted({module.name for module in iter_modules(commands.__path__)} - {"crawl"})
LISTING = """
import sys
from importlib import import_module
for name in sys.argv[1:]:
    print(import_module(f"walsh_scrapy.commands.{name}").Command().short_desc())
print(*sys.modules, file=sys.stderr)
"""


def command_of(name, **settings):
    command = import_module(f"walsh_scrapy.commands.{name}").Command()
    command.settings = Settings(settings)
    return command


def call(name, *words, **settings):
    """Call a command as Scrapy does."""
    command, parser = command_of(name, **settings), ArgumentParser(conflict_handler="resolve")
    command.add_options(parser)
    options, left = parser.parse_known_args(words)
    command.process_options(left, options)
    command.run(left, options)


@pytest.mark.parametrize("name", NAMES)
def test_a_command_is_a_stub_of_its_tool(name):
    kind = type(command_of(name))
    assert issubclass(kind, ToolCommand)
    assert {"run", "add_options", "short_desc", "long_desc"}.isdisjoint(vars(kind))
    assert "Exit status" in command_of(name).long_desc()
    assert "Example" in command_of(name).long_desc()


def test_to_list_the_commands_imports_no_tool():
    done = subprocess.run(
        [sys.executable, "-c", LISTING, *NAMES], capture_output=True, text=True, check=True
    )
    headlines = done.stdout.splitlines()
    assert len(headlines) == len(NAMES)
    assert all(0 < len(line) < 80 for line in headlines)
    ours = {name for name in done.stderr.split() if name.startswith("walsh_scrapy.")}
    known = {"walsh_scrapy.commands", "walsh_scrapy.policy", "walsh_scrapy.policy.wording"}
    known |= {"walsh_scrapy.tools", "walsh_scrapy.tools.call", "walsh_scrapy.tools.command"}
    assert ours - known == {f"walsh_scrapy.commands.{name}" for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_option_is_one_line_and_the_status_of_a_wrong_call(name, capsys):
    words = {"keys": ["directory"], "why": ["a.example"]}.get(name, ["https://a.example/"])
    words = words if name in ("keys", "why", "mayfetch", "discover") else []
    with pytest.raises(SystemExit) as ended:
        call(name, *words, "--nope")
    assert ended.value.code == (3 if name == "status" else 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"walsh-scrapy: there is no option --nope; see scrapy {name} --help"


@pytest.mark.parametrize("before", [["-s", "A=1"], []])
@pytest.mark.parametrize("after", [["-s", "B=2"], []])
def test_a_setting_may_stand_before_and_behind_an_action(before, after):
    command, parser = command_of("hosts"), ArgumentParser(conflict_handler="resolve")
    command.add_options(parser)
    words = [*before, "pause", "a.example", "2h", *after, "-L", "INFO"]
    options, left = parser.parse_known_args(words)
    command.process_options(left, options)
    assert left == []
    assert (options.host, options.seconds, options.loglevel) == ("a.example", 7200.0, "INFO")
    expected = {word.partition("=")[0] for word in (*before, *after) if "=" in word}
    assert {name for name in "AB" if name in command.settings} == expected


def test_an_option_may_stand_between_two_urls(capsys, tmp_path):
    (tmp_path / "robots.txt").write_text("User-agent: *\nDisallow: /b")
    file = str(tmp_path / "robots.txt")
    call("mayfetch", "https://a.example/a", "--robots", file, "https://a.example/b")
    out = capsys.readouterr().out
    assert "https://a.example/a: allowed" in out
    assert "https://a.example/b: denied" in out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("attest", []),
        ("export", ["-o", "new.jsonl"]),
        ("report", ["-o", "new.html"]),
        ("why", ["a.example"]),
    ],
)
def test_a_command_that_needs_a_state_says_the_same_without_one(
    name, words, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        call(name, *words, WALSH_STATE_URL=f"sqlite:///{tmp_path}/no.db")
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (1, "")
    assert "there is no state at sqlite:////" in said.err
    assert "no crawl was run" in said.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("scrapy sources --sources s.txt", 0),
        ("scrapy attest --since now", 2),
        ("walsh_scrapy.console lint -", 0),
    ],
)
def test_a_command_whose_streams_are_closed_ends_as_ever(tmp_path, command, status, closed):
    (tmp_path / "s.txt").write_text("https://a.example/\n")
    environment = os.environ | {
        "SCRAPY_SETTINGS_MODULE": "walsh_scrapy.settings",
        "PYTHONPATH": os.pathsep.join((str(Path.cwd()), os.environ.get("PYTHONPATH", ""))),
    }
    shell = f"exec {sys.executable} -m {command} {closed}"
    done = execute("sh", "-c", shell, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
