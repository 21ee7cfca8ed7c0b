"""`walsh judge`: what a server's log says of a bot, and for any bytes that it is read."""

import bz2
import contextlib
import gzip
import hashlib
import io
import json
import lzma
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.target import json_documents
from walsh_scrapy.console.program import main
from walsh_scrapy.testing.hit import Hit
from walsh_scrapy.testing.judgelog import judge as judging
from walsh_scrapy.testing.judgelog.agent import ACCUSATIONS
from walsh_scrapy.testing.judgelog.judge import Judge
from walsh_scrapy.testing.judgelog.layouts import LINE
from walsh_scrapy.testing.judgelog.lines import second_of
from walsh_scrapy.testing.judgelog.logfile import LONGEST_LINE, lines_of
from walsh_scrapy.testing.judgelog.report import MOST_ROWS, report
from walsh_scrapy.testing.manners import Manners
from walsh_scrapy.testing.timing import spaced
from walsh_scrapy.testing.useragent import Sender, sender_of, token_of

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


#: Combined Log Format by a server that is known to write when a request began.
BEGINS = '%h %l %u [%{begin:%d/%b/%Y:%H:%M:%S %z}t] "%r" %>s %b "%{Referer}i" "%{User-Agent}i"'


def line(second, target="/", status=200, agent=BOT, address="192.0.2.1"):
    """One line at a second after 23 May 2026, 12:00:00 UTC."""
    hour, minute, second = 12 + second // 3600, second // 60 % 60, second % 60
    stamp = f"{23 + hour // 24}/May/2026:{hour % 24:02}:{minute:02}:{second:02} +0000"
    return f'{address} - - [{stamp}] "GET {target} HTTP/1.1" {status} 12 "-" "{agent}"'


def judged(*lines, wanted="", robots=ROBOTS, form=BEGINS):
    judge = Judge(robots, wanted, form)
    judge.read_log(io.BytesIO("\n".join(lines).encode()), "access.log")
    return judge


def only(*lines, **options):
    (agent,) = judged(*lines, **options).agents()
    return agent


def found(agent):
    """What a bot is accused of, and how often."""
    return {kind: agent.count(kind) for kind in ACCUSATIONS if agent.count(kind)}


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
    assert (agent.count("denied"), agent.is_polite) == (2, False)
    assert agent.found["denied"].first == ("access.log", 2, b"/private/1")
    assert only(line(0, "/private", agent="free/1.0")).count("denied") == 0


def test_a_pause_counts_as_short_only_if_it_certainly_was():
    """5 s may have passed between the seconds 0.0 and 5.9, but not between 0.0 and 4.9."""
    assert only(line(0), line(5)).count("short_pauses") == 0
    agent = only(line(0), line(4), line(4, "/x"))
    assert (agent.count("short_pauses"), agent.pause, agent.found["short_pauses"].first.line) == (
        2,
        0,
        2,
    )
    assert only(line(0), line(0, agent="free/1.0"), wanted="free").count("short_pauses") == 0


@given(pause=st.integers(0, 20), asked=st.integers(1, 20))
def test_a_pause_is_judged_as_any_witness_judges_it(pause, asked):
    """`assert_polite` and the conformance test have the same rule, for logs of any resolution."""
    hits = [
        Hit(at, at + 0.5, 0.0, "GET", "http", "a.example", 80, path, status=200)
        for at, path in ((0, "/1"), (pause, "/2"))
    ]
    manners = Manners(interval=asked, resolution=1.0, from_start=True)
    robots = f"User-agent: *\nCrawl-delay: {asked}\n".encode()
    assert only(line(0), line(pause), robots=robots).count("short_pauses") == len(
        list(spaced(hits, manners))
    )


def test_pauses_around_robots_txt_do_not_count():
    assert only(line(0), line(1, "/robots.txt"), line(2)).count("short_pauses") == 0


