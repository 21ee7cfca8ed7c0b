"""A permanent redirect is remembered once it lasts (ruling 21)."""

import pytest

from walsh_scrapy.policy.moves import BELIEVED_AFTER, Move, led_to, move_of

DAY = 86_400.0
OLD, NEW, NEWER = "http://old.example/feed", "http://new.example/feed", "https://newer.example/"


@pytest.mark.parametrize(
    ("statuses", "hops", "target"),
    [
        ((), (OLD,), None),
        ((301,), (OLD, NEW), NEW),
        ((308,), (OLD, NEW), NEW),
        ((302,), (OLD, NEW), None),
        ((307,), (OLD, NEW), None),
        ((301, 301), (OLD, NEW, NEWER), NEWER),
        ((301, 302), (OLD, NEW, NEWER), NEW),
        ((302, 301), (OLD, NEW, NEWER), None),
    ],
)
def test_a_temporary_hop_ends_the_chain(statuses, hops, target):
    assert led_to(hops, statuses) == target


def visits(*days):
    """Visit on these days, each led to NEW, and return what is known after the last."""
    known = None
    for day in days:
        known = move_of(known, OLD, OLD, NEW, day * DAY)
    return known


def test_it_is_believed_once_two_visits_seven_days_apart_saw_it():
    assert visits(1) == Move(NEW, DAY, is_settled=False)
    assert not visits(1, 2, 7.9).is_settled
    assert visits(1, 8).is_settled
    assert BELIEVED_AFTER == 7 * DAY


@pytest.mark.parametrize(
    ("asked", "target", "settled"),
    [
        (OLD, "https://old.example/feed", True),
        (OLD, "https://old.example/other", False),
        (OLD, "https://www.old.example/feed", False),
        ("https://old.example/feed", "http://old.example/feed", False),
    ],
)
def test_a_plain_step_to_https_is_believed_at_once(asked, target, settled):
    assert move_of(None, asked, asked, target, DAY).is_settled is settled


def test_a_visit_that_is_not_led_away_ends_a_move_that_did_not_settle():
    pending, settled = visits(1), visits(1, 8)
    assert move_of(pending, OLD, OLD, None, 9 * DAY) is None
    assert move_of(settled, OLD, NEW, None, 9 * DAY) == settled
    assert move_of(settled, OLD, OLD, None, 9 * DAY) is None, (
        "asked at its own address, it is there"
    )


def test_another_target_begins_anew_and_the_way_back_ends_it():
    settled = visits(1, 8)
    assert move_of(settled, OLD, NEW, NEWER, 9 * DAY) == Move(NEWER, 9 * DAY, is_settled=False)
    assert move_of(settled, OLD, NEW, OLD, 9 * DAY) is None
