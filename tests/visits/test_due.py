"""What a worker that was alone gives back when another one comes (decision 41)."""

from types import SimpleNamespace

import pytest
from scrapy import Request

from walsh_scrapy.policy.claims import HostWork
from walsh_scrapy.runtime.requests import Visit, set_visit
from walsh_scrapy.sources import Source
from walsh_scrapy.testing.clock import FakeClock
from walsh_scrapy.visits.due import DueSources

HOSTS = [f"h{number}.example" for number in range(25)]
#: Each host asks for two: its robots.txt and its source.
OF_ONE_CLAIM = 10


class Queue:
    """A queue in which the requests of some hosts could be dropped."""

    def __init__(self):
        self.resting, self.enough = [], 0

    def at_rest(self):
        return {host: [request_to(host)] for host in self.resting}

    def drop(self, host):
        self.resting.remove(host)


class Worker:
    """A worker that has claimed hosts, with a visit at each."""

    def __init__(self):
        self.hosts, self.counted = list(HOSTS), None

    def visits(self):
        return {host: {url_at(host)} for host in self.hosts}

    def give_back(self, hosts):
        self.hosts = [host for host in self.hosts if host not in hosts]


def url_at(host):
    return f"http://{host}/feed"


def request_to(host):
    request = Request(url_at(host))
    set_visit(request, Visit(Source(url_at(host)), bool))
    return request


@pytest.fixture
def worker_and_queue():
    """Return a worker and its queue, and what tells it how many workers there are."""
    agenda = SimpleNamespace(hosts=lambda: ([HostWork("later.example", 1)], {}))
    context = SimpleNamespace(
        options=SimpleNamespace(min_revisit=None),
        clock=FakeClock(1e9),
        state=SimpleNamespace(agenda=lambda _chosen, _terms: agenda),
        late_hosts=frozenset(),
    )
    worker, queue = Worker(), Queue()
    DueSources(context, None, SimpleNamespace(intervals={}), queue, worker)
    return worker, queue


def test_hosts_that_are_busy_when_another_worker_comes_are_given_back_later(worker_and_queue):
    worker, queue = worker_and_queue
    worker.counted(1)
    worker.counted(2)
    assert worker.hosts == HOSTS, "all of them wait for the blocklist"
    queue.resting = HOSTS[:5]
    worker.counted(2)
    assert worker.hosts == HOSTS, "no more than one claim is at rest"
    queue.resting = list(HOSTS)
    worker.counted(3)
    assert worker.hosts == HOSTS[:OF_ONE_CLAIM]


def test_what_was_claimed_beside_another_worker_is_kept(worker_and_queue):
    worker, queue = worker_and_queue
    worker.hosts = []
    worker.counted(1)
    worker.counted(2)
    worker.hosts, queue.resting = list(HOSTS), list(HOSTS)
    worker.counted(2)
    assert worker.hosts == HOSTS
