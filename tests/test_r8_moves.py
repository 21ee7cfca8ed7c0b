"""A permanent redirect is remembered once it lasts, whatever fails meanwhile (decision 21)."""

import pytest

from walsh_scrapy.policy.moves import (
    BELIEVED_AFTER,
    Move,
    after_failure,
    is_for_good,
    led_along,
    move_of,
    passing,
)

DAY = 86_400.0
OLD, NEW, NEWER = "http://old.example/feed", "http://new.example/feed", "https://newer.example/"
SECURE, WWW = "https://old.example/feed", "https://www.old.example/feed"
LONG = f"http://new.example/{'x' * 2048}"


@pytest.mark.parametrize(
    ("statuses", "hops", "way"),
    [
        ((), (OLD,), ()),
        ((301,), (OLD, NEW), (NEW,)),
        ((308,), (OLD, NEW), (NEW,)),
        ((302,), (OLD, NEW), ()),
        ((307,), (OLD, NEW), ()),
        ((301, 301), (OLD, NEW, NEWER), (NEW, NEWER)),
        ((301, 302), (OLD, NEW, NEWER), (NEW,)),
        ((302, 301), (OLD, NEW, NEWER), ()),
        ((301, 301), (OLD, NEW, LONG), (NEW,)),
    ],
)
def test_a_temporary_hop_ends_the_chain(statuses, hops, way):
    assert led_along(hops, statuses) == way


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [((), True), ((301, 308), True), ((302,), False), ((301, 307), False), ((303, 301), False)],
)
def test_what_permanent_redirects_lead_to_may_be_gone_for_good(statuses, expected):
    assert is_for_good(statuses) is expected


class History:
    """The visits of a source that is declared as OLD, each begun where the one before says."""

    def __init__(self):
        self.move = None

    @property
    def address(self):
        return self.move.to if self.move and self.move.is_settled else OLD

    def came(self, day, *way):
        self.move = move_of(self.move, OLD, self.address, way, day * DAY)
        return self

    def failed(self, day):
        self.move = after_failure(self.move, OLD, self.address, day * DAY)
        return self


def settled():
    return History().came(1, NEW).came(8, NEW)


def test_it_is_believed_once_two_visits_seven_days_apart_saw_it():
    assert History().came(1, NEW).move == Move(NEW, DAY, is_settled=False)
    assert History().came(1, NEW).came(2, NEW).came(7.9, NEW).address == OLD
    assert settled().address == NEW
    assert BELIEVED_AFTER == 7 * DAY


@pytest.mark.parametrize(
    ("asked", "target", "is_settled"),
    [
        (OLD, SECURE, True),
        (OLD, "https://old.example/other", False),
        (OLD, WWW, False),
        (SECURE, OLD, False),
    ],
)
def test_a_plain_step_to_https_is_believed_at_once(asked, target, is_settled):
    assert move_of(None, asked, asked, (target,), DAY).is_settled is is_settled


def test_a_visit_that_is_not_led_away_ends_a_move_that_did_not_settle():
    assert History().came(1, NEW).came(2).move is None
    assert History().came(1, NEW).came(2).came(8, NEW).address == OLD
    assert settled().came(9).address == NEW


def test_another_target_begins_anew_and_the_way_back_ends_it():
    assert History().came(1, NEW).came(5, NEWER).came(9, NEWER).address == OLD
    assert settled().came(9, OLD).move is None


def test_where_it_leads_on_from_its_new_address_is_believed_in_its_turn():
    moved_on = settled().came(20, NEWER)
    assert (moved_on.address, moved_on.move.onward.to) == (NEW, NEWER)
    assert moved_on.came(26, NEWER).address == NEW
    assert moved_on.came(27, NEWER).move == Move(NEWER, 20 * DAY, is_settled=True)
    assert settled().came(20, NEWER).came(23).came(28, NEWER).address == NEW


def test_a_step_to_https_and_a_move_from_there_are_two_things():
    chain = History().came(1, SECURE, WWW)
    assert chain.address == SECURE
    assert chain.came(5, WWW).address == SECURE
    assert chain.came(8, WWW).address == WWW
    later = History().came(1, SECURE).came(30, WWW)
    assert later.address == SECURE
    assert later.came(37, WWW).address == WWW


def test_no_failure_forgets_a_move():
    assert settled().failed(9).address == NEW
    assert settled().failed(9).failed(12).came(14).failed(17).failed(23.9).address == NEW
    assert History().came(1, NEW).failed(4).came(8, NEW).address == NEW


def test_where_visits_fail_for_a_week_the_declared_address_is_asked_by_turns():
    lost = settled().failed(9).failed(16)
    assert lost.address == OLD
    assert lost.failed(20).address == NEW
    assert lost.failed(28).address == OLD


def test_whichever_of_the_two_answers_decides():
    def lost():
        return settled().failed(9).failed(16)

    assert lost().came(20).move is None
    assert lost().came(20, NEW).move == Move(NEW, DAY, is_settled=True)
    assert lost().came(20, NEWER).move == Move(NEWER, 20 * DAY, is_settled=False)
    assert lost().failed(20).came(28).move == Move(NEW, DAY, is_settled=True)


def test_a_document_beside_says_only_that_the_visit_brought_something():
    lost, beside = settled().failed(9).move, "http://new.example/llms.txt"
    assert move_of(lost, OLD, beside, (), 12 * DAY) == settled().move
    assert move_of(lost, OLD, beside, (NEWER,), 12 * DAY) == settled().move
    http = "http://old.example/llms.txt"
    assert move_of(None, OLD, http, ("https://old.example/llms.txt",), DAY) is None


def test_a_page_that_is_passed_by_moves_as_others_do_but_ends_no_failure():
    lost = settled().failed(9)
    assert passing(None, OLD, OLD, (NEW,), DAY) == Move(NEW, DAY, is_settled=False)
    assert passing(Move(NEW, DAY, is_settled=False), OLD, OLD, (), 9 * DAY) is None
    assert passing(lost.move, OLD, NEW, (), 12 * DAY) == lost.move
    assert passing(lost.move, OLD, NEW, (NEWER,), 12 * DAY).failing_since == 9 * DAY
    doubted = lost.failed(16).move
    assert passing(doubted, OLD, OLD, (NEW,), 20 * DAY) == doubted
    assert passing(doubted, OLD, OLD, (), 20 * DAY) is None
