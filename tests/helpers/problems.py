"""Problems of the machine for real crawls, as extensions of Scrapy: `EXTENSIONS={PATH: 0}`."""

import asyncio
import inspect
import json
import logging
import math
import os
import resource
import signal
import sys
import time
from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path

from scrapy import signals
from scrapy.utils.asyncio import call_later, create_looping_call
from scrapy.utils.log import get_scrapy_root_handler
from sqlalchemy import Engine, event, make_url, text

import walsh_scrapy
from walsh_scrapy import downloadhandler
from walsh_scrapy.crawl import isolated, network
from walsh_scrapy.crawl.documents import robotscopies
from walsh_scrapy.crawl.documents.robotscopies import RobotsCache
from walsh_scrapy.crawl.hosts import ownedhosts
from walsh_scrapy.crawl.isolated import IsolatedProcess
from walsh_scrapy.crawl.parts import Crawl
from walsh_scrapy.downloadermiddlewares import privatehosts
from walsh_scrapy.extensions.summary import awaited
from walsh_scrapy.feeds.scope import ScopeMiddleware
from walsh_scrapy.feeds.sources.source import Source
from walsh_scrapy.policy import pacing as pacing_policy
from walsh_scrapy.policy import urls
from walsh_scrapy.policy.pacing import TakeoverGuard
from walsh_scrapy.policy.robots.copy import RobotsCopy, RobotsFile
from walsh_scrapy.state import database, engine, ownership, records
from walsh_scrapy.state.database import Database
from walsh_scrapy.state.ownership import RequestLimits, Worker
from walsh_scrapy.testing.simulation import EPOCH, SimulatedTime
from walsh_scrapy.wire import connections, http1


class Extension:
    """An extension whose methods are called at the signals of Scrapy that they are named after."""

    def __init__(self, crawler):
        self.crawler = crawler
        for name, moment in vars(signals).items():
            if name in vars(type(self)) and not name.startswith("_"):
                crawler.signals.connect(getattr(self, name), moment)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)


class PausedMeanwhile(Extension):
    """The operator gives a host a delay while a request to it is out, and ends that after it."""

    def request_reached_downloader(self, request):
        self.delay(request, 2.4)

    def request_left_downloader(self, request):
        self.delay(request, 0.0)

    def delay(self, request, seconds):
        context = Crawl.of(self.crawler).context
        context.state.hosts.set_delay(context.host(request.url), seconds, "")


class CountedTransactions(Extension):
    """A stat, `transactions`, tells how many that write the visits of a crawl needed.

    Beats are not counted: they follow the clock.
    """

    def spider_opened(self):
        once, beat = Database._run_once, ownership.beat

        def uncounted(*arguments):
            self.crawler.stats.inc_value("transactions", -1)
            return beat(*arguments)

        ownership.beat = uncounted

        def counted(state, work, begin):
            self.crawler.stats.inc_value("transactions", int(begin == "BEGIN IMMEDIATE"))
            return once(state, work, begin)

        Database._run_once = counted


class CountedStatements(Extension):
    """The stats `statements` and `rows` tell what a crawl asked its state before its first request.

    The statement that asks a server for its time follows the clock, so it is not counted.
    """

    def __init__(self, crawler):
        super().__init__(crawler)
        self.counts = Counter()
        event.listen(Engine, "before_cursor_execute", self.before_cursor_execute)
        event.listen(Engine, "after_cursor_execute", self.after_cursor_execute)
        run = records.run_by_driver

        def counted(connection, statement, *arguments):
            cursor = run(connection, statement, *arguments)
            self.before_cursor_execute(connection, cursor, statement)
            self.after_cursor_execute(connection, cursor, statement)
            return cursor

        records.run_by_driver = counted

    def before_cursor_execute(self, connection, cursor, statement, *_):
        self.counts["statements"] += statement != str(database._CLOCK_SQL)
        if connection.dialect.name == "sqlite":
            cursor.row_factory = self.row_read

    def row_read(self, _cursor, row):
        self.counts["rows"] += 1
        return row

    def after_cursor_execute(self, connection, cursor, statement, *_):
        if connection.dialect.name != "sqlite" and statement.startswith(("SELECT", "WITH")):
            self.counts["rows"] += statement != str(database._CLOCK_SQL) and cursor.rowcount

    def request_reached_downloader(self):
        for name in ("statements", "rows"):
            if self.crawler.stats.get_value(name) is None:
                self.crawler.stats.set_value(name, self.counts[name])


