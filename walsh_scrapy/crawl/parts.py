"""The parts of a crawl: each is made once, when another part or Scrapy first needs it.

Only Scrapy's entry points call `Crawl.of`: ``from_crawler`` of a component, the ``start`` of a
spider, and commands.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakSet

from scrapy import signals
from scrapy.settings import SETTINGS_PRIORITIES
from scrapy.utils.conf import closest_scrapy_cfg

from walsh_scrapy.crawl.context import (
    AnotherLoop,
    Context,
    DeclaredDelays,
    ProjectDelays,
    enter,
    leave,
)
from walsh_scrapy.crawl.declared import declared_of
from walsh_scrapy.crawl.documents.downloads import Documents, Fetcher
from walsh_scrapy.crawl.failures import Denials
from walsh_scrapy.crawl.hosts.exchanges import Exchanges
from walsh_scrapy.crawl.hosts.ownedhosts import Hosts
from walsh_scrapy.crawl.hosts.queue import HostAccess, Queue
from walsh_scrapy.crawl.isolated import Reader
from walsh_scrapy.crawl.messages import read_signer
from walsh_scrapy.crawl.network import Network, network_problems, warn_of_handlers
from walsh_scrapy.crawl.processlog import log_handler, protect_log
from walsh_scrapy.crawl.refusal import refuse_to_start
from walsh_scrapy.crawl.scrapyinternals import Engine, is_stopping
from walsh_scrapy.crawl.startup import Kind, check_start, gates_of, kind_of
from walsh_scrapy.crawl.ticket import end_ticket, note
from walsh_scrapy.exceptions import MachineTrouble, StateUnavailable
from walsh_scrapy.options import BadSetting, Options
from walsh_scrapy.policy.wording import format_seconds
from walsh_scrapy.state import State, StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings
    from scrapy.statscollectors import StatsCollector

    from walsh_scrapy.crawl.context import Clock
    from walsh_scrapy.crawl.declared import Declared
    from walsh_scrapy.crawl.messages import Signer

logger = logging.getLogger(__name__)
T = TypeVar("T")

#: Seconds for which old rows are deleted from the state before the first request, while the user
#: waits, and at the end of a run.
_PRUNING_AT_BEGIN: Final = 2.0
_PRUNING_AT_END: Final = 60.0
_NO_PROJECT = (
    "the state is %s, below the current folder, because there is no scrapy.cfg; a run in another "
    "folder has another state; set WALSH_STATE_URL for all runs"
)

#: The attribute of a crawler that has its crawl. A dictionary in this module would keep every
#: crawler of the process in memory, because a crawl refers to its crawler.
_CRAWL: Final = "_walsh_crawl"
_crawls: Final[WeakSet[Crawl]] = WeakSet()


class Crawl:
    """The parts of one crawl. ``clock`` replaces the clock of the machine in tests.

    A bad setting, key or state ends the process with one line.
    """

    def __init__(self, crawler: Crawler, clock: Clock | None = None) -> None:
        self.crawler = crawler
        self.settings: BaseSettings = crawler.settings
        self.kind = kind_of(crawler.spidercls, crawler.settings)
        self.gates = gates_of(crawler.settings)
        self._parts: dict[Callable[[Crawl], Any], Any] = {}
        self.engine = Engine(crawler)
        self._clock = clock
        # Scrapy makes another handler for the log after the extensions, one of which makes this.
        crawler.signals.connect(self.spider_opened, signal=signals.spider_opened)
        crawler.signals.connect(self.response_received, signal=signals.response_received)
        crawler.signals.connect(
            self.request_reached_downloader, signal=signals.request_reached_downloader
        )
        crawler.signals.connect(self.response_downloaded, signal=signals.response_downloaded)
        crawler.signals.connect(self.engine.engine_stopped, signal=signals.engine_stopped)
        crawler.signals.connect(self.engine.cancel_tasks, signal=signals.engine_stopped)
        setattr(crawler, _CRAWL, self)
        _crawls.add(self)

    @classmethod
    def of(cls, crawler: Crawler) -> Self:
        """Return the crawl of a crawler; the first call checks the settings of all middlewares."""
        crawl: Self | None = getattr(crawler, _CRAWL, None)
        if crawl is None:
            settings = crawler.settings
            problems = chain(network_problems(settings), _key_problems(settings))
            check_start(settings, crawler.spidercls, problems)
            crawl = cls(crawler)
            if crawl.kind is Kind.DECLARED:
                warn_of_handlers(settings)
        return crawl

    def part(self, kind: Callable[[Crawl], T]) -> T:
        """Return a part that only some crawls have; the first call makes it."""
        if kind not in self._parts:
            self._parts[kind] = kind(self)
        part: T = self._parts[kind]
        return part

    @property
    def stats(self) -> StatsCollector:
        """The stats of the crawl, which Scrapy makes after its spider."""
        return self.crawler.stats

    @cached_property
    def options(self) -> Options:
        """The options of the project, which open nothing. Raises BadSetting."""
        return Options.from_settings(self.settings, self.crawler.spidercls)

    @cached_property
    def context(self) -> Context:
        """The objects that the parts share; it opens the state, and is closed with the engine."""
        try:
            options = self.options
            spider = self.crawler.spider or self.crawler.spidercls
            is_own = self.kind is Kind.OWN
            delays = ProjectDelays(self.settings, spider, options.pace_by.unit_of, is_own=is_own)
            # A command for a URL sets its own limit with a priority of this name: a person waits.
            is_command = (
                self.settings.getpriority("WALSH_MAX_WAIT") == SETTINGS_PRIORITIES["command"]
            )
            if delays.longest > options.max_wait and not is_command:
                options = replace(options, max_wait=delays.longest)
                seconds = format_seconds(delays.longest)
                logger.info("WALSH_MAX_WAIT is %s: the project asks for that delay", seconds)
            now = self._clock.now if self._clock else None  # None: the clock of the database
            state = State(
                options.state_url,
                now,
                wrap_error=self._deferral,
                may_wait=lambda: not is_stopping(),
                upgrade=logger.info,
            )
            state.backups.check_pages(self._clock.now() if self._clock else state.now())
            state.hosts.set_pace_by(options.pace_by.value)
            if options.serial:
                enter(self)
            context = Context(options, state, self._clock, delays, is_own=is_own)
            # Also at the start, because a run that is killed does not reach its end.
            self._prune(context, _PRUNING_AT_BEGIN)
            copied = state.backups.record_file()
        except (AnotherLoop, BadSetting, StateError) as error:
            refuse_to_start(error, log_file=self.settings["LOG_FILE"])
        if copied:
            logger.warning(copied)
        if not (self.settings.get("WALSH_STATE_URL") or closest_scrapy_cfg()):
            logger.warning(_NO_PROJECT, options.state_url)
        self.crawler.signals.connect(self.close, signal=signals.engine_stopped)
        return context

    @cached_property
    def signer(self) -> Signer | None:
        """The signer of requests over https; None if there is no key."""
        return read_signer(self.context.options)

    @cached_property
    def declared(self) -> Declared:
        """What the spider declares."""
        return declared_of(self)

    @cached_property
    def declared_delays(self) -> DeclaredDelays:
        """The delays that the spider declares."""
        return DeclaredDelays(self.context, self.declared.delays())

    @cached_property
    def hosts(self) -> Hosts:
        """The hosts that the crawl owns."""
        return Hosts(self.context)

    @cached_property
    def queue(self) -> Queue:
        """Where requests wait for their hosts."""
        return Queue(self)

    @cached_property
    def access(self) -> HostAccess:
        """The access to hosts for what waits outside of the queue."""
        return HostAccess(self)

    @cached_property
    def fetcher(self) -> Fetcher:
        """The fetches of robots.txt and the blocklist."""
        return Fetcher(self)

    @cached_property
    def documents(self) -> Documents:
        """The downloads of robots.txt and the blocklist."""
        return Documents(self)

    @cached_property
    def reader(self) -> Reader:
        """The reader of documents."""
        reader = Reader(self.engine, self.context.clock)
        connect = self.crawler.signals.connect
        connect(reader.request_reached_downloader, signal=signals.request_reached_downloader)
        connect(reader.close, signal=signals.engine_stopped)
        return reader

    @cached_property
    def network(self) -> Network:
        """The connections."""
        network = Network(self)
        self.crawler.signals.connect(network.spider_idle, signal=signals.spider_idle)
        return network

    @cached_property
    def exchanges(self) -> Exchanges:
        """The exchanges with hosts, as PacingMiddleware begins and ends them."""
        return Exchanges(self)

    @cached_property
    def denials(self) -> Denials:
        """The denials of the gates."""
        return Denials(self.stats, self.context, self.hosts.write_with)

    def spider_opened(self) -> None:
        """Protect the log from strangers' text, and the crawl from errors of our middlewares."""
        self.engine.guard(self._code_failed, self.documents)
        if handler := log_handler():
            protect_log(handler, _end_all)

    def response_received(self, response: Response, request: Request) -> None:
        """End the ticket of a request for its copies: its response leaves the downloader."""
        self.documents.response_received(response, request)
        end_ticket(request)

    def request_reached_downloader(self, request: Request) -> None:
        """Mark a request as sent: an error that comes from now on is the answer of its host."""
        note(request, reached=True, handed=True)

    def response_downloaded(self, request: Request) -> None:
        """Mark a request as answered: an error from now on comes from a middleware."""
        note(request, reached=False)

    def close(self) -> None:
        """Delete old rows from the state, and close it."""
        leave(self)
        # Deleting blocks the event loop, and other crawls in it may wait for an answer.
        is_alone = not any(crawl.engine.is_open for crawl in list(_crawls))
        self.hosts.close()
        if self.engine.is_machine_failed:
            self.hosts.take_back()
        try:
            self._prune(self.context, _PRUNING_AT_END if is_alone else _PRUNING_AT_BEGIN)
        except StateUnavailable:
            logger.debug("old rows stay in the state, because it cannot be used")
        self.context.state.close()

    def _prune(self, context: Context, seconds: float) -> None:
        """Delete old rows from the state, for at most these seconds; stop when a signal comes."""
        clock = context.clock
        until = clock.monotonic() + seconds
        is_done = context.state.prune(
            clock.now(),
            context.options.log_seconds,
            lambda: clock.monotonic() < until and not is_stopping(),
            self.declared.old_rows(clock.now()),
        )
        if not is_done and not is_stopping():
            logger.info(
                "%.0f s were too short to delete all old rows; the rest is deleted later", seconds
            )

    def _code_failed(self, error: Exception) -> Exception:
        """Return the exception after an error of our middleware: the run ends."""
        self.engine.code_failed(error)
        return MachineTrouble(self.context.clock.now(), f"walsh-scrapy itself failed: {error!r}")

    def _deferral(self, error: StateError) -> Exception:
        """Return the exception for the current request if the state fails: it is deferred.

        The crawl ends, because it can neither pace nor record its requests. While it starts there
        is no request: the process ends with one line.
        """
        if not self.engine.has_begun:
            refuse_to_start(error, log_file=self.settings["LOG_FILE"])
        self.engine.end("state_failed", str(error))
        return StateUnavailable(self.context.clock.now(), str(error))


class Component:
    """An object that Scrapy makes for a crawler, and that needs the parts of its crawl."""

    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Make the component for one crawl."""
        return cls(Crawl.of(crawler))


def _key_problems(settings: BaseSettings) -> Iterator[BadSetting]:
    """Yield an error for a key that cannot be used: the first request would be too late."""
    try:
        read_signer(Options.from_settings(settings))
    except BadSetting as error:
        yield error


def _end_all() -> None:
    """End the crawls of this process, because their log cannot be written."""
    from twisted.internet import reactor  # noqa: PLC0415 - Scrapy installs it first

    def end() -> None:
        for crawl in list(_crawls):
            if crawl.engine.has_begun:
                crawl.engine.end("log_failed")

    reactor.callFromThread(end)
