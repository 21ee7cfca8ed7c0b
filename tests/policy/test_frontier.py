"""Which request goes next: only ready hosts, and no host waits for another (decision 6)."""

import math
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.helpers.sites import feed, site
from walsh_scrapy.crawl.hosts.queue import MAX_READY_HOSTS
from walsh_scrapy.policy import frontier
from walsh_scrapy.policy.frontier import LONG, Frontier, HostWork, Rank, in_order
from walsh_scrapy.policy.urls import url_key
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.site import Site


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
        popped_host, item = frontier.pop(0.0)
        assert popped_host == host
        items.append(item)
        frontier.free(host)
    return items


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


def test_active_host_is_finished_before_a_host_with_more_work():
    frontier = Frontier()
    push(frontier, "a.example", "a1", "a2")
    assert frontier.pop(0.0) == ("a.example", "a1")
    frontier.free("a.example")
    push(frontier, "b.example", "b1", "b2", "b3")
    frontier.push("c.example", "c1")
    frontier.push("c.example", "robots", Rank.ROBOTS)
    assert drain(frontier) == ["a2", "b1", "b2", "b3", "robots", "c1"]


def test_host_with_pending_robots_txt_goes_before_its_equals():
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


def test_slow_host_goes_last_until_it_answers_faster():
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


def test_returned_request_stays_first_of_its_host():
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
    requests = []
    while len(frontier):
        frontier.free("a.example")
        requests.append(frontier.pop(0.0)[1])
    assert requests == ["robots.txt", *"abcd"]


def test_upcoming_lists_the_next_requests_without_removing_them():
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


def test_a_host_is_in_flight_until_its_request_has_ended():
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
    assert frontier.next_at() is None, "the host waits for the end of a request, not for a time"
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


def test_restricted_host_hands_out_only_robots_txt():
    frontier = Frontier()
    frontier.push("a.example", "target")
    frontier.push("b.example", "other")
    frontier.restrict(Rank.ROBOTS, "a.example")
    assert drain(frontier) == ["other"]
    frontier.push("a.example", "robots", Rank.ROBOTS)
    assert drain(frontier) == ["robots"]
    frontier.restrict(Rank.TARGET, "a.example")
    assert drain(frontier) == ["target"]


def test_delays_of_earlier_runs_change_the_order():
    frontier = Frontier({"slow.example": 10.0})
    push(frontier, "many.example", *(f"many{number}" for number in range(3)))
    frontier.push("slow.example", "slow")
    assert drain(frontier)[0] == "slow"


def test_host_without_requests_is_dropped_but_its_spacing_kept():
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


def test_a_restriction_is_kept_while_the_host_has_no_requests():
    frontier = Frontier()
    frontier.restrict(Rank.ROBOTS, "a.example")
    assert frontier.pop(5.0) is None
    frontier.push("a.example", "target")
    assert frontier.pop(5.0) is None


def start_order(waiting, delays, late=()):
    """Items of (host, due time, item) in the order of a run: of a host the longest due first."""
    items = {}
    for host, since, item in sorted(waiting, key=itemgetter(1)):
        items.setdefault(host, []).append((since, item))
    hosts = [HostWork(host, len(queue), queue[0][0]) for host, queue in items.items()]
    return [item for work in in_order(hosts, delays, late) for _, item in items[work.host]]


def test_run_starts_with_the_most_work_then_the_longest_due():
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


def test_ready_host_counts_while_its_requests_are_restricted():
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


def is_sent(number):
    return number % 4 != 3


