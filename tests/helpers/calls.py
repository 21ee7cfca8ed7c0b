"""Checks of command lines: whether the program or Scrapy would accept them."""

import re
import shutil
import sys

import pytest
from scrapy.cmdline import ScrapyArgumentParser
from scrapy.utils.project import get_project_settings

from tests.helpers import ROOT, execute
from tests.helpers.pages import page_of
from walsh_scrapy.commands.crawl import Command
from walsh_scrapy.console import build_parser, parse
from walsh_scrapy.console.commands import COMMANDS
from walsh_scrapy.options import Options
from walsh_scrapy.tools.call import Call

#: The spider arguments of docs/settings.md.
ARGUMENTS = set(re.findall(r"^- `(\w+)=", page_of("settings.md"), re.MULTILINE))


def check_call(arguments):
    """Check the options of a command, and the values that are given with them."""
    name, *words = arguments
    if name == "conformance":
        check_trial(words)
    elif name == "crawl":
        check_crawl(words)
    else:
        options = parse(build_parser(), arguments)
        if COMMANDS[name].has_settings:
            Options.from_settings(Call(options).settings)


def check_crawl(words):
    """Check the options of `scrapy crawl` as Scrapy would."""
    settings, command = get_project_settings(), Command()
    command.settings = settings
    parser = ScrapyArgumentParser(conflict_handler="resolve")
    command.add_options(parser)
    # A crawl opens its log; the folder that the page makes is not on this machine.
    words = [re.sub(r"^LOG_FILE=.+", "LOG_FILE=/dev/null", word) for word in words]
    options, rest = parser.parse_known_args(words)
    assert [word for word in rest if word.startswith("-")] == []
    command.process_options(rest, options)
    Options.from_settings(settings)
    if rest != ["SPIDER"]:
        check_spider(rest[0] if rest else "feeds", **getattr(options, "spargs", {}))


def check_trial(words):
    """Check a call of the conformance test; make it if it is about few scenarios."""
    options = parse(build_parser(), ["conformance", *words])
    program = (options.crawler[1:] or ["COMMAND"])[0]
    if program == "wget" and not shutil.which(program):
        pytest.skip("wget is not on this machine")
    assert program.isupper() or program in ("wget", "python") or (ROOT / program).exists()
    if options.rules and not program.isupper():
        done = execute(sys.executable, "-m", "walsh_scrapy", "conformance", *words, cwd=ROOT)
        assert done.returncode in (0, 1), done.stderr
        assert re.search(r' scenarios?: |"conformant": ', done.stdout)


def check_spider(name, **arguments):
    """Check that a spider and its arguments exist."""
    assert (ROOT / "spiders" / f"{name}.py").exists()
    assert set(arguments) <= ARGUMENTS
