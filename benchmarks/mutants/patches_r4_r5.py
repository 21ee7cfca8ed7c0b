"""Mutants that break R4 and R5: delays, one request at a time, and backoff."""

from typing import Final

from benchmarks.mutants.mutant import Mutant, Patch

_PACING: Final = "walsh_scrapy/policy/pacing.py"
_BACKOFF: Final = "walsh_scrapy/policy/backoff.py"
_COPY: Final = "walsh_scrapy/policy/robots/copy.py"
_JOB: Final = "walsh_scrapy/crawl/job.py"
_CONNECTIONS: Final = "walsh_scrapy/wire/connections.py"
_EXCHANGES: Final = "walsh_scrapy/crawl/hosts/exchanges.py"
_HOSTS: Final = "walsh_scrapy/crawl/hosts/ownedhosts.py"
_STATE: Final = "walsh_scrapy/state/ownership.py"
_CRAWLS: Final = "tests/contract"
_R5_CRAWLS: Final = f"{_CRAWLS}/test_r5_backoff_crawl.py"
_OWNED: Final = "tests/crawl/hosts/test_ownedhosts.py"
_ONE_CONNECTION: Final = (
    f"{_CRAWLS}/test_wire.py::test_one_connection_at_a_time_and_one_full_handshake_a_host"
)
_SHARED: Final = (
    f"{_CRAWLS}/test_r4_pacing_crawl.py::test_three_crawls_on_one_state_share_hosts_and_keep_delays"
)
_OWN_TIME: Final = (
    "tests/state/test_database.py::test_each_statement_of_a_transaction_has_a_time_of_its_own"
)
_OWN_DELAY: Final = "delay: float = min(max_delay, base * 2.0**doublings)"