class Told:
    """What a frontier was told, as a list; and which requests may go, by what its methods say."""

    def __init__(self):
        self.now = 0.0
        self.waiting, self.busy, self.late = [], set(), set()
        self.ready_at, self.allowed = {}, {}

    def requests_of(self, host):
        return [(rank, number) for name, number, rank in self.waiting if name == host]

    def sends_next(self, host):
        _, number = min(self.requests_of(host))
        return is_sent(number)

    def ready_of(self, host):
        """Return when a host may hand out its next request: at once if it will not be sent."""
        return self.ready_at.get(host, 0.0) if self.sends_next(host) else 0.0

    def next_of(self, host):
        """Return the request of a host that goes first; None if none may go."""
        own = self.requests_of(host)
        highest = min(self.allowed.get(place, Rank.TARGET) for place in (host, None))
        is_ready = host not in self.busy and self.ready_of(host) <= self.now
        return (host, min(own)[1]) if is_ready and own and min(own)[0] <= highest else None

    def may_go(self):
        """Return the requests that may go now, and first those of hosts that are not late."""
        names = {name for name, *_ in self.waiting} - self.busy
        late = {name for name in names & self.late if self.sends_next(name)}
        first = [request for name in names - late if (request := self.next_of(name))]
        soon = [name for name in names if 0.0 < self.ready_of(name) - self.now < LONG]
        return first or (
            [] if soon else [request for name in names if (request := self.next_of(name))]
        )


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
def test_request_is_handed_out_exactly_when_its_host_is_ready(steps):
    frontier, model = Frontier(will_send=is_sent), Told()
    for number, (step, first, second) in enumerate(steps):
        if step == "push":
            frontier.push(first, number, second)
            model.waiting.append((first, number, second))
        elif step == "wait":
            frontier.wait(first, second)
            model.ready_at[first] = second
        elif step == "restrict":
            frontier.restrict(second, first)
            model.allowed[first] = second
        elif step == "end" and first in model.busy:
            frontier.record_service(first, second, model.now)
            frontier.free(first)
            model.busy.remove(first)
            model.late = model.late | {first} if second >= LONG else model.late - {first}
        elif step == "pop":
            model.now += first
            may_go, popped = model.may_go(), frontier.pop(model.now)
            assert popped in (may_go or [None])
            if popped:
                model.busy.add(popped[0])
                model.waiting = [entry for entry in model.waiting if entry[:2] != popped]
        assert len(frontier) == len(model.waiting)


def test_a_request_that_is_not_sent_waits_for_nothing():
    frontier = Frontier(will_send=lambda item: item != "denied")
    push(frontier, "a.example", "denied", "sent", "denied")
    frontier.wait("a.example", 600.0)
    assert frontier.pop(0.0) == ("a.example", "denied")
    frontier.free("a.example")
    assert frontier.pop(0.0) is None
    assert drain(frontier, 600.0) == ["sent", "denied"]


def test_only_a_host_that_sends_its_next_request_is_announced():
    frontier = Frontier(will_send=lambda item: item != "denied")
    push(frontier, "a.example", "denied")
    frontier.wait("a.example", 30.0, delay=600.0)
    frontier.push("b.example", "sent")
    frontier.wait("b.example", 40.0)
    assert frontier.pop(0.0) == ("a.example", "denied")
    assert frontier.next_host() == ("b.example", 40.0, None)
    assert frontier.remaining(0.0) == 41.0, "robots.txt of b.example comes first"


def test_a_late_host_does_not_keep_what_it_does_not_send():
    """Else dead hosts would fill the room for others until all of these have ended."""
    frontier = Frontier(late={"dead.example"}, will_send=lambda item: item != "deferred")
    push(frontier, "dead.example", "deferred")
    frontier.push("a.example", "a")
    frontier.wait("a.example", 1.0)
    assert frontier.pop(0.0) == ("dead.example", "deferred")


def test_a_host_is_asked_again_after_a_decision():
    denied = set()
    frontier = Frontier(will_send=lambda item: item not in denied)
    frontier.push("a.example", "a")
    frontier.wait("a.example", 600.0)
    denied.add("a")
    assert frontier.pop(0.0) is None
    frontier.recheck("a.example")
    assert frontier.pop(0.0) == ("a.example", "a")


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


def test_remaining_time_is_at_least_the_work_of_the_crawl():
    frontier = Frontier()
    frontier.push("a.example", "a")
    frontier.pop(0.0)
    frontier.record_service("a.example", 2.0, 2.0)
    frontier.free("a.example")
    frontier.push("a.example", "a2")
    assert frontier.remaining(2.0, unqueued=9) == 20.0
    assert Frontier(follows_links=True).remaining(0.0) == 0.0
    broad = Frontier(follows_links=True)
    broad.push("a.example", "a")
    assert broad.remaining(0.0) == math.inf, "the links of the page are unknown"


# The order of a crawl: what was begun is finished first, and no host is begun too late.
#
# Decision 6. A serial crawl is played on the frontier alone, with a clock that only the exchanges
# move: robots.txt first, then the targets, each after the spacing of its host. Then the real
# scheduler crawls in simulated time.

ROBOTS = "robots.txt"