class CountedState(Extension):
    """The stats `state/statements` and `state/transactions` tell what a crawl asked of its state.

    Those of beats, which follow the clock, are in `beat/statements` and `beat/transactions`.
    """

    def __init__(self, crawler):
        super().__init__(crawler)
        self.counts = Counter()
        self.is_beat = False
        once, beat, run = Database._run_once, ownership.beat, records.run_by_driver

        def beating(*arguments):
            self.is_beat = True
            return beat(*arguments)

        def counted(connection, statement, *arguments):
            self.note(connection, None, statement)
            return run(connection, statement, *arguments)

        def transaction(state, work, begin):
            outside, self.counts = self.counts, Counter(transactions=1)
            try:
                return once(state, work, begin)
            finally:
                kind, self.is_beat = "beat" if self.is_beat else "state", False
                within, self.counts = self.counts, outside
                for name, number in within.items():
                    crawler.stats.inc_value(f"{kind}/{name}", number)

        Database._run_once, ownership.beat, records.run_by_driver = transaction, beating, counted
        event.listen(Engine, "before_cursor_execute", self.note)

    def note(self, _connection, _cursor, statement, *_):
        # The statement that asks a server for its time follows the clock of this machine.
        self.counts["statements"] += statement != str(database._CLOCK_SQL)


class ClockIsSet(Extension):
    """The clock of a simulation is set, as ``CLOCK_SETS`` says: by so many seconds at a moment.

    Its monotonic clock is not. A machine that is suspended looks the same.
    """

    def __init__(self, crawler):
        sets = json.loads(crawler.settings["CLOCK_SETS"])
        SimulatedTime.wall = property(
            lambda time: EPOCH + time.at + sum(by for at, by in sets if time.at >= at)
        )


class ClockIsAhead(Extension):
    """The clock of this machine is ahead of that of the database, by ``CLOCK_AHEAD`` seconds."""

    def __init__(self, crawler):
        now, ahead = time.time, crawler.settings.getfloat("CLOCK_AHEAD")
        time.time = lambda: now() + ahead


class ImpatientBodies(Extension):
    """A response may be too slow for a second, and robots.txt has three."""

    def __init__(self, crawler):
        http1.SLOW_SECONDS = 1.0
        robotscopies.MAX_FETCH_SECONDS = 3.0


class ShortVisits(Extension):
    """A visit has four seconds on the wire, and each connection takes one and a half."""

    def __init__(self, _crawler):
        pacing_policy.MAX_VISIT_SECONDS = 4.0
        connect = downloadhandler.HandlerConnections.connect

        async def connect_slowly(*arguments, **options):
            await asyncio.sleep(1.5)
            return await connect(*arguments, **options)

        downloadhandler.HandlerConnections.connect = connect_slowly


class ImpatientConnections(Extension):
    """A host has one second for its name, its connection and TLS together."""

    def __init__(self, crawler):
        network.CONNECT_SECONDS = downloadhandler.CONNECT_SECONDS = 1.0


READ_ONLY = "SET default_transaction_read_only = on"


def fill(connection, left=2):
    """Let a connection to SQLite write so many new pages, and no more."""
    pages = connection.scalar(text("PRAGMA page_count"))
    connection.execute(text(f"PRAGMA max_page_count = {pages + left}"))