def test_a_retry_is_hasty_only_if_it_certainly_came_within_a_second():
    """`Retry-After: 1` was obeyed between the seconds 0.0 and 1.0, but not between 0.0 and 0.9."""
    pauses = [0, 1, 2]
    agents = [only(line(0, status=503), line(pause)) for pause in pauses]
    assert [agent.count("hasty_retries") for agent in agents] == [1, 0, 0]
    assert [agent.after_refusal for agent in agents] == pauses
    assert agents[0].found["hasty_retries"].first.line == 2
    # Another page may have been asked for before the bot knew of the refusal.
    assert found(only(line(0, status=429), line(0, "/b"), robots=b"")) == {}
    # A server that writes when a request ended may have refused the first one later.
    assert found(only(line(0, status=429), line(0), robots=b"", form=None)) == {}


def test_rate_and_visit_time_are_those_of_the_group():
    night = "night/1.0"
    agent = only(line(0, agent=night), line(9, agent=night), line(12 * 3600, agent=night))
    assert (agent.count("outside_visit_time"), agent.count("short_pauses"), agent.terms.pause) == (
        2,
        1,
        10.0,
    )
    assert agent.found["outside_visit_time"].first.line == 1


def test_a_day_without_robots_txt_is_counted():
    agent = only(line(0), line(9, "/robots.txt"), line(99), line(86_410))
    assert agent.stale == 2


def test_a_line_out_of_order_is_no_pause():
    assert only(line(9), line(8), line(14)).count("short_pauses") == 0


def test_logs_may_be_given_in_any_order():
    new, old = line(9 * 3600, "/robots.txt", 429), line(0)
    agent = only(new, old, line(2))
    assert (found(agent), agent.pause, agent.stale) == ({}, 2, 2)
    agent = only(line(9 * 3600, "/robots.txt"), old, line(2))
    assert found(agent) == {"short_pauses": 1}
    judge = judged(line(0, status=503))
    judge.read_log(io.BytesIO(line(0).encode()), "access.log.1")
    (agent,) = judge.agents()
    assert agent.found["hasty_retries"] == (1, ("access.log.1", 1, b"/"))


def test_browsers_are_counted_and_judged_only_if_they_are_named():
    lines = [line(0, "/private", agent=BROWSER)] * 2
    judge = judged(*lines, line(0, agent="Mozilla/4.0 (compatible; MSIE 8.0)"), line(0))
    assert (judge.apart, judge.read) == ({"browsers": 3}, 4)
    agent = only(*lines, wanted="chrome")
    assert (agent.address, agent.count("denied")) == ("192.0.2.1", 2)
    judge = judged(*lines, line(0), wanted="some-bot")
    assert judge.apart == {"other User-Agents than --agent names": 2}


def common(*requests):
    return [each.rpartition(' "-" "')[0] for each in requests]


def test_common_log_format_is_judged_by_address_once_that_asked_for_robots_txt():
    person = [line(second, "/private") for second in (0, 0)]
    bot = [
        line(second, target, address="2001:db8::1")
        for second, target in ((0, "/private"), (1, "/robots.txt"), (99, "/private"), (99, "/"))
    ]
    judge = judged(*common(*person, *bot), form="common", robots=b"User-agent: *\nDisallow: /p")
    (agent,) = judge.agents()
    assert (agent.name, agent.address, agent.requests) == ("-", "2001:db8::1", 3)
    assert found(agent) == {"denied": 1}
    assert list(judge.apart.values()) == [3]
    assert len(list(judged(*common(*person), form="common", wanted="-").agents())) == 1


