"""`walsh judge`: what a server's log says of a bot, and for any bytes that it is read."""

import gzip
import io
import json
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from walsh_scrapy.console.program import main
from walsh_scrapy.tools.judgelog import judge as judging
from walsh_scrapy.tools.judgelog.judge import Judge
from walsh_scrapy.tools.judgelog.lines import LINE, LONGEST_LINE, lines_of, second_of
from walsh_scrapy.tools.judgelog.report import MOST_ROWS, report

ROBOTS = b"""\
User-agent: *
Disallow: /private
Crawl-delay: 5
User-agent: night
Visit-time: 0000-0100
Request-rate: 1/10
User-agent: free
Disallow:
"""
BOT = "Mozilla/5.0 (compatible; Some-Bot/1.0; +https://bot.example/)"
BROWSER = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0"


def line(second, target="/", status=200, agent=BOT):
    """One line at a second after 23 May 2026, 12:00:00 UTC."""
    hour, minute, second = 12 + second // 3600, second // 60 % 60, second % 60
    stamp = f"{23 + hour // 24}/May/2026:{hour % 24:02}:{minute:02}:{second:02} +0000"
    return f'192.0.2.1 - - [{stamp}] "GET {target} HTTP/1.1" {status} 12 "-" "{agent}"'


def judged(*lines, wanted="", robots=ROBOTS):
    judge = Judge(robots, wanted)
    judge.read_log(io.BytesIO("\n".join(lines).encode()), "access.log")
    return judge


def only(*lines, **options):
    ((_, agent),) = judged(*lines, **options).agents()
    return agent


def test_a_polite_bot_is_polite():
    agent = only(
        line(0, "/robots.txt"),
        line(1, "/feed"),
        line(6, "/feed", 304),
        line(12, "/a", 429),
        line(30, "/a"),
    )
    assert agent.is_polite
    assert (agent.requests, agent.robots, agent.refused, agent.after_refusal) == (5, 1, 1, 18)
    assert (agent.pause, agent.conditional, agent.stale) == (5, 0.25, 0)


def test_denied_paths_are_counted_with_the_first():
    agent = only(line(0, "/robots.txt"), line(9, "/private/1"), line(20, "/private/2?x=/"))
    assert (agent.denied, agent.is_polite) == (2, False)
    assert agent.denied_at == ("access.log", 2, b"/private/1")
    assert only(line(0, "/private", agent="free/1.0")).denied == 0


def test_a_pause_counts_as_short_only_if_it_certainly_was():
    """5 s may have passed between the seconds 0.0 and 5.9, but not between 0.0 and 4.9."""
    assert only(line(0), line(5)).short == 0
    agent = only(line(0), line(4), line(4, "/x"))
    assert (agent.short, agent.pause, agent.short_at.line) == (2, 0, 2)
    assert only(line(0), line(0, agent="free/1.0"), wanted="free").short == 0


def test_pauses_around_robots_txt_do_not_count():
    assert only(line(0), line(1, "/robots.txt"), line(2)).short == 0


def test_a_retry_right_after_a_refusal_is_hasty():
    agent = only(line(0, status=503), line(1), line(20, status=429), line(27))
    assert (agent.refused, agent.hasty, agent.after_refusal) == (2, 1, 1)
    assert agent.hasty_at.line == 2


def test_rate_and_visit_time_are_those_of_the_group():
    night = "night/1.0"
    agent = only(line(0, agent=night), line(9, agent=night), line(12 * 3600, agent=night))
    assert (agent.closed, agent.short, agent.terms.pause) == (2, 1, 10.0)
    assert agent.closed_at.line == 1


def test_a_day_without_robots_txt_is_counted():
    agent = only(line(0), line(9, "/robots.txt"), line(99), line(86_410))
    assert agent.stale == 2


def test_a_line_out_of_order_is_no_pause():
    assert only(line(9), line(8), line(14)).short == 0


def test_logs_may_be_given_in_any_order():
    new, old = line(9 * 3600, "/robots.txt", 429), line(0)
    judge = judged(new, old, line(2))
    ((_, agent),) = judge.agents()
    assert (agent.short, agent.hasty, agent.pause, agent.stale) == (1, 0, 2, 2)
    judge = judged(line(0, status=503))
    judge.read_log(io.BytesIO(line(1).encode()), "access.log.1")
    ((_, agent),) = judge.agents()
    assert (agent.hasty, agent.hasty_at) == (1, ("access.log.1", 1, b"/"))


def test_browsers_are_counted_and_judged_only_if_they_are_named():
    lines = [line(0, "/private", agent=BROWSER)] * 2
    judge = judged(*lines, line(0, agent="Mozilla/4.0 (compatible; MSIE 8.0)"))
    assert (list(judge.agents()), judge.others, judge.read) == ([], 3, 3)
    assert only(*lines, wanted="chrome").denied == 2
    assert "no bot" not in "".join(report(judge, every=False))


def test_common_log_format_has_no_user_agents():
    lines = [line(second, "/private").rpartition(' "-" "')[0] for second in (0, 1)]
    ((name, agent),) = judged(*lines).agents()
    assert (name, agent.requests, agent.denied, agent.short) == ("-", 2, 2, 1)


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(judging, "MOST_AGENTS", 3)
    names = [f"bot-{letter}" for letter in "abcde"]
    judge = judged(*(line(0, agent=name) for name in names))
    assert (len(list(judge.agents())), judge.others) == (3, 2)
    monkeypatch.setattr("walsh_scrapy.tools.judgelog.terms._MOST_VERDICTS", 2)
    assert only(*(line(9 * n, f"/private/{n}") for n in range(9))).denied == 9
    longest = "bot-" + "x" * 2 * judging.LONGEST_AGENT
    ((name, agent),) = judged(line(0, agent=longest), line(9, agent=f"{longest}y")).agents()
    assert (len(name), agent.requests) == (judging.LONGEST_AGENT, 2)
    target = "/private/" + "x" * 5_000
    agent = only(line(0, target), line(9, target))
    assert (agent.denied, agent.terms._denied) == (2, {})