class FullState(Extension):
    """The state may hardly grow, once the spider is open: SQLite then says that it is full."""

    def spider_opened(self):
        Crawl.of(self.crawler).context.state.database.read(fill)


class ReadOnlyState(Extension):
    """PostgreSQL only allows reading, on the connection that the crawl has after a request."""

    def request_left_downloader(self):
        state = Crawl.of(self.crawler).context.state
        state.read(lambda connection: connection.execute(text(READ_ONLY)))


class StateWithoutRuns(Extension):
    """The state fails when the run is recorded, while the spider is opened."""

    def spider_opened(self):
        state = Crawl.of(self.crawler).context.state
        state.write(lambda connection: connection.execute(text("ALTER TABLE runs RENAME TO lost")))


class StateDeletedAtTheEnd(Extension):
    """The file of the state is deleted once the spider has closed."""

    def spider_closed(self):
        Path(make_url(Crawl.of(self.crawler).context.options.state_url).database).unlink()


class ShortWaits(Extension):
    """A lock, or a server that is silent, is waited for no longer than when a run is to end."""

    seconds = engine.ENDING_TIMEOUT_SECONDS

    def __init__(self, _crawler):
        database.LOCK_TIMEOUT_SECONDS = engine.LOCK_TIMEOUT_SECONDS = self.seconds
        database.SILENCE_TIMEOUT_SECONDS = engine.SILENCE_TIMEOUT_SECONDS = self.seconds


class LongWaits(ShortWaits):
    """Both are waited for longer than any test lasts, unless the run is to end."""

    seconds = 3600.0


class ShortBeats(Extension):
    """A worker counts as living for `seconds` after a beat, and beats more often."""

    seconds = 3.0

    def __init__(self, _crawler):
        ownership.WORKER_SECONDS = pacing_policy.WORKER_SECONDS = self.seconds
        ownedhosts.BEAT_SECONDS = self.seconds / 6
        TakeoverGuard._MAX_GAP_SECONDS = self.seconds / 3


class UnansweredCommits(Extension):
    """The answer to each COMMIT that lets a host go is lost, with its connection."""

    def __init__(self, _crawler):
        let_go, commit, letting_go = ownership.let_go, database.commit, set()

        def note(connection, *arguments, **options):
            letting_go.add(connection)
            return let_go(connection, *arguments, **options)

        def unanswered(connection):
            commit(connection)
            if connection in letting_go:
                letting_go.clear()
                connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")

        ownership.let_go, database.commit = note, unanswered


class FrozenReading(Extension):
    """The process that reads documents is stopped before it reads one, and named.

    Only the end of the run ends its reading.
    """

    def __init__(self, _crawler):
        isolated.WALL_TIME_FACTOR = math.inf
        start = IsolatedProcess._start

        def start_frozen(isolated_process):
            process = start(isolated_process)
            os.kill(process.pid, signal.SIGSTOP)
            print(f"frozen: {process.pid}", file=sys.stderr, flush=True)
            return process

        IsolatedProcess._start = start_frozen


class BusyMachine(Extension):
    """Seconds go by on the real clock from each look at it to the next."""

    def __init__(self, _crawler):
        real, late = time.monotonic, count(step=3)
        time.monotonic = lambda: real() + next(late)


class FullLog(Extension):
    """The log is on a full disk once a line with strangers' text was written to it."""

    def engine_started(self):
        logging.getLogger(__name__).info("they say %s", "\x1b[2J")
        self._full = Path("/dev/full").open("w")  # noqa: SIM115 - it is open until the end
        get_scrapy_root_handler().setStream(self._full)


class FewDescriptors(Extension):
    """This process may open 64 descriptors at once."""

    def __init__(self, crawler):
        super().__init__(crawler)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))


class NoDescriptors(Extension):
    """After its first exported entry this process may open no descriptor."""

    def item_scraped(self):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, most))


# Broken crawlers that `benchmarks.mutants` does not have, as extensions: `EXTENSIONS={PATH: 0}`.
#
# A simulation runs in a process of its own, so nothing is patched elsewhere.


