"""Lists at a terminal: the pager for what is longer than the screen, links, colours, no cuts."""

import os
import pty
import subprocess
import sys
import termios
from contextlib import suppress

from rich.text import Text

from walsh_scrapy.tools.output import columns, fold, print_lines, show

URL = "http://a.example/" + "x" * 100
#: Shows a number of long lines, as a command does.
PROGRAM = f"""
import sys
from rich.text import Text
from walsh_scrapy.tools.output import show
show(Text({URL!r}, "red link {URL}") for _ in range(int(sys.argv[1])))
"""


def shown(count, **environment):
    """What a terminal of 80 columns and 24 rows gets to see."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 80))
    known = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "LESS")}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(count)],
        stdin=slave, stdout=slave, stderr=slave, env=known | {"TERM": "xterm"} | environment,
    )  # fmt: skip
    os.close(slave)
    told = b""
    with suppress(OSError):  # at its end
        while part := os.read(master, 65_536):
            told += part
    os.close(master)
    assert process.wait() == 0, told
    return told.decode()


def test_what_is_longer_than_the_screen_is_paged():
    """Each line takes two rows of the terminal."""
    pager = {
        "PAGER": f"{sys.executable} -c \"import sys; print('paged', len(sys.stdin.readlines()))\""
    }
    assert shown(12, **pager).split() == ["paged", "12"]
    assert shown(11, **pager).count(URL) == 22, "each as link and as text"
    assert shown(0, **pager) == ""
    for without in ({"PAGER": "cat"}, {"PAGER": ""}, {"PAGER": "/nowhere/pager"}, {"TERM": "dumb"}):
        assert shown(30, **(pager | without)).count(URL) >= 30, without


def test_colours_and_links_are_for_terminals(capsys):
    coloured = shown(1, NO_COLOR="")
    assert "\x1b[31m" in coloured
    assert f";{URL}\x1b" in coloured
    assert "\x1b[31m" not in shown(1, NO_COLOR="1")
    show([Text(URL, f"red link {URL}")])
    assert capsys.readouterr().out == f"{URL}\n"


def test_what_strangers_write_cannot_command_a_terminal(capsys):
    print_lines(["a\x1b[2J\nb", *columns([["\x1b[2J", "c"], ["dd", "e"]])])
    assert capsys.readouterr().out.splitlines() == ["a\\x1b[2J\\nb", "\\x1b[2J  c", "dd       e"]


def test_parts_are_folded_and_long_words_stay_whole():
    assert list(fold(["ab", "cd", "ef"], 7)) == ["ab · cd", "ef"]
    assert list(fold(["a b c d", "e"], 3)) == ["a b", "c d", "e"]
    assert list(fold(["to http://a.example/x now"], 6)) == ["to", "http://a.example/x", "now"]
    assert list(fold(["日本", "語"], 7)) == ["日本", "語"]
    assert list(fold([], 5)) == []
