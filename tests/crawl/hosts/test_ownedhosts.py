"""The hosts that a crawl owns (decision 41)."""

from contextlib import closing

import pytest
from scrapy import Request
from scrapy.settings import Settings
from scrapy.utils.test import get_crawler
from sqlalchemy.exc import IntegrityError

from walsh_scrapy.crawl.context import Context, DeferredHosts, ProjectDelays
from walsh_scrapy.crawl.hosts import exchanges
from walsh_scrapy.crawl.hosts.exchanges import _Begun
from walsh_scrapy.crawl.hosts.ownedhosts import _MAX_OWNED_SECONDS, HostLost, Hosts
from walsh_scrapy.crawl.parts import Crawl
from walsh_scrapy.crawl.ticket import note, set_visit
from walsh_scrapy.exceptions import HostDeferred, Unreachable
from walsh_scrapy.feeds.sources.source import Source
from walsh_scrapy.feeds.sourcevisit import SourceVisit
from walsh_scrapy.options import Options
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import RECHECK_SECONDS, WORKER_SECONDS, Exchange, Streaks
from walsh_scrapy.state import State
from walsh_scrapy.state.engine import RefusedValues
from walsh_scrapy.state.evidence import RequestRecord
from walsh_scrapy.state.ownership import RequestLimits, beat
from walsh_scrapy.testing.simulation import FakeClock

HOST = "a.example"
FIRST, SECOND = (Source(f"http://{HOST}/{number}") for number in range(2))


class Clock(FakeClock):
    def moment(self):
        return self.monotonic()


@pytest.fixture
def clock():
    return Clock(1_000_000.0)


@pytest.fixture
def worker(tmp_path, clock):
    """Return a function that makes another worker of one state."""
    with closing(State(f"sqlite:///{tmp_path}/state.sqlite3", clock.now)) as state:
        options = Options(state_url=f"sqlite:///{tmp_path}/state.sqlite3")

        def make(settings=None):
            delays = ProjectDelays(Settings(settings), None, str)
            return Hosts(Context(options, state, clock, delays))

        yield make


def begin(hosts, source):
    request = Request(source.url)
    set_visit(request, SourceVisit(source, bool))
    record = RequestRecord(0.0, HOST, source.url, "")
    return hosts.begin(request, HOST, RequestLimits(0.0, 10.0), record).status


def request_once(hosts, **answer):
    """Own a host, and send it a request; the answer is that of an `Exchange`."""
    request, record = Request(FIRST.url), RequestRecord(0.0, HOST, FIRST.url, "")
    assert hosts.take(HOST, hosts) == "ready"
    assert hosts.begin(request, HOST, RequestLimits(0.0, 10.0), record).status == "ready"
    hosts.end(request, HOST, Exchange(**{"delay": 1.0} | answer), record)


def test_visits_end_when_their_host_is_lost_and_owned_again(worker):
    """Another worker may have visited their sources in between."""
    ours, other = worker(), worker()
    assert ours.take(HOST, ours) == "ready"
    for source in (FIRST, SECOND):
        ours.begin_visit(HOST, source.url)
    assert other.take(HOST, other) == "ready", "ours does not beat"
    assert begin(ours, FIRST) == "lost"
    other.let_go(HOST, other)
    assert ours.take(HOST, ours) == "ready"
    assert begin(ours, SECOND) == "lost"
    with pytest.raises(HostLost):
        ours.commit(SECOND.url, lambda _: None, lambda _: False, ends=True)


def test_a_visit_whose_host_was_lost_follows_no_redirect(worker):
    """Another worker may be visiting its source; the redirect's host is still ours."""
    ours, other = worker(), worker()
    request, record = (
        Request("http://b.example/"),
        RequestRecord(0.0, HOST, "http://b.example/", ""),
    )
    set_visit(request, SourceVisit(FIRST, bool))
    assert ours.take(HOST, ours) == ours.take("b.example", request) == "ready"
    ours.begin_visit(HOST, FIRST.url)
    assert other.take(HOST, other) == "ready", "ours does not beat"
    with pytest.raises(HostLost):
        ours.begin(request, "b.example", RequestLimits(0.0, 10.0), record)
    assert ours._state.hosts.find("b.example").times.in_flight_until == 0.0


