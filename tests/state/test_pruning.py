"""What is too old is deleted in small steps; what somebody still needs is not."""

import contextlib

from sqlalchemy import insert, select, update

from walsh_scrapy.policy.robots.access import RobotsCopy
from walsh_scrapy.state import State
from walsh_scrapy.state.database import Database
from walsh_scrapy.state.rows import delete_old
from walsh_scrapy.state.tables import hosts, requests, robots

DAY = 86_400.0
NOW = 1000 * DAY


def fill(database, table, rows):
    with database.write() as connection:
        connection.run_each(insert(table), list(rows))


def left(database, column):
    with database.read() as connection:
        return sorted(connection.scalars(select(column)))


def sent(at):
    texts = {"host": "a", "url": "http://a/", "gates": "", "error": "", "purpose": "target"}
    return texts | {"sent_at": at, "seconds": 0.1, "pause": 1.0, "hold": 0.0}


def host(name, **columns):
    times = {"ended": NOW - 91 * DAY, "interval": 1.0, "hold_until": 0.0, "lease_until": 0.0}
    return {"host": name, **times, "silent_at": 0.0, "struck_at": 0.0, "silences": 0} | columns


def test_hosts_go_90_days_after_the_last_moment_that_they_are_about(state, database, clock):
    clock.at = NOW
    rows = [
        host("old"),
        host("never asked", ended=None),
        host("died long ago", ended=None, lease_until=NOW - 91 * DAY),
        host("silent long ago", silences=3, silent_at=NOW - 91 * DAY, hold_until=NOW - 95 * DAY),
        host("known crawl delay", interval=86_000.0),
        host("young", ended=NOW - 89 * DAY),
        host("on hold", hold_until=NOW + 300 * DAY),
        host("held lately", hold_until=NOW - 89 * DAY),
        host("leased", lease_until=NOW + 60.0),
        host("died lately", ended=None, lease_until=NOW - 89 * DAY),
        host("long crawl delay", interval=92 * DAY),
        host("silent", silences=1, silent_at=NOW - 31 * DAY),
        host("struck", struck_at=NOW - 31 * DAY),
    ]
    fill(database, hosts, rows)
    state.prune(NOW, 30 * DAY)
    assert left(database, hosts.c.host) == sorted(row["host"] for row in rows[5:])


def test_robots_copies_go_90_days_after_the_last_request_unless_a_request_waits(state, database):
    old, young = NOW - 91 * DAY, NOW - 89 * DAY
    state.robots.keep("http://old:80", RobotsCopy(old, 200, b""))
    state.robots.keep("http://failing:80", RobotsCopy(old, 503, b"", failing_since=old))
    state.robots.keep("http://young:80", RobotsCopy(young, 200, b""))
    state.robots.keep("http://waited-for:80", RobotsCopy(old, 200, b"", unused=True))
    state.prune(NOW, 30 * DAY)
    assert left(database, robots.c.origin) == ["http://waited-for:80", "http://young:80"]


def test_rows_go_in_small_transactions(state, database, monkeypatch):
    fill(database, requests, [sent(NOW - (31 + number % 2) * DAY) for number in range(1200)])
    fill(database, requests, [sent(NOW - 29 * DAY)])
    begun = []
    write = Database.write
    monkeypatch.setattr(Database, "write", lambda self: begun.append(1) or write(self))
    state.prune(NOW, 30 * DAY)
    assert len(begun) == 3, "500 rows at once, and no transaction if nothing is old"
    assert left(database, requests.c.sent_at) == [NOW - 29 * DAY]


def test_a_neglected_state_is_not_pruned_at_once(state, database, monkeypatch):
    monkeypatch.setattr("walsh_scrapy.state.rows.MOST_ROWS", 10)
    moments = [NOW - (31 + number) * DAY for number in range(25)]
    fill(database, requests, map(sent, moments))
    for remaining in (15, 5, 0):
        state.prune(NOW, 30 * DAY)
        found = left(database, requests.c.sent_at)
        assert found == sorted(moments[:remaining]), "nothing is missing after what is left"


def test_what_another_process_renews_meanwhile_stays(state, database, monkeypatch):
    state.robots.keep("http://a:80", RobotsCopy(NOW - 91 * DAY, 200, b""))
    write = Database.write

    def renewed(self):
        if self is database:
            state.robots.keep("http://a:80", RobotsCopy(NOW, 200, b""))
        return write(self)

    monkeypatch.setattr(Database, "write", renewed)
    fetched_at = robots.c.fetched_at
    delete_old(database, robots, fetched_at < NOW - 90 * DAY, fetched_at)
    assert left(database, robots.c.origin) == ["http://a:80"]


def test_what_another_process_is_changing_is_left_to_it(postgresql_url):
    """PostgreSQL locks rows, and two that wait for each other would end a crawl."""
    with (
        contextlib.closing(State(postgresql_url)) as theirs,
        contextlib.closing(Database(postgresql_url)) as ours,
    ):
        for origin in ("http://a:80", "http://b:80"):
            theirs.robots.keep(origin, RobotsCopy(NOW - 91 * DAY, 200, b""))
        with ours.write() as connection:
            connection.run(update(robots).where(robots.c.origin == "http://a:80").values(status=1))
            theirs.robots.prune(NOW)
            assert left(theirs._database, robots.c.origin) == ["http://a:80"]