@dataclass(frozen=True)
class Played:
    """What a played crawl sent: the host, what of it, and the end of each exchange."""

    sent: list[tuple[str, object, float]]

    @property
    def seconds(self):
        return self.sent[-1][2]

    @property
    def first_entry(self):
        return next(ended for _, request, ended in self.sent if request != ROBOTS)

    @property
    def share_until_half(self):
        """The share of all requests after which half of the sources were read."""
        read = [number for number, (_, request, _) in enumerate(self.sent, 1) if request != ROBOTS]
        return read[(len(read) - 1) // 2] / len(self.sent)


class Crawl:
    """Plays the crawl of hosts, each with its spacing and its number of targets.

    ``service`` are the seconds of an exchange, of all hosts or by host. The frontier gets its items
    as the scheduler gets them from a spider: of each host at most ``most``, and further ones when
    it has few left. ``known`` are spacings of an earlier run.
    """

    def __init__(
        self, hosts, service, *, known=(), late=(), at_once=1, enough=MAX_READY_HOSTS, most=math.inf
    ):
        self.hosts = hosts
        self.service = service if isinstance(service, dict) else dict.fromkeys(hosts, service)
        spacings = {host: hosts[host][0] for host in known}
        self.frontier = Frontier(spacings, late=late)
        targets = [(host, 0.0, (host, n)) for host, (_, m) in hosts.items() for n in range(m)]
        ordered = start_order(targets, spacings, late)
        self.feed = [[*of_host] for _, of_host in groupby(ordered, itemgetter(0))]
        self.backlogs = {}
        self.most = most
        self.at_once = at_once
        self.enough = enough
        self.now = 0.0
        self.out = []
        self.asked = set()

    def play(self):
        self.feed.reverse()
        sent = []
        while self.feed or len(self.frontier) or self.out:
            while host := self.frontier.short_host():
                self.push(self.backlogs.pop(host), self.most / 2)
            while self.feed and self.frontier.ready_hosts(self.now) < self.enough:
                self.push(self.feed.pop(), self.most)
            picked = self.frontier.pop(self.now) if len(self.out) < self.at_once else None
            if picked is not None:
                self.send(picked[1])
            elif self.out:
                sent.append(self.end())
            else:
                self.now = self.frontier.next_at()
        return Played(sent)

    def push(self, targets, most):
        """Push targets of a host, at most so many, and keep the others."""
        for number, (host, target) in enumerate(targets):
            if number >= most:
                self.backlogs[host] = targets[number:]
                break
            self.frontier.expect(host, len(targets) - number - 1)
            self.frontier.push(host, (host, target))

    def send(self, item):
        host = item[0]
        if host not in self.asked:  # the gate fetches robots.txt first, and the target waits
            self.asked.add(host)
            self.frontier.push(host, item, is_back=True)
            self.frontier.push(host, (host, ROBOTS), Rank.ROBOTS)
            self.frontier.restrict(Rank.ROBOTS, host)
            self.frontier.free(host)
        else:
            self.out.append((self.now + self.service[host], *item))

    def end(self):
        """End the exchange that ends first."""
        exchange = min(self.out, key=itemgetter(0))
        self.out.remove(exchange)
        self.now, host, request = exchange
        spacing = self.hosts[host][0]
        self.frontier.record_service(host, self.service[host], self.now)
        self.frontier.wait(host, self.now + spacing, spacing)
        if request == ROBOTS:
            self.frontier.restrict(Rank.TARGET, host)
        self.frontier.free(host)
        return host, request, self.now


PLANS = st.lists(st.tuples(st.sampled_from([1.0, 2.0, 5.0]), st.integers(1, 8)), min_size=1)


def exchanges_of(hosts, service):
    """The seconds of all exchanges."""
    return service * sum(targets + 1 for _, targets in hosts.values())


def longest_chain(hosts, service):
    """The exchanges and pauses of the host that has the most of them, in seconds."""
    return max(targets * spacing + (targets + 1) * service for spacing, targets in hosts.values())


def least(hosts, service):
    """The seconds that no serial crawl can undercut."""
    return max(exchanges_of(hosts, service), longest_chain(hosts, service))


def alike(count):
    """Hosts that all have one target and the least spacing."""
    return {f"h{number}": (1.0, 1) for number in range(count)}


def mixed(count):
    """Hosts with spacings of 1 to 5 s and 1 to 8 targets."""
    return {f"h{n}": (1.0 + n % 5, 1 + n * 7 % 8) for n in range(count)}


@pytest.mark.parametrize(
    "exchanges",
    [
        pytest.param([(0.5, 1, 1.0), (0.5, 1, 1.5)], id="one-after-the-other"),
        pytest.param([(0.1, 1, 1.0), (0.1, 1, 1.9)], id="work-of-the-machine-counts"),
        pytest.param([(0.5, 1, 1.0), None, (0.5, 1, 60.0)], id="a-pause-does-not"),
        pytest.param([(2.0, 4, 1.0), (2.0, 4, 1.5)], id="four-at-once"),
    ],
)
def test_waiting_requests_take_as_long_as_the_exchanges_so_far(exchanges):
    """Here 10 requests wait, and each takes half a second."""
    frontier = Frontier()
    for exchange in exchanges:
        if exchange is None:
            frontier.pop(2.0)
            continue
        seconds, at_once, now = exchange
        for number in range(at_once):
            frontier.push(f"{now} {number}", number)
            frontier.pop(0.0)
        frontier.record_service("", seconds, now)
        for number in range(at_once):
            frontier.free(f"{now} {number}")
    assert frontier.remaining(60.0, unqueued=10) == pytest.approx(5.0)


@pytest.mark.parametrize("service", [0.003, 0.03])
@pytest.mark.parametrize("count", [3, 40, 300, 3000])
@pytest.mark.parametrize("hosts", [alike, mixed])
def test_the_first_entry_comes_within_two_seconds(hosts, count, service):
    assert Crawl(hosts(count), service).play().first_entry <= 2.0


@pytest.mark.parametrize("service", [0.003, 0.03])
@pytest.mark.parametrize("hosts", [alike, mixed])
def test_half_of_the_sources_need_60_percent_of_the_requests(hosts, service):
    assert Crawl(hosts(3000), service).play().share_until_half <= 0.6


@pytest.mark.parametrize("service", [0.003, 0.3])
@pytest.mark.parametrize("known", [(), ("h0", "h1", "large")])
@pytest.mark.parametrize("enough", [3, MAX_READY_HOSTS])
@pytest.mark.parametrize("hosts", [mixed(60), {"large": (1.0, 20)} | alike(100), mixed(300)])
def test_order_is_the_same_if_some_requests_are_only_counted(
    monkeypatch, hosts, enough, known, service
):
    """Decision 40: here a host has at most 4 requests in the frontier, and gets 2 at once."""
    monkeypatch.setattr(frontier, "SHORT", 2.0)
    plan = {host: (spacing, targets * 3) for host, (spacing, targets) in hosts.items()}
    known = [host for host in known if host in plan]
    whole = Crawl(plan, service, known=known, enough=enough).play()
    capped = Crawl(plan, service, known=known, enough=enough, most=4).play()
    assert capped.sent == whole.sent


LAST_IS_SLOW = alike(3000) | {"h2999": (5.0, 1)}


@pytest.mark.parametrize(
    ("hosts", "service"),
    [
        pytest.param(mixed(60), 0.03, id="60-hosts-with-delays"),
        pytest.param({"large": (1.0, 20)} | alike(100), 0.03, id="one-large-host"),
        pytest.param(mixed(3000), 0.03, id="3000-hosts-with-delays"),
        pytest.param(LAST_IS_SLOW, 0.03, id="the-last-of-3000-hosts-is-slow"),
        pytest.param(alike(2999) | {"late": (5.0, 3)}, 0.03, id="the-slow-host-has-more-targets"),
    ],
)
def test_a_crawl_takes_at_most_five_percent_longer_than_it_must(hosts, service):
    assert Crawl(hosts, service).play().seconds <= 1.05 * least(hosts, service)


def test_delays_that_are_not_known_cost_some_crawls_little_more():
    """A host's delay is reckoned as one second, so that feeds are read early (decision 6)."""
    assert Crawl(mixed(300), 0.03).play().seconds <= 1.09 * least(mixed(300), 0.03)


@given(PLANS, st.sampled_from([0.003, 0.03, 0.1]), st.booleans(), st.sampled_from([1, 4]))
def test_random_crawls_take_little_longer_than_their_lower_bound(
    plan, service, knows_spacings, at_once
):
    """Such a crawl may have to ask all hosts before it finds the one with the longest chain."""
    hosts = {f"h{number}": host for number, host in enumerate(plan)}
    known = [host for host, (spacing, _) in hosts.items() if knows_spacings and spacing > 1.0]
    played = Crawl(hosts, service, known=known, at_once=at_once).play()
    finding_it = len(hosts) * service / at_once
    must = max(exchanges_of(hosts, service) / at_once, finding_it + longest_chain(hosts, service))
    assert played.seconds <= 1.05 * must + 1.0
    sent = sorted((host, request) for host, request, _ in played.sent if request != ROBOTS)
    assert sent == sorted((host, n) for host, (_, m) in hosts.items() for n in range(m))


@given(PLANS)
def test_crawl_fed_in_parts_takes_as_long_as_one_fed_at_once(plan):
    hosts = dict(enumerate(plan))
    took, at_best = (
        Crawl(hosts, 0.02, known=hosts, enough=enough).play().seconds for enough in (1, math.inf)
    )
    assert took <= at_best * 1.01


def test_known_long_delays_do_not_delay_the_first_entry():
    """Their hosts are critical from the start, and none of their targets goes out for a while."""
    slow = {f"slow{number}": (60.0, 3) for number in range(300)}
    crawl = Crawl(slow | alike(3000), 0.03, known=slow)
    played = crawl.play()
    assert played.first_entry <= 2.0
    assert played.seconds <= 1.05 * least(slow | alike(3000), 0.03)


@pytest.mark.parametrize(("hosts", "at_once"), [pytest.param(mixed(1000), 32, id="delays")])
def test_hosts_requested_at_once_keep_the_goals(hosts, at_once):
    played = Crawl(hosts, 0.2, at_once=at_once).play()
    assert played.first_entry <= 2.0
    assert played.share_until_half <= 0.6
    must = max(exchanges_of(hosts, 0.2) / at_once, longest_chain(hosts, 0.2))
    assert played.seconds <= 1.05 * must


@pytest.mark.parametrize(
    ("count", "before"),
    [
        pytest.param(40, 80, id="others-are-always-ready"),
        pytest.param(10, 20, id="all-others-wait"),  # for less than it may take to fail again
    ],
)
def test_unreachable_host_goes_last_despite_the_longest_chain(count, before):
    hosts = alike(count) | {"silent": (5.0, 8)}
    service = dict.fromkeys(hosts, 0.03) | {"silent": 10.0}
    played = Crawl(hosts, service, known=["silent"], late={"silent"}).play()
    assert [host for host, _, _ in played.sent].index("silent") == before


def test_names_can_be_looked_up_before_their_hosts_are_asked():
    crawl = Crawl(alike(500), 0.03)
    foreseen, surprises = set(), []
    send = crawl.send

    def watched(item):
        if item[0] not in crawl.asked | foreseen:
            surprises.append(item[0])
        send(item)
        foreseen.update(host for host, _ in crawl.frontier.upcoming(20))

    crawl.send = watched
    crawl.play()
    assert crawl.asked == set(crawl.hosts)
    assert len(surprises) <= 5


def test_scheduler_finishes_active_hosts_first(simulated):
    hosts = [f"h{number}.example" for number in range(200)]
    (run,) = simulated(*map(site, hosts), sources=[f"http://{host}/feed" for host in hosts])
    assert run.stats["walsh/sources/fetched"] == 200
    assert_polite(run.log)
    is_target = [hit.path == "/feed" for hit in run.log]
    first = run.log[is_target.index(True)]
    assert first.ended - run.log[0].started <= 2.0
    half = [number for number, target in enumerate(is_target, 1) if target][99]
    assert half <= 0.6 * len(run.log)
    service = sum(hit.ended - hit.started for hit in run.log)
    assert run.log[-1].ended - run.log[0].started <= 1.05 * service


def test_scheduler_leaves_a_slow_host_to_the_end(simulated):
    quick = [f"h{number}.example" for number in range(40)]
    slow = Site("slow.example", "", {f"/{n}": feed(f"Slow {n}", delay=12.0) for n in range(3)})
    (run,) = simulated(
        slow,
        *map(site, quick),
        sources=[
            *(f"http://slow.example/{number}" for number in range(3)),
            *(f"http://{host}/feed" for host in quick),
        ],
    )
    assert run.stats["walsh/sources/fetched"] == 43
    of_slow = [number for number, hit in enumerate(run.log) if hit.host == "slow.example"]
    robots, first, second, third = of_slow
    assert (robots, second, third) == (0, 82, 83), "the longest chain comes first, a slow host last"
    assert first < 42


def test_scheduler_reads_all_sources_of_a_host_beyond_its_limit(simulated):
    paths = [f"/{number}" for number in range(130)]
    paths.sort(key=lambda path: url_key(f"http://many.example{path}"))  # as new sources come
    many = Site("many.example", "", {path: feed(path) for path in paths})
    late = site("late.example")
    (run,) = simulated(
        late,
        many,
        sources=["http://late.example/feed", *(f"http://many.example{path}" for path in paths)],
    )
    assert run.stats["walsh/sources/due"] == run.stats["walsh/sources/fetched"] == 131
    requested = [hit.path for hit in run.log if hit.host == "many.example"]
    assert requested == ["/robots.txt", *paths]
    assert_polite(run.log)