OF_R4_AND_R5: Final = (
    Mutant("half-a-second", "R4", "two requests per second", (
        Patch(_PACING, "delay_after", "max(min_delay,", "max(min_delay / 2,"),
    )),
    Mutant("from-the-start", "R4", "a delay counts from the start of a request", (
        Patch(_HOSTS, "Hosts.end", "ended = self._context.moment()",
              "ended = self._context.moment() - exchange.latency"),
        Patch(_HOSTS, "Hosts.end", """\
            self._write_pending(host, subject)
        return HostSnapshot(times, now)""", """\
            self._write_pending(host, subject)
        return HostSnapshot(replace(times, request_ended_at=now - exchange.latency), now)"""),
    )),
    Mutant("crawl-delay", "R4", "ignores Crawl-delay", (
        Patch(_COPY, "RobotsFile.interval", "self.rules.crawl_delay or 0.0", "0.0"),
    )),
    Mutant("crawl-delay-capped", "R4", "waits for 8 s at most, whatever Crawl-delay is", (
        Patch(_COPY, "RobotsFile.interval", "self.rules.crawl_delay or 0.0",
              "min(8.0, self.rules.crawl_delay or 0.0)"),
    )),
    Mutant("least-crawl-delay", "R4", "of two Crawl-delays takes the smaller", (
        Patch("walsh_scrapy/policy/robots/robotstxt.py", "Rules.merge", "crawl_delay=max(",
              "crawl_delay=min("),
    )),
    Mutant("request-rate", "R4", "ignores Request-rate", (
        Patch(_COPY, "RobotsFile.interval", "self.rate(now) or 0.0", "0.0"),
    )),
    Mutant("latency-factor", "R4", "ignores the duration of the last response", (
        Patch(_PACING, "delay_after", "robots_delay or 0.0, latency)", "robots_delay or 0.0)"),
    )),
    Mutant("first-held-back", "R4", "holds back first requests for 3 s", (
        Patch("walsh_scrapy/downloadermiddlewares/pacing.py", "PacingMiddleware.process_request",
              "self._network.check_route(request)", """\
self._network.check_route(request)
        host = self._context.host(request.url)
        held_back = self.__dict__.setdefault("held_back", set())
        row = self._context.state.hosts.find(host)
        if host not in held_back and (row is None or row.times.request_ended_at is None):
            held_back.add(host)
            await self._access.sleep(3.0)"""),
    )),
    Mutant("port-is-a-host", "R4", "another port of a host has separate delays", (
        Patch(_PACING, "PaceBy.unit", "return self.unit_of(host_of(url))",
              'return self.unit_of(url.split("/")[2])'),
    )),
    Mutant("hosts-at-once", "R4", "requests several hosts at once", (
        Patch("walsh_scrapy/addon.py", "forced_settings", "forced |= SERIAL",
              'forced["CONCURRENT_REQUESTS"] = (4, "")'),
        Patch(_EXCHANGES, "Exchanges.quiet",
              "self._quiet_process() if self._context.options.serial else nullcontext()",
              "nullcontext()"),
        Patch(_CONNECTIONS, "IdleConnections.turn", "self._lock or nullcontext()", "nullcontext()"),
    )),
    Mutant("two-connections", "R4", "keeps connections open while it opens another", (
        Patch(_CONNECTIONS, "IdleConnections.take", "if self._alone:", "if False:"),
        Patch(_CONNECTIONS, "IdleConnections.keep", "> self._max_number", "> 100"),
    ), (_ONE_CONNECTION,)),
    Mutant("many-idle", "R4", "another bot keeps any number of idle connections, for 15 minutes", (
        Patch("walsh_scrapy/downloadhandler.py", "HandlerConnections.idle",
              "MAX_IDLE_CONNECTIONS", "100_000"),
        Patch(_CONNECTIONS, "IdleConnections.keep", "call_later(MAX_IDLE_SECONDS,",
              "call_later(900.0,"),
    ), ("tests/crawl/test_network.py::test_idle_connections_are_few_and_young",)),
    Mutant("domain-delay", "R4", "by domain, the `delay` of a source counts for its host only", (
        Patch("walsh_scrapy/crawl/context.py", "DeclaredDelays.__init__",
              "unit = context.options.pace_by.unit_of(host)", "unit = host"),
    )),
    Mutant("no-owner", "R4", "two processes share a state, and neither owns a host", (
        Patch(_STATE, "_take_statement", """\
        .where(IS_HOST, hosts.c.in_flight_until <= NOW, ~is_deferred, is_free)
        .values(owner=bindparam("worker"), request_ended_at=LAST_END, in_flight_until=0.0)""", """\
        .where(IS_HOST, ~is_deferred)
        .values(owner=bindparam("worker"))"""),
        Patch(_STATE, "_begin_statement", 'max_wait = number_param("max_wait")', """\
LAST_END = hosts.c.request_ended_at
    max_wait = number_param("max_wait")"""),
        Patch(_STATE, "_begin_statement", """\
            _IS_OWNED,
            hosts.c.in_flight_until <= NOW,
""", "            IS_HOST,\n"),
        Patch(_STATE, "_end_statement", ".where(_IS_OWNED)", ".where(IS_HOST)"),
        Patch(_STATE, "begin", "\"wait\" if snapshot.times.owner == worker.id else \"lost\"",
              '"wait"'),
        Patch(_STATE, "lock_if_owned",
              "return execute(connection, _LOCK_OWNED_SQL, params).first() is not None",
              "return True"),
        Patch(_STATE, "let_go", ".rowcount == 1", ".rowcount >= 0"),
    ), (_SHARED,)),
    Mutant("delay-of-first-host", "R4", "a redirect's target has the first host's Crawl-delay", (
        Patch("walsh_scrapy/downloadermiddlewares/robots.py", "RobotsMiddleware._check_rules",
              "note(request, robots_interval=file.interval(self._context.clock.now()))", """\
if ticket_of(request).robots_interval is None:
            note(request, robots_interval=file.interval(self._context.clock.now()))"""),
    ), (f"{_R5_CRAWLS}::test_crawl_delay_is_not_that_of_the_host_that_redirected",)),
    Mutant("crawl-delay-pending", "R4", "writes a Crawl-delay with the next request of its host", (
        Patch(_HOSTS, "Hosts.lengthen_delay", """\
            owned.pending.append(lengthen)
            self._write_pending(host)""", """\
            owned.pending.append(lengthen)"""),
    ), (f"{_OWNED}::test_a_crawl_delay_is_written_before_the_next_transaction",)),
    Mutant("delay-shortened", "R4", "a worker that lost a host shortens its delay", (
        Patch(_STATE, "_end_lost_statement", '_larger(hosts.c.delay, number_param("new_delay"))',
              'number_param("new_delay")'),
    ), ("tests/state/test_ownership.py::test_former_owner_does_not_shorten_a_delay",)),
    Mutant("hop-of-lost-visit", "R4", "follows a redirect although its source's host was lost", (
        Patch(_HOSTS, "Hosts.begin",
              "visited_host = visited.host if visited and visited.host != host else None",
              "visited_host = None"),
    ), (f"{_OWNED}::test_a_visit_whose_host_was_lost_follows_no_redirect",)),
    Mutant("time-of-begin", "R4", "a delay counts from before a transaction waited for a lock", (
        Patch("walsh_scrapy/state/database.py", "_compile_for_postgresql",
              "statement_timestamp()", "now()"),
    ), (_OWN_TIME,)),
    Mutant("project-undoubled", "R4", "server errors do not double a project's DOWNLOAD_DELAY", (
        Patch(_HOSTS, "Hosts._project_delay",
              "return slowed(asked_delay, times.server_errors, self._context.backoff.max_delay)",
              "return asked_delay"),
    ), (f"{_OWNED}::test_server_errors_double_the_delay_that_a_project_chose",)),
    Mutant("robots-unlogged", "R4", "does not log its requests for robots.txt", (
        Patch("walsh_scrapy/state/evidence.py", "log_begin", "number = execute",
              'number = -1 if record.purpose == "robots" else execute'),
    )),
    Mutant("retry-after", "R5", "ignores Retry-After", (
        Patch(_BACKOFF, "Backoff.hold", "if retry_after:", "if False:"),
    )),
    Mutant("retry-after-dates", "R5", "reads no dates in Retry-After", (
        Patch(_BACKOFF, "_parse_item", "date = parse_http_date(text, now)", "date = None"),
    )),
    Mutant("retry-after-capped", "R5", "waits for 300 s at most, whatever Retry-After is", (
        Patch(_BACKOFF, "Backoff.hold", "return retry_after",
              "return min(retry_after, 300.0)"),
    )),
    Mutant("no-chance", "R5", "no chance in the holds", (
        Patch(_BACKOFF, "backoff_delay", "_JITTER * random.random()", "0.0"),
    )),
    Mutant("linear", "R5", "holds grow linearly", (
        Patch(_BACKOFF, "backoff_delay", _OWN_DELAY, _OWN_DELAY.replace(
            "2.0**doublings", "(1.0 + doublings)"
        )),
    )),
    Mutant("constant", "R5", "holds do not grow", (
        Patch(_BACKOFF, "backoff_delay", _OWN_DELAY, "delay = base"),
    )),
    Mutant("no-503", "R5", "503 is a failure as any other", (
        Patch(_BACKOFF, "is_refusal", "status in RETRIED_STATUSES", "status == 429"),
        Patch(_BACKOFF, "Backoff.hold", " or status >= 500", ""),
        Patch(_PACING, "HostTimes.after", "not (status >= 300 and retry_after is not None)",
              "True"),
    )),
    Mutant("no-hold", "R5", "tries again after its usual delay", (
        Patch(_PACING, "HostTimes.after",
              "return times.with_hold(now, hold)", "return times"),
    )),
    Mutant("hold-of-a-url", "R5", "a hold keeps back one URL, not its host", (
        Patch(_EXCHANGES, "Exchanges._begin",
              "name = host_of(request.url)", """\
name = host_of(request.url)
        held = self.__dict__.setdefault("held", {}).get(request.url, 0.0)
        if held > self._context.clock.now():
            from walsh_scrapy.crawl.hosts.ownedhosts import BeginResult
            return BeginResult("wait", held - self._context.clock.now())"""),
        Patch(_EXCHANGES, "Exchanges.end",
              "exchange = self._exchange(request, response, latency, error)", """\
exchange = self._exchange(request, response, latency, error)
        if exchange.status in (429, 503):
            now, tries = self._context.clock.now(), ticket_of(request).attempt
            retry_after = exchange.retry_after
            seconds = self._context.backoff.hold(exchange.status, retry_after, tries)
            self.__dict__.setdefault("held", {})[request.url] = now + seconds
            exchange = replace(exchange, status=404, retry_after=None)"""),
    )),
    Mutant("hold-forgotten", "R5", "a hold is not kept over runs", (
        Patch("walsh_scrapy/state/hoststore.py", "HostStore.set_pace_by",
              "if self._database.read(", """\
forgotten = hosts.update().values(hold_until=0.0)
        self._database.write(lambda connection: connection.execute(forgotten))
        if self._database.read("""),
    )),
    Mutant("hold-pending", "R5", "writes a hold with the next request of its host", (
        Patch(_HOSTS, "Hosts.end", "if not exchange.is_plain_answer or is_longer", "if is_longer"),
    ), (f"{_OWNED}::test_a_hold_is_written_before_the_next_transaction",)),
    Mutant("outage-of-each", "R5", "each worker counts an outage of the list's host again", (
        Patch(_PACING, "Exchange.in_run", "if self.unreachable and was_counted:", "if False:"),
    ), ("tests/feeds/test_feedcrawl.py::test_several_workers_that_see_one_outage_count_it_once",)),
    Mutant("wait-since-boot", "R5", "a JOBDIR keeps a redirect's wait by the machine's uptime", (
        Patch(_JOB, "Job._redirects_of", "self._clock.now() + wait if", "ticket.not_before if"),
        Patch(_JOB, "Job._restore", "wait = redirects.not_before - self._clock.now()",
              "wait = redirects.not_before - self._clock.monotonic()"),
    ), ("tests/test_job.py::test_the_wait_of_a_redirect_outlives_a_reboot",)),
    Mutant("wait-of-redirects", "R5", "ignores the Retry-After of redirects", (
        Patch(_EXCHANGES, "Exchanges.end",
              "if is_redirect(exchange.status) and exchange.retry_after:", "if False:"),
    )),
    Mutant("wait-after-308", "R5", "follows a 307 or 308 with Retry-After at once", (
        Patch(_EXCHANGES, "Exchanges.end",
              "if is_redirect(exchange.status) and exchange.retry_after:",
              "if exchange.status in (301, 302, 303) and exchange.retry_after:"),
    ), (f"{_R5_CRAWLS}::test_a_redirected_request_waits",)),
    Mutant("row-forgotten", "R5", "a row of refusals ends with the run", (
        Patch(_STATE, "_take_statement", "in_flight_until=0.0)",
              "in_flight_until=0.0, refusals=0)"),
    )),
    Mutant("endless", "R5", "tries fifty times", (
        Patch("walsh_scrapy/downloadermiddlewares/backoff.py", "BackoffMiddleware.record_outcome",
              "retries = self._context.options.max_retries", "retries = 50"),
    )),
)  # fmt: skip
