"""Who pays for a host that cannot be reached or refuses (decisions 15 and 28)."""

import pytest

from walsh_scrapy.crawl.context import PutOffHosts
from walsh_scrapy.exceptions import PutOff, Unreachable
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import Streaks

HOST = "dead.example"
SILENT = Unreachable(HOST, "no connection")


def ends(hosts, *ranks, host=HOST):
    """How requests of these ranks end, one after the other."""
    found = []
    for rank in ranks:
        try:
            hosts.check(f"http://{host}/x", rank)
        except (PutOff, Unreachable) as error:
            found.append(type(error))
        else:
            found.append(None)
    return found


@pytest.mark.parametrize(
    ("rank", "first"),
    [
        (Rank.ROBOTS, Unreachable),
        (Rank.TARGET, PutOff),
        (Rank.OPERATOR, PutOff),
        (None, PutOff),
    ],
)
def test_only_the_target_for_which_robots_txt_was_asked_fails(rank, first):
    hosts = PutOffHosts()
    assert ends(hosts, Rank.TARGET) == [None]
    if rank is None:  # for another reason than that it is unreachable
        hosts.add(HOST, "no route", until=5.0)
    else:
        hosts.add_unreachable(f"http://{HOST}/", SILENT, rank, until=5.0)
    order = (Rank.ROBOTS, Rank.TARGET, Rank.ROBOTS, Rank.TARGET, Rank.OPERATOR)
    assert ends(hosts, *order) == [PutOff, first] + [PutOff] * 3
    assert ends(hosts, Rank.TARGET, host="www.dead.example") == [None]


def test_what_is_put_off_says_why_and_until_when_and_the_log_does_so_once(caplog):
    caplog.set_level("INFO", "walsh_scrapy")
    hosts = PutOffHosts()
    hosts.add(HOST, str(SILENT), until=5.0)
    assert caplog.messages == [], "nothing may be put off at all"
    ends(hosts, Rank.TARGET, Rank.TARGET)
    told = "dead.example is not tried again now: no connection; its other requests are deferred"
    assert caplog.messages == [told]
    with pytest.raises(PutOff, match=r"dead\.example .*: no connection") as caught:
        hosts.check(f"http://{HOST}/")
    assert caught.value.until == 5.0


TIMED_OUT = "timed out"
ROBOTS, TARGET = Rank.ROBOTS, Rank.TARGET


def reason_after(*ends, gave_up=False):
    """Why a host is put off after these (path, status or how it ended), each a target."""
    streaks = Streaks()
    for path, end in ends:
        rank = ROBOTS if path == "/robots.txt" else TARGET
        if isinstance(end, int):
            streaks.record_answer(HOST, f"http://{HOST}{path}", end, rank)
        else:
            streaks.record_silence(HOST, rank, timed_out=end == TIMED_OUT)
    assert streaks.reason("www.dead.example", rank) is None
    return streaks.reason(HOST, rank, gave_up=gave_up)


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
def test_a_host_without_a_try_left_is_put_off_but_not_for_its_robots_txt(ends, reason):
    assert reason_after(*ends, gave_up=True) == reason
