"""R2: what a verdict and its reason cost, in calls, however long the robots.txt is."""

import sys
from datetime import UTC, datetime
from itertools import count

import pytest

from walsh_scrapy.policy.robots import RobotsTxt
from walsh_scrapy.policy.robots.copy import RobotsCopy, RobotsFile
from walsh_scrapy.policy.robots.robotstxt import RuleRecords

AT = datetime(2026, 5, 23, 3, 8, tzinfo=UTC)
#: A text for each number of lines, in which the last rule denies /last.
FILES = {
    "rules": lambda n: "User-agent: *\n" + "".join(f"Disallow: /{i}\n" for i in range(n)),
    "one beginning": lambda n: "User-agent: *\n" + "".join(f"Allow: /last{i}\n" for i in range(n)),
    "merged groups": lambda n: "".join(f"User-agent: *\nDisallow: /{i}\n" for i in range(n // 2)),
    "groups of others": lambda n: "".join(
        f"User-agent: {bot}\nDisallow: /{i}\n" for i in range(n // 4) for bot in ("x", "*")
    ),
    "comments": lambda n: "User-agent: *\n" + "Comment: a\n" * n,
    "rates": lambda n: "User-agent: *\n" + "".join(f"Request-rate: 1/{i + 1}\n" for i in range(n)),
    "visit times": lambda n: "User-agent: *\n" + "Visit-time: 0000-2359\n" * n,
    "long lines": lambda n: "User-agent: *\n" + f"Disallow: /{'a' * 2_000}\n" * (n // 150),
}


def file_of(kind, lines):
    """Return a robots.txt, and the number of the line that denies /last."""
    text = f"{FILES[kind](lines)}User-agent: *\nDisallow: /last\n"
    copy = RobotsCopy(0.0, 200, text.encode())
    return RobotsFile.from_copy(copy, "any", "allow", 0.0), text.count("\n")


def calls_of(function):
    """Return the number of calls, of built-in functions too, that a function makes."""
    calls = count()
    sys.setprofile(lambda *_: next(calls))
    try:
        function()
    finally:
        sys.setprofile(None)
    return next(calls)


def explain(file, url="/last"):
    verdict = file.rules.verdict(url)
    return verdict.allowed, verdict.rule, verdict.line, file.why(verdict)


@pytest.mark.parametrize("kind", FILES)
def test_a_reason_costs_as_little_in_a_long_file(kind):
    short, _ = file_of(kind, 160)
    long, line = file_of(kind, 20_000)
    assert explain(long)[:3] == (False, "Disallow: /last", line)
    for url in ("/last", "/other", f"/last{'x' * 2_000}"):
        cost = calls_of(lambda url=url: explain(long, url))
        assert cost <= calls_of(lambda url=url: explain(short, url)) + 40


def test_a_reason_by_version_2_costs_as_little_in_a_long_file():
    head = "User-agent: *\nRobot-version: 2.0\nDisallow: /last\n"
    short, long = (
        RobotsTxt.parse(f"{head}{'Comment: a' * n}\n{'Sitemap: /s' * n}\n".encode()).rules_for("x")
        for n in (10, 20_000)
    )
    costs = [calls_of(lambda rules=rules: rules.verdict("/last").rule) for rules in (short, long)]
    assert costs[1] <= costs[0] + 40


@pytest.mark.parametrize("url", ["/last", "/0", "/other"])
def test_the_record_of_a_verdict_is_looked_up_once(url, monkeypatch):
    find = RuleRecords.find
    found = []
    monkeypatch.setattr(RuleRecords, "find", lambda *call: found.append(call) or find(*call))
    file, _ = file_of("rules", 10)
    explain(file, url)
    assert len(found) == (url != "/other")


def test_a_verdict_whose_reason_nobody_asks_for_looks_up_nothing(monkeypatch):
    monkeypatch.setattr(RuleRecords, "find", lambda *_: pytest.fail("looked up"))
    file, _ = file_of("rules", 10)
    assert not file.allows("/last")


@pytest.mark.parametrize("kind", ["rates", "visit times"])
def test_delays_of_one_minute_are_computed_once(kind):
    file, _ = file_of(kind, 20_000)
    now = AT.timestamp()

    def ask():
        return file.interval(now), file.own_wait(now), file.closed_for(now)

    ask()
    assert calls_of(ask) < 100


def test_a_reason_names_the_line_of_each_merged_group():
    lines = []
    for number in range(40):
        lines += [f"User-agent: {'*' if number % 3 else 'other'}", "# a comment", ""]
        lines += [f"Disallow: /{number:02}/ # why", "Sitemap: /s", f"Allow: /{number:02}/a"]
    rules = RobotsTxt.parse("\n".join(lines).encode()).rules_for("any")
    for number in range(40):
        for url in (f"/{number:02}/b", f"/{number:02}/a"):
            verdict = rules.verdict(url)
            assert (verdict.line is None) == (number % 3 == 0)
            if verdict.line:
                assert lines[verdict.line - 1].partition(" #")[0] == verdict.rule


@pytest.mark.parametrize(
    ("rules", "line"),
    [
        (["Disallow: /*c", "Disallow: /abc", "Disallow: /*bc"], 3),
        (["Disallow: /*bc", "Disallow: /a*c"], 2),
        (["Disallow: /a*c", "Allow: /*b", "Allow: /*bc", "Allow: /*b*c"], 5),
        (["Disallow: /abc$", "Disallow: /ab*c"], 2),
        (["Disallow: /ab*c", "Disallow: /abc$"], 2),
    ],
)
def test_a_reason_names_the_first_of_equally_long_rules(rules, line):
    file = "\n".join(["User-agent: *", *rules]).encode()
    assert RobotsTxt.parse(file).rules_for("any").verdict("/abc").line == line
