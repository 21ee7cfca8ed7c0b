"""Who pays for a host that cannot be reached or refuses (decisions 15 and 28)."""

import pytest

from walsh_scrapy.exceptions import RequestDeferred, Unreachable
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.politeness.putoff import PutOffHosts

HOST = "dead.example"
SILENT = Unreachable(HOST, "no connection")


def ends(hosts, *ranks, host=HOST):
    """How requests of these ranks end, one after the other."""
    found = []
    for rank in ranks:
        try:
            hosts.check(host, rank)
        except (RequestDeferred, Unreachable) as error:
            found.append(type(error))
        else:
            found.append(None)
    return found


@pytest.mark.parametrize(
    ("rank", "first"),
    [
        (Rank.ROBOTS, Unreachable),
        (Rank.TARGET, RequestDeferred),
        (Rank.OPERATOR, RequestDeferred),
        (None, RequestDeferred),
    ],
)
def test_only_the_target_for_which_robots_txt_was_asked_fails(rank, first):
    hosts = PutOffHosts()
    assert ends(hosts, Rank.TARGET) == [None]
    if rank is None:  # for another reason than that it is unreachable
        hosts.add(HOST, "no route", until=5.0)
    else:
        hosts.add_unreachable(HOST, SILENT, rank, until=5.0)
    order = (Rank.ROBOTS, Rank.TARGET, Rank.ROBOTS, Rank.TARGET, Rank.OPERATOR)
    assert ends(hosts, *order) == [RequestDeferred, first] + [RequestDeferred] * 3
    assert ends(hosts, Rank.TARGET, host="www.dead.example") == [None]


def test_what_is_put_off_says_why_and_until_when():
    hosts = PutOffHosts()
    hosts.add(HOST, str(SILENT), until=5.0)
    with pytest.raises(RequestDeferred, match=r"dead\.example .*: no connection") as caught:
        hosts.check(HOST)
    assert caught.value.until == 5.0
