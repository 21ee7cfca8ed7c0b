"""Texts of the log by number: one of each, found again, and gone when no row can name it."""

from contextlib import suppress
from dataclasses import replace

import pytest
from sqlalchemy import func, select, text

from tests.helpers.records import RECORD
from walsh_scrapy.policy.audit.record import DAY
from walsh_scrapy.state.evidence import MARGIN, Evidence, log_end
from walsh_scrapy.state.pruning import delete_in_turn
from walsh_scrapy.state.tables import NUMBERED, requests, texts
from walsh_scrapy.state.texts import LOST, selected

NAME = "a" * 64
LONG = "robots: allowed" * 1000
GIVEN = replace(RECORD, gates=LONG, evidence=Evidence(robots=NAME))
ALL = selected(requests, NUMBERED)


def write(state, record):
    with state._database.write() as connection:
        log_end(connection, record)


def count(rows):
    return rows(select(func.count()).select_from(texts))[0][0]


def test_each_text_is_there_once_and_comes_back(opened, rows):
    for state in (opened(), opened()):
        write(state, GIVEN)
        write(state, replace(GIVEN, gates=NAME))
    assert count(rows) == 2
    assert rows(ALL.order_by(requests.c.id)) == [(LONG, NAME, None), (NAME, NAME, None)] * 2


def test_a_number_that_was_never_committed_is_not_known(state, rows):
    with suppress(ZeroDivisionError), state._database.write() as connection:
        log_end(connection, GIVEN)
        raise ZeroDivisionError
    assert count(rows) == 0
    write(state, replace(GIVEN, gates=NAME))
    write(state, GIVEN)
    assert rows(ALL) == [(NAME, NAME, None), (LONG, NAME, None)]


@pytest.mark.parametrize(("again", "left"), [(0.5 * DAY, 3), (89 * DAY, 2)])
def test_a_text_outlasts_each_row_that_names_it(opened, database, rows, again, left):
    state, other = opened(), opened()
    write(state, replace(GIVEN, sent_at=DAY))
    write(other, replace(GIVEN, sent_at=DAY + again))
    write(state, replace(GIVEN, sent_at=DAY + again))

    def prune(now):
        delete_in_turn(database, state.evidence.old_rows(now, 30 * DAY), lambda: True)

    day_ends = 2 * DAY + again // DAY * DAY
    prune(day_ends + 30 * DAY - 1.0)
    assert rows(ALL) == [(LONG, NAME, None)] * left
    prune(day_ends + 30 * DAY)
    assert rows(ALL) == []
    assert count(rows) == 2, "a copy may be named for so long"
    prune(2 * DAY + again + 30 * DAY + MARGIN)
    assert count(rows) == 0
    write(state, replace(GIVEN, sent_at=DAY + 200 * DAY))
    assert rows(ALL) == [(LONG, NAME, None)]


def test_what_is_lost_is_no_other_text(state, database, rows):
    write(state, GIVEN)
    with database.write() as connection:
        connection.run(texts.delete())
    assert rows(ALL) == [(LOST, LOST, None)]


def test_a_source_that_is_the_url_of_its_request_is_not_written_again(state, rows):
    other = f"{RECORD.url}/moved"
    for source in (RECORD.url, other, None):
        write(state, replace(RECORD, source=source))
    in_order = [(RECORD.url,), (other,), (None,)]
    assert rows(select(requests.c.source).order_by(requests.c.id)) == [("",), *in_order[1:]]
    assert rows(selected(requests, ("source",)).order_by(requests.c.id)) == in_order
    assert rows(text("SELECT source FROM readable_requests ORDER BY id")) == in_order
