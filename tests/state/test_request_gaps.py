"""The view `request_gaps`: it agrees with plain Python, and accuses no honest crawl."""

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, delete, insert, text
from sqlalchemy.pool import NullPool

from walsh_scrapy.state import State
from walsh_scrapy.state.gaps import clock_steps, gaps
from walsh_scrapy.state.sql import Sql
from walsh_scrapy.state.tables import overrides, requests, runs

START = 1_700_000_000.0
TOLERANCE = 0.05
SECONDS = st.sampled_from([0.0, 0.02, 0.5, 1.0, 1.2, 3.0, 40.0, 90_000.0])
HOSTS = st.sampled_from(["a.example", "b.example"])
RUNS = st.integers(1, 3)
EVENTS = st.one_of(
    st.tuples(st.just("request"), HOSTS, RUNS, SECONDS, SECONDS, SECONDS, st.booleans()),
    st.tuples(st.just("release"), HOSTS),
    st.tuples(st.just("kill"), HOSTS, RUNS),
    st.tuples(st.just("set clock"), st.sampled_from([-7200.0, -30.0, 30.0, 7200.0])),
)


class World:
    """A log that grows by events. ``is_honest``: each request comes as late as it must."""

    def __init__(self, *, is_honest):
        self.is_honest, self.now, self.offset = is_honest, 0.0, 0.0
        self.rows, self.releases, self.true_times = [], [], []
        self.free_at, self.held_until, self.delay = {}, {}, {}

    def play(self, name, *values):
        {"request": self.request, "release": self.release, "kill": self.kill,
         "set clock": self.set_clock}[name](*values)  # fmt: skip

    def request(self, host, run, wait, duration, hold, is_open=False):
        self.now += wait
        if self.is_honest:
            soonest = self.free_at.get(host, 0.0) + self.delay.get(host, 1.0)
            self.now = max(self.now, soonest, self.held_until.get(host, 0.0))
        begun = self.now
        self.now += duration
        self.free_at[host], self.delay[host] = self.now, max(1.0, duration)
        self.held_until[host] = max(self.held_until.get(host, 0.0), self.now + hold)
        row = {
            "id": len(self.rows) + 1, "host": host, "run": run, "url": f"http://{host}/",
            "requested_at": START + begun + self.offset, "duration": None if is_open else duration,
            "monotonic": 0.0 if is_open else self.now, "delay": 1.0, "gates": "",
            "hold": 0.0 if is_open else hold, "purpose": "target",
        }  # fmt: skip
        if is_open and hold:
            self.held_until[host] = self.now
        self.rows.append(row)
        self.true_times.append((begun, self.now))

    def kill(self, host, run):
        self.request(host, run, 0.0, 0.0, 0.0, is_open=True)

    def release(self, host):
        made_at = START + self.now + self.offset
        row = {
            "host": host,
            "made_at": made_at,
            "override": "release",
            "seconds": 1.0,
            "reason": "",
        }
        self.releases.append(row)
        self.held_until[host] = 0.0

    def set_clock(self, seconds):
        self.offset += seconds

    def write(self, connection):
        for table in (requests, overrides):
            connection.execute(delete(table))
        if self.rows:
            connection.execute(insert(requests), self.rows)
        if self.releases:
            connection.execute(insert(overrides), self.releases)


def ended(row):
    return row["requested_at"] + (row["duration"] or 0.0)


def is_early(gap, own_gap, required, span):
    """Return whether a gap is too short, by the monotonic clock of its run if that is known."""
    later = gap + span / 1000 if own_gap is None else own_gap
    return max(gap, later) < required - TOLERANCE


def own_gap_of(row, earlier):
    """Return the gap between two exchanges by the monotonic clock of their run, or None."""
    if row["run"] != earlier["run"] or None in (row["duration"], earlier["duration"]):
        return None
    return row["monotonic"] - row["duration"] - earlier["monotonic"]


def clock_spans(rows):
    """Return the span of each run in which a clock was set."""
    moments, last_of_run, latest, latest_end = {}, {}, -math.inf, -math.inf
    for row in rows:
        is_open = row["duration"] is None
        last = last_of_run.get((row["run"], is_open))
        start = ended(last) if last else row["requested_at"]
        passed = ended(row) - start
        ticked = row["monotonic"] - last["monotonic"] if last and not is_open else passed
        is_step = abs(passed - ticked) > TOLERANCE + abs(passed) / 1000
        if is_step or row["requested_at"] < latest - 1.0:
            span = [row["requested_at"], start, ended(row)] + [latest_end] * (latest > 0.0)
            moments.setdefault(row["run"], []).extend(span)
        latest, latest_end = max(latest, row["requested_at"]), max(latest_end, ended(row))
        last_of_run[row["run"], is_open] = row
    return [(min(span[0::4] + span[1::4]), max(span)) for span in moments.values()]


