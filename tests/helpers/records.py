"""Records of a state, with values for what a test does not care about."""

from contextlib import closing
from random import Random

from walsh_scrapy.policy.audit.record import LoggedRequest
from walsh_scrapy.policy.backoff import Backoff
from walsh_scrapy.policy.pacing import Exchange, Hold
from walsh_scrapy.policy.urls import host_of, url_key
from walsh_scrapy.sources.source import Source
from walsh_scrapy.state import State, hosts
from walsh_scrapy.state.entries import EntryRecord
from walsh_scrapy.state.hosts import Ask, Begun, Worker
from walsh_scrapy.state.log import NO_EVIDENCE, DenialRecord, RequestRecord, denial, log_end
from walsh_scrapy.state.records import SourceRecord

BACKOFF = Backoff(2.0, 300.0, Random(1))
US, THEM = Worker("us", 1.0), Worker("them", 1.0)
SOURCE = SourceRecord(url="http://a.example/feed", kind="feed")
#: A request that was sent at 100.0.
RECORD = RequestRecord(100.0, "a.example", "http://a.example/", "robots: allowed", 200, 0.1)
DENIAL = DenialRecord(
    *(100.0, "a.example", "http://a.example/private", "robots"),
    *("line 2 of robots.txt says 'Disallow: /private'", 1, NO_EVIDENCE),
)


def make_state(url):
    """Open a state, which may be new, and write `SOURCE` to it."""
    with closing(State(url)) as state:
        commit(state, SOURCE)


def commit(state, record, found=(), llmstxt=None):
    """Write the outcome of a visit, whatever the record was; return the keys of new entries."""
    known, host = state.sources.find(record.url), host_of(record.address)
    return state.write(state.sources.outcome(known, record, found, llmstxt, host=host))


def known_of(record, min_revisit, now, every=None):
    """Return what a state says of a source with this record: with when it is due, and why."""
    with closing(State("sqlite://")) as state:
        commit(state, record)
        source = Source(record.url, every=every)
        return state.sources.known(min_revisit, now, [source])[url_key(record.url)]


def begin(state, host="a.example", worker=US, delay=0.0):
    """Take a host, and begin a request of at most 60 s to it; return what `begin` says."""

    def write(connection):
        hosts.take(connection, host, worker)
        return hosts.begin(connection, host, worker, Ask(delay, 60.0))

    return state.write(write)


def exchange(state, host="a.example", worker=US, **answer):
    """Take a host, request it once, and let it go; the answer is that of an `Exchange`."""
    ended = Exchange(**{"delay": 1.0} | answer)
    begun = begin(state, host, worker)
    assert isinstance(begun, Begun)
    times = begun.times.after(ended, BACKOFF, begun.now)

    def write(connection):
        hosts.end(connection, host, worker, begun.times, times, 0.0)
        hosts.let_go(connection, host, worker)

    state.write(write)


def hold(state, host, seconds, by="", status=0):
    """Put a host on hold, as its worker does."""

    def write(connection):
        hosts.take(connection, host, US)
        hosts.caution(connection, host, hold=Hold(seconds, by, status))
        hosts.let_go(connection, host, US)

    state.write(write)


def keep_robots(state, origin, copy, host=None, run=None):
    """Keep the copy of a robots.txt, as a run does that asked for it."""
    state._database.write(
        lambda connection: state.robots.write(connection, origin, copy, host, run)
    )


def log_requests(state, *records):
    """Write requests that have ended to the log of a state."""

    def write(connection):
        for record in records:
            log_end(connection, record)

    state._database.write(write)


def deny(state, record):
    """Write a denial to the log of a state."""
    state._database.write(denial(record))


def sent(at, url="http://a.example/feed", host="a.example", **columns):
    """A request that took a second, as the log is read by those who judge it."""
    given = {"id": at, "sent_at": at, "host": host, "url": url, "gates": "", "status": 200}
    given |= {"seconds": 1.0, "error": "", "purpose": "target", "delay": 0.0, "hold": 0.0}
    return LoggedRequest(**dict.fromkeys(LoggedRequest._fields) | given | columns)


def entry_of(source, key="k", *, at=1.0, item="{}", **fields):
    """An entry of a feed, first seen at `at`; `item` is JSON."""
    given = {"page_key": key, "kind": "feed", "first_seen": at, "item": item}
    return EntryRecord(key=key, source=source, **given | fields)
