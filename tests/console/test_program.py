"""`walsh`: what site owners run, without a project, a state or a request."""

import io
import json
import socket
import sys
import time

import pytest

from walsh_scrapy import __version__
from walsh_scrapy.console.program import main
from walsh_scrapy.tools.mayfetch.answer import Draft

ROBOTS = """\
User-agent: *
Disallow: /private
Allow: /a$
Disallow: /a
Crawl-delay: 2
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
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return run


def test_the_line_that_decides_is_named_and_what_protego_says_otherwise(walsh):
    status, out, _ = walsh("mayfetch", "--robots", "robots.txt", PRIVATE, DOLLAR)
    assert status == 1
    private, dollar = out.split("https://blog.example/a$x")
    assert private.startswith(f"{PRIVATE}: denied for Walsh-Research\n")
    assert "line 2 of robots.txt says 'Disallow: /private'" in private
    assert "one request every 2 s" in private
    assert "Protego" not in private
    assert "Protego, the parser of Scrapy, would answer: allowed" in dollar
    assert walsh("mayfetch", "--robots", "robots.txt", OPEN)[0] == 0


def test_several_bots_are_a_table_of_a_draft_on_standard_input(walsh):
    bots = ["GPTBot", "Mozilla/5.0 (compatible; CCBot/2.0; +https://x.example)", "*"]
    named = [part for bot in bots for part in ("--user-agent", bot)]
    status, out, _ = walsh("mayfetch", "--robots", "-", *named, OPEN, DOLLAR, stdin=ROBOTS.encode())
    assert status == 1
    head, *rows = [line.split() for line in out.splitlines()]
    assert head == ["bot", "verdict", "group", "line", "rule", "delay", "Protego", "URL"]
    assert rows[0] == ["GPTBot", "denied", "gptbot", "7", "Disallow:", "/", "-", "-", OPEN]
    assert rows[1] == ["CCBot", "allowed", "*", "-", "-", "2", "s", "-", OPEN]
    assert rows[5] == ["*", "denied", "*", "4", "Disallow:", "/a", "2", "s", "allowed", DOLLAR]
    status, out, _ = walsh("mayfetch", "--robots", "robots.txt", "--json", *named, OPEN)
    answers = [json.loads(line) for line in out.splitlines()]
    assert [(each["bot"], each["allowed"]) for each in answers] == [
        ("GPTBot", False), ("CCBot", True), ("*", True),
    ]  # fmt: skip
    assert answers[0]["robots"]["line"] == 7


def test_ten_thousand_urls_get_a_line_each(walsh):
    urls = [f"https://blog.example/{number}" for number in range(5_000)]
    bots = ("--user-agent", "GPTBot", "--user-agent", "x")
    _, out, _ = walsh("mayfetch", "--robots", "robots.txt", *bots, *urls)
    assert out.count("\n") == 10_001


def test_closed_by_visit_time_is_allowed_from_its_next_opening():
    body = b"User-agent: *\nVisit-time: 1300-1400\nDisallow: /x\n"
    draft = Draft(body, "bot", NOON)
    answer = draft.answer("https://h.example/")
    assert answer.verdict == "allowed from 2026-05-23 13:00:00 UTC"
    assert answer.as_dict()["allowed_from"] == "2026-05-23T13:00:00Z"
    assert Draft(body, "bot", NOON + 3600.0).answer(answer.url).verdict == "allowed"
    assert draft.answer("https://h.example/x").verdict == "denied"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mayfetch", OPEN], "curl -s https://blog.example/robots.txt | walsh mayfetch"),
        (["mayfetch", "--robots", "robots.txt", "a.example/x"], "write https://a.example/x"),
        (["mayfetch", "--robots", "robots.txt", "/x"], "not an http or https URL with a host\n"),
        (["mayfetch", "--robots", "none.txt", OPEN], "none.txt cannot be read: No such file"),
        (
            ["mayfetch", "--robots", "robots.txt", "--user-agent", "Mozilla/5.0 (X11)", OPEN],
            "names no bot",
        ),
        (["lint"], "the following arguments are required: FILE; see walsh lint --help"),
        (["lint", "https://a.example/robots.txt"], "is a URL, not a file; get it first, with curl"),
        (["lint", "\x1b.txt"], "\\x1b.txt cannot be read"),
        (["nothing"], "invalid choice: 'nothing'"),
        ([], "COMMAND"),
    ],
)
def test_a_wrong_call_is_one_line_and_status_2(walsh, arguments, said):
    status, out, err = walsh(*arguments)
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_mayfetch_says_nothing_of_us_when_it_is_about_another_bot(walsh, tmp_path):
    (tmp_path / "other.txt").write_text("User-agent: Some-Bot\nDisallow: /\n")
    _, out, _ = walsh("mayfetch", "--robots", "other.txt", "--user-agent", "GPTBot", OPEN)
    assert "no group applies" in out
    assert "for us" not in out


def test_lint_names_file_and_line_and_fails_only_for_errors(walsh, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    status, out, _ = walsh("lint", "empty.txt")
    assert status == 0
    assert out.startswith("empty.txt: note: the file is empty")
    assert out.endswith("empty.txt: 0 errors, 1 note\n")
    (tmp_path / "sound.txt").write_text("User-agent: *\nDisallow: /x\n")
    status, out, _ = walsh("lint", "sound.txt", "-", stdin=b"Disalow: /\x1b[2J")
    assert status == 1
    assert out.splitlines()[0] == "sound.txt: 0 errors, 0 notes"
    assert out.splitlines()[-1] == "-: 2 errors, 0 notes"
    status, out, _ = walsh("lint", "--json", "sound.txt", "-", stdin=b"Disalow: /")
    assert [(each["file"], each["line"]) for each in json.loads(out)] == [("-", 1), ("-", 1)]
    assert json.loads(walsh("lint", "--json", "sound.txt")[1]) == []
    status, out, _ = walsh("lint", "-", stdin=b"a\n" * 10_000)
    assert out.count("\n") == 10_001


@pytest.mark.parametrize("call", [("lint", "{}"), ("mayfetch", "--robots", "{}", OPEN)])
def test_a_file_without_an_end_is_refused_in_one_line(walsh, call):
    for name, file in ("-", "-"), ("/dev/zero", "/dev/zero"):
        arguments = [each.format(file) for each in call]
        status, out, err = walsh(*arguments, stdin=b"a" * (2**24 + 1))
        assert (status, out) == (2, "")
        assert f"{name}: it has more than 16777216 bytes" in err


def test_conformance_is_called_with_its_arguments(walsh, monkeypatch):
    trial = pytest.importorskip("walsh_scrapy.testing.conformance.trial")
    told = " ".join(walsh("conformance", "--help")[1].split())
    assert "a folder that is kept between the runs" in told
    given = []

    def tried(command, rules, **_):
        given.append((command, rules))
        raise trial.TrialError("it does not start")

    monkeypatch.setattr(trial, "run", tried)
    status, _, said = walsh("conformance", "--rules", "R1, R4", "--", "wget", "-q", "--json")
    assert (status, said) == (2, "walsh-scrapy: it does not start\n")
    assert given == [(["wget", "-q", "--json"], ["R1", "R4"])]
    assert "conformance" in walsh("--help")[1]


def test_the_time_of_now_decides_where_none_is_given(walsh, monkeypatch, tmp_path):
    (tmp_path / "robots.txt").write_text("User-agent: *\nVisit-time: 1300-1400\nDisallow:\n")
    monkeypatch.setattr(time, "time", lambda: NOON)
    status, out, _ = walsh("mayfetch", "--robots", "robots.txt", OPEN)
    assert (status, out.splitlines()[0]) == (
        0,
        f"{OPEN}: allowed from 2026-05-23 13:00:00 UTC for Walsh-Research",
    )


def test_the_version_is_that_of_the_code_installed_or_not(walsh):
    assert walsh("--version") == (0, f"walsh-scrapy {__version__}\n", "")
