"""`walsh judge` accuses nobody of what is not certain, and sees what is.

`serverlogs/` has what nginx 1.22, Apache 2.4 and lighttpd 1.4 wrote of `scrapy crawl feeds`, run
three times with `-a force=1` over six or seven feeds of each. Their robots.txt asked for 2 s. One
feed came slowly (6 s, or after 4 s), and one was answered 429 with Retry-After 3 or 12 at first.
"""

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.testing.test_judgelog import (
    BOT,
    FORMATS,
    LIGHTTPD,
    NGINX,
    found,
    in_format,
    judged,
    line,
    only,
)
from walsh_scrapy.testing.judgelog.judge import Judge
from walsh_scrapy.testing.judgelog.report import report
from walsh_scrapy.testing.judgelog.robots import Robots

LOGS = Path(__file__).parent / "serverlogs"
APACHE = '%h %l %u %t "%r" %>s %O "%{Referer}i" "%{User-Agent}i"'
#: How each log may be given: as any of the two servers that write it so, or as what it is.
GIVEN = [
    ("nginx-combined", None),
    ("nginx-combined", "combined"),
    ("nginx-combined", NGINX),
    ("nginx-combined", APACHE),
    ("nginx-timed", None),
    ("nginx-timed", f"{NGINX} $request_time"),
    ("apache-combined", None),
    ("apache-combined", NGINX),
    ("apache-combined", APACHE),
    ("apache-timed", f"{APACHE} %D"),
    ("apache-vhost", None),
    ("apache-vhost", f"%v:%p {APACHE}"),
    ("apache-common", None),
    ("apache-common", "common"),
    ("lighttpd", None),
    ("lighttpd", LIGHTTPD),
]
ASKS = b"User-agent: *\nDisallow: /no/\nCrawl-delay: %d\n"


def recorded(name, form, asked=2, wanted="", robots=ASKS):
    judge = Judge(robots % asked, wanted, form)
    judge.read_log(io.BytesIO((LOGS / f"{name}.log").read_bytes()), name)
    assert judge.unread == 0
    return judge


@pytest.mark.parametrize(("name", "form"), GIVEN)
def test_our_own_crawl_is_never_accused(name, form):
    for wanted in ("", "-"):
        judge = recorded(name, form, wanted=wanted)
        assert all(agent.is_polite for agent in judge.agents())
    assert sum(agent.requests for agent in judge.agents()) == judge.read


@pytest.mark.parametrize(("name", "form"), GIVEN)
def test_a_delay_that_it_did_not_keep_is_found_in_the_same_logs(name, form):
    (agent,) = recorded(name, form, asked=30, wanted="-").agents()
    assert found(agent).keys() == {"short_pauses"}


@pytest.mark.parametrize(("name", "form"), GIVEN)
def test_a_path_that_it_may_not_fetch_is_found_in_the_same_logs(name, form):
    robots = b"User-agent: *\nDisallow: /b.xml\n#%d"
    (agent,) = recorded(name, form, wanted="-", robots=robots).agents()
    assert found(agent) == {"denied": 3}


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 5.0),
            st.sampled_from([0.0, 0.01, 0.5, 2.0, 20.0, 59.0]),
            st.sampled_from([0, 0, 0, 1, 2, 60]),
        ),
        min_size=1,
        max_size=25,
    ),
    st.sampled_from([1, 2.5, 5]),
    st.booleans(),
)
def test_no_format_accuses_a_polite_bot(requests, asked, is_serial):
    """Pauses from the end or from the start of a request, and each Retry-After is obeyed."""
    at, log = 0.0, [{"at": -20.0, "target": "/robots.txt"}]
    for more, took, wait in requests:
        status = 429 if wait else 200
        log.append({"at": at, "took": took, "status": status, "target": "/feed"})
        at += max(asked, took + wait) if wait else asked + took * is_serial
        at += more
    log.sort(key=lambda each: each["at"] + each.get("took", 0.25))  # as servers write them
    robots = b"User-agent: *\nCrawl-delay: %g\n" % asked
    for name in FORMATS:
        assert found(in_format(name, *log, robots=robots)) == {}, name


def test_a_log_in_combined_format_is_judged_as_that_of_either_server():
    """The first answer took 9 s, so nginx writes both lines in one second."""
    slow = [{"at": 0, "took": 9, "target": "/a"}, {"at": 6, "took": 3, "target": "/b"}]
    for name in ("combined-ends", "lighttpd", "lighttpd-took", "nginx", "combined"):
        assert found(in_format(name, *slow)) == {}
    rude = [{"at": n, "target": f"/{n}"} for n in range(40)]
    for name in FORMATS:
        assert found(in_format(name, *rude)).keys() == {"short_pauses"}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("wait", [1, 2, 4, 5, 12])