@pytest.mark.parametrize(
    ("agent", "token", "sender"),
    [
        (BOT, "Some-Bot", Sender.BOT),
        ("Bot/1 (+https://bot.example)", "Bot", Sender.BOT),
        ("Mozilla/5.0 (X11) Safari/605.1 (Applebot/0.1; +http://apple.example/)", "Applebot",
         Sender.BOT),
        ("Bot/1 (bot@bot.example)", "Bot", Sender.MANY),
        ("python-requests/2.32", "python-requests", Sender.MANY),
        ("FreshRSS/1.24.0 (Linux; https://freshrss.org)", "FreshRSS", Sender.MANY),
        ("Mozilla/5.0 (compatible; Miniflux/2.0; +https://miniflux.app)", "Miniflux", Sender.MANY),
        ("Scrapy/2.19.0 (+https://scrapy.org)", "Scrapy", Sender.MANY),
        ("got (https://github.com/sindresorhus/got)", "got", Sender.MANY),
        ("-", None, Sender.MANY),
        ("", None, Sender.MANY),
        (BROWSER, "Mozilla", Sender.PERSON),
        ("Opera/9.80 (Windows NT 6.1)", "Opera", Sender.PERSON),
    ],
)  # fmt: skip
def test_one_bot_names_itself_and_a_page(agent, token, sender):
    assert (token_of(agent), sender_of(agent)) == (token, sender)


def test_programs_of_many_people_are_judged_by_address():
    reader = "FreshRSS/1.24.0 (Linux; https://freshrss.org)"
    lines = [line(0, agent=reader, address=f"192.0.2.{n}") for n in range(9)]
    agents = list(judged(*lines).agents())
    assert [(agent.address, found(agent)) for agent in agents] == [
        (f"192.0.2.{n}", {}) for n in range(9)
    ]
    assert found(only(*[line(0, agent=reader)] * 9)) == {"short_pauses": 8}
    assert found(only(*[line(0, address=f"192.0.2.{n}") for n in range(9)])) == {"short_pauses": 8}


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "172.17.0.1", "::1", "fd00::1", "-"])
def test_an_address_that_many_may_share_is_no_bot(address):
    """A proxy in front of the server has sent all requests of the log."""
    lines = [line(0, agent="reader/1.0", address=address)] * 9
    judge = judged(*lines)
    assert (list(judge.agents()), sum(judge.apart.values())) == ([], 9)
    assert len(list(judged(*lines, wanted="reader").agents())) == (address != "-")
    assert only(line(0, address=address)).requests == 1


@pytest.mark.parametrize(
    ("before", "address"),
    [
        ("192.0.2.1 -", "192.0.2.1"),
        ("abc.de:443 192.0.2.1 -", "192.0.2.1"),
        ("1.2.3.4:80 192.0.2.1 -", "192.0.2.1"),
        ("blog.example:443 2001:db8::1 -", "2001:db8::1"),
        ("2001:db8::1 -", "2001:db8::1"),
        ("2001:db8::1:443 a.example", "2001:db8::1:443"),
        ("[::1]:80 fe80::1%eth0 -", "fe80::1"),
        ("client.example -", "client.example"),
        ("blog.example:80 client.example -", "client.example"),
        ("192.0.2.1 blog.example:80", "192.0.2.1"),
    ],
)
def test_the_address_is_found_behind_a_virtual_host_too(before, address):
    written = line(0, agent="reader/1.0").replace("192.0.2.1 -", before, 1)
    assert only(written, form=None, wanted="reader").address == address


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("caddy", {"remote_ip": "192.0.2.9"}),
        ("caddy", {"remote_ip": "10.0.0.1", "client_ip": "192.0.2.9"}),
        ("traefik", {"ClientHost": "192.0.2.9"}),
        ("nginx-json", {"remote_addr": "192.0.2.9"}),
    ],
)
def test_json_has_addresses_too(name, more):
    record = json.loads(written(at=0, agent="reader/1.0")[name])
    (record["request"] if name == "caddy" else record).update(more)
    assert only(json.dumps(record), form=None).address == "192.0.2.9"


