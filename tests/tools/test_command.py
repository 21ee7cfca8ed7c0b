"""What all commands have in common is in one class and in ``Call``, and in no command again."""

import argparse
import io
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.helpers import ROOT, cases, execute
from tests.helpers.sites import IDENTITY
from walsh_scrapy import __version__, console
from walsh_scrapy.console import build_parser, main, parse
from walsh_scrapy.console.commands import COMMANDS, GROUPS
from walsh_scrapy.programname import program_name
from walsh_scrapy.state import State
from walsh_scrapy.testing.crawl import write_sources
from walsh_scrapy.tools.call import Call
from walsh_scrapy.tools.mayfetch import Draft
from walsh_scrapy.tools.show import align, print_lines

#: The line of each command and action in its help, as a user types it.
PROMPT = f"  {program_name()} "


def help_of(*names, columns=80):
    """Return what `--help` prints in a terminal of so many columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        parser = build_parser()
        for name in names:
            (actions,) = (
                action
                for action in parser._actions
                if hasattr(action, "choices") and action.choices
            )
            parser = actions.choices[name]
        return parser, parser.format_help()


@pytest.mark.parametrize("columns", [60, 80, 100])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_help_can_be_read_in_any_terminal(name, columns):
    parser, text = help_of(*name.split(), columns=columns)
    assert "====" not in text
    assert "\nexamples:\n" in text
    assert "\nexit status:\n" in text
    for action in parser._actions:
        assert action.help, action.option_strings or action.metavar
        assert not re.search(r":( |$)", action.help), action.help
        assert action.help is not argparse.SUPPRESS


@pytest.mark.parametrize("name", COMMANDS)
def test_the_lines_of_a_help_fit_a_terminal(name, monkeypatch):
    monkeypatch.setattr(console, "program_name", lambda: "walsh")
    for _, text in (help_of(), help_of(*name.split())):
        assert max(map(len, text.splitlines())) <= 80


def test_a_list_in_a_help_keeps_its_lines():
    _, text = help_of("conformance")
    assert re.search(r"^  \{seeds\}  ", text, re.MULTILINE)
    assert re.search(r"^  \{proxy\}  ", text, re.MULTILINE)


def test_a_list_in_a_help_keeps_its_indentation():
    """Python 3.13 takes the indentation off docstrings itself, 3.12 does not."""
    _, text = help_of("status")
    assert "\n  crawls     none for three" in text
    assert "\n             one read nothing" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_an_example_is_a_call_of_its_command(name):
    _, text = help_of(*name.split())
    examples = [line for line in text.splitlines() if PROMPT in line]
    assert examples
    for line in examples:
        call = re.split(r" [|>]", line.rpartition(PROMPT.lstrip())[2])[0]
        options = parse(build_parser(), shlex.split(call))
        assert options.command == name.split()[0]
        assert getattr(options, "action", None) in (None, *name.split()[1:]) or " " not in name


def test_the_list_has_every_command():
    _, text = help_of()
    listed = re.findall(r"^  (\w+) +[A-Z]", text, re.MULTILINE)
    assert sorted(listed) == sorted(name for name in COMMANDS if " " not in name)
    lines = [line.removesuffix(":") for line in text.splitlines()]
    assert [line for line in lines if line in GROUPS] == list(GROUPS)


def test_daily_commands_come_first():
    """In the help and on the page: what operators of a simulated month called each week."""
    daily = ["status", "sources", "hosts", "new", "runs", "report", "why"]
    daily += ["add", "export", "backup", "init"]
    names = [name for name in COMMANDS if " " not in name]
    assert names[: len(daily)] == daily
    assert {COMMANDS[name].group for name in daily} == {GROUPS[0]}
    assert {COMMANDS[name].group for name in names[len(daily) :]} == {GROUPS[1]}


def test_without_a_command_the_help_is_printed(walsh):
    status, out, error = walsh()
    assert (status, out) == (2, "")
    assert f"{GROUPS[0]}:" in error


@pytest.mark.parametrize("name", [name for name in COMMANDS if " " not in name])
def test_an_unknown_option_is_one_line_and_a_wrong_call(name, called):
    words = {"init": ["new"], "keys": ["directory"], "why": ["a.example"], "lint": ["robots.txt"]}
    words["forget"] = ["a.example"]
    urls = ["https://a.example/"] if name in ("add", "discover", "mayfetch") else []
    status, _, error = called(name, *words.get(name, urls), "--nope")
    (line,) = error.splitlines()
    if name != "conformance":  # it takes any word
        assert status == 2
        assert "--nope" in line
        assert line.endswith(f" {program_name()} {name} --help")


@pytest.mark.parametrize("before", [["-s", "A=1"], []])
@pytest.mark.parametrize("after", [["-s", "B=2"], []])
def test_a_setting_may_stand_before_and_behind_an_action(before, after):
    words = ["hosts", *before, "delay", "a.example", "2h", *after]
    options = parse(build_parser(), words)
    assert (options.host, options.seconds) == ("a.example", 7200.0)
    settings = Call(options).settings
    expected = {word.partition("=")[0] for word in (*before, *after) if "=" in word}
    assert {name for name in "AB" if name in settings} == expected


def test_an_option_may_stand_between_two_urls(called, tmp_path):
    (tmp_path / "robots.txt").write_text("User-agent: *\nDisallow: /b")
    urls = "https://a.example/a", "https://a.example/b"
    _, out, _ = called("mayfetch", urls[0], "--robots", "robots.txt", urls[1])
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
def test_a_command_that_needs_a_state_says_the_same_without_one(name, words, tmp_path, called):
    status, out, error = called(name, *words, WALSH_STATE_URL=f"sqlite:///{tmp_path}/no.db")
    assert (status, out) == (3, "")
    assert f"sqlite:///{tmp_path}/no.db" in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "status", "closed"),
    [
        ("walsh_scrapy sources --sources s.txt", 0, ">&-"),
        ("walsh_scrapy sources --sources s.txt", 0, "<&- >&- 2>&-"),
        ("walsh_scrapy attest --since now", 2, "2>&-"),
        ("walsh_scrapy attest --since now", 2, "<&- >&- 2>&-"),
        ("walsh_scrapy lint -", 0, "<&-"),
        ("walsh_scrapy lint -", 0, "<&- >&- 2>&-"),
    ],
)
def test_command_with_closed_streams_ends_normally(tmp_path, command, status, closed):
    (tmp_path / "s.txt").write_text("https://a.example/\n")
    environment = os.environ | {
        "SCRAPY_SETTINGS_MODULE": "walsh_scrapy.settings",
        "PYTHONPATH": os.pathsep.join((str(Path.cwd()), os.environ.get("PYTHONPATH", ""))),
    }
    shell = f"exec {sys.executable} -m {command} {closed}"
    done = execute("sh", "-c", shell, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr


# A wrong call, or a file that cannot be used, is one line on standard error, and asks nobody.

LONG = (f"export -o {'x' * 300}.opml", 1, "cannot be written: File name too long")


@cases("call", "status", "words", more=[LONG])
def test_a_wrong_call_is_one_line(loopback_web, on_state, tmp_path, call, status, words):
    write_sources(tmp_path / "sources.txt", ["http://a.example/"])
    web = loopback_web()
    ended = on_state(*shlex.split(call), environment=web.environment)
    assert (ended.returncode, ended.stdout) == (status, ""), ended.stderr
    (line,) = ended.stderr.splitlines()
    assert words in line
    assert "secret" not in line
    assert web.log == []


def test_a_file_of_the_project_is_never_replaced(on_state, tmp_path):
    write_sources(tmp_path / "sources.txt", ["http://a.example/"])
    (tmp_path / "link.db").symlink_to("crawl/walsh.sqlite3")
    for call in (
        "export -O crawl/walsh.sqlite3",
        "export -O link.db",
        "export -o crawl/walsh.sqlite3-wal --format csv",
        "backup -O crawl/../sources.txt",
    ):
        command, option, name, *others = call.split()
        ended = on_state(command, option, tmp_path / name, *others)
        assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
        assert f"{name} is a file of this project" in ended.stderr
    assert (tmp_path / "sources.txt").read_text() == "http://a.example/\n"


@pytest.mark.parametrize("call", ["export -o a.jsonl", "hosts", "report -o -", "sources", "new"])
def test_a_damaged_state_is_one_line_and_stays_as_it_is(on_state, tmp_path, call):
    write_sources(tmp_path / "sources.txt", ["http://a.example/"])
    file = tmp_path / "crawl" / "walsh.sqlite3"
    file.parent.mkdir()
    file.write_bytes(b"no database" * 500)
    ended = on_state(*shlex.split(call))
    (line,) = ended.stderr.splitlines()
    assert (ended.returncode, ended.stdout) == (3, "")
    assert str(file) in line
    assert file.read_bytes() == b"no database" * 500


def test_control_characters_are_escaped_for_a_terminal(capsys):
    print_lines(["a\x1b[2J\nb", *align([["\x1b[2J", "c"], ["dd", "e"]])])
    assert capsys.readouterr().out.splitlines() == ["a\\x1b[2J\\nb", "\\x1b[2J  c", "dd       e"]


# `walsh`: what site owners run, without a project, a state or a request.

ROBOTS = """\
User-agent: *
Disallow: /private
Allow: /a$
Disallow: /a
Crawl-delay: 2
Comment: be brief
Crawl-delay: soon
User-agent: GPTBot
Disallow: /
"""
PRIVATE, DOLLAR, OPEN = (f"https://blog.example/{path}" for path in ("private/1", "a$x", "feed"))
NOON = 1_779_537_600.0  # 2026-05-23 12:00:00 UTC


@pytest.fixture
def walsh(capsys, monkeypatch, tmp_path):
    """Run the program in an empty folder; a connection would be an error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("it asks the network"))
    (tmp_path / "robots.txt").write_text(ROBOTS)

    def run(*arguments, stdin=b""):
        reader = io.BufferedReader(io.BytesIO(stdin))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(reader))
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        output = capsys.readouterr()
        return ended.value.code, output.out, output.err

    return run