def test_the_report_lists_the_busiest_and_where_each_rule_was_broken_first(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    bots = [f"{'x' * number}-bot" for number in range(1, 31)]
    lines = [line(9 * n, agent=bot) for bot in bots for n in range(len(bot))]
    lines += ["something else", line(0, agent=BROWSER), ""]
    rude = [line(n, "/private/\\x1b", 429) for n in range(99)]
    (tmp_path / "robots.txt").write_bytes(ROBOTS)
    (tmp_path / "access.log").write_text("\n".join(lines))
    (tmp_path / "rude.log.gz").write_bytes(gzip.compress("\n".join(rude).encode()))

    def walsh(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(["judge", "--robots", "robots.txt", *arguments])
        return ended.value.code, capsys.readouterr().out

    status, out = walsh("access.log")
    assert status == 0
    head, *rows, more, total = out.splitlines()
    assert head.split()[:4] == ["requests", "robots.txt", "denied", "pause"]
    assert len(rows) == MOST_ROWS
    assert rows[0].endswith(f"{'x' * 30}-bot")
    assert more == "… and 10 more"
    assert total == (
        f"{sum(map(len, bots)) + 1} lines read; 1 line in another format; 1 request of browsers "
        "and the like not judged"
    )
    status, out = walsh("access.log", "rude.log.gz", "--agent", "some-bot")
    assert status == 1
    for said in (
        f"{BOT}: 99 requests for what robots.txt denies: line 2 of robots.txt says",
        "says 'Disallow: /private'; the first is rude.log.gz:1 /private/\\x1b",
        "98 requests earlier than the pause asked for (5 s); the first is rude.log.gz:2 ",
        "98 requests within a second after 429 or 503; the first is rude.log.gz:2 ",
    ):
        assert said in out
    status, out = walsh("rude.log.gz", "--json")
    (record,) = json.loads(out)
    assert (status, record["user_agent"], record["polite"], record["denied"]) == (1, BOT, False, 99)
    assert record["first"]["denied"]["line"] == 1
    assert record["first"]["outside_visit_time"] is None
    (tmp_path / "cut.log.gz").write_bytes(gzip.compress(b"x" * 99)[:-9])
    with pytest.raises(SystemExit) as ended:
        main(["judge", "--robots", "robots.txt", "cut.log.gz"])
    assert ended.value.code == 2
    assert "cut.log.gz cannot be read" in capsys.readouterr().err
    reader = io.BufferedReader(io.BytesIO("\n".join(rude).encode()))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(reader))
    assert json.loads(walsh("-", "--json")[1])[0]["requests"] == 99


@pytest.mark.parametrize(
    ("stamp", "second"),
    [
        (b"01/Jan/1970:00:00:01 +0000", 1),
        (b"23/May/2026:08:00:00 +0200", 1_779_516_000),
        (b"23/May/2026:01:30:00 -0430", 1_779_516_000),
        (b"31/Feb/2026:00:00:00 +0000", None),
        (b"01/Foo/2026:00:00:00 +0000", None),
        (b"01/Jan/2026:00:00:00 +9900", None),
    ],
)
def test_times_are_read_with_their_zone(stamp, second):
    assert second_of(stamp) == second


TEXT = st.text(st.characters(codec="utf-8", exclude_characters='"\\\n '), min_size=1)


@given(target=TEXT, agent=TEXT, referer=TEXT, status=st.integers(100, 999), host=TEXT)
@example(target='/\\"x\\"', agent='\\"a\\\\', referer="-", status=200, host="h:80 ::1")
def test_what_a_server_writes_is_read_as_it_is(target, agent, referer, status, host):
    written = (
        f"{host} - - [01/Jan/1970:00:00:01 +0000] "
        f'"GET {target} HTTP/2.0" {status} - "{referer}" "{agent}"'
    )
    found = LINE.search(written.encode())
    assert found is not None
    assert found.groups() == (
        b"01/Jan/1970:00:00:01 +0000", target.encode(), str(status).encode(), agent.encode(),
    )  # fmt: skip


PIECES = [
    b"\n", b'"', b"\\", b" ", b"[", b"[01/Jan/1970:00:00:01 +0000] ", b'"GET ', b"/x", b" HTTP/1.1",
    b'" 200 1', b' "-" "', b"bot/1", b"\0", b"\xff",
]  # fmt: skip


@given(st.one_of(st.binary(), st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join)))
def test_every_line_of_any_bytes_is_counted_once(log):
    judge = Judge(ROBOTS)
    judge.read_log(io.BytesIO(log), "x")
    lines = [each for each in log.split(b"\n") if each.strip()]
    assert judge.read + judge.unread == len(lines)
    requests = sum(agent.requests for _, agent in judge.agents())
    assert requests + judge.others == judge.read
    assert all(text.isprintable() for text in report(judge, every=True))


@pytest.mark.parametrize(
    "piece",
    [b"[01/Jan/1970:00:00:01 +0000] ", b'[01/Jan/1970:00:00:01 +0000] "GET \\', b'"\\', b"["],
)
def test_a_line_without_an_end_is_cut(piece):
    endless = piece * (3_000_000 // len(piece))
    judge = Judge(ROBOTS)
    judge.read_log(io.BytesIO(endless + b"\n" + line(0).encode()), "x")
    assert (judge.read, judge.unread) == (1, 1)
    assert all(
        len(each) <= LONGEST_LINE + (1 << 20) for each in next(lines_of(io.BytesIO(endless)))
    )
