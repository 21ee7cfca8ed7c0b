"""Decision 19: which dates and titles are evidence, and which entries of a document are one."""

import pytest

from walsh_scrapy.feeds.metadata.entries import FeedEntry, with_keys
from walsh_scrapy.feeds.metadata.sameentry import (
    Known,
    KnownEntry,
    is_damaged_copy,
    judge,
    with_evident_dates,
)

SOURCE = "https://blog.example/feed"
PAGE = "https://blog.example/page"
DAYS = [f"2026-05-{day:02}T00:00:00Z" for day in range(1, 29)]


def entry(url=None, id_=None, title=None, published=None):
    (keyed,) = with_keys([FeedEntry(url, title, id_)], SOURCE)
    return keyed.keys._replace(date=published)


ANSWERED_AT = 1_779_494_400.0  # 2026-05-23T00:00:00Z


def dates_of(*dates):
    """Return the dates that are evidence, of a document of entries with these dates."""
    entries = [
        entry(f"{PAGE}/{number}", str(number), "T", date) for number, date in enumerate(dates)
    ]
    evident, _ = with_evident_dates(entries, ANSWERED_AT)
    return [keys.date for keys in evident]


@pytest.mark.parametrize(
    "dates",
    [
        pytest.param(["2026-05-01T10:00:00Z", "2026-05-01T10:01:00Z"], id="within a minute"),
        pytest.param(["2026-05-22T23:55:00Z", "2026-05-23T00:03:00Z"], id="at the response"),
        pytest.param(["2026-05-23T00:00:00Z", "2027-01-01T00:00:00Z"], id="in the future"),
        pytest.param(["2026-05-23T00:00:00Z", None], id="one dated, at the response"),
    ],
)
def test_generated_dates_are_ignored(dates):
    assert dates_of(*dates) == [None, None]


@pytest.mark.parametrize(
    "dates",
    [
        pytest.param(["2026-05-01T10:00:00Z", "2026-05-01T10:01:01Z"], id="over a minute apart"),
        pytest.param(["2026-05-22T23:54:59Z", "2026-05-23T00:00:00Z"], id="one before"),
        pytest.param(["2026-05-23T00:00:00Z"], id="of one entry"),
        pytest.param(["2026-05-01T10:00:00Z", None], id="one dated, long ago"),
        pytest.param([None, None], id="none"),
        pytest.param(DAYS[:3], id="at midnight"),
    ],
)
def test_other_dates_are_evidence(dates):
    assert dates_of(*dates) == dates


def test_shared_date_is_ignored_for_its_entries_only():
    assert dates_of(DAYS[0], DAYS[1], DAYS[1], DAYS[2]) == [DAYS[0], None, None, DAYS[2]]


def test_an_entry_that_is_twice_shares_its_date_with_no_other():
    twice = [entry(PAGE, "1", "A", DAYS[0])] * 2
    evident, _ = with_evident_dates(twice, ANSWERED_AT)
    assert [keys.date for keys in evident] == [DAYS[0]] * 2


# --- entries of one document


def outcomes(*entries):
    return [verdict.outcome for verdict in judge(entries, Known()).verdicts]


@pytest.mark.parametrize(
    ("one", "other", "are_two"),
    [
        (entry(PAGE, "1", "A"), entry(PAGE, "2", "A"), True),
        (entry(PAGE, "1"), entry(PAGE, "2"), True),
        (entry(None, "1", "A"), entry(None, "2", "A"), True),
        (entry(PAGE, "1", "A", DAYS[0]), entry(PAGE, "2", "A", DAYS[0]), True),
        (entry(PAGE, "1", "A"), entry(PAGE, "1", "A"), False),
        (entry(PAGE, "1", "A", DAYS[0]), entry(PAGE, "1", "A", DAYS[1]), False),
        (entry(PAGE, "1", "A"), entry(PAGE, "1"), False),
        (entry(PAGE, "1", "A"), entry(PAGE, "1", "B"), True),
        (entry(PAGE, "1", "A"), entry(PAGE + "/b", "1", "A"), True),
        (entry(PAGE, "1", "A"), entry(PAGE, None, "A"), False),
        (entry(PAGE, "1", "A"), entry(PAGE, None, "B"), True),
        (entry(PAGE, None, "A"), entry(PAGE, None, "A"), False),
        (entry(PAGE, None, "A"), entry(PAGE + "/#a", None, "A"), False),
        (entry(PAGE, None, "A"), entry(PAGE, None, "B"), True),
        (entry(PAGE, None, "A", DAYS[0]), entry(PAGE, None, "A", DAYS[1]), True),
        (entry(PAGE, None, "A", DAYS[0]), entry(PAGE, None, "A"), False),
        (entry(PAGE, None, None, DAYS[0]), entry(PAGE, None, None, DAYS[1]), True),
        (entry(None, None, "A"), entry(None, None, "B"), True),
        (entry(None, None, "A", DAYS[0]), entry(None, None, "A", DAYS[1]), True),
    ],
)
def test_entries_of_one_document_that_are_two(one, other, are_two):
    second = "new" if are_two else "repeated"
    assert sorted(outcomes(one, other)) == sorted(outcomes(other, one)) == ["new", second]


def test_an_id_that_different_entries_share_proves_nothing():
    entries = [entry(PAGE, "1", "A"), entry(PAGE, "1", "B"), entry(PAGE, "2", "C")]
    judgement = judge(entries, Known())
    assert judgement.ambiguous == {entries[0].id, entries[0].page}
    assert [verdict.keys.id for verdict in judgement.verdicts] == [None, None, entries[2].id]


def test_an_entry_with_more_fields_is_the_one_that_stays():
    assert outcomes(entry(PAGE), entry(PAGE, None, "A"), entry(PAGE, None, "B")) == [
        "repeated",
        "new",
        "new",
    ]


@pytest.mark.parametrize("titles", [1, 10_000])
@pytest.mark.parametrize("ids", [None, "id"])
def test_ten_thousand_entries_of_one_page_are_judged_in_time(titles, ids, linear):
    """Beside as many that are known."""

    def many(name):
        return [entry(PAGE, ids and f"{name}{n}", f"T{n % titles}") for n in range(10_000)]

    known = [KnownEntry(str(number), SOURCE, keys) for number, keys in enumerate(many("a"))]
    others = [KnownEntry(f"-{number}", PAGE, keys) for number, keys in enumerate(many("b"))]
    for here, elsewhere in ((known, []), ([], others), (known, others)):
        judge(many("c"), Known(here, elsewhere))


@pytest.mark.parametrize(
    ("damaged", "whole", "is_copy"),
    [
        ("Caf\ufffd bar", "Café bar", True),
        ("Caf\ufffd\ufffd", "Café", True),
        ("Caf\ufffd\ufffd", "Cafés", True),
        ("Caf\ufffdé", "Café", True),
        ("\ufffd\ufffdx\ufffd", "\ufffdäx", True),
        ("Caf\ufffd", "Caféss", False),
        ("Caf\ufffd bar", "Café bars", False),
        ("Café", "Caf\ufffd", False),
        ("Café", "Café", False),
        ("\ufffd", "\ufffd", False),
        ("\ufffda" * 200, "a" * 400 + "b", False),
    ],
)
def test_a_title_that_differs_only_in_damage(damaged, whole, is_copy):
    assert is_damaged_copy(damaged, of=whole) is is_copy