def test_robots_txt_of_a_lost_host_is_forgotten(worker):
    """It may not be written, and then the state has an older one."""
    ours, other = worker(), worker()
    assert ours.take(HOST, ours) == "ready"
    files = ours._context.robots_files
    files |= dict.fromkeys([f"http://{HOST}", f"https://{HOST}:81", "http://b.example"])
    ours.begin_visit(HOST, FIRST.url)
    assert other.take(HOST, other) == "ready", "ours does not beat"
    assert begin(ours, FIRST) == "lost"
    assert [*files] == ["http://b.example"]


def test_who_only_waits_for_the_host_of_a_dead_worker_gets_it(worker, clock):
    """Such a wait is all that a crawl without sources may see of the database."""
    dead, ours = worker(), worker()
    assert dead.take(HOST, dead) == "ready"
    dead._state.write(lambda connection: beat(connection, dead._worker))
    clock.advance(2 * WORKER_SECONDS)
    answers = []
    while "ready" not in answers and len(answers) < 90:
        answers.append(ours.take(HOST, ours))
        clock.advance(RECHECK_SECONDS)
    assert WORKER_SECONDS <= len(answers) * RECHECK_SECONDS < WORKER_SECONDS + 3


def test_a_coroutine_cancelled_after_the_end_writes_nothing(worker):
    ours = worker()
    assert ours.take(HOST, ours) == "ready"
    ours.close()
    ours._state.close()
    ours.let_go(HOST, ours)


@pytest.mark.parametrize(
    "answer", [{"status": 429}, {"status": 503}, {"status": 301, "retry_after": 60.0}]
)
def test_a_hold_is_written_before_the_next_transaction(worker, answer):
    """A crawl that is killed has no next one."""
    ours = worker()
    request_once(ours, **answer)
    assert ours._state.hosts.find(HOST).reason == "hold"


def test_a_crawl_delay_is_written_before_the_next_transaction(worker):
    """Else a crawl that follows a kill would request robots.txt again after a second."""
    ours, copies = worker(), []
    request_once(ours)
    ours.write_with(HOST, copies.append)
    ours.lengthen_delay(HOST, 60.0)
    assert ours._state.hosts.find(HOST).times.delay == 60.0
    assert len(copies) == 1


@pytest.mark.parametrize("at_once", [False, True])
def test_what_another_host_answered_is_written_at_once(worker, at_once):
    """A robots.txt that redirects: a kill before the next request must not lose the answer."""
    ours, written = worker(), []
    assert ours.take(HOST, ours) == "ready"
    ours.write_with(HOST, written.append, at_once=at_once)
    assert len(written) == at_once


def test_a_host_that_is_kept_has_its_end_written(worker):
    """After a kill the next run waits until the owner has expired, and not for its timeout."""
    ours, other = worker(), worker()
    ours._state.write(lambda connection: beat(connection, ours._worker))
    request_once(ours)
    assert ours._state.hosts.find(HOST).reason == "in flight", "its end is pending"
    ours.let_go(HOST, ours, successor="requests that wait")
    assert ours._state.hosts.find(HOST).reason == "delay"
    assert other.take(HOST, other) == "wait"
    ours.let_go(HOST, "requests that wait")
    assert other.take(HOST, other) == "ready"


def test_a_host_is_kept_for_a_while_by_who_is_alone(worker, clock):
    ours = worker()
    assert ours.take(HOST, ours) == "ready"
    assert not ours.may_keep(HOST), "it does not beat"
    ours._timer = object()
    assert ours.may_keep(HOST)
    ours.workers = 2
    assert not ours.may_keep(HOST), "others get it between two requests"
    ours.workers = 1
    clock.advance(_MAX_OWNED_SECONDS)
    assert not ours.may_keep(HOST), "a command may wait for it"