class OneFileForAll(Extension):
    """Uses the first robots.txt that it read for all hosts, and asks for no other."""

    def __init__(self, _crawler):
        find = RobotsCache.find
        RobotsCache.find = lambda cache, *given: (
            next(iter(cache._files.values()), None) or find(cache, *given)
        )


class Mixed(Extension):
    """Asks for each robots.txt, and judges by the first one that it read."""

    def __init__(self, _crawler):
        find = RobotsCache.find

        def mixed(cache, origin, url):
            file = find(cache, origin, url)
            first = next(iter(cache._files.values()), None)
            return file and first and replace(first, copy=file.copy)

        RobotsCache.find = mixed


class NeverAsked(Extension):
    """Asks for no robots.txt, and says that it was empty."""

    def __init__(self, _crawler):
        def empty(cache, _origin, _url):
            now = cache._context.clock.now()
            return RobotsFile.from_copy(RobotsCopy(now, 200, b""), "Walsh-Research", "allow", now)

        RobotsCache.find = empty


class OfItself(Extension):
    """Asks for an image, as a source of its own that nobody declared."""

    def __init__(self, crawler):
        ScopeMiddleware._declared_by = lambda _gate, _request: "declared"
        parse = crawler.spidercls.parse

        async def follow(spider, response, source):
            async for item in parse(spider, response, source):
                yield item
            if source.url == response.url:
                url = response.urljoin("/1.png")
                yield spider.request(Source(url), url, "*/*", lambda _type: True)

        crawler.spidercls.parse = follow


# Extensions for a traced crawl: which functions of the package are called, in their order.

PACKAGE = Path(walsh_scrapy.__file__).parent


class Trace(Extension):
    """Writes each call in the package without `testing`, as [file, name], to the file ``TRACE``.

    It begins when the spider is open and ends with the engine. A coroutine that goes on counts as
    called again. The code of a module or a class is no function.
    """

    def __init__(self, crawler):
        super().__init__(crawler)
        self.calls = []
        self._files = {}  # by the names that code has

    def spider_opened(self):
        sys.setprofile(self._profile)

    def engine_stopped(self):
        sys.setprofile(None)
        Path(self.crawler.settings["TRACE"]).write_text(json.dumps(self.calls), "utf-8")

    def _profile(self, frame, event, _):
        code = frame.f_code
        if event != "call" or not code.co_flags & inspect.CO_NEWLOCALS:
            return
        file = self._files.get(code.co_filename)
        if file is None:
            file = self._files[code.co_filename] = _file_of(code.co_filename)
        if file:
            self.calls.append((file, code.co_qualname))


def _file_of(name):
    """The path of a file in the package, if it is one that counts."""
    path = Path(name)
    if not path.is_relative_to(PACKAGE):
        return ""
    file = path.relative_to(PACKAGE).as_posix()
    return "" if file.startswith("testing/") else file


class KilledWorker(Extension):
    """Another worker owns the host ``KILLED_AT``, has sent it a request, and does nothing more.

    That is what a worker leaves that is killed directly after a beat.
    """

    def spider_opened(self):
        context, host = Crawl.of(self.crawler).context, self.crawler.settings["KILLED_AT"]
        killed = Worker("killed", context.started_at)

        def work(connection):
            ownership.beat(connection, killed)
            assert ownership.take(connection, host, killed).status == "ready"
            ask = RequestLimits(1.0, 30.0, 1e9)
            assert ownership.begin(connection, host, killed, ask).status == "ready"

        context.state.write(work)


class PublicWeb(Extension):
    """Addresses in 127.1.0.0/16, which the sites of a direct web have, count as public ones.

    Every connection looks up its name anew, and kept ones are closed at once.
    """

    def __init__(self, crawler):
        def is_public(address):
            return address.startswith("127.1.") or urls_is_public(address)

        urls_is_public = urls.is_public
        for module in (urls, network, connections, downloadhandler, privatehosts):
            module.is_public = is_public
        network.ADDRESS_TTL_SECONDS = -1.0
        connections.MAX_IDLE_SECONDS = 0.0
        super().__init__(crawler)


