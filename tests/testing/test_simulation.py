"""A simulation is a real crawl, except for its clock and its web."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from scrapy.settings import Settings

from tests.helpers.sites import feed, paths, site
from walsh_scrapy.addon import Addon
from walsh_scrapy.testing import simulated as module
from walsh_scrapy.testing.simulation import DAY, EPOCH, FakeClock, SimulatedTime
from walsh_scrapy.testing.web import Fault, Reply, Site

FEED = "http://blog.example/feed"


def broken(_hit):
    raise ValueError("no page")


def test_runs_begin_at_their_starts_and_return_what_a_crawl_returns(simulated):
    blog = site("blog.example", feed=feed(etag='"1"', delay=5.0))
    first, second = simulated(blog, starts=[60.0, 2 * DAY], sources=[FEED])
    robots, page = first.log
    assert (robots.started, robots.wall) == (60.0, EPOCH + 60.0)
    assert page.ended - page.started >= 5.0
    assert 6.0 < first.seconds < 10.0
    assert page.header("Host") == "blog.example"
    assert [item["title"] for item in first.items] == ["One", "Two"]
    assert first.stats["item_scraped_count"] == 2
    assert "new entries       2" in first.stderr
    assert second.log[0].started == 2 * DAY
    assert [(hit.path, hit.status) for hit in second.log] == [("/robots.txt", 200), ("/feed", 304)]
    assert second.items == []
    assert "new entries       2" not in second.stderr


def test_a_run_waits_for_the_end_of_the_last(simulated):
    blog = site("blog.example", feed=feed(delay=20.0))
    options = {"sources": [FEED], "arguments": {"force": "1"}}
    first, second = simulated(blog, starts=[0.0, 1.0], **options)
    assert second.log[0].started >= first.log[-1].ended


def test_the_web_answers_as_the_one_on_sockets_does(simulated):
    pages = {
        "image": Reply(b"\x89PNG", content_type="image/png"),
        "packed": Reply(feed().body, content_type="application/rss+xml", gzip=True),
        "reset": Reply(fault=Fault.RESET),
        "slow": feed(delay=100.0),
        "missing": Reply(status=404),
    }
    (result,) = simulated(
        *(site(f"{name}.example", feed=page) for name, page in pages.items()),
        Site("secure.example", "", {"/feed?x": feed(host="secure.example")}),
        sources=[f"http://{name}.example/feed" for name in (*pages, "nowhere")]
        + ["https://secure.example/feed?x"],
        settings={"RETRY_TIMES": 0},
    )
    answers = {hit.host: hit for hit in result.log if hit.path.startswith("/feed")}
    assert {host: hit.status for host, hit in answers.items()} == {
        "image.example": 200,
        "packed.example": 200,
        "reset.example": 0,
        "slow.example": 0,
        "missing.example": 404,
        "nowhere.example": 502,
        "secure.example": 200,
    }
    whole = {host for host, hit in answers.items() if hit.complete}
    assert whole == {"packed.example", "missing.example", "nowhere.example", "secure.example"}
    assert answers["slow.example"].ended - answers["slow.example"].started == pytest.approx(30.0)
    assert answers["secure.example"].url == "https://secure.example/feed?x"
    assert {item["source"].split("/")[2] for item in result.items} == {
        "packed.example",
        "secure.example",
    }
    assert "slow.example timed out" in result.stderr


def test_another_spider_and_settings_of_the_operator(simulated):
    page = Reply("# Docs\n\n- [One](/one)\n", content_type="text/markdown")
    (result,) = simulated(
        Site("docs.example", "", {"/": page}),
        spider="llms",
        sources=[{"url": "http://docs.example/", "kind": "llms"}],
        settings={"WALSH_MIN_INTERVAL": 10},
    )
    assert paths(result.log) == ["docs.example/robots.txt", "docs.example/"]
    assert result.log[1].started - result.log[0].ended >= 10.0
    assert [item["url"] for item in result.items] == ["http://docs.example/one"]


@pytest.mark.parametrize("name", [Addon, "walsh_scrapy.Addon", "walsh_scrapy.addon.Addon"])
def test_the_add_on_of_a_project_is_replaced_whatever_its_name(monkeypatch, name):
    own = {name: 500, "nowhere.Addon": None, "builtins.dict": 600}
    monkeypatch.setattr(module, "get_project_settings", lambda: Settings({"ADDONS": own}))
    settings = module.Simulation([], SimulatedTime())._settings(Path("items.jsonl"), {})
    assert dict(settings["ADDONS"]) == {"builtins.dict": 600, module.SimulatedAddon: 500}


def test_an_error_of_the_simulation_is_raised_with_its_log(simulated):
    with pytest.raises(RuntimeError, match="mysterydb"):
        simulated(
            site("blog.example"), sources=[FEED], settings={"WALSH_STATE_URL": "mysterydb://x/y"}
        )


def test_a_spider_that_the_project_does_not_have_is_named(simulated):
    with pytest.raises(RuntimeError, match="no spider 'pages'; name one with spider=: feeds, llms"):
        simulated(site("blog.example"), spider="pages")


def test_a_page_that_raises_fails_its_source_alone(simulated):
    (result,) = simulated(
        site("blog.example"),
        site("broken.example", feed=broken),
        sources=[FEED, "http://broken.example/feed"],
    )
    assert "no page" in result.stderr
    assert len(result.items) == 2


def test_a_run_may_begin_years_later(simulated):
    (result,) = simulated(site("blog.example"), sources=[FEED], starts=[2000.5 * DAY])
    assert [hit.status for hit in result.log] == [200, 200]


def test_the_clock_moves_only_by_advance(fake_clock):
    assert fake_clock.now() == fake_clock.now()
    assert fake_clock.datetime() == datetime(2026, 1, 1, tzinfo=UTC)
    assert fake_clock.advance(1.5) == fake_clock.now()
    fake_clock.advance(timedelta(days=1))
    assert fake_clock.datetime() == datetime(2026, 1, 2, 0, 0, 1, 500_000, tzinfo=UTC)
    with pytest.raises(ValueError, match="does not go back"):
        fake_clock.advance(-1)


def test_the_clock_starts_at_the_given_time():
    start = datetime(2030, 1, 1, tzinfo=UTC)
    assert FakeClock(start).now() == start.timestamp() == FakeClock(start.timestamp()).now()