def expected_gap(row, before, same_place, spans, releases, shared_clock):
    """Return the gap, the required one and the problem of a request after those before it."""

    def is_certain(since):
        low, high = sorted([since, row["requested_at"]])
        return not any(a <= high + TOLERANCE and b >= low - TOLERANCE for a, b in spans)

    def agrees(other, since):
        if shared_clock or None in (row["duration"], other["duration"]):
            return shared_clock
        clocks = [ended(one) - one["monotonic"] for one in (row, other)]
        allowed = TOLERANCE + abs(row["requested_at"] - since) / 1000
        return abs(clocks[0] - clocks[1]) <= allowed

    if not before:
        return None, None, None
    last, end = before[-1], max(map(ended, before))
    delay = max(1.0, row["delay"], last["duration"] or 0.0)
    holds = [(-math.inf, end, last)]
    for cause in (cause for cause in before if cause["hold"]):
        until = ended(cause) + cause["hold"]
        of_host = [one["made_at"] for one in releases if one["host"] == row["host"]]
        lifted = [at for at in of_host if ended(cause) - TOLERANCE <= at < until]
        holds.append((min([until, *lifted]), ended(cause), cause))
    hold_until, hold_since, cause = max(holds, key=lambda hold: (hold[0], hold[2]["id"]))
    required, start = max(delay, hold_until - end), row["requested_at"]
    is_open = last["duration"] is None
    problem, is_known = None, row is same_place and last["id"] < row["id"] and is_certain(end)
    own_gap = own_gap_of(row, last) if ended(last) == end else None
    seconds = hold_until - hold_since
    own_hold_gap = own_gap_of(row, cause)
    if hold_since <= start and is_early(start - hold_since, own_hold_gap, seconds, seconds):
        problem = "on hold"
        is_known = is_known and is_certain(hold_since) and agrees(cause, hold_since)
    elif not is_open and is_early(start - end, own_gap, delay, delay):
        problem = "at once" if is_early(start - end, own_gap, 0.0, delay) else "too short"
        is_known = is_known and agrees(last, end)
    gap = start - end if is_known and not is_open else None
    return gap, required, problem if is_known else None


def read_gaps(connection):
    statement = f"SELECT * FROM ({gaps(Sql.for_dialect(connection.dialect))}) rows ORDER BY id"
    return [dict(row) for row in connection.execute(text(statement)).mappings()]


@pytest.fixture
def connection(url):
    State(url).close()
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SET jit = off"))  # as every connection of ours has it
        run = {"spider": "feeds", "started_at": START, "versions": "{}", "settings": "{}"}
        connection.execute(insert(runs), [run, run, run])
        yield connection


@given(st.lists(EVENTS, max_size=25))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_the_view_agrees_with_plain_loops(connection, events):
    world = World(is_honest=False)
    for values in events:
        world.play(*values)
    world.write(connection)
    spans, shared_clock = clock_spans(world.rows), connection.dialect.name != "sqlite"
    for row in read_gaps(connection):
        of_host = [one for one in world.rows if one["host"] == row["host"]]
        by_time = sorted(of_host, key=lambda one: (one["requested_at"], one["id"]))
        place = next(place for place, one in enumerate(by_time) if one["id"] == row["id"])
        own, before = by_time[place], by_time[:place]
        expected = expected_gap(own, before, of_host[place], spans, world.releases, shared_clock)
        shown = row["gap"], row["required_gap"] if place else None, row["problem"]
        assert shown[2] == expected[2], (row, expected)
        assert shown[:2] == pytest.approx(expected[:2], abs=0.002)


@given(st.lists(EVENTS, max_size=25))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_an_honest_crawl_is_never_accused(connection, events):
    """The clock of a server is shared by all, and not set."""
    world = World(is_honest=True)
    for values in events:
        if connection.dialect.name == "sqlite" or values[0] != "set clock":
            world.play(*values)
    world.write(connection)
    assert [row for row in read_gaps(connection) if row["problem"]] == []


def test_no_gap_counts_from_before_a_clock_was_set_back(connection):
    """The exchange that ended last by the time of day was not the last one."""
    world = World(is_honest=True)
    for values in (
        ("request", "a.example", 1, 0.0, 0.5, 0.0),
        ("set clock", -7200.0),
        ("request", "a.example", 2, 40.0, 0.5, 0.0),
        ("request", "a.example", 3, 90_000.0, 0.5, 0.0),
    ):
        world.play(*values)
    world.write(connection)
    last = read_gaps(connection)[-1]
    assert (last["gap"], last["gap_unknown"]) == (None, "a clock was set")


def test_a_request_that_was_cut_off_shows_a_clock_set_back(connection):
    world = World(is_honest=True)
    for values in (
        ("request", "a.example", 1, 0.0, 0.5, 0.0),
        ("set clock", -7200.0),
        ("kill", "b.example", 2),
        ("request", "a.example", 3, 90_000.0, 0.5, 0.0),
    ):
        world.play(*values)
    world.write(connection)
    steps = connection.execute(text(clock_steps(Sql.for_dialect(connection.dialect)))).all()
    assert [(since - START, until - START) for since, until in steps] == [(-7198.5, 1.5)]