def test_the_addresses_of_a_bot_are_shown(run_judge, monkeypatch):
    lines = [line(9 * n, address=f"192.0.2.{n % 150}") for n in range(200)]
    (agent,) = judged(*lines).agents()
    assert (len(agent.addresses), agent.more_addresses) == (100, True)
    status, out, _ = run_judge("--format", BEGINS, log="\n".join(lines).encode())
    assert status == 0
    assert f"{BOT}: from 100+ addresses: 192.0.2.0, 192.0.2.1, 192.0.2.2, …\n" in out
    (record,) = json.loads(run_judge("--json", log="\n".join(lines[:2]).encode())[1])
    assert (record["address"], record["addresses"]) == (None, 2)
    assert record["first_addresses"] == ["192.0.2.0", "192.0.2.1"]
    monkeypatch.setattr(judging, "MOST_ADDRESSES_KEPT", 7)
    assert len(only(*lines).addresses) == 7


BEGIN = 1_779_537_600  # 23 May 2026, 12:00:00 UTC


def written(at, target="/", status=200, took=0.25, agent=BOT):
    """What a server could write of a request that began some seconds after `BEGIN`, by format."""
    begin, end = BEGIN + at, BEGIN + at + took
    clf, clf_end, iso, iso_end = (
        datetime.fromtimestamp(int(moment), UTC).strftime(form)
        for form in ("%d/%b/%Y:%H:%M:%S +0000", "%Y-%m-%dT%H:%M:%S+00:00")
        for moment in (begin, end)
    )
    request = f"GET {target} HTTP/1.1"
    caddy = {
        "ts": end,
        "request": {"method": "GET", "uri": target, "headers": {"User-Agent": [agent]}},
        "duration": took,
        "status": status,
    }
    traefik = {
        "DownstreamStatus": status,
        "Duration": int(took * 1e9),
        "RequestMethod": "GET",
        "RequestPath": target,
        "StartUTC": iso.replace("+00:00", f".{int(begin % 1 * 1e9):09}Z"),
        "request_User-Agent": agent,
        "time": iso_end.replace("+00:00", "Z"),
    }
    nginx = {
        "time_iso8601": iso_end,
        "msec": f"{end:.3f}",
        "request": request,
        "status": str(status),
        "http_user_agent": agent,
        "request_time": f"{took:.3f}",
    }
    tail = f'"{request}" {status} 12 "-" "{agent}"'
    common = f"192.0.2.1 - - [{clf}] {tail}"
    return {
        "combined": common,
        "combined-ends": f"192.0.2.1 - - [{clf_end}] {tail}",
        "vhost": f"blog.example:443 {common}",
        "lighttpd": f"192.0.2.1 blog.example - [{clf_end}] {tail}",
        "lighttpd-took": f"192.0.2.1 blog.example - [{clf_end}] {tail} {int(took * 1e6)}",
        "apache": f"blog.example {common} {int(took * 1e6)}",
        "apache-ends": f"{int(end * 1e6)} {tail} {int(took * 1000)}",
        "apache-parts": f"[{clf[:20]}.{int(begin % 1 * 1e6):06} +0000] {tail}",
        "apache-odd": f'{int(begin * 1e3)} [{clf}] {took:.0f} 100% "{agent}" {status} "{request}"',
        "nginx": f"192.0.2.1 - - [{clf_end}] {tail} {took:.3f}",
        "nginx-iso": f'{iso_end} 192.0.2.1, 192.0.2.2 "{request}" {status} "{agent}" {took:.3f} x',
        "nginx-tabs": f"{end:.3f}\t{took:.3f}\th.example\tGET\t{target}\t{status}\t{agent}",
        "nginx-ends": f"192.0.2.1 - - [{clf_end}] {tail}",
        "caddy": json.dumps(caddy),
        "traefik": json.dumps(traefik),
        "nginx-json": json.dumps(nginx),
    }


