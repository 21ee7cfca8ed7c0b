"""Claims on both databases: who gets a host, for how long, and who lives (decision 41).

What order of events may do with them is in test_ledger.py.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.helpers.records import BACKOFF, RECORD
from walsh_scrapy.policy.claims import CLAIM_SECONDS
from walsh_scrapy.policy.hosttimes import LEASE_MARGIN
from walsh_scrapy.policy.pacing import Exchange

NAMES = [f"h{number}.example" for number in range(20)]
BEGAN = 90.0


def test_each_host_is_one_workers_however_many_claim_it_at_once(opened):
    states = [opened() for _ in range(4)]
    with ThreadPoolExecutor(len(states)) as pool:
        claims = list(pool.map(lambda state: state.ledger.claim(NAMES, BEGAN).ours, states))
    assert sorted(name for got in claims for name in got) == sorted(NAMES)


def test_a_claim_lasts_until_it_is_given_up_or_runs_out(opened, clock):
    us, them = opened(), opened()
    assert us.ledger.claim(NAMES[:3], BEGAN) == (NAMES[:3], [])
    us.ledger.unclaim(NAMES[:1])
    assert them.ledger.claim(NAMES[:3], BEGAN) == (NAMES[:1], NAMES[1:3])
    clock.at += CLAIM_SECONDS
    us.ledger.renew(None, BEGAN)
    clock.at += LEASE_MARGIN
    assert them.ledger.claim(NAMES[:3], BEGAN) == (NAMES[:1], NAMES[1:3])
    clock.at += CLAIM_SECONDS
    assert them.ledger.claim(NAMES[1:3], BEGAN) == (NAMES[1:3], [])
    us.ledger.renew(None, BEGAN)
    assert us.ledger.claim(NAMES[1:3], BEGAN) == ([], NAMES[1:3])


def test_what_was_put_off_is_left_alone_by_workers_that_began_before(opened, clock):
    us, them = opened(), opened()
    us.ledger.claim(NAMES[:2], BEGAN)
    us.ledger.unclaim(NAMES[:1], put_off=True)
    us.ledger.unclaim(NAMES[1:2])
    assert them.ledger.claim(NAMES[:2], BEGAN) == (NAMES[1:2], [])
    clock.at += 1.0
    assert them.ledger.claim(NAMES[:2], clock.at) == (NAMES[:2], [])


@pytest.mark.parametrize("later", [False, True])
def test_the_last_exchange_of_a_host_gives_it_up(opened, clock, later):
    us, them = opened(), opened()
    us.ledger.claim(NAMES[:1], BEGAN)
    assert us.ledger.take(NAMES[0], 1.0, 30.0).wait == 0.0
    us.ledger.release(NAMES[0], Exchange(interval=1.0), BACKOFF, RECORD, later=later)
    clock.at += 1.0
    assert them.ledger.take(NAMES[0], 1.0, 30.0).wait > 0.0
    assert us.ledger.take(NAMES[0], 1.0, 30.0).wait == 0.0
    us.ledger.finish(NAMES[0])
    us.ledger.release(NAMES[0], Exchange(interval=1.0), BACKOFF, RECORD, later=later)
    us.ledger.write_end(NAMES[0])
    clock.at += 1.0
    assert them.ledger.take(NAMES[0], 1.0, 30.0).wait == 0.0


@pytest.mark.parametrize("end", ["release", "give back"])
def test_a_host_is_given_up_when_the_request_that_is_out_has_ended(opened, clock, end):
    us, them = opened(), opened()
    us.ledger.claim(NAMES[:1], BEGAN)
    us.ledger.take(NAMES[0], 1.0, 30.0)
    us.ledger.unclaim(NAMES[:1], put_off=True)
    clock.at += 1.0
    assert them.ledger.claim(NAMES[:1], clock.at).busy == NAMES[:1]
    if end == "release":
        us.ledger.release(NAMES[0], Exchange(interval=1.0), BACKOFF, RECORD)
    else:
        us.ledger.give_back(NAMES[0])
    assert them.ledger.claim(NAMES[:1], BEGAN) == ([], []), "it was put off"
    assert us.ledger.claim(NAMES[:1], clock.at + 1.0).ours == NAMES[:1]
    us.ledger.take(NAMES[0], 1.0, 30.0)
    us.ledger.release(NAMES[0], Exchange(interval=1.0), BACKOFF, RECORD)
    assert them.ledger.claim(NAMES[:1], clock.at + 1.0).busy == NAMES[:1], "a new claim goes on"


def test_workers_are_those_that_said_lately_that_they_live(opened, clock):
    us, them = opened(), opened()
    assert us.ledger.renew(7, BEGAN) == 1
    clock.at += 1.0
    assert them.ledger.renew(8, BEGAN + 1.0) == 2
    them.ledger.claim(NAMES[:2], BEGAN)
    assert us.ledger.workers() == [(7, BEGAN, 0), (8, BEGAN + 1.0, 2)]
    clock.at += CLAIM_SECONDS
    assert us.ledger.renew(7, BEGAN) == 1
    us.ledger.claim(NAMES[2:3], BEGAN)
    us.ledger.leave()
    assert them.ledger.workers() == []
    assert them.ledger.claim(NAMES[2:3], BEGAN) == (NAMES[2:3], [])


def test_workers_that_claim_the_same_hosts_in_any_order_never_block_each_other(opened):
    """Some of the rows are being renewed or made at that moment."""
    states = [opened() for _ in range(4)]

    def work(number):
        ledger, names = states[number].ledger, NAMES[number:] + NAMES[:number]
        for _ in range(10):
            ledger.claim(names, BEGAN)
            ledger.renew(number, BEGAN)
            ledger.unclaim(names[::2])

    with ThreadPoolExecutor(len(states)) as pool:
        list(pool.map(work, range(len(states))))


def test_a_host_that_was_put_off_is_not_busy_with_a_worker_that_died(opened, clock):
    us, them, later = opened(), opened(), opened()
    us.ledger.claim(NAMES[:1], BEGAN)
    us.ledger.unclaim(NAMES[:1], put_off=True)
    clock.at += 1.0
    assert later.ledger.claim(NAMES[:1], clock.at).ours == NAMES[:1]
    assert them.ledger.claim(NAMES[:1], BEGAN).busy == NAMES[:1]
    clock.at += CLAIM_SECONDS + LEASE_MARGIN
    assert them.ledger.claim(NAMES[:1], BEGAN) == ([], [])


@pytest.mark.parametrize("what", ["release", "give back"])
def test_an_end_that_could_not_be_written_keeps_a_claimed_host_from_nobody(
    opened, clock, monkeypatch, what
):
    us, them = opened(), opened()
    us.ledger.claim(NAMES[:1], BEGAN)
    us.ledger.take(NAMES[0], 1.0, 30.0, record=RECORD)
    with monkeypatch.context() as patch:
        for name in ("log_end", "forget_lease"):
            patch.setattr(f"walsh_scrapy.state.ledger.{name}", lambda *_: 1 / 0)
        end = {
            "release": lambda: us.ledger.release(NAMES[0], Exchange(interval=1.0), BACKOFF, RECORD),
            "give back": lambda: us.ledger.give_back(NAMES[0]),
        }[what]
        with pytest.raises(ZeroDivisionError):
            end()
    clock.at += 2.0
    us.ledger.renew(None, BEGAN)
    assert us.ledger.take(NAMES[0], 1.0, 30.0).wait == 0.0
    us.ledger.release(NAMES[0], Exchange(interval=1.0), BACKOFF, RECORD)
    with monkeypatch.context() as patch:
        patch.setattr("walsh_scrapy.state.ledger.log_end", lambda *_: 1 / 0)
        clock.at += 1.0
        us.ledger.take(NAMES[0], 1.0, 30.0)
        us.ledger.release(NAMES[0], Exchange(interval=1.0), BACKOFF, RECORD, later=True)
        with pytest.raises(ZeroDivisionError):
            us.ledger.unclaim(NAMES[:1])
    for _ in range(20):
        clock.at += 5.0
        us.ledger.renew(None, BEGAN)
    assert them.ledger.claim(NAMES[:1], BEGAN).ours == NAMES[:1]