def test_retry_after_that_was_obeyed_is_no_breach(name, wait):
    """Five times in a row, right when it was over; and then our own backoff."""
    waits = [wait] * 5 + [2, 4, 8, 16]
    log, at = [], 0.001
    for each in waits:
        log.append({"at": at, "status": 503, "took": 0.004})
        at += 0.004 + each
    assert found(in_format(name, *log, {"at": at}, robots=b"")) == {}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("pause", [0.02, 0.5, 2, 3.5])
def test_a_retry_loop_against_429_is_found(name, pause):
    """In a log of ends only what no request of 60 s explains is certain."""
    loop = [{"at": pause * n, "status": 429, "took": 0.01} for n in range(int(120 / pause))]
    assert in_format(name, *loop, robots=b"").count("stubborn_retries") > 0
    assert in_format(name, *loop[:10], robots=b"").count("stubborn_retries") == 0


@pytest.mark.parametrize("name", FORMATS)
def test_many_requests_at_once_that_are_all_refused_are_no_loop(name):
    burst = [{"at": n / 40, "status": 503, "took": 0.05, "target": f"/{n}"} for n in range(40)]
    assert found(in_format(name, *burst, robots=b"")) == {}


@pytest.mark.parametrize("name", FORMATS)
def test_fifty_requests_a_second_are_found_without_a_crawl_delay(name):
    fast = [{"at": n / 50, "target": "/"} for n in range(2500)]
    agent = in_format(name, *fast, robots=b"")
    assert found(agent).keys() == {"too_fast"}
    slow = [{"at": n / 8, "target": "/", "took": n % 7} for n in range(800)]
    slow.sort(key=lambda each: each["at"] + each["took"])
    assert found(in_format(name, *slow, robots=b"")) == {}


def test_few_304_are_said_and_nobody_is_accused():
    other = "Other/1.0 (+https://other.example/)"
    lines = [line(0, "/feed", 304, other), *(line(9 * n, "/feed") for n in range(1, 22))]
    judge = judged(*lines)
    agent = next(each for each in judge.agents() if each.name == BOT)
    assert (agent.again, agent.unchanged, agent.is_polite) == (20, 0, True)
    said = f"{BOT}: few 304: 0 of 20 repeated requests for what this host answers 304 as well"
    assert said in [*report(judge, every=True)]
    for few in (lines[1:], lines[:-1], [*lines, *(line(999, "/feed", 304) for _ in range(3))]):
        assert not any("few 304" in each for each in report(judged(*few), every=True))


@pytest.mark.parametrize(
    ("answers", "is_bound"),
    [
        ([200], True),
        ([304], True),
        ([404], False),
        ([503], False),
        ([301], False),
        ([301, 200], True),
        ([200, 404], False),  # the file was deleted
        ([200, 301], True),  # asking for it by http, or with POST, frees nobody
        ([200, 405], True),
        ([200, 503], True),
        ([404, 200], True),
    ],
)
def test_who_gets_no_robots_txt_is_not_bound_by_it(answers, is_bound):
    log = [line(9 * n, "/robots.txt", status) for n, status in enumerate(answers)]
    log += [line(90, "/private"), line(91, "/")]
    both = {"denied": 1, "short_pauses": 1}
    assert found(only(*log)) == (both if is_bound else {})


def test_a_copy_of_robots_txt_binds_for_a_day():
    log = [line(0, "/robots.txt"), line(86_500, "/robots.txt", 503), line(86_600, "/private")]
    assert found(only(*log)) == {}


@pytest.mark.parametrize("at", [-59, 3600 + 59])
def test_clocks_may_differ_by_a_minute_at_the_edge_of_visit_time(at):
    robots = b"User-agent: *\nVisit-time: 1200-1259\n"
    assert found(only(line(at), robots=robots)) == {}
    assert found(only(line(at + (61 if at > 0 else -61)), robots=robots)) == {
        "outside_visit_time": 1
    }


#: Lines of robots.txt; the names are read in two ways.
LINES = [
    b"User-agent: *", b"User-agent: foo*", b"user agent some", b"User-Agent : Some-Bot",
    b"useragent: bot", b"User-agents: Other", b"User-agent: Other/1.0 # x", b"User-agent:",
    b"Allow: /", b"Disallow: /x", b"Disallow: /y", b"Crawl-delay: 3", b"Foo: bar", b"",
]  # fmt: skip