def test_server_errors_double_the_delay_that_a_project_chose(worker):
    ours = worker({"DOWNLOAD_DELAY": 20})
    request_once(ours, status=500)
    assert ours.project_delay(HOST) == ours.wait(HOST) == 40.0


def test_a_row_that_is_refused_costs_that_outcome_and_no_host(worker):
    def refused(_connection):
        raise IntegrityError("INSERT", None, ValueError())

    ours, other = worker(), worker()
    ours._state.write(lambda connection: beat(connection, ours._worker))
    assert ours.take(HOST, ours) == "ready"
    ours.begin_visit(HOST, FIRST.url)
    ours.let_go(HOST, ours)
    with pytest.raises(RefusedValues):
        ours.commit(FIRST.url, refused, lambda _: False, ends=True)
    assert other.take(HOST, other) == "wait", "the visit can be committed with another result"
    ours.commit(FIRST.url, lambda _: None, lambda _: False, ends=True)
    assert other.take(HOST, other) == "ready"


def test_a_clock_that_was_set_back_is_named(worker, clock, caplog):
    ours, other = worker(), worker()
    ours.take(HOST, ours)
    assert begin(ours, FIRST) == "ready"
    clock.at -= 7200.0
    warning = f"the clock was set back: the times of {HOST} were 1 h ahead"
    assert other.take(HOST, other) == "wait", "no exchange lasts longer than an hour"
    assert caplog.messages == [warning], "the row was corrected"
    clock.advance(3600.0)
    assert other.take(HOST, other) == "ready"
    other.let_go(HOST, other)
    clock.at -= 3600.0
    assert worker().take(HOST, None) == "ready"
    assert caplog.messages == [warning] * 2


# Exchanges with hosts, from their begin to their end (R4).


@pytest.mark.parametrize(
    ("sent", "seconds"),
    [
        ({}, 8.0),  # all of it but the 12 s in which the process stood still
        ({"sent": 110.0, "stalled": 9.0}, 7.0),  # 3 of these came after it was sent
    ],
)
def test_a_stall_before_the_sending_is_not_part_of_an_exchange(
    tmp_path, monkeypatch, sent, seconds
):
    """Else a host that answers slowly, on a busy machine, would get as many requests as others."""
    crawler = get_crawler(settings_dict={"WALSH_STATE_URL": f"sqlite:///{tmp_path}/state.sqlite3"})
    crawl, request = Crawl(crawler, FakeClock(120.0)), Request("http://a.example/")
    monkeypatch.setattr(exchanges, "stalled", lambda: 12.0)
    traffic = exchanges._Traffic()
    monkeypatch.setattr(type(crawl.exchanges), "_traffic", traffic)
    traffic.begun[request] = _Begun(100.0, 0.0, 200.0)
    note(request, **sent)
    assert crawl.exchanges._over(request) == seconds


# Who pays for a host that cannot be reached or refuses (decisions 15 and 28).

HOST_CONTEXT = "dead.example"
SILENT = Unreachable(HOST_CONTEXT, "no connection")


def ends(hosts, *ranks, host=HOST_CONTEXT):
    """How requests of these ranks end, one after the other."""
    found = []
    for rank in ranks:
        try:
            hosts.check(f"http://{host}/x", rank)
        except (HostDeferred, Unreachable) as error:
            found.append(type(error))
        else:
            found.append(None)
    return found


@pytest.mark.parametrize(
    ("rank", "first"),
    [
        (Rank.ROBOTS, Unreachable),
        (Rank.TARGET, HostDeferred),
        (Rank.OPERATOR, HostDeferred),
        (None, HostDeferred),
    ],
)
def test_only_the_target_for_which_robots_txt_was_asked_fails(rank, first):
    hosts = DeferredHosts()
    assert ends(hosts, Rank.TARGET) == [None]
    if rank is None:  # for another reason than that it is unreachable
        hosts.add(HOST_CONTEXT, "no route", until=5.0)
    else:
        hosts.add_unreachable(f"http://{HOST_CONTEXT}/", SILENT, rank, until=5.0)
    order = (Rank.ROBOTS, Rank.TARGET, Rank.ROBOTS, Rank.TARGET, Rank.OPERATOR)
    assert ends(hosts, *order) == [HostDeferred, first] + [HostDeferred] * 3
    assert ends(hosts, Rank.TARGET, host="www.dead.example") == [None]