NGINX = (
    '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent '
    '"$http_referer" "$http_user_agent"'
)
LIGHTTPD = '%h %V %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i"'
#: The words of each format; None where the log says it by itself.
FORMATS = {
    "combined": "combined",
    "combined-ends": "combined",
    "lighttpd": LIGHTTPD,
    "lighttpd-took": f"{LIGHTTPD} %D",
    "vhost": "vhost_combined",
    "apache": '%v %h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i" %D',
    "apache-ends": '%{end:usec}t \\"%r\\" %s %O \\"%{Referer}i\\" \\"%{user-agent}i\\" %{ms}T',
    # as in the manual of Apache
    "apache-parts": '[%{%d/%b/%Y:%T}t.%{usec_frac}t %{%z}t] "%r" %>s %b "%{Referer}i" '
    '"%{User-Agent}i"',
    "apache-odd": '%{begin:msec}t [%{%d/%b/%Y:%H:%M:%S %z}t] %T 100%% "%{User-agent}i" %<s "%r"',
    "nginx": f"{NGINX} $request_time",
    "nginx-iso": '$time_iso8601 $http_x_forwarded_for "$request" ${status} "$http_user_agent" '
    "$request_time",
    "nginx-tabs": "$msec\\t$request_time\\t$host\\t$request_method\\t$request_uri\\t$status\\t"
    "$http_user_agent",
    "nginx-ends": NGINX,
} | dict.fromkeys(("caddy", "traefik", "nginx-json"))


def in_format(name, *requests, robots=ROBOTS):
    judge = Judge(robots, written=FORMATS[name])
    log = "\n".join(written(**each)[name] for each in requests)
    judge.read_log(io.BytesIO(log.encode()), "access.log")
    assert (judge.read, judge.unread) == (len(requests), 0)
    (agent,) = judge.agents()
    assert agent.name == BOT
    return agent


#: Formats with fractions of seconds that say when a request began.
FINE = ["apache-ends", "apache-odd", "nginx-tabs", "caddy", "traefik", "nginx-json"]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_says_the_same_of_a_rude_bot(name):
    targets = ["/robots.txt", "/feed", "/private/1?x=[%20]", *(f"/{n}" for n in range(20))]
    rude = [{"at": n, "target": target} for n, target in enumerate(targets)]
    agent = in_format(name, *rude, {"at": 30.9, "status": 429}, {"at": 31.7})
    assert (agent.requests, agent.robots, agent.count("denied"), agent.refused) == (25, 1, 1, 1)
    assert agent.found["denied"].first == ("access.log", 3, b"/private/1?x=[%20]")
    assert agent.count("short_pauses") > 0
    hasty = agent.found.get("hasty_retries")
    assert (hasty is not None and hasty.first.line == 25) == (name in FINE)


@pytest.mark.parametrize("name", FORMATS)
def test_no_format_accuses_a_bot_that_begins_a_request_every_five_seconds(name):
    """The first answers take long, so a log of ends has pauses of 0 s."""
    took = [0.1, 20, 15, 10, 5, 0.1, 0.1, 7, 0.1]
    polite = [{"at": 5.01 * n, "target": f"/{n}", "took": each} for n, each in enumerate(took)]
    polite.sort(key=lambda each: each["at"] + each["took"])  # as a server writes them
    agent = in_format(name, {"at": -9, "target": "/robots.txt"}, *polite)
    assert agent.is_polite


@pytest.mark.parametrize("name", FINE)
def test_fractions_of_seconds_count_where_a_log_has_them(name):
    pauses = (4.2, 4.95, 5.5)
    shorts = [
        in_format(name, {"at": 51.125}, {"at": 51.125 + pause}).count("short_pauses")
        for pause in pauses
    ]
    assert shorts == [1, 0, 0]
    assert in_format(name, {"at": 51.125}, {"at": 55.325}).pause == pytest.approx(4.2)


@pytest.mark.parametrize("unit", [1, 10**3, 10**6])
def test_times_in_json_may_be_seconds_or_parts_of_them(unit):
    records = [json.loads(written(at)["caddy"]) for at in (51.125, 55.325)]
    log = "\n".join(json.dumps(each | {"ts": each["ts"] * unit}) for each in records)
    assert only(log, form=None).pause == pytest.approx(4.2)


