"""Mutants that break R4 and R5: pauses, one request at a time, and backoff."""

from typing import Final

from benchmarks.mutants.mutant import Mutant, Patch

_PACING: Final = "walsh_scrapy/policy/pacing.py"
_TIMES: Final = "walsh_scrapy/policy/hosttimes.py"
_BACKOFF: Final = "walsh_scrapy/policy/backoff.py"
_ACCESS: Final = "walsh_scrapy/policy/robots/access.py"
_GATE: Final = "walsh_scrapy/downloadermiddlewares/pacing.py"
_IDLE: Final = "walsh_scrapy/wire/idle.py"
_LEDGER: Final = "walsh_scrapy/state/ledger.py"
_CRAWLS: Final = "tests/contract"
_ONE_CONNECTION: Final = (
    f"{_CRAWLS}/test_wire_connections.py::"
    "test_one_connection_at_a_time_and_one_full_handshake_a_host"
)
_SHARED: Final = (
    f"{_CRAWLS}/test_r4_processes.py::"
    "test_three_crawls_on_one_state_share_the_work_and_keep_every_spacing"
)
_OWN_DELAY: Final = "delay: float = min(longest, base * 2.0**doublings)"

OF_R4_AND_R5: Final = (
    Mutant("half-a-second", "R4", "two requests a second", (
        Patch(_PACING, "spacing", "max(min_interval,", "max(min_interval / 2,"),
    )),
    Mutant("from-the-start", "R4", "a pause counts from the start of a request", (
        Patch(_PACING, "after", "known.with_end(now, interval, holder)",
              "known.with_end(now - exchange.latency, interval, holder)"),
    )),
    Mutant("crawl-delay", "R4", "ignores Crawl-delay", (
        Patch(_ACCESS, "RobotsFile.interval", "self.rules.crawl_delay or 0.0", "0.0"),
    )),
    Mutant("least-crawl-delay", "R4", "of two Crawl-delays takes the smaller", (
        Patch("walsh_scrapy/policy/robots/robotstxt.py", "Rules.of", "crawl_delay=max(",
              "crawl_delay=min("),
    )),
    Mutant("request-rate", "R4", "ignores Request-rate", (
        Patch(_ACCESS, "RobotsFile.interval", "self.rate(now) or 0.0", "0.0"),
    )),
    Mutant("latency-factor", "R4", "ignores how long the last response took", (
        Patch(_PACING, "spacing", "robots_interval or 0.0, latency)", "robots_interval or 0.0)"),
    )),
    Mutant("first-held-back", "R4", "holds back first requests for 3 s", (
        Patch(_GATE, "PacingMiddleware._begin",
              "marks, name = marks_of(request), host_of(request.url)", """\
now, known = self._context.clock.monotonic(), self._context.state.ledger
        begun = self.__dict__.setdefault("held_back", {}).setdefault(request.url, now)
        first = known.find(self._context.host(request.url)).times.ended is None
        if first and now < begun + 3.0:
            return begun + 3.0 - now
        marks, name = marks_of(request), host_of(request.url)"""),
    )),
    Mutant("port-is-a-host", "R4", "another port of a host has pauses of its own", (
        Patch(_TIMES, "PaceBy.unit", "return self.unit_of(host_of(url))",
              'return self.unit_of(url.split("/")[2])'),
    )),
    Mutant("hosts-at-once", "R4", "asks several hosts at once", (
        Patch("walsh_scrapy/addon.py", "Addon._musts", "serial = SERIAL if options.serial else {}",
              'serial = {"CONCURRENT_REQUESTS": 4}'),
        Patch("walsh_scrapy/crawl/inflight.py", "InFlight.quiet",
              "self.quiet_process() if self._is_serial else nullcontext()", "nullcontext()"),
        Patch(_IDLE, "IdleConnections.turn", "self._lock or nullcontext()", "nullcontext()"),
    )),
    Mutant("two-connections", "R4", "keeps connections open while it opens another", (
        Patch(_IDLE, "IdleConnections.take", "if self._alone:", "if False:"),
        Patch(_IDLE, "IdleConnections.keep", "> self._most", "> 100"),
    ), (_ONE_CONNECTION,)),
    Mutant("no-lease", "R4", "two processes share a state without a lease", (
        Patch(_TIMES, "HostTimes.with_lease",
              "return replace(self, lease_since=now, lease_until=until, holder=holder)",
              "return self"),
    ), (_SHARED,)),
    Mutant("robots-unlogged", "R4", "does not log its requests for robots.txt", (
        Patch(_LEDGER, "Ledger.take", "if record is not None:",
              'if record is not None and record.purpose != "robots":'),
        Patch(_LEDGER, "Ledger._end", "log_end(connection,",
              'end.record.purpose == "robots" or log_end(connection,'),
    )),
    Mutant("retry-after", "R5", "ignores Retry-After", (
        Patch(_BACKOFF, "Backoff.hold", "if asked:", "if False:"),
    )),
    Mutant("retry-after-dates", "R5", "reads no dates in Retry-After", (
        Patch(_BACKOFF, "_retry_after", "when = parse_http_date(text, now)", "when = None"),
    )),
    Mutant("retry-after-capped", "R5", "waits for 60 s at most, whatever Retry-After says", (
        Patch(_BACKOFF, "Backoff.hold", "return asked", "return min(asked, 60.0)"),
    )),
    Mutant("no-chance", "R5", "no chance in the pauses", (
        Patch(_BACKOFF, "backoff_delay", "_JITTER * random.random()", "0.0"),
    )),
    Mutant("linear", "R5", "pauses grow linearly", (
        Patch(_BACKOFF, "backoff_delay", _OWN_DELAY, _OWN_DELAY.replace(
            "2.0**doublings", "(1.0 + doublings)"
        )),
    )),
    Mutant("constant", "R5", "pauses do not grow", (
        Patch(_BACKOFF, "backoff_delay", _OWN_DELAY, "delay = base"),
    )),
    Mutant("no-503", "R5", "503 is a failure as any other", (
        Patch(_BACKOFF, "is_refusal", "status in RETRIED_STATUSES", "status == 429"),
        Patch(_BACKOFF, "Backoff.hold", " or status >= 500", ""),
        Patch(_PACING, "after_answer", "not (status >= 400 and retry_after is not None)", "True"),
    )),
    Mutant("no-hold", "R5", "tries again after its usual pause", (
        Patch(_PACING, "after_answer",
              'return times.with_hold(now, seconds, "retry-after" if is_asked else "backoff", '
              "status)", "return times"),
    )),
    Mutant("hold-of-a-url", "R5", "a hold keeps back one URL, not its host", (
        Patch(_GATE, "PacingMiddleware._begin",
              "marks, name = marks_of(request), host_of(request.url)", """\
marks, name = marks_of(request), host_of(request.url)
        held = self.__dict__.setdefault("held", {}).get(request.url, 0.0)
        if held > self._context.clock.now():
            return held - self._context.clock.now()"""),
        Patch(_GATE, "PacingMiddleware._release", "asked = exchange.retry_after", """\
asked = exchange.retry_after
        if exchange.status in (429, 503):
            from datetime import UTC, datetime
            now = self._context.clock.now()
            at, tries = datetime.fromtimestamp(now, UTC), marks_of(request).attempt
            seconds = self._context.backoff.hold(exchange.status, asked, at, tries)
            self.__dict__.setdefault("held", {})[request.url] = now + seconds
            exchange = replace(exchange, status=404, retry_after=None)"""),
    )),
    Mutant("hold-forgotten", "R5", "a hold is not kept over runs", (
        Patch("walsh_scrapy/state/hostrows.py", "HostRows.pace_by",
              "if self._database.read(", """\
self._database.write(
            lambda connection: connection.execute(hosts.update().values(hold_until=0.0))
        )
        if self._database.read("""),
    )),
    Mutant("endless", "R5", "tries fifty times", (
        Patch("walsh_scrapy/downloadermiddlewares/backoff.py", "BackoffMiddleware.process_response",
              "most = self._context.options.max_retries", "most = 50"),
    )),
)  # fmt: skip