def test_a_deferral_says_why_and_until_when():
    hosts = DeferredHosts()
    hosts.add(HOST_CONTEXT, str(SILENT), until=5.0)
    with pytest.raises(HostDeferred, match=r"dead\.example .*: no connection") as caught:
        hosts.check(f"http://{HOST_CONTEXT}/")
    assert caught.value.until == 5.0


TIMED_OUT = "timed out"
ROBOTS, TARGET = Rank.ROBOTS, Rank.TARGET


def reason_after(*ends, gave_up=False):
    """Why a host is deferred after these (path, status or how it ended), each a target."""
    streaks = Streaks()
    for path, end in ends:
        rank = ROBOTS if path == "/robots.txt" else TARGET
        if isinstance(end, int):
            streaks.record_answer(HOST_CONTEXT, f"http://{HOST_CONTEXT}{path}", end, rank)
        else:
            streaks.record_no_response(HOST_CONTEXT, rank, timed_out=end == TIMED_OUT)
    assert streaks.reason("www.dead.example", rank) is None
    return streaks.reason(HOST_CONTEXT, rank, gave_up=gave_up)


def in_a_row(*statuses):
    return [(f"/{number}", status) for number, status in enumerate(statuses)]


BANNED = "it answered 403 to 3 URLs in a row"


@pytest.mark.parametrize(
    ("ends", "reason"),
    [
        (in_a_row(403, 403), None),
        (in_a_row(403, 403, 403), BANNED),
        ([("/robots.txt", 403), ("/a", 403), ("/b", 403)], BANNED),
        ([("/a", 403), ("/b", 403), ("/robots.txt", 403)], BANNED),
        ([("/a", 403)] * 9, None),
        ([("/a", 403), ("/b", 403), ("/a", 403)], None),
        (in_a_row(403, 403, 200, 403), None),
        (in_a_row(403, 403, 304, 403), None),
        (in_a_row(403, 403, 404, 403, 403), None),
        (in_a_row(403, 401, 403, 403, 403), BANNED),
        # Neither a redirect, nor an overload, nor an error says that the host lets us in.
        (in_a_row(403, 301, 403, 302, 403), BANNED),
        (in_a_row(403, 503, 403, 500, 403), BANNED),
        ([("/a", 403), ("/b", TIMED_OUT), ("/c", 403), ("/d", 403)], BANNED),
        (in_a_row(TIMED_OUT, TIMED_OUT), "it timed out 2 times in a row"),
        (in_a_row(TIMED_OUT, 302, TIMED_OUT), None),
        (in_a_row(TIMED_OUT, "broken", TIMED_OUT), "it timed out 2 times in a row"),
        ([("/robots.txt", TIMED_OUT), ("/robots.txt", TIMED_OUT)], None),
        (in_a_row(500, 500, 500, 502, 504, 500), None),
        (in_a_row(503, 429, 503), None),  # while it has tries left
    ],
)
def test_what_a_host_does_in_a_row_puts_off_its_other_requests(ends, reason):
    assert reason_after(*ends) == reason


@pytest.mark.parametrize(
    ("ends", "reason"),
    [
        (in_a_row(503, 429, 503), "it refused 3 requests in a row"),
        ([("/robots.txt", 500), ("/a", 503)], "it refused 2 requests in a row"),
        ([("/robots.txt", 503)], None),
        (in_a_row(503, 304, 503), "it refused 1 request in a row"),
        (in_a_row(503, 301, 503), "it refused 2 requests in a row"),
        (in_a_row(503, 500, 503), "it refused 1 request in a row"),
    ],
)
def test_a_host_without_tries_is_deferred_except_for_robots_txt(ends, reason):
    assert reason_after(*ends, gave_up=True) == reason
