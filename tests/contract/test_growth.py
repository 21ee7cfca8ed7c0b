"""What visits, pages and waiting ask of the state, as numbers of statements and transactions."""

import pytest

from tests.helpers.sites import ADDON, feed, feeds, site, trouble, write_project
from walsh_scrapy.testing.site import Reply

DAY = 86_400.0
COUNTED = trouble("CountedState")
FEW, MANY = 5, 25
AGENT = "Example-Bot/1.0 (+https://bot.example/)"
SPIDERS = """
from tests.helpers.theirs import Urls


class Pages(Urls):
    name = "pages"
"""


def cost_of_one(few, many, kind="state"):
    """What one more visit or page costs: the number of statements, and of transactions."""
    names = [f"{kind}/{name}" for name in ("statements", "transactions")]
    return tuple((many.stats[name] - few.stats[name]) / (MANY - FEW) for name in names)


def assert_costs(cost, *, statements, transactions):
    """Check a rounded cost: a run may have a statement more, such as one about its sources file."""
    assert [round(number) for number in cost] == [statements, transactions], cost


def test_a_visit_costs_a_number_of_statements(simulated, url, tmp_path):
    runs = []
    for number in (FEW, MANY):
        names = [f"h{number}-{place}" for place in range(number)]
        pages = {name: feed(host=f"{name}.example", etag='"1"') for name in names}
        runs.append(
            simulated(
                *(site(f"{name}.example", feed=page) for name, page in pages.items()),
                sources=feeds(*names),
                starts=[0.0, 2 * DAY],
                settings={"WALSH_STATE_URL": url} | COUNTED,
                folder=tmp_path / str(number),
            )
        )
    (first_few, later_few), (first_many, later_many) = runs
    assert later_many.stats["walsh/sources/unchanged"] == MANY
    assert_costs(cost_of_one(first_few, first_many), statements=21, transactions=4)
    assert_costs(cost_of_one(later_few, later_many), statements=18, transactions=4)


@pytest.mark.parametrize(("hosts", "statements", "transactions"), [("one", 4, 2), ("many", 18, 5)])
def test_a_page_costs_a_number_of_statements(
    simulated, url, tmp_path, hosts, statements, transactions
):
    project = write_project(tmp_path / "own", ADDON | {"USER_AGENT": AGENT}, spiders=SPIDERS)
    runs = []
    for number in (FEW, MANY):
        names = [f"h{number}-{place}" for place in range(number if hosts == "many" else 1)]
        page = Reply("<title>x</title>", content_type="text/html")
        paths = {f"page{place}": page for place in range(number if hosts == "one" else 1)}
        urls = [f"http://{name}.example/{path}" for name in names for path in paths]
        (run,) = simulated(
            *(site(f"{name}.example", **paths) for name in names),
            spider="pages",
            project=project,
            arguments={"urls": " ".join(urls)},
            settings={"WALSH_STATE_URL": url} | COUNTED,
            folder=tmp_path / str(number),
        )
        assert len(run.items) == number
        runs.append(run)
    assert_costs(cost_of_one(*runs), statements=statements, transactions=transactions)


def test_a_minute_of_waiting_costs_only_beats(simulated, url, tmp_path):
    costs = []
    for minutes in (1, 3):
        slow = site("h.example", "User-agent: *\nCrawl-delay: 60\n", feed=feed(host="h.example"))
        (run,) = simulated(
            slow,
            sources=feeds("h"),
            settings={"WALSH_STATE_URL": url, "WALSH_MIN_INTERVAL": 60.0 * minutes} | COUNTED,
            arguments={"force": "1"},
            folder=tmp_path / str(minutes),
        )
        costs.append(run.stats)
    few, many = costs
    assert many["state/statements"] <= few["state/statements"]
    beats = [(many[name] - few[name]) / 2 for name in ("beat/statements", "beat/transactions")]
    assert beats == [36, 12]
