"""R4 by address (decision 5): the addresses of a host are leased with it, all or none."""

import pytest

from tests.helpers.records import BACKOFF, RECORD
from walsh_scrapy.policy.hosttimes import LEASE_MARGIN, Server
from walsh_scrapy.policy.pacing import Exchange
from walsh_scrapy.state import StateError

V4, V6, OTHER = "192.0.2.1", "2001:db8::1", "192.0.2.9"
BOTH = Server.at([V4, V6], 2.0, ())
ROWS = ("@192.0.2.1", "@2001:db8::1")


@pytest.fixture
def ours(opened):
    return opened().ledger


@pytest.fixture
def theirs(opened):
    """The ledger of another process."""
    return opened().ledger


def take(ledger, host, server=BOTH):
    return ledger.take(host, 1.0, 60.0, server=server, record=RECORD)


def release(ledger, host, *, later=False, **answer):
    return ledger.release(host, Exchange(interval=1.0, **answer), BACKOFF, RECORD, later=later)


def test_a_name_waits_for_another_name_of_its_address_in_any_process(ours, theirs, clock):
    assert take(ours, "a.example").wait == 0.0
    for ledger in (ours, theirs):
        found = take(ledger, "b.example", Server.at([V6, OTHER], 2.0, ()))
        assert (found.wait, found.address) == (1.0, ROWS[1]), "after that time it asks again"
    assert take(theirs, "c.example", Server.at([OTHER], 2.0, ())).wait == 0.0, "nothing was left"
    clock.at = 101.0
    release(ours, "a.example")
    clock.at = 102.5
    assert take(theirs, "b.example").wait == 0.5, "their spacing is over, that of the address not"
    clock.at = 103.0
    assert take(theirs, "b.example").wait == 0.0


def test_what_was_rolled_back_is_not_remembered(ours, theirs, clock):
    """The first address was free, the second was not; then another process takes the first."""
    take(theirs, "c.example", Server.at([V6], 2.0, ()))
    assert take(ours, "a.example").wait == 1.0
    assert take(theirs, "b.example", Server.at([V4], 2.0, ())).wait == 0.0
    release(theirs, "c.example")
    clock.at = 102.0
    found = take(ours, "a.example")
    assert (found.wait, found.address) == (1.0, ROWS[0])
    assert ours.find("a.example").times.ended is None


@pytest.mark.parametrize("later", [False, True])
def test_an_answer_says_of_an_address_only_when_it_was_asked(ours, theirs, clock, later):
    status = 404 if later else 503  # only a calm answer may be written later
    take(ours, "a.example")
    clock.at = 101.0
    release(ours, "a.example", status=status, later=later)
    ours.write_ends()
    for row in ROWS:
        times = theirs.find(row).times
        assert (times.ended, times.interval, times.lease_until) == (101.0, 2.0, 0.0)
        assert (times.strikes, times.hold_until, times.server_errors) == (0, 0.0, 0)


def test_a_request_that_was_never_sent_leaves_its_addresses_free(ours, theirs):
    take(ours, "a.example")
    ours.give_back("a.example")
    assert take(theirs, "b.example").wait == 0.0


def test_the_lease_of_a_dead_process_runs_out(ours, theirs, clock):
    take(ours, "a.example")
    clock.at = 160.0 + LEASE_MARGIN - 0.5
    assert take(theirs, "b.example").wait == 0.5
    clock.at += 0.5
    assert take(theirs, "b.example").wait == 0.0


@pytest.mark.parametrize("end", [release, lambda ledger, host: ledger.give_back(host)])
def test_the_late_end_of_a_name_frees_no_lease_of_another_name(ours, theirs, clock, end):
    """The machine was suspended: the lease of the first is over before its request is."""
    take(ours, "a.example")
    clock.at += 60.0 + LEASE_MARGIN
    assert take(ours, "b.example").wait == 0.0
    end(ours, "a.example")
    clock.at += 2.0
    assert take(theirs, "c.example").wait == 1.0
    assert theirs.find(ROWS[0]).reason == "lease"


def test_a_claim_is_one_of_the_host_alone(ours, theirs):
    ours.claim(["a.example"], began=100.0)
    ours.renew(7, began=100.0)
    take(ours, "a.example")
    assert [worker.hosts for worker in theirs.workers()] == [1], "an address is no host"
    release(ours, "a.example")
    assert theirs.find("a.example").reason == "lease"
    assert theirs.find(ROWS[0]).reason == "spacing"


def test_an_address_that_waits_is_not_listed_as_a_host(ours, theirs):
    ours.pace_by("address")
    take(ours, "a.example")
    assert [*theirs.waiting()] == [*theirs.marked()] == ["a.example"]
    with pytest.raises(StateError, match="and 1 of its hosts wait"):
        theirs.pace_by("host")