def test_mayfetch_shows_the_deciding_line_and_protegos_verdict(walsh):
    status, out, _ = walsh("mayfetch", "--robots", "robots.txt", PRIVATE, DOLLAR)
    assert status == 1
    private, dollar = out.split("https://blog.example/a$x")
    assert private.startswith(f"{PRIVATE}: denied for Walsh-Research\n")
    rule = "line 2 of robots.txt says 'Disallow: /private'"
    for words in (rule, "one request every 2 s", "Comment: be brief", "line 7"):
        assert words in private
    assert "Protego" not in private
    assert re.search(r"Protego.* allowed", dollar)
    assert walsh("mayfetch", "--robots", "robots.txt", OPEN)[0] == 0


def test_several_bots_are_a_table_of_a_draft_on_standard_input(walsh):
    bots = ["GPTBot", "Mozilla/5.0 (compatible; CCBot/2.0; +https://x.example)", "*"]
    named = [part for bot in bots for part in ("--user-agent", bot)]
    status, out, _ = walsh("mayfetch", "--robots", "-", *named, OPEN, DOLLAR, stdin=ROBOTS.encode())
    assert status == 1
    head, *rows = [line.split("\t") for line in out.splitlines()]
    assert head == ["bot", "verdict", "group", "line", "rule", "url"]
    assert rows[0] == ["GPTBot", "denied", "gptbot", "9", "Disallow: /", OPEN]
    assert rows[1] == ["CCBot", "allowed", "*", "", "", OPEN]
    assert rows[5] == ["*", "denied", "*", "4", "Disallow: /a", DOLLAR]
    status, out, _ = walsh("mayfetch", "--robots", "robots.txt", "--json", *named, OPEN)
    answers = [json.loads(line) for line in out.splitlines()]
    assert [(answer["bot"], answer["allowed"]) for answer in answers] == [
        ("GPTBot", False), ("CCBot", True), ("*", True),
    ]  # fmt: skip
    assert answers[0]["robots"]["line"] == 9


