"""`walsh completion` and `scrapy completion`: what bash proposes by the scripts that they print."""

import subprocess
import sys

import pytest

from tests.helpers import ROOT, execute

PROGRAMS = {"walsh": "walsh_scrapy.console", "scrapy": "scrapy"}
#: What bash calls when somebody presses Tab at the end of a line.
PRESSING = """
script=$1
shift
source "$script"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
"_shtab_$1" "$1"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """Return the files with the scripts of both programs, by program."""
    folder = tmp_path_factory.mktemp("scripts")
    for program, module in PROGRAMS.items():
        done = execute(sys.executable, "-m", module, "completion", "bash", cwd=ROOT)
        assert done.returncode == 0, done.stderr
        (folder / program).write_text(done.stdout, "utf-8")
    return {program: folder / program for program in PROGRAMS}


@pytest.mark.parametrize(
    ("line", "proposed"),
    [
        ("walsh ", {"mayfetch", "lint", "completion", "conformance"}),
        ("walsh mayfetch --r", {"--robots"}),
        ("walsh completion ", {"bash", "zsh", "fish"}),
        ("scrapy may", {"mayfetch"}),
        ("scrapy startp", {"startproject"}),  # Scrapy's own
        ("scrapy sources --so", {"--sources"}),
        ("scrapy export -o pyp", {"pyproject.toml"}),
        ("scrapy crawl ", {"feeds", "llms"}),
    ],
)
def test_bash_proposes_what_the_parsers_take(scripts, line, proposed):
    words = line.split(" ")
    command = ["bash", "-c", PRESSING, "bash", scripts[words[0]], *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == proposed
    assert done.stderr == ""


@pytest.mark.parametrize("words", [[], ["tcsh"], ["bash", "zsh"]])
def test_a_call_without_a_known_shell_is_one_line_and_status_2(words):
    done = execute(sys.executable, "-m", "scrapy", "completion", *words, cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "walsh-scrapy: which shell? One of bash, zsh, fish\n"
