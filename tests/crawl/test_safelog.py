"""Whatever strangers' text is in a log line: one line, bounded, and nothing a terminal obeys."""

import logging

import pytest

from walsh_scrapy.crawl.log import LONGEST_LINE, SafeFormatter
from walsh_scrapy.policy.wording import printable

FORMATTER = SafeFormatter(logging.Formatter("%(levelname)s: %(message)s").format)


def line(message, *args, exc_info=None):
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, message, args, exc_info)
    return FORMATTER.format(record)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("a\n2026-01-01 [x] INFO: all is well", r"a\n2026-01-01 [x] INFO: all is well"),
        ("\x1b[2J\x9b1m\x07\x00\x7f", r"\x1b[2J\x9b1m\x07\x00\x7f"),
        ("abc\u202ecod.exe\u2066", r"abc\u202ecod.exe\u2066"),
        ("a\u2028b\u2029c\x85d\re", r"a\u2028b\u2029c\x85d\re"),
        ("\ud800", r"\ud800"),
        ("na\u00efve \U0001f469\u200d\U0001f52c", "na\u00efve \U0001f469\u200d\U0001f52c"),
    ],
)
def test_a_value_is_on_one_line_and_harmless(said, shown):
    assert printable(said) == shown
    assert line("%s failed: %s", "http://x/", said) == f"INFO: http://x/ failed: {shown}"
    assert line("%(why)s", {"why": ValueError(said)}) == f"INFO: {shown}"
    assert shown in line("%d of %.1f: %s\n%s", 1, 2.0, "\x1b", said).replace("\n", r"\n")


def test_a_value_is_bounded():
    assert line("%s failed: %s", "http://x/", "a" * 500_000).endswith("a…")
    assert len(line("%s", "\x1b" * 500_000)) <= LONGEST_LINE + len("INFO: ")


def test_tables_and_tracebacks_keep_their_lines():
    assert line("run ended:\n  %s", "fetched  1\n  failed\t2") == (
        "INFO: run ended:\n  fetched  1\n  failed\t2"
    )
    try:
        float("\x1b[2J")
    except ValueError as error:
        text = line(
            "%s broke in C:\\temp", "it\n", exc_info=(ValueError, error, error.__traceback__)
        )
    first, second, *_ = text.split("\n")
    assert (first, second) == (r"INFO: it\n broke in C:\temp", "Traceback (most recent call last):")
    assert text.endswith(r"could not convert string to float: '\x1b[2J'")