class HandOuts(Extension):
    """Counts the hand-outs of the queue, and keeps what the progress announces.

    The stat `hand_outs` has the largest number of any URL. `announced` has a pair for each second
    in which the run said that it waits for a host: the seconds since its begin, and the text.
    """

    def spider_opened(self):
        crawl = Crawl.of(self.crawler)
        queue, clock = crawl.queue, crawl.context.clock
        pop = queue.pop
        urls = Counter()
        announced = []
        self.crawler.stats.set_value("announced", announced)
        self.crawler.stats.set_value("began_at", clock.monotonic())

        def counted():
            request = pop()
            if request is not None:
                urls[request.url] += 1
                self.crawler.stats.set_value("hand_outs", max(urls.values()))
            return request

        def look():
            now = clock.monotonic()
            text = awaited(queue, crawl.context.retries, now)
            if text.startswith("waiting"):
                announced.append((now, text))

        queue.pop = counted
        self.timer = create_looping_call(look)
        self.timer.start(1.0, now=False)

    def spider_closed(self):
        now = Crawl.of(self.crawler).context.clock.monotonic()
        self.crawler.stats.set_value("ended_at", now)
        self.timer.stop()


class OwnedByAnother(Extension):
    """Another worker owns the host ``HOST`` all the time, and requests nothing from it."""

    def spider_opened(self):
        context, host = Crawl.of(self.crawler).context, self.crawler.settings["HOST"]
        other = Worker("other", context.started_at)

        def beat():
            context.state.write(lambda connection: ownership.beat(connection, other))

        def take(connection):
            ownership.beat(connection, other)
            assert ownership.take(connection, host, other).status == "ready"

        context.state.write(take)
        self.timer = create_looping_call(beat)
        self.timer.start(5.0)

    def spider_closed(self):
        self.timer.stop()


class OwnedForLong(OwnedByAnother):
    """Another worker owns the host ``HOST`` for the first five minutes."""

    def spider_opened(self):
        super().spider_opened()
        call_later(300.0, self.timer.stop)  # it expires 45 s later


class OthersWork(Extension):
    """Two other workers always have a request for the host ``HOST``; ``turns`` counts them.

    As each crawl does, they look often, and own the host while its delay goes on.
    """

    def spider_opened(self):
        context, host = Crawl.of(self.crawler).context, self.crawler.settings["HOST"]
        delay = self.crawler.settings.getfloat("DOWNLOAD_DELAY")
        others = [Worker(name, context.started_at) for name in ("second", "third")]

        def look(connection):
            for other in others:
                ownership.beat(connection, other)
                if ownership.take(connection, host, other).status != "ready":
                    continue
                permission = ownership.begin(connection, host, other, RequestLimits(delay, 60.0))
                if permission.status == "ready":
                    self.crawler.stats.inc_value("turns")
                    times = permission.host.times
                    ownership.end(connection, host, other, times, times, 0.0)
                    ownership.let_go(connection, host, other)

        self.timer = create_looping_call(lambda: context.state.write(look))
        self.timer.start(0.73)  # not in step with the crawl

    def spider_closed(self):
        self.timer.stop()


class DeferredByAnother(OwnedByAnother):
    """Another worker has given up the host ``HOST`` for all runs that began until now."""

    def spider_opened(self):
        context, host = Crawl.of(self.crawler).context, self.crawler.settings["HOST"]
        other = Worker("other", context.started_at)

        def give_up(connection):
            assert ownership.take(connection, host, other).status == "ready"
            assert ownership.let_go(connection, host, other, deferred=True)

        context.state.write(give_up)

    def spider_closed(self):
        pass