def test_closed_by_visit_time_is_allowed_from_its_next_opening():
    body = b"User-agent: *\nVisit-time: 1300-1400\nDisallow: /x\n"
    draft = Draft(body, "bot", NOON)
    answer = draft.answer("https://h.example/")
    assert answer.verdict.startswith("allowed from 2026-05-23 13:00")
    assert answer.as_dict()["allowed_from"] == "2026-05-23T13:00:00Z"
    assert Draft(body, "bot", NOON + 3600.0).answer(answer.url).verdict == "allowed"
    assert draft.answer("https://h.example/x").verdict == "denied"


@cases("arguments", "said")
def test_a_wrong_call_is_one_line_and_status_2(walsh, arguments, said):
    status, out, err = walsh(*arguments)
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_mayfetch_for_another_bot_does_not_mention_ours(walsh, tmp_path):
    (tmp_path / "other.txt").write_text("User-agent: Some-Bot\nDisallow: /\n")
    _, out, _ = walsh("mayfetch", "--robots", "other.txt", "--user-agent", "GPTBot", OPEN)
    assert "no group applies" in out
    assert "for us" not in out


def test_mayfetch_asks_for_the_bot_that_its_help_says(on_state, tmp_path):
    (tmp_path / "robots.txt").write_text(ROBOTS)
    call = ("mayfetch", "--robots", str(tmp_path / "robots.txt"), OPEN)
    answer = on_state(*call, settings=IDENTITY).stdout
    assert answer.startswith(f"{OPEN}: allowed for Example-Bot\n")
    (said,) = re.findall(r"default (your[^)]+)", on_state("mayfetch", "--help").stdout)
    assert " ".join(said.split()) == "your project's bot, or Walsh-Research without a project"


