"""Decision 41: who owns a host, and when it may be requested, by any order of events.

Two workers and an operator share one database. They die, are suspended and lose their connections
at every point, the database is away, and its clock is set. The test keeps what a server sees, in
true time, which no worker knows: it judges by that, and not by the rows.
"""

import math
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from sqlalchemy import (
    Column,
    Double,
    Integer,
    MetaData,
    String,
    Table,
    insert,
    select,
)
from sqlalchemy import delete as deleted
from sqlalchemy import update as updated

from walsh_scrapy.policy.backoff import Backoff
from walsh_scrapy.policy.pacing import (
    Exchange,
    TakeoverGuard,
    delay_after,
)
from walsh_scrapy.state.hoststore import release_hold, set_operator_delay
from walsh_scrapy.state.ownership import (
    RequestLimits,
    Worker,
    beat,
    begin,
    end,
    find,
    leave,
    let_go,
    lock_if_owned,
    owns,
    take,
    withdraw,
)
from walsh_scrapy.state.tables import hosts, overrides, workers

TIMEOUT = 30.0
RETRY_AFTER = 100.0
#: What a float of epoch seconds can tell apart, many times over.
TINY = 1e-3
#: Crawl-delay by host, which its robots.txt tells.
CRAWL_DELAY = {"a.example": 60.0, "b.example": 5.0, "c.example": 0.0}
SOURCES = {f"{host[0]}/{number}": host for host in CRAWL_DELAY for number in (1, 2)}
REDIRECTS_TO = {"a.example": "b.example", "b.example": "a.example", "c.example": "a.example"}
BACKOFF = Backoff(2.0, 300.0, Random(1))

work = MetaData()  # of the test
sources = Table(
    "test_sources",
    work,
    Column("name", String(32), primary_key=True),
    Column("host", String(32)),
    Column("is_due", Integer),
)
copies = Table(
    "test_copies",
    work,
    Column("host", String(32), primary_key=True),
    Column("delay", Double),
)


@dataclass(eq=False)
class Sent:
    """A request as its server sees it, in true time."""

    body: "Body"
    start: float
    end: float
    ahead: float  #: seconds by which the clock had been set forward in all, when it began


@dataclass
class AskedHold:
    """A hold that a server asked for, in true time."""

    until: float
    ahead: float


@dataclass
class Memory:
    """What a worker remembers of a host that it owns."""

    host: str
    due: list  #: its sources
    robots: float | None  #: its Crawl-delay; None if its robots.txt is not known
    pending: tuple | None = (
        None  #: known, times and measured end of an exchange that is not written
    )


@dataclass(eq=False)
class Body:
    """A worker's process."""

    worker: Worker
    program: object = None
    watch: TakeoverGuard = field(default_factory=TakeoverGuard)
    is_suspended: bool = False
    woke_at: float = -math.inf
    beat_at: float = -math.inf
    has_beaten: bool = False  #: since it was started or woke
    fault: str = ""  #: what happens to the connection at its next COMMIT: "before" or "after" it
    wait_until: float = -math.inf
    begun_with: tuple = ()  #: delay and holds that it had to know at its last begin
    begun_ahead: float = 0.0  #: see `Sent`
    point: str = ""  #: where its program is
    reconnects_at: float = -math.inf  #: its first beat after the database was away
    began: tuple = ()  #: its run: true time, and how often the clock had been set


