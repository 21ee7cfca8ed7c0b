"""Which request goes next: only ready hosts, and no host waits for another (decision 6)."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from walsh_scrapy.policy.frontier import LONG, Frontier, Rank, start_order


def push(frontier, host, *items):
    for item in items:
        frontier.push(host, item)


def drain(frontier, now=0.0):
    """The items in the order in which they are handed out, one after the other."""
    items = []
    while picked := frontier.pop(now):
        frontier.free(picked[0])
        items.append(picked[1])
    return items


def drain_host(frontier, host, count):
    """The first items of the only ready host."""
    items = []
    for _ in range(count):
        found, item = frontier.pop(0.0)
        assert found == host
        items.append(item)
        frontier.free(host)
    return items


def test_an_unseen_host_is_ready_at_once():
    frontier = Frontier()
    frontier.push("a.example", "a1")
    assert frontier.pop(0.0) == ("a.example", "a1")
    assert frontier.pop(0.0) is None
    assert len(frontier) == 0


def test_a_waiting_host_does_not_delay_other_hosts():
    frontier = Frontier()
    frontier.push("a.example", "a1")
    frontier.push("b.example", "b1")
    frontier.wait("a.example", 5.0)
    assert drain(frontier, 4.9) == ["b1"]
    assert frontier.next_at() == 5.0
    assert drain(frontier, 5.0) == ["a1"]
    assert frontier.next_at() is None


def test_the_host_with_most_paced_work_left_goes_first():
    frontier = Frontier()
    frontier.push("few.example", "few")
    push(frontier, "many.example", *(f"many{number}" for number in range(3)))
    frontier.push("slow.example", "slow")
    frontier.wait("slow.example", 0.0, delay=10.0)
    assert drain(frontier)[:3] == ["slow", "many0", "many1"]


def test_what_was_begun_is_finished_before_a_host_with_more_work_is_begun():
    frontier = Frontier()
    push(frontier, "a.example", "a1", "a2")
    assert frontier.pop(0.0) == ("a.example", "a1")
    frontier.free("a.example")
    push(frontier, "b.example", "b1", "b2", "b3")
    frontier.push("c.example", "c1")
    frontier.push("c.example", "robots", Rank.ROBOTS)
    assert drain(frontier) == ["a2", "b1", "b2", "b3", "robots", "c1"]


def test_the_host_whose_robots_txt_is_waited_for_goes_before_its_equals():
    """Otherwise a crawl would hand out a target of each host before the first robots.txt."""
    frontier = Frontier()
    for host in ("a", "b", "c"):
        frontier.push(host, f"{host}1")
    assert frontier.pop(0.0) == ("a", "a1")
    frontier.push("a", "a1")
    frontier.push("a", "robots", Rank.ROBOTS)
    frontier.free("a")
    assert drain(frontier) == ["robots", "a1", "b1", "c1"]


def test_a_delay_that_is_not_known_is_reckoned_as_one_second():
    frontier = Frontier()
    push(frontier, "begun.example", "first", "second", "begun")
    assert drain_host(frontier, "begun.example", 2) == ["first", "second"]
    frontier.record_service("begun.example", 0.1, 0.1)
    frontier.push("new.example", "new")
    for number in range(30):
        frontier.push(f"waiting{number}.example", number)
        frontier.wait(f"waiting{number}.example", 99.0)
    assert drain(frontier) == ["begun", "new"], "a delay of 5 s could outlast what waits"


def test_a_host_that_did_not_answer_goes_last():
    frontier = Frontier({"late.example": 60.0}, late={"late.example"})
    frontier.push("late.example", "late")
    frontier.push("late.example", "robots of late", Rank.ROBOTS)
    frontier.push("new.example", "new")
    frontier.push("new.example", "robots of new", Rank.ROBOTS)
    assert drain(frontier) == ["robots of new", "new", "robots of late", "late"]


def test_a_host_that_takes_long_goes_last_until_it_answers_sooner():
    frontier = Frontier()
    for number in range(4):
        frontier.push("slow.example", f"slow{number}")
    assert frontier.pop(0.0) == ("slow.example", "slow0")
    frontier.record_service("slow.example", LONG, LONG)
    frontier.free("slow.example")
    frontier.push("other.example", "other1")
    assert frontier.pop(0.0) == ("other.example", "other1")
    assert frontier.pop(0.0) == ("slow.example", "slow1")
    frontier.record_service("slow.example", 0.1, LONG + 0.1)
    frontier.free("slow.example")
    frontier.push("new.example", "new")
    assert frontier.pop(0.0) == ("slow.example", "slow2")


def test_what_comes_back_unsent_is_still_the_first_of_its_host():
    """Otherwise the source whose turn it is would go last when its robots.txt is fetched first."""
    frontier = Frontier()
    for name in "abc":
        frontier.push("a.example", name)
    frontier.push("a.example", "urgent", priority=1)
    assert frontier.pop(0.0) == ("a.example", "urgent")
    frontier.free("a.example")
    host, first = frontier.pop(0.0)
    frontier.push(host, first, is_back=True)
    frontier.push(host, "robots.txt", Rank.ROBOTS)
    frontier.push(host, "d")
    found = []
    while len(frontier):
        frontier.free("a.example")
        found.append(frontier.pop(0.0)[1])
    assert found == ["robots.txt", *"abcd"]


def test_a_late_host_waits_while_another_is_ready_soon():
    frontier = Frontier(late={"late"})
    frontier.push("late", "late1")
    frontier.push("waiting", "waiting1")
    frontier.wait("waiting", 5.0)
    assert frontier.pop(0.0) is None
    assert frontier.next_at() == 5.0
    assert frontier.pop(5.0) == ("waiting", "waiting1")
    assert frontier.pop(5.0) == ("late", "late1")


def test_upcoming_requests_are_about_those_handed_out_next_and_stay():
    frontier = Frontier({"known": 3.0}, late={"late"})
    for host in ("new", "late", "known", "newer", "waiting"):
        frontier.push(host, f"{host}1")
        frontier.push(host, f"{host}2")
    frontier.wait("waiting", LONG)
    assert drain_host(frontier, "known", 1) == ["known1"]
    assert frontier.ready_hosts(0.0) == 4
    assert frontier.upcoming(2) == ["new1", "newer1"]
    assert frontier.upcoming(9) == ["new1", "newer1", "known2", "late1", "waiting1"]
    assert drain(frontier) == ["known2", "new1", "new2", "newer1", "newer2", "late1", "late2"]
    assert frontier.upcoming(9) == ["waiting1"]


def test_if_links_are_followed_an_unexplored_host_goes_first():
    frontier = Frontier(follows_links=True)
    push(frontier, "many.example", *(f"many{number}" for number in range(3)))
    frontier.explored("many.example")
    frontier.push("new.example", "new")
    frontier.push("new.example", "robots", Rank.ROBOTS)
    assert drain(frontier) == ["robots", "new", "many0", "many1", "many2"]


def test_a_host_is_busy_until_its_request_has_ended_and_delays_no_other():
    frontier = Frontier()
    push(frontier, "a.example", "a1", "a2")
    frontier.push("b.example", "b1")
    assert frontier.pop(0.0) == ("a.example", "a1")
    assert frontier.pop(0.0) == ("b.example", "b1")
    assert frontier.pop(0.0) is None
    frontier.push("a.example", "robots", Rank.ROBOTS)
    frontier.wait("a.example", 1.0)
    frontier.restrict(Rank.ROBOTS, "a.example")
    assert frontier.pop(9.0) is None
    assert frontier.next_at() is None, "what it waits for is an end, and no time"
    frontier.free("a.example")
    assert frontier.pop(0.5) is None
    assert frontier.pop(1.0) == ("a.example", "robots")


def test_within_a_host_the_order_is_rank_then_priority_then_age():
    frontier = Frontier()
    push(frontier, "a.example", "old", "new")
    frontier.push("a.example", "urgent", priority=5)
    frontier.push("a.example", "robots", Rank.ROBOTS)
    frontier.push("a.example", "list", Rank.OPERATOR)
    assert drain(frontier) == ["robots", "list", "urgent", "old", "new"]


def test_a_restricted_host_hands_out_only_requests_for_robots_txt():
    frontier = Frontier()
    frontier.push("a.example", "target")
    frontier.push("b.example", "other")
    frontier.restrict(Rank.ROBOTS, "a.example")
    assert drain(frontier) == ["other"]
    frontier.push("a.example", "robots", Rank.ROBOTS)
    assert drain(frontier) == ["robots"]
    frontier.restrict(Rank.TARGET, "a.example")
    assert drain(frontier) == ["target"]


def test_a_restriction_of_all_hosts_lets_the_operators_documents_through():
    frontier = Frontier()
    for host in ("a.example", "b.example"):
        frontier.push(host, f"target of {host}")
    frontier.restrict(Rank.OPERATOR)
    assert drain(frontier) == []
    assert len(frontier) == 2
    frontier.push("operator.example", "list", Rank.OPERATOR)
    assert drain(frontier) == ["list"]
    frontier.restrict(Rank.TARGET)
    assert sorted(drain(frontier)) == ["target of a.example", "target of b.example"]


def test_spacings_of_earlier_runs_count_for_the_order():
    frontier = Frontier({"slow.example": 10.0})
    push(frontier, "many.example", *(f"many{number}" for number in range(3)))
    frontier.push("slow.example", "slow")
    assert drain(frontier)[0] == "slow"


def test_a_host_without_requests_is_dropped_but_its_spacing_is_kept():
    frontier = Frontier()
    frontier.push("slow.example", "slow1")
    drain(frontier)
    frontier.wait("slow.example", 10.0, delay=10.0)
    push(frontier, "many.example", "many1", "many2")
    frontier.pop(20.0)
    frontier.free("many.example")
    assert set(frontier._hosts) == {"many.example"}
    frontier.push("new.example", "new")
    frontier.push("slow.example", "slow2")
    # What was begun is finished first; the known spacing counts among the hosts not begun.
    assert drain(frontier, 20.0) == ["many2", "slow2", "new"]


def test_a_wait_is_kept_while_the_host_has_no_requests():
    frontier = Frontier()
    frontier.wait("a.example", 10.0)
    assert frontier.pop(9.0) is None
    frontier.push("a.example", "a1")
    assert frontier.pop(9.0) is None
    assert frontier.next_at() == 10.0


def test_a_restriction_is_kept_while_the_host_has_no_requests():
    frontier = Frontier()
    frontier.restrict(Rank.ROBOTS, "a.example")
    assert frontier.pop(5.0) is None
    frontier.push("a.example", "target")
    assert frontier.pop(5.0) is None


def test_a_run_begins_with_the_most_work_then_with_the_longest_due():
    waiting = [
        ("few.example", 5.0, "f"),
        ("many.example", 9.0, "m-late"),
        ("old.example", 1.0, "o"),
        ("many.example", 7.0, "m-early"),
        ("slow.example", 9.0, "s"),
    ]
    order = start_order(waiting, {"slow.example": 10.0})
    assert order == ["s", "m-early", "m-late", "o", "f"]
    late = start_order(waiting, {"slow.example": 10.0}, late={"many.example", "slow.example"})
    assert late == ["o", "f", "s", "m-early", "m-late"]


def test_only_ready_hosts_are_counted():
    frontier = Frontier()
    for host in ("a", "b", "c"):
        frontier.push(host, f"{host}1")
        frontier.push(host, f"{host}2")
    frontier.wait("c", 5.0)
    assert frontier.ready_hosts(0.0) == 2
    frontier.pop(0.0)
    frontier.wait("a", 3.0)
    frontier.free("a")
    assert frontier.ready_hosts(0.0) == 1
    assert frontier.ready_hosts(4.0) == 2
    assert frontier.ready_hosts(5.0) == 3


def test_a_ready_host_counts_although_its_requests_are_restricted():
    """Otherwise a crawl would queue all sources while the blocklist is fetched."""
    frontier = Frontier()
    frontier.push("a", "a1")
    frontier.restrict(Rank.OPERATOR)
    assert frontier.pop(0.0) is None
    assert frontier.ready_hosts(0.0) == 1
    frontier.restrict(Rank.TARGET)
    assert drain(frontier) == ["a1"]
    assert frontier.ready_hosts(0.0) == 0


hosts = st.sampled_from(["a", "b", "c", "d"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("push"), hosts, st.sampled_from(list(Rank))),
        st.tuples(st.just("wait"), hosts, st.floats(0, 60)),
        st.tuples(st.just("restrict"), st.one_of(hosts, st.none()), st.sampled_from(list(Rank))),
        st.tuples(st.just("pop"), st.floats(0, 10), st.none()),
        st.tuples(st.just("end"), hosts, st.sampled_from([0.1, LONG])),
    ),
    max_size=60,
)


class Told:
    """What a frontier was told, as a list; and which requests may go, by what its methods say."""

    def __init__(self):
        self.now = 0.0
        self.waiting, self.busy, self.late = [], set(), set()
        self.ready_at, self.allowed = {}, {}

    def next_of(self, host):
        """Return the request of a host that goes first; None if none may go."""
        own = [(rank, number) for name, number, rank in self.waiting if name == host]
        highest = min(self.allowed.get(each, Rank.TARGET) for each in (host, None))
        is_ready = host not in self.busy and self.ready_at.get(host, 0.0) <= self.now
        return (host, min(own)[1]) if is_ready and own and min(own)[0] <= highest else None

    def may_go(self):
        """Return the requests that may go now, and first those of hosts that are not late."""
        names = {name for name, *_ in self.waiting} - self.busy
        first = [each for name in names - self.late if (each := self.next_of(name))]
        soon = [name for name in names if 0.0 < self.ready_at.get(name, 0.0) - self.now < LONG]
        return first or ([] if soon else [each for name in names if (each := self.next_of(name))])


@given(steps)
@example(
    [
        ("push", "b", Rank.TARGET),
        ("push", "b", Rank.TARGET),
        ("pop", 0.0, None),
        ("end", "b", LONG),
        ("wait", "a", 1.0),
        ("push", "a", Rank.TARGET),
        ("pop", 0.0, None),
    ]
)
def test_a_request_is_handed_out_as_soon_as_its_host_is_ready_and_not_before(steps):
    frontier, told = Frontier(), Told()
    for number, (step, first, second) in enumerate(steps):
        if step == "push":
            frontier.push(first, number, second)
            told.waiting.append((first, number, second))
        elif step == "wait":
            frontier.wait(first, second)
            told.ready_at[first] = second
        elif step == "restrict":
            frontier.restrict(second, first)
            told.allowed[first] = second
        elif step == "end" and first in told.busy:
            frontier.record_service(first, second, told.now)
            frontier.free(first)
            told.busy.remove(first)
            told.late = told.late | {first} if second >= LONG else told.late - {first}
        elif step == "pop":
            told.now += first
            may_go, popped = told.may_go(), frontier.pop(told.now)
            assert popped in (may_go or [None])
            if popped:
                told.busy.add(popped[0])
                told.waiting = [entry for entry in told.waiting if entry[:2] != popped]
        assert len(frontier) == len(told.waiting)


def test_no_sequence_of_waits_loses_a_host():
    frontier = Frontier()
    frontier.push("a.example", 1)
    for moment in (5.0, 3.0, 8.0, 2.0):
        frontier.wait("a.example", moment)
    assert frontier.next_at() == pytest.approx(2.0)
    assert drain(frontier, 2.0) == [1]


def test_the_least_time_left_is_the_longest_chain_of_a_host():
    frontier = Frontier({"slow.example": 10.0})
    assert frontier.remaining(0.0) == 0.0
    for number in range(3):
        frontier.push("slow.example", number)
    frontier.push("b.example", "b")
    assert frontier.remaining(0.0) == 30.0, "robots.txt, then three targets"
    frontier.wait("b.example", 100.0)
    assert frontier.remaining(20.0) == 81.0
    assert frontier.next_host() == ("slow.example", 0.0, 10.0)


def test_the_least_time_left_is_the_work_of_the_crawl_if_that_is_longer():
    frontier = Frontier()
    frontier.push("a.example", "a")
    frontier.pop(0.0)
    frontier.record_service("a.example", 2.0, 2.0)
    frontier.free("a.example")
    frontier.push("a.example", "a2")
    assert frontier.remaining(2.0, others=9) == 20.0
    assert Frontier(follows_links=True).remaining(0.0) == 0.0
    broad = Frontier(follows_links=True)
    broad.push("a.example", "a")
    assert broad.remaining(0.0) == math.inf, "its links are not known"