def test_lint_of_an_empty_file_is_a_note_and_no_failure(walsh, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    status, out, _ = walsh("lint", "empty.txt")
    assert status == 0
    assert out.startswith("empty.txt: note: ")
    assert out.endswith(": 0 errors, 1 note\n")


def test_lint_counts_the_errors_of_each_file(walsh, tmp_path):
    (tmp_path / "sound.txt").write_text("User-agent: *\nDisallow: /x\n")
    status, out, _ = walsh("lint", "sound.txt", "-", stdin=b"Disalow: /\x1b[2J")
    assert status == 1
    assert out.startswith("sound.txt: 0 errors")
    assert out.splitlines()[-1].startswith("-: 2 errors")


def test_lint_as_json_has_file_and_line_of_each_finding(walsh, tmp_path):
    (tmp_path / "sound.txt").write_text("User-agent: *\nDisallow: /x\n")
    _, out, _ = walsh("lint", "--json", "sound.txt", "-", stdin=b"Disalow: /")
    findings = [json.loads(line) for line in out.splitlines()]
    assert [(finding["file"], finding["line"]) for finding in findings] == [("-", 1), ("-", 1)]
    assert walsh("lint", "--json", "sound.txt")[1] == ""


@pytest.mark.parametrize("call", [("lint", "{}"), ("mayfetch", "--robots", "{}", OPEN)])
def test_a_file_without_an_end_is_refused_in_one_line(walsh, call):
    for file in ("-", "/dev/zero"):
        arguments = [argument.format(file) for argument in call]
        status, out, err = walsh(*arguments, stdin=b"a" * (2**24 + 1))
        assert (status, out) == (2, "")
        assert f"{file}: " in err
        assert "16777216 bytes" in err


def test_conformance_is_called_with_its_arguments(walsh, monkeypatch):
    trial = pytest.importorskip("walsh_scrapy.testing.conformance.trial")
    assert "{folder}" in walsh("conformance", "--help")[1]
    calls = []

    def tried(command, rules, **_):
        calls.append((command, rules))
        raise trial.TrialError("broken")

    monkeypatch.setattr(trial, "run", tried)
    status, _, error = walsh("conformance", "--rules", "R1, R4", "--", "wget", "-q", "--json")
    assert (status, error) == (2, "walsh: broken\n")
    assert calls == [(["wget", "-q", "--json"], ["R1", "R4"])]
    assert "conformance" in walsh("--help")[1]


def test_current_time_is_used_by_default(walsh, monkeypatch, tmp_path):
    (tmp_path / "robots.txt").write_text("User-agent: *\nVisit-time: 1300-1400\nDisallow:\n")
    monkeypatch.setattr(time, "time", lambda: NOON)
    status, out, _ = walsh("mayfetch", "--robots", "robots.txt", OPEN)
    allowed = f"{OPEN}: allowed from 2026-05-23 13:00:00 UTC for Walsh-Research"
    assert (status, out.splitlines()[0]) == (0, allowed)


def test_the_version_is_that_of_the_code_installed_or_not(walsh):
    assert walsh("--version") == (0, f"walsh-scrapy {__version__}\n", "")


# The project whose settings a command takes: as Scrapy finds them, or none.


def in_folder(folder, *words, **environment):
    """Run the program in a folder, as `subprocess.run` would."""
    path = os.pathsep.join([str(ROOT), *sys.path])
    clean = {key: text for key, text in os.environ.items() if not key.startswith("SCRAPY_")}
    environment = clean | {"PYTHONPATH": path} | environment
    return execute(sys.executable, "-m", "walsh_scrapy", *words, cwd=folder, env=environment)


@pytest.fixture
def shop(tmp_path):
    """A project as `scrapy startproject` writes it, with the line of the add-on."""
    execute(sys.executable, "-m", "scrapy", "startproject", "shop", cwd=tmp_path)
    settings = tmp_path / "shop" / "shop" / "settings.py"
    with settings.open("a", encoding="utf-8") as file:
        file.write('\nADDONS = {"walsh_scrapy.Addon": 500}\n')
        file.write(f'WALSH_STATE_URL = "sqlite:///{tmp_path}/state.sqlite3"\n')
    return tmp_path / "shop"


def test_scrapy_lists_no_commands_of_this_add_on(shop):
    listed = execute(sys.executable, "-m", "scrapy", cwd=shop).stdout
    assert " crawl " in listed
    assert [name for name in COMMANDS if re.search(rf"^  {name} ", listed, re.MULTILINE)] == []


def test_in_another_project_its_settings_are_taken(shop, tmp_path):
    done = in_folder(shop / "shop", "status")
    assert (done.returncode, done.stderr) == (1, "")
    assert "WALSH_STATE_URL" in done.stdout
    with closing(State(f"sqlite:///{tmp_path}/state.sqlite3")):
        pass
    done = in_folder(shop / "shop", "status", "--json")
    assert done.returncode == 1
    assert [json.loads(line)["problem"] for line in done.stdout.splitlines()] == [
        "no crawl is recorded"
    ]


def test_the_settings_module_of_the_environment_comes_first(shop, tmp_path):
    (tmp_path / "other.py").write_text("WALSH_STATE_URL = 'nonsense'\n")
    path = os.pathsep.join(map(str, (ROOT, tmp_path)))
    done = in_folder(shop, "hosts", PYTHONPATH=path, SCRAPY_SETTINGS_MODULE="other")
    assert done.returncode == 3
    assert "'nonsense'" in done.stderr


@pytest.mark.parametrize(
    ("text", "environment", "word"),
    [
        ("WALSH_X = (", {}, "SyntaxError"),
        ("import nosuchmodule", {}, "nosuchmodule"),
        ("raise RuntimeError('not today')", {}, "not today"),
        ("", {"SCRAPY_PROJECT": "nosuch"}, "nosuch"),
        ("", {"SCRAPY_SETTINGS_MODULE": "nosuch.settings"}, "nosuch.settings"),
    ],
)
def test_settings_that_cannot_be_read_are_one_line(shop, text, environment, word):
    (shop / "shop" / "settings.py").write_text(text)
    done = in_folder(shop, "hosts", **environment)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (3, "")
    assert word in line


@pytest.mark.parametrize("name", [name for name in COMMANDS if " " not in name])
def test_without_a_project_a_command_works_or_says_what_to_do(name, tmp_path):
    words = {
        "conformance": ["--", "nosuchprogram"],
        "init": ["new"],
        "keys": ["new", "key.pem"],
        "lint": ["robots.txt"],
        "mayfetch": ["--robots", "robots.txt", "https://a.example/"],
    }
    (tmp_path / "robots.txt").write_text("User-agent: *\nDisallow:\n")
    if name == "demo":
        return  # tests/testing/test_crawl.py runs it
    url, host = ["http://a.example/"], ["a.example"]
    needed = {"why": host, "forget": host, "add": url, "discover": url}
    done = in_folder(tmp_path, name, *words.get(name, needed.get(name, [])))
    if name in words:
        assert done.returncode == (2 if name == "conformance" else 0), done.stderr
    else:
        (line,) = done.stderr.splitlines()
        assert (done.returncode, done.stdout) == (3, "")
        assert "init FOLDER" in line


# The program is named as it was called; in a crawl, as it can be called.


@pytest.mark.parametrize(
    ("called_as", "name"),
    [
        ("/srv/bin/walsh", "walsh"),
        ("/srv/walsh_scrapy/__main__.py", "python -m walsh_scrapy"),
        ("/srv/bin/scrapy", "walsh"),
    ],
)
def test_messages_name_the_program_as_it_was_called(monkeypatch, tmp_path, called_as, name):
    installed = tmp_path / "walsh"
    installed.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [called_as])
    assert program_name.__wrapped__() == name


def test_a_crawl_names_the_module_without_the_program(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(sys, "argv", ["/srv/bin/scrapy"])
    assert program_name.__wrapped__() == "python -m walsh_scrapy"