@given(st.lists(st.sampled_from(LINES), max_size=9).map(b"\n".join))
def test_bots_share_no_verdict_that_is_not_theirs(body):
    shared = Robots(body)
    for token in ("Some-Bot", "foobar", "Other", "botsome"):
        alone = Robots(body)
        for target in (b"/x", b"/y"):
            verdict = shared.verdict(shared.terms_of(token), target)
            assert verdict is alone.verdict(alone.terms_of(token), target)
        assert shared.terms_of(token).pause == alone.terms_of(token).pause


class TestTwoReaders:
    @pytest.mark.parametrize(
        ("robots", "verdict"),
        [
            (b"User-agent: *\nDisallow: /x\n", "denied"),
            (b"User-agent: Some\nDisallow: /x\nUser-agent: *\nAllow: /x", "denied"),
            (b"User-agent: *\nDisallow: /x/y\n", None),
            # Protego alone allows: a BOM, a version
            (b"\xef\xbb\xbfUser-agent: *\nDisallow: /x\n", "readers_differ"),
            (b"User-agent: Some-Bot/1.0\nDisallow: /x\n", "readers_differ"),
            # The RFC alone allows: `So` names no bot `Some-Bot`
            (b"User-agent: So\nDisallow: /x\n", "readers_differ"),
        ],
    )  # fmt: skip
    def test_nobody_is_accused_of_what_one_reader_allows(self, robots, verdict):
        agent = only(line(0, "/x"), robots=robots)
        assert [*agent.found] == ([verdict] if verdict else [])
        assert agent.is_polite == (verdict != "denied")

    def test_where_they_differ_is_said_with_the_line(self):
        robots = b"\xef\xbb\xbfUser-agent: *\nDisallow: /x\n"
        judge = judged(line(0, "/x/1"), line(9, "/x/2"), robots=robots)
        said = f"{BOT}: two readers of robots.txt differ on 2 requests: not accused (line 2 of "
        said += "robots.txt says 'Disallow: /x'); the first is access.log:1 /x/1"
        assert said in [*report(judge, every=True)]

    @pytest.mark.parametrize(
        ("records", "pause"),
        [
            (b"Crawl-delay: 10\nCrawl-delay: 1\n", 1),  # Protego: the last one
            (b"Crawl-delay: 1\nCrawl-delay: 10\n", 10),
            (b"Crawl-delay: 1_000\n", 0),
            (b"Crawl-delay: 5\nRequest-rate: 1/20\n", 20),
            (b"Request-rate: 1/20 0000-0100\n", 20),
            (b"Request-rate: 1/20 0200-0100\n", 20),
            (b"Request-rate: 1/20 0200-0300\n", 0),
            (b"Request-rate: 1/" + b"9" * 400 + b"\n", 0),
        ],
    )
    def test_the_smaller_pause_counts(self, records, pause):
        assert Robots(b"User-agent: *\n" + records).terms_of("Some-Bot").pause == pause

    def test_visit_time_is_closed_if_it_is_for_both(self):
        two = b"User-agent: *\nVisit-time: 1100-1300\nVisit-time: 0000-0100\n"
        assert found(only(line(0), robots=two)) == {}
        assert found(only(line(0), robots=b"User-agent: *\nVisit-time: 2300-0100\n")) == {
            "outside_visit_time": 1
        }

    @pytest.mark.parametrize("target", ["*", "a.example:443", "\\\\xzz", "//[x"])
    def test_what_is_no_path_is_denied_to_nobody(self, target):
        assert only(line(0, target), robots=b"User-agent: *\nDisallow: /x\n").is_polite

    def test_octets_are_read_as_servers_write_them(self):
        robots = b"User-agent: *\nDisallow: /*x22\n"
        assert only(line(0, "/\\x22"), robots=robots).is_polite
        assert not only(line(0, "/\\x78\\x322"), robots=robots).is_polite

    def test_a_verdict_that_costs_our_reader_too_much_accuses_nobody(self):
        many = b"".join(b"Disallow: /*ab%d\n" % number for number in range(20_000))
        agent = only(line(0, "/ab"), robots=b"User-agent: *\nDisallow: /ab\n" + many)
        assert [*agent.found] == ["readers_differ"]

    def test_a_file_that_protego_would_read_for_minutes_accuses_nobody(self):
        names = b"".join(b"User-agent: bot%d\n" % number for number in range(9000))
        rules = b"".join(b"Disallow: /%d\n" % number for number in range(9000))
        judge = judged(line(0), robots=names + b"User-agent: *\n" + rules + b"Disallow: /\n")
        (agent,) = judge.agents()
        assert (found(agent), judge.robots.is_too_much) == ({}, True)
        assert any(said.startswith("Protego would take too") for said in report(judge, every=True))
        judge = judged(line(0), robots=b"User-agent: *\n" + rules + b"Disallow: /\n")
        assert not judge.robots.is_too_much