class Machine(RuleBasedStateMachine):
    """The world: true time, a server for each host, two workers, and the operator."""

    def __init__(self, engine, now):
        super().__init__()
        self.engine, self.now = engine, now
        self.true = self.now[0] = 1_700_000_000.0
        self.ahead, self.clocks = 0.0, 0
        self.deferred = {}  # host -> when it was given up for a run, and the clock then
        self.count = 0
        self.sent = {host: [] for host in CRAWL_DELAY}
        self.holds = {host: [] for host in CRAWL_DELAY}
        self.told = set()  # hosts whose Crawl-delay somebody was told, and lived on
        self.operator = dict.fromkeys(CRAWL_DELAY, 0.0)
        self.owner = {}  # host -> the body that took it last
        self.done = set()  # sources that were fetched and written
        self.notes = []
        with engine.begin() as connection:
            for table in (hosts, workers, overrides, sources, copies):
                connection.execute(deleted(table))
            due = [{"name": name, "host": host, "is_due": 1} for name, host in SOURCES.items()]
            connection.execute(insert(sources), due)
        self.bodies = [self.new_body()]
        self.pass_time(2.5)
        self.bodies.append(self.new_body())

    # ---- time ----

    def pass_time(self, seconds, *, is_away=False):
        """Let time go on; workers beat, except while the database is away."""
        self.true += seconds
        self.now[0] += seconds
        for body in self.bodies:
            is_cut_off = body.is_suspended or is_away or self.true < body.reconnects_at
            while body.beat_at + 5.0 <= self.true:
                body.beat_at += 5.0
                if is_cut_off:
                    continue
                if body.beat_at + 5.0 > self.true:
                    self.beat(body)
                elif body.has_beaten:  # of several beats only the last one matters to others
                    body.watch.see(self.now[0] - (self.true - body.beat_at), body.beat_at)

    def beat(self, body):
        with self.engine.begin() as connection:
            beats = beat(connection, body.worker)
        body.watch.see(beats.now, self.true)
        body.has_beaten = True

    # ---- workers ----

    def new_body(self):
        body = Body(None, beat_at=self.true)
        body.program = self.run_program(body)
        self.begin_run(body)
        return body

    def begin_run(self, body):
        self.count += 1
        body.worker = Worker(f"w{self.count}", self.now[0])
        body.began = self.true, self.clocks
        self.beat(body)

    def step(self, body, answer="ok", service=0.5):
        """Let a worker do one thing: a transaction, or the begin or the end of an exchange."""
        self.answer, self.service = answer, service
        body.wait_until = -math.inf
        next(body.program)

    def transact(self, body, point, work):
        """Run a transaction; it runs again if its connection is lost."""
        again = False
        while True:
            body.point = point
            yield
            fault, body.fault = body.fault, ""
            self.notes = []
            with self.engine.connect() as connection, connection.begin() as transaction:
                result = work(connection, again)
                if fault == "before":
                    transaction.rollback()
                else:
                    transaction.commit()
                    for note in self.notes:
                        note()
            if not fault:
                return result
            again = True

    def run_program(self, body):
        """Visit what is due, host by host, in one run after the other."""
        while True:
            has_taken = False
            for host in (yield from self.transact(body, "idle", lambda c, _: self.due_hosts(c))):
                memory = yield from self.transact(body, "take", self.taking(body, host))
                if memory is not None:
                    has_taken = True
                    yield from self.visit(body, memory)
            if not has_taken:
                body.wait_until = self.true + 10.0
                yield
                yield from self.transact(body, "idle", lambda c, _: leave(c, body.worker))
                self.begin_run(body)

    def due_hosts(self, connection):
        found = select(sources.c.host).where(sources.c.is_due == 1).distinct()
        return connection.scalars(found.order_by(sources.c.host)).all()

    def taking(self, body, host):
        def work(connection, _again):
            permission = take(connection, host, body.worker, body.watch.may_take_over_until)
            if permission.status != "ready":
                return None
            self.notes.append(lambda: self.took(body, host))
            is_due = select(sources.c.name).where(sources.c.host == host, sources.c.is_due == 1)
            due = connection.scalars(is_due.order_by(sources.c.name)).all()
            robots = connection.scalar(select(copies.c.delay).where(copies.c.host == host))
            return Memory(host, due, robots)

        return work

    def visit(self, body, memory):
        if not memory.due:
            yield from self.transact(body, "let go", self.letting_go(body, memory))
            return
        if not (yield from self.prepare(body, memory)):
            return
        for name in memory.due:
            answer = yield from self.visit_source(body, memory, name)
            if answer == "deferred":
                yield from self.transact(
                    body, "let go", self.letting_go(body, memory, deferred=True)
                )
            if answer != "ok":
                return
            goes_on = name != memory.due[-1]
            outcome = self.outcome(body, memory, name, goes_on)
            if not (yield from self.transact(body, "outcome", outcome)):
                return

    def visit_source(self, body, memory, name):
        """Fetch a source: return "ok" or "deferred"; None if the host was lost."""
        for _ in range(3):
            answer = yield from self.exchange(body, memory, "feed", name)
            if answer == "redirect":
                return (yield from self.follow(body, memory, name))
            if answer != "refused":
                return answer
        return "deferred"  # it has refused its share of tries

    def prepare(self, body, memory):
        """Fetch robots.txt, if it is not known; return False if the host is not owned any more."""
        while memory.robots is None:
            if (yield from self.exchange(body, memory, "robots")) is None:
                return False
        return True

    def follow(self, body, memory, name):
        """Follow a redirect of a source to another host, which is owned for that time."""
        target = REDIRECTS_TO[memory.host]
        for _ in range(3):
            there = yield from self.transact(body, "take", self.taking(body, target))
            if there is not None:
                break
            body.wait_until = self.true + 2.0
            yield
        else:
            return "deferred"
        answer = None
        if (yield from self.prepare(body, there)):
            answer = yield from self.exchange(body, there, "hop", name, visit=memory.host)
        if answer in {"ok", None}:  # it is not lost if the visit was
            yield from self.transact(body, "let go", self.letting_go(body, there))
        return answer and ("ok" if answer == "ok" else "deferred")

    def letting_go(self, body, memory, *, deferred=False):
        return lambda connection, _: self.write(connection, body, memory, False, deferred)

    def outcome(self, body, memory, name, goes_on):
        def work(connection, _again):
            is_ours = self.write(connection, body, memory, goes_on)
            if is_ours:
                self.notes.insert(0, lambda: self.wrote(body, memory.host, name))
                done = updated(sources).where(sources.c.name == name).values(is_due=0)
                connection.execute(done)
                self.notes.append(lambda: setattr(memory, "pending", None))
            return is_ours

        return work

    def write(self, connection, body, memory, goes_on, deferred=False):
        """Prove that a host is still owned, with what has to be written of it anyway."""
        if memory.pending:
            is_ours = self.end(connection, body, memory)
        else:
            is_ours = lock_if_owned(connection, memory.host, body.worker)
        if goes_on or not is_ours:
            return is_ours
        is_ours = let_go(connection, memory.host, body.worker, deferred=deferred)
        if is_ours:
            self.notes.append(lambda: self.let_go(memory.host, deferred))
        return is_ours

    def end(self, connection, body, memory):
        """Write an exchange that has ended. Nothing but caution is written of a lost host."""
        host, (known, times, measured) = memory.host, memory.pending
        before = find(connection, host).times
        is_ours = end(connection, host, body.worker, known, times, self.true - measured)
        if is_ours:
            if memory.robots is not None:
                connection.execute(deleted(copies).where(copies.c.host == host))
                connection.execute(insert(copies), {"host": host, "delay": memory.robots})
        else:
            self.check_caution(before, find(connection, host).times)
        if hold := times.last_hold.seconds:
            self.notes.append(
                lambda: self.holds[host].append(AskedHold(measured + hold, self.ahead))
            )
        if memory.robots is not None:
            self.notes.append(lambda: self.told.add(host))
        return is_ours

    def exchange(self, body, memory, what, name=None, visit=None):
        """Send one request: return "ok", "refused" or "redirect"; None if the host was lost."""
        host = memory.host
        while True:
            begun, noted = yield from self.beginning(body, memory, visit)
            if begun is None:
                return None
            body.point = "connect"
            yield
            limit = noted + self.ask(memory).allowed
            if self.true < limit:
                break
            if not (
                yield from self.transact(
                    body, "withdraw", lambda c, _: withdraw(c, host, body.worker)
                )
            ):
                return None
        sent, answer = self.send(body, host, what, name, limit), self.answer
        body.wait_until, body.point = sent.end, "flight"
        yield
        answer = self.check_answer(answer, what)
        if what == "robots" and answer == "ok":
            memory.robots = CRAWL_DELAY[host]
        measured = max(sent.end, body.woke_at)
        # A delay that the row has counts as long as the rules are not known.
        robots = begun.times.delay if memory.robots is None else memory.robots
        refused = {"status": 429, "retry_after": RETRY_AFTER}
        given = refused if answer == "refused" else {"status": 200}
        if answer == "redirect":
            given["status"] = 302
        over = Exchange(delay=delay_after(1.0, robots), latency=measured - sent.start, **given)
        times = begun.times.after(over, BACKOFF, begun.now + measured - noted)
        memory.pending = begun.times, times, measured
        if answer != "ok" or times.delay > begun.times.delay:  # others must know at once
            goes_on = visit is None or answer == "ok"
            is_ours = yield from self.transact(
                body, "end", lambda c, _: self.write(c, body, memory, goes_on)
            )
            memory.pending = None
            if not is_ours:
                return None
        self.lives_on(host, memory, times, measured)
        return answer

    def ask(self, memory):
        return RequestLimits(delay_after(1.0, memory.robots), TIMEOUT)

    def beginning(self, body, memory, visit):
        """Return the row of the host and when it was asked for; None if the host was lost."""
        host, noted, ask = memory.host, 0.0, self.ask(memory)

        def work(connection, again):
            nonlocal noted
            noted = self.true
            if again and not withdraw(connection, host, body.worker) and not memory.pending:
                return None
            if memory.pending and not self.end(connection, body, memory):
                return None
            if visit is not None and not owns(connection, visit, body.worker):
                return None
            permission = begin(connection, host, body.worker, ask)
            if permission.status == "ready":
                self.notes.append(lambda: self.began(body, host, visit))
            return permission

        while True:
            permission = yield from self.transact(body, "begin" if visit is None else "hop", work)
            memory.pending = None
            if permission is None or permission.status == "lost":
                return None, noted
            found = permission.host
            if permission.status == "ready":
                return found, noted
            self.check_wait(host, found)
            body.wait_until = self.true + found.times.ready_at(ask.delay) - found.now
            body.point = "wait"
            yield

    # ---- what the server sees, and what is promised to it ----

    def send(self, body, host, what, name, limit):
        known, holds = body.begun_with
        for other in self.sent[host]:
            jumped = self.ahead - other.ahead
            # Who cannot beat while the clock is set forward loses its host too early.
            if not (jumped and other.body.is_suspended):
                assert other.end <= self.true + TINY, "two requests at once"
            gap = self.true - other.end + jumped
            assert gap >= known - TINY, f"{gap} s after the last request, not {known} s"
        for hold in holds:
            assert self.true + self.ahead - hold.ahead >= hold.until - TINY, "during a hold"
        assert name not in self.done, "the source was fetched already"
        sent = Sent(body, self.true, min(self.true + self.service, limit), body.begun_ahead)
        self.sent[host] = [
            request for request in self.sent[host] if request.end > self.true - 200.0
        ]
        self.sent[host].append(sent)
        return sent

    def check_answer(self, answer, what):
        return "ok" if what != "feed" and answer == "redirect" else answer

    def lives_on(self, host, memory, times, measured):
        """What a worker was told counts as soon as it does anything else."""
        if memory.robots is not None:
            self.told.add(host)
        if times.last_hold.seconds:
            self.asked_hold(host, times, measured)

    def asked_hold(self, host, times, measured):
        self.holds[host].append(AskedHold(measured + times.last_hold.seconds, self.ahead))

    def took(self, body, host):
        other = self.owner.get(host, body)
        if other is not body and other in self.bodies:
            is_living = other.has_beaten and not other.is_suspended
            assert not is_living, "a host was taken from a worker that lives"
        self.owner[host] = body
        at, clocks = self.deferred.get(host, (-math.inf, 0))
        if clocks == self.clocks == body.began[1]:
            assert at < body.began[0], "the host was deferred for this run"

    def began(self, body, host, visit):
        assert self.owner.get(host) is body, "a request to a host that is another's"
        if visit is not None:
            assert self.owner.get(visit) is body, "a redirect of a visit that was lost"
        told = CRAWL_DELAY[host] if host in self.told else 0.0
        body.begun_with = max(1.0, told, self.operator[host]), self.holds[host][:]
        body.begun_ahead = self.ahead

    def wrote(self, body, host, name):
        assert self.owner.get(host) is body, "an outcome of a visit that was lost"
        self.done.add(name)

    def let_go(self, host, deferred):
        self.owner.pop(host, None)
        if deferred:
            self.deferred[host] = self.true, self.clocks

    def check_caution(self, before, after):
        assert (before.owner, before.in_flight_until) == (after.owner, after.in_flight_until)
        for name in ("refusals", "server_errors", "unreachable", "deferred_at", "operator_delay"):
            assert getattr(before, name) == getattr(after, name)
        for name in ("request_ended_at", "delay", "hold_until"):
            assert (getattr(after, name) or 0.0) >= (getattr(before, name) or 0.0)

    def check_wait(self, host, found):
        if not self.holds[host]:
            assert not found.hold, "a hold that nobody asked for, or that was lifted"
        if not self.operator[host]:
            assert not found.times.operator_delay

    # ---- what happens ----

    who = st.sampled_from([0, 1])
    seeds = st.integers(0, 999)
    points = st.sampled_from(
        ["end", "flight", "begin", "hop", "wait", "connect", "outcome", "let go", "take"]
    )

    def goes_on(self, who, steps, random, answer=None):
        body = self.bodies[who]
        if len(self.done) == len(SOURCES):
            self.all_sources_are_due_again()
        for _ in range(steps):
            if body.is_suspended:
                return
            if (wait := body.wait_until - self.true) > 0:
                self.pass_time(min(wait, 100.0))
            said = answer or random.choice(["ok", "ok", "ok", "redirect", "redirect", "refused"])
            self.step(body, said, random.choice([0.5, 0.5, 3.0, 29.0]))

    def goes_on_to(self, who, point, random, answer=None):
        for _ in range(60):
            if self.bodies[who].point == point or self.bodies[who].is_suspended:
                return
            self.goes_on(who, 1, random, answer)

    @rule(seed=seeds, steps=st.integers(1, 40))
    def the_workers_go_on(self, seed, steps):
        random = Random(seed)
        while steps > 0:
            some = random.randint(1, 15)
            self.goes_on(random.choice([0, 1]), some, random)
            steps -= some

    @rule(
        who=who,
        point=points,
        seed=seeds,
        slept=st.sampled_from([0.0, 22.0, 40.0]),
        answer=st.sampled_from([None, "refused", "redirect"]),
        meanwhile=points,
    )
    def a_worker_sleeps_and_the_other_goes_on(self, who, point, seed, slept, answer, meanwhile):
        random = Random(seed)
        self.goes_on_to(who, point, random, answer)
        self.a_worker_is_suspended(who)
        self.pass_time(slept)
        self.goes_on_to(1 - who, meanwhile, random)
        self.all_workers_wake()
        self.goes_on(who, random.randint(0, 4), random, answer)
        self.goes_on(1 - who, random.randint(1, 15), random)

    @rule(who=who, point=points, seed=seeds)
    def a_worker_dies_at_a_point(self, who, point, seed):
        self.goes_on_to(who, point, Random(seed))
        self.a_worker_dies(who)

    @rule(who=who, point=points, seed=seeds, when=st.sampled_from(["before", "after"]))
    def a_worker_loses_its_connection_at_a_commit(self, who, point, seed, when):
        random = Random(seed)
        self.goes_on_to(who, point, random)
        self.bodies[who].fault = when
        self.goes_on(who, 3, random)

    @rule(seconds=st.sampled_from([0.5, 4.0, 15.0, 40.0, 130.0]))
    def time_goes_on(self, seconds):
        self.pass_time(seconds)

    def a_worker_dies(self, who):
        body = self.bodies[who]
        for of_host in self.sent.values():
            for request in of_host:
                if request.body is body:
                    request.end = min(request.end, self.true)
        body.program.close()
        self.bodies[who] = self.new_body()

    @rule(who=who)
    def a_worker_is_suspended(self, who):
        self.bodies[who].is_suspended = True

    @precondition(lambda self: any(body.is_suspended for body in self.bodies))
    @rule()
    def all_workers_wake(self):
        for body in self.bodies:
            if body.is_suspended:
                body.is_suspended, body.woke_at, body.has_beaten = False, self.true, False

    @rule(seconds=st.sampled_from([8.0, 25.0, 60.0]), last=who, late=st.sampled_from([0.0, 6.0]))
    def the_database_is_away(self, seconds, last, late):
        self.pass_time(seconds, is_away=True)
        self.bodies[last].reconnects_at = self.true + late

    @rule(by=st.sampled_from([-90_000.0, -30.0, -2.0, 2.0, 30.0, 3600.0]))
    def the_clock_is_set(self, by):
        self.now[0] += by
        self.clocks += 1
        self.ahead += max(0.0, by)

    @rule(
        host=st.sampled_from(sorted(CRAWL_DELAY)),
        delay=st.sampled_from([None, None, 0.0, 40.0]),
    )
    def the_operator_acts(self, host, delay):
        if delay is None:
            self.lift(host)
        else:
            self.delay(host, delay)

    def lift(self, host):
        with self.engine.begin() as connection:
            remaining = release_hold(connection, host, "they wrote: go on")
        assert not remaining or self.holds[host]
        if remaining:
            self.holds[host] = []

    def delay(self, host, seconds):
        with self.engine.begin() as connection:
            set_operator_delay(connection, host, seconds, "they asked for it")
        self.operator[host] = seconds

    def all_sources_are_due_again(self):
        with self.engine.begin() as connection:
            connection.execute(updated(sources).values(is_due=1))
        self.done = set()

    def teardown(self):
        """In the end all is fetched: a dead worker's hosts are free after their time."""
        self.pass_time(1.0)  # a new run has begun after what was deferred
        for who in (0, 1):
            self.a_worker_dies(who)
        began = self.true
        while len(self.done) < len(SOURCES):
            waits = [max(0.0, body.wait_until - self.true) for body in self.bodies]
            self.pass_time(min(waits) + 0.5)
            for body in self.bodies:
                if body.wait_until <= self.true:
                    self.step(body)
            assert self.true - began < 2 * 3600.0, "a source was not visited in time"


@pytest.mark.empty
def test_a_host_has_one_owner_who_keeps_its_promises(engine, now):
    count = 60 if engine.dialect.name == "sqlite" else 12  # an example takes longer there
    how = settings(max_examples=count, stateful_step_count=20, derandomize=True, deadline=None)
    work.create_all(engine)
    run_state_machine_as_test(lambda: Machine(engine, now), settings=how)
