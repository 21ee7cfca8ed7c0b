"""How far a run is: words for a log, and lines for a terminal of any width."""

import io
import math
import os
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from walsh_scrapy.crawl.context import Retry
from walsh_scrapy.extensions.progress import (
    Display,
    ProgressSnapshot,
    awaited,
    outcomes_of,
    rate_of,
    render,
)
from walsh_scrapy.policy.frontier import NextHost

HALF_DONE = ProgressSnapshot(
    due=206,
    done=57,
    outcomes=("31 new entries", "4 failed", "3 denied"),
    seconds=80.0,
    rate=0.94,
    left=200.4,
    awaited="requesting a.example",
)


class Queue:
    """What a queue of our scheduler says."""

    def __init__(self, asked=(), turn=None, *, is_restricted=False):
        self.in_flight = list(asked)
        self.frontier = self
        self.is_restricted = is_restricted
        self._turn = turn

    def next_host(self):
        return self._turn


def test_a_line_of_the_log_says_all_of_it():
    assert HALF_DONE.line == (
        "57 of 206 sources done, 31 new entries, 4 failed, 3 denied; "
        "at least 3 min 20 s left; requesting a.example"
    )
    unknown = replace(HALF_DONE, due=None, left=math.inf, outcomes=(), awaited="")
    assert unknown.line == "57 responses"


def test_the_outcomes_are_those_of_the_stats():
    stats = {"walsh/sources/due": 4, "walsh/sources/failed": 1, "walsh/sources/denied/robots": 2}
    assert outcomes_of(stats) == (4, 3, ("0 new entries", "1 failed", "2 denied"))
    assert outcomes_of({"response_received_count": 5}) == (None, 5, ())


def test_what_is_waited_for_is_named_with_the_reason_and_the_time():
    retries, now = {}, 1000.0
    turn = NextHost("slow.example", now + 12.0, 5.0)

    def told(queue, passed=0.0):
        return awaited(queue, retries, now + passed)

    assert told(Queue()) == ""
    assert told(Queue(turn=NextHost("a.example", now - 1.0, None))) == ""
    assert told(Queue(turn=turn)) == (
        "waiting for slow.example: next request in 12 s (its delay is 5 s)"
    )
    usual = turn._replace(delay=None)
    assert told(Queue(turn=usual)) == "waiting for slow.example: next request in 12 s"
    assert told(Queue(["a.example"], turn)) == "requesting a.example"
    assert told(Queue(["a.example", "b.example"])) == "requesting a.example and 1 more host"
    assert (
        told(Queue(["op.example"], is_restricted=True)) == "requesting op.example for the blocklist"
    )
    restricted = Queue(turn=usual, is_restricted=True)
    assert told(restricted) == "waiting for the blocklist: next request in 12 s"
    refused = Retry(2, 5, now + 12.0, "answered 429", for_blocklist=False)
    retries["slow.example"] = refused
    assert told(Queue(turn=turn)) == (
        "waiting for slow.example, which answered 429: try 2 of 5 in 12 s"
    )
    retries["op.example"] = Retry(3, 5, now + 8.0, "answered 503", for_blocklist=True)
    assert told(Queue(["a.example"], turn)) == "waiting for the blocklist: try 3 of 5 in 8 s"
    assert told(Queue(turn=turn), passed=8.0) == (
        "waiting for slow.example, which answered 429: try 2 of 5 in 4 s"
    )


def test_the_rate_is_that_between_the_first_and_the_last():
    assert rate_of([(0.0, 0)]) == rate_of([(0.0, 0), (0.0, 5)]) == 0.0
    assert rate_of([(10.0, 50), (60.0, 70), (110.0, 550)]) == 5.0


@pytest.mark.parametrize("width", [20, 80, 200])
@pytest.mark.parametrize("due", [0, 206, None])
def test_the_display_is_at_most_three_lines_at_any_width(monkeypatch, width, due):
    monkeypatch.setenv("NO_COLOR", "1")
    screen = io.StringIO()
    console = Console(file=screen, width=width, force_terminal=True)
    longest = "waiting for " + "very-" * 60 + "slow.example"
    console.print(render(replace(HALF_DONE, due=due, awaited=longest)))
    lines = screen.getvalue().splitlines()
    assert len(lines) == 3
    assert all(len(line) <= width for line in lines)
    assert "\x1b" not in screen.getvalue(), "NO_COLOR is obeyed"
    if width >= 80:
        assert lines[1].rstrip() == "31 new entries · 4 failed · 3 denied · 0.9 responses/s"
    if width >= 80 and due:
        assert lines[0].endswith(" 57 of 206 sources done · 1 min 20 s · at least 3 min 20 s left")


@pytest.fixture
def terminal():
    """A stream to a terminal."""
    master, slave = os.openpty()
    with os.fdopen(slave, "w") as stream:
        yield stream
    os.close(master)


def test_a_terminal_that_can_show_a_display_has_one(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    first = Display.open(["file:///items.jsonl"])
    assert first
    assert Display.open([]) is None, "of two crawls in a process one has a display"
    first.show(HALF_DONE)
    first.close()
    assert sys.stderr is terminal
    monkeypatch.setattr(sys, "stdout", terminal)
    assert Display.open(["stdout:"]) is None, "items would be written into it"
    monkeypatch.setenv("TERM", "dumb")
    assert Display.open([]) is None


def test_what_is_no_terminal_has_no_display(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert Display.open([]) is None