def test_the_schedule_of_a_bot_is_judged_and_not_only_two_requests():
    """5.5 s from second to second: 5 may be, but three times in a row it may not."""
    robots = b"User-agent: *\nCrawl-delay: 5.5\n"
    assert only(*map(line, (0, 5, 10)), robots=robots).count("short_pauses") == 0
    assert only(*map(line, (0, 5, 10, 15)), robots=robots).count("short_pauses") == 1


def test_a_request_under_way_is_no_retry_after_a_refusal():
    refused = {"at": 0, "status": 503, "took": 9}
    for name in FINE:
        quick = refused | {"at": 20, "took": 0}
        assert in_format(name, quick, {"at": 20.5}).count("hasty_retries") == 1
        agent = in_format(name, refused, {"at": 12})
        assert (found(agent), agent.after_refusal) == ({}, pytest.approx(3, abs=0.3))
        assert found(in_format(name, refused, {"at": 5.5, "took": 5}, {"at": 12})) == {}


def test_visit_time_counts_for_the_beginning_of_a_request():
    robots = b"User-agent: *\nVisit-time: 1100-1200\n"
    late = {"at": -3, "took": 30}
    assert in_format("nginx", late, robots=robots).count("outside_visit_time") == 0
    assert in_format("nginx-ends", late, robots=robots).count("outside_visit_time") == 0
    assert in_format("nginx-ends", {"at": 200}, robots=robots).count("outside_visit_time") == 1


@pytest.mark.parametrize(
    ("time", "stamp", "read"),
    [
        ("%{%Y-%m-%d}t %{%s}t", "2026-01-01 1767225600", 1),
        ("%{%F %T %z}t %{%F}t", "2026-01-01 00:00:00 +0000 2026-01-01", 0),
        ("[%{%F %T %T %z}t]", "[2026-01-01 00:00:00 00:00:00 +0000]", 0),
    ],
)
def test_a_time_that_has_a_part_twice_ends_nothing(time, stamp, read):
    judge = Judge(ROBOTS, written=f'{time} "%r" %>s "%{{User-Agent}}i"')
    log = f'{stamp} "GET /feed HTTP/1.1" 200 "{BOT}/1.0 (+https://bot.example/)"\n'
    judge.read_log(io.BytesIO(log.encode()), "access.log")
    assert (judge.read, judge.unread) == (read, 1 - read)


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        ("%h %l", ["time with its seconds and zone", "request", "status", "User-Agent"]),
        ("", ["time with its seconds and zone", "request", "status", "User-Agent"]),
        ('%t "%r" %b "%{User-Agent}i"', ["status"]),
        ('[$time_local] "$request" $status', ["User-Agent"]),
        ('%{%H:%M:%S}t "%r" %>s "%{User-Agent}i"', ["time with its seconds and zone"]),
        ('[%{%F %H:%M %z}t] "%r" %>s "%{User-Agent}i"', ["time with its seconds and zone"]),
        ('[%{%T %z}t] "%r" %>s "%{User-Agent}i"', ["time with its seconds and zone"]),
        ('%{%F %T}t "%r" %>s "%{User-Agent}i" %{%z}t', ["time with its seconds and zone"]),
        ('%t "%U%q" %>s "%{User-Agent}i"', ["request"]),
        ('$date_gmt "$request" $status "$http_user_agent"', ["time with its seconds and zone"]),
    ],
)
def test_a_format_without_what_is_needed_is_refused_in_one_line(words, missing, run_judge):
    status, out, err = run_judge("--format", words, log=b"x\n")
    assert (status, out, err.count("\n")) == (2, "", 1)
    said = err.removesuffix(": bots are judged by these\n").split("lacks the ")[1].split(", the ")
    assert [each.partition(" (")[0] for each in said] == missing


