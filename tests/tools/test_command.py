"""What all commands have in common is in their base classes, and in no command again."""

from argparse import ArgumentParser
from importlib import import_module
from pkgutil import iter_modules

import pytest
from scrapy.commands import ScrapyCommand
from scrapy.settings import Settings

from walsh_scrapy import commands
from walsh_scrapy.tools.command import OperatorCommand

#: Scrapy's own crawl, and the test of any crawler, which runs without a project and a state.
OTHERS = ("conformance", "crawl")
NAMES = sorted(module.name for module in iter_modules(commands.__path__))
OPERATED = [name for name in NAMES if name not in OTHERS]


def command_of(name, **settings):
    command = import_module(f"walsh_scrapy.commands.{name}").Command()
    command.settings = Settings(settings)
    return command


@pytest.mark.parametrize("name", OPERATED)
def test_a_command_describes_itself_and_its_base_does_the_rest(name):
    kind = type(command_of(name))
    assert issubclass(kind, OperatorCommand)
    assert {"headline", "description", "execute"} <= vars(kind).keys()
    assert {"run", "syntax", "short_desc", "long_desc"}.isdisjoint(vars(kind))


@pytest.mark.parametrize("name", OTHERS)
def test_every_other_command_is_a_variant_of_one_of_scrapy(name):
    assert isinstance(command_of(name), ScrapyCommand)


@pytest.mark.parametrize("name", OPERATED)
def test_an_option_that_several_commands_have_is_the_same_in_each(name):
    command, parser = command_of(name), ArgumentParser()
    command.add_options(parser)
    options = parser.parse_args([])
    assert hasattr(options, "json") is bool(command.json)
    assert hasattr(options, "since") is bool(command.since)
    assert hasattr(options, "sources") is command.has_sources


@pytest.mark.parametrize("name", OPERATED)
def test_an_unknown_option_is_one_line_and_the_status_of_a_wrong_call(name, capsys):
    command, parser = command_of(name), ArgumentParser()
    command.add_options(parser)
    with pytest.raises(SystemExit) as ended:
        command.run(["--nope"], parser.parse_args([]))
    assert ended.value.code == (3 if name == "status" else 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"walsh-scrapy: there is no option --nope; see scrapy {name} --help"


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
    command = command_of(name, WALSH_STATE_URL=f"sqlite:///{tmp_path}/no.db")
    parser = ArgumentParser()
    command.add_options(parser)
    options, left = parser.parse_known_args(words)
    with pytest.raises(SystemExit, match=r"there is no state at sqlite:////.*no crawl was run"):
        command.run(left, options)
    assert capsys.readouterr().out == ""
    assert not list(tmp_path.iterdir())
