"""The command line of a benchmark."""

import sys

import pytest

from benchmarks.conformance.__main__ import options_of
from benchmarks.report import run


def call(monkeypatch, *words):
    """Return what a benchmark with one number and two names gets."""
    received = []

    def measure(_, hosts, *names):
        received.extend([hosts, *names])

    monkeypatch.setattr(sys, "argv", ["benchmark.py", *words])
    run(measure, 2000, names=("http", "https"))
    return received


@pytest.mark.parametrize(
    ("words", "received"),
    [((), [2000]), (("7",), [7]), (("7", "https"), [7, "https"]), (("--json", "7"), [7])],
)
def test_a_benchmark_gets_its_numbers_and_names(monkeypatch, words, received):
    assert call(monkeypatch, *words) == received


@pytest.mark.parametrize("words", [("many",), ("7", "ftp"), ("--hosts",)])
def test_a_wrong_word_is_named_without_a_traceback(monkeypatch, capsys, words):
    with pytest.raises(SystemExit) as ended:
        call(monkeypatch, *words)
    assert ended.value.code == 2
    assert words[-1] in capsys.readouterr().err


def test_help_of_the_crawlers_names_them(capsys):
    with pytest.raises(SystemExit) as ended:
        options_of(["--help"])
    assert not ended.value.code
    assert "scrapy-polite" in capsys.readouterr().out


def test_a_crawler_that_is_not_there_is_named(capsys):
    with pytest.raises(SystemExit) as ended:
        options_of(["wget", "nosuch"])
    assert ended.value.code == 2
    assert "nosuch" in capsys.readouterr().err