def test_a_time_of_json_without_seconds_is_none(run_judge):
    """All requests of a minute would have the same time, and pauses of 0 s."""
    record = json.loads(written(at=0)["nginx-json"])
    del record["msec"]
    record["time_iso8601"] = "2026-05-23T12:00+00:00"
    status, out, err = run_judge(log=f"{json.dumps(record)}\n".encode() * 99)
    assert (status, out) == (2, "")
    assert "lack what bots are judged by: time with seconds" in err
    assert "say its log_format with --format" in err


def test_a_request_as_to_a_proxy_is_for_its_path():
    targets = ["/robots.txt", "/feed", "/private/1", "?a=/private"]
    agent = only(*(line(60 * n, f"http://h.example{each}") for n, each in enumerate(targets)))
    assert (agent.requests, agent.robots, agent.stale, agent.count("denied")) == (4, 1, 0, 1)
    assert agent.found["denied"].first.target == b"/private/1"


def test_json_without_what_is_needed_is_said_in_one_line(run_judge):
    caddy = json.loads(written(at=0)["caddy"])
    del caddy["request"]["headers"], caddy["ts"]
    status, _, err = run_judge(log=json.dumps(caddy).encode())
    assert (status, err.count("\n")) == (2, 1)
    assert "lack what bots are judged by: time with seconds and zone (ts, StartUTC, " in err
    assert ", User-Agent (request.headers" in err
    whole = written(at=0)["traefik"]
    status, out, _ = run_judge(log=f"{json.dumps(caddy)}\n{whole}\n".encode())
    assert status == 0
    assert "1 line read; 1 line in another format (JSON without time with seconds" in out
    assert "no line is in Common" in run_judge(log=b"x\n")[2]
    _, _, err = run_judge("--format", "%t%r%s%{User-Agent}i", log=b"x")
    assert "no line is written as the --format says" in err


def test_a_log_of_ends_says_what_it_lacks(run_judge):
    log = "\n".join(written(at=n)["nginx-ends"] for n in range(3)).encode()
    status, out, _ = run_judge("--format", FORMATS["nginx-ends"], log=log)
    assert status == 0
    assert "3 lines may have the end of a request, without its duration ($request_time, %D)" in out


@pytest.fixture
def run_judge(tmp_path, capsys, monkeypatch):
    """Run `walsh judge` over one log."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "robots.txt").write_bytes(ROBOTS)

    def run(*arguments, log, name="access.log"):
        (tmp_path / name).write_bytes(log)
        with pytest.raises(SystemExit) as ended:
            main(["judge", "--robots", "robots.txt", *arguments, name])
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return run


#: Lines of a log that is cut: several blocks of bzip2.
MANY = 4000


def _bzip2_in_small_blocks(log):
    return bz2.compress(log, compresslevel=1)


@pytest.mark.parametrize("pack", [gzip.compress, _bzip2_in_small_blocks, lzma.compress])
def test_a_packed_log_that_is_cut_is_judged_as_far_as_it_goes(pack, run_judge):
    lines = [line(9 * n, f"/{hashlib.sha256(b'%d' % n).hexdigest()}") for n in range(MANY)]
    polite = pack("\n".join(lines).encode())
    assert run_judge(log=polite)[0] == 0
    damaged = polite[: len(polite) // 2] + b"\xff" * 99 + polite[len(polite) // 2 + 99 :]
    for log in (polite[: len(polite) * 2 // 3], damaged):
        status, out, err = run_judge(log=log)
        assert (status, err.count("\n")) == (2, 1)
        assert err.startswith("walsh-scrapy: access.log cannot be read: ")
        assert err.endswith("; what stands before that is judged\n")
        assert 0 < int(out.splitlines()[-1].split()[0]) < MANY
    rude = pack("\n".join([line(0, "/private/1"), *lines]).encode())
    assert run_judge(log=rude[: len(rude) * 2 // 3])[0] == 1
    status, out, err = run_judge(log=polite[:20])
    assert (status, out, err.count("\n")) == (2, "", 1)


@given(st.text('%${}<>!,:"\\ tTrsDUqiIzmec0123_^', max_size=40), st.binary(max_size=80))
def test_any_format_is_compiled_or_refused(words, log):
    try:
        judge = Judge(ROBOTS, written=f'%t "%r" %>s "%{{User-Agent}}i"{words}')
    except ValueError:
        return
    judge.read_log(io.BytesIO(log), "x")
    with contextlib.suppress(ValueError):
        Judge(ROBOTS, written=words)


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(judging, "MOST_AGENTS", 3)
    names = [f"bot-{letter}" for letter in "abcde"]
    judge = judged(*(line(0, agent=name) for name in names))
    assert (len(list(judge.agents())), judge.apart) == (3, {"further bots": 2})
    many = (line(0, agent="bot", address=f"192.0.2.{n}") for n in range(9))
    assert judged(*many).apart == {"further bots": 6}
    many = (line(0, agent=f"bot-{n} https://bot.example/") for n in range(9))
    assert judged(*many).apart == {"further bots": 6}
    browsers = (line(0, agent=f"{BROWSER} {n}") for n in range(9))
    judge = judged(*browsers, line(0))
    assert (judge.apart, len(judge._senders), len(judge._agents)) == ({"browsers": 9}, 4, 1)
    monkeypatch.setattr("walsh_scrapy.testing.judgelog.robots._MOST_VERDICTS", 2)
    assert only(*(line(9 * n, f"/private/{n}") for n in range(9))).count("denied") == 9
    longest = "bot-" + "x" * 2 * judging.LONGEST_AGENT
    lines = [line(9 * n, agent=f"{longest}{n}", address=f"192.0.2.{n % 2}") for n in range(4)]
    agents = list(judged(*lines).agents())
    assert [(len(agent.name), agent.requests) for agent in agents] == [
        (judging.LONGEST_AGENT, 2)
    ] * 2
    target = "/private/" + "x" * 5_000
    agent = only(line(0, target), line(9, target))
    assert (agent.count("denied"), agent._robots._verdicts) == (2, {})


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
            main(["judge", "--robots", "robots.txt", "--format", BEGINS, *arguments])
        return ended.value.code, capsys.readouterr().out

    status, out = walsh("access.log")
    assert status == 0
    head, *rows, more, total = out.splitlines()
    assert head.split()[:4] == ["requests", "addresses", "robots.txt", "denied"]
    assert len(rows) == MOST_ROWS
    assert rows[0].endswith(f"{'x' * 30}-bot at 192.0.2.1")
    assert more == "… and 10 more"
    assert total == (
        f"{sum(map(len, bots)) + 1} lines read; 1 line in another format; "
        "1 request of browsers not judged"
    )
    status, out = walsh("access.log", "rude.log.gz", "--agent", "some-bot")
    assert status == 1
    for said in (
        f"{BOT}: 99 requests for what robots.txt denies: line 2 of robots.txt says",
        "says 'Disallow: /private'; the first is rude.log.gz:1 /private/\\x1b",
        "98 requests earlier than the pause asked for (5 s); the first is rude.log.gz:2 ",
        "88 requests after 10 in a row that came within 5 s after 429 or 503; the first is",
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


#: The keys that are read, in JSON of any shape.
READ = ("request", "headers", "User-Agent", "uri", "status", "ts", "StartUTC", "Duration")
DOCUMENTS = json_documents(*READ, "duration", "msec", "http_user_agent", "time_local")


@given(st.binary() | st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join) | DOCUMENTS)
def test_every_line_of_any_bytes_is_counted_once(log):
    judge = Judge(ROBOTS)
    judge.read_log(io.BytesIO(log), "x")
    lines = [each for each in log.split(b"\n") if each.strip()]
    assert judge.read + judge.unread == len(lines)
    requests = sum(agent.requests for agent in judge.agents())
    assert requests + judge.apart.total() == judge.read
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
